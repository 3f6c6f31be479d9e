/*
 * dsaio_open() and dsaio_create(): check the options and find the path in a name; file_open.c and file_named.c open it.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/uri.h"
#include "client/lib/io/file_named.h"
#include "client/lib/io/file_open.h"
#include "proto/util/cleanup.h"

#include <fcntl.h>
#include <inttypes.h>

#define MODE_BITS 07777u

static int check_open_options(const char *name, const struct dsaio_open_options *o)
{
	if (o->flags & ~DSAIO_OPEN_URI)
		return error_fail(-E2BIG,
				  "open %s: flags %#x of the options: only DSAIO_OPEN_URI "
				  "is possible in this version (%s)",
				  name, o->flags, dsaio_version());
	if (o->mode & ~MODE_BITS)
		return error_fail(-EINVAL, "open %s: mode 0%o: must be at most 0%o", name, o->mode,
				  MODE_BITS);
	return 0;
}

/* body: all but the name. */
static int open_rados(struct dsaio_client *client, const char *function, const char *name,
		      Wire__FileOpen *body, struct dsaio_file **ret_file)
{
	_cleanup_(freep) char *full = NULL;
	int r = uri_rados(name, &full);

	if (r < 0)
		return r;
	body->name = full;
	return file_named_open(client, function, body, ret_file);
}

int dsaio_open(struct dsaio_client *client, const char *name, int flags,
	       const struct dsaio_open_options *options, struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	struct dsaio_open_options o = DSAIO_OPEN_OPTIONS_INIT;
	Wire__FileOpen body = WIRE__FILE_OPEN__INIT;
	_cleanup_(freep) char *path = NULL;
	int r = client_check_call(client, "open", ret_file ? name : NULL,
				  ret_file ? "name" : "place for the file");

	if (r == 0 && options)
		r = sized_read("open", &SIZED_OPEN_OPTIONS, options, &o);
	if (r == 0)
		r = check_open_options(name, &o);
	if (r == 0 && (o.flags & DSAIO_OPEN_URI) && uri_is_rados(name)) {
		if (flags & ~(O_CLOEXEC | O_DIRECT)) /* O_RDONLY and OPEN_READ are 0 */
			return error_fail(-EINVAL,
					  "open %s: flags 0%o: a committed file of a RADOS store "
					  "never changes: open it with O_RDONLY, or make one with "
					  "dsaio_create()",
					  name, (unsigned)flags);
		return open_rados(client, "open", name, &body, ret_file);
	}
	if (r == 0 && (o.flags & DSAIO_OPEN_URI))
		r = uri_path(name, &path);
	if (r < 0)
		return r;
	return file_open(client, path ? path : name, flags, o.mode ? o.mode : FILE_MODE_DEFAULT,
			 ret_file);
}

int dsaio_create(struct dsaio_client *client, const char *name,
		 const struct dsaio_create_options *options, struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	struct dsaio_create_options o = DSAIO_CREATE_OPTIONS_INIT;
	Wire__FileOpen body = WIRE__FILE_OPEN__INIT;
	int r = client_check_call(client, "create", ret_file ? name : NULL,
				  ret_file ? "name" : "place for the file");

	if (r == 0 && options)
		r = sized_read("create", &SIZED_CREATE_OPTIONS, options, &o);
	if (r < 0)
		return r;
	if (o.flags & ~DSAIO_CREATE_SPARSE)
		return fail_unknown("create", "flags", o.flags & ~DSAIO_CREATE_SPARSE);
	if (o.zero)
		return fail_unknown("create", "field zero of struct dsaio_create_options", o.zero);
	if (o.file_size > INT64_MAX)
		return error_fail(-EINVAL, "create %s: file_size %" PRIu64 " passes 2^63", name,
				  o.file_size);
	body.mode = o.token ? WIRE__OPEN_MODE__OPEN_TOKEN : WIRE__OPEN_MODE__OPEN_CREATE;
	body.id = o.token;
	body.size = o.token ? 0 : o.file_size;
	body.is_sparse = !o.token && (o.flags & DSAIO_CREATE_SPARSE);
	return open_rados(client, "create", name, &body, ret_file);
}
