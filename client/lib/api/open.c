/*
 * dsaio_open(): checks the options and finds the path in a name; file.c opens it.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/uri.h"
#include "client/lib/io/file_open.h"
#include "proto/util/cleanup.h"

#include <stdlib.h>

#define MODE_BITS 07777u
#define KNOWN_FLAGS                                                                      \
	(DSAIO_OPEN_READ | DSAIO_OPEN_WRITE | DSAIO_OPEN_CREATE | DSAIO_OPEN_EXCLUSIVE | \
	 DSAIO_OPEN_TRUNCATE)

static int check_open_options(const char *name, const struct dsaio_open_options *o)
{
	bool is_zero = true;

	for (size_t i = 0; i < sizeof(o->zero) / sizeof(o->zero[0]); i++)
		is_zero &= !o->zero[i];
	if ((o->flags & ~KNOWN_FLAGS) || !is_zero)
		return error_fail(
			-E2BIG,
			"open %s: flags %#x, or a field of struct dsaio_open_options, are "
			"not known to this library (version %s): leave them zero, or "
			"install a newer library",
			name, o->flags & ~KNOWN_FLAGS, dsaio_version());
	if (!(o->flags & (DSAIO_OPEN_READ | DSAIO_OPEN_WRITE)))
		return error_fail(-EINVAL,
				  "open %s: flags %#x: DSAIO_OPEN_READ or DSAIO_OPEN_WRITE must be "
				  "set",
				  name, o->flags);
	if ((o->flags & DSAIO_OPEN_EXCLUSIVE) && !(o->flags & DSAIO_OPEN_CREATE))
		return error_fail(-EINVAL, "open %s: DSAIO_OPEN_EXCLUSIVE needs DSAIO_OPEN_CREATE",
				  name);
	if ((o->flags & DSAIO_OPEN_TRUNCATE) && !(o->flags & DSAIO_OPEN_WRITE))
		return error_fail(-EINVAL, "open %s: DSAIO_OPEN_TRUNCATE needs DSAIO_OPEN_WRITE",
				  name);
	if (o->mode & ~MODE_BITS)
		return error_fail(-EINVAL, "open %s: mode 0%o: must be at most 0%o", name, o->mode,
				  MODE_BITS);
	return 0;
}

/* As open(2) has them. */
static int open_flags(uint32_t flags)
{
	int result = O_RDONLY;

	if (flags & DSAIO_OPEN_WRITE)
		result = flags & DSAIO_OPEN_READ ? O_RDWR : O_WRONLY;
	if (flags & DSAIO_OPEN_CREATE)
		result |= O_CREAT;
	if (flags & DSAIO_OPEN_EXCLUSIVE)
		result |= O_EXCL;
	if (flags & DSAIO_OPEN_TRUNCATE)
		result |= O_TRUNC;
	return result;
}

int dsaio_open(struct dsaio_client *client, const char *name,
	       const struct dsaio_open_options *options, struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	struct dsaio_open_options o = DSAIO_OPEN_OPTIONS_INIT;
	_cleanup_(freep) char *path = NULL;
	int r = client_check(client, "open");

	if (r < 0)
		return r;
	if (!name || !ret_file)
		return client_null("open", name ? "place for the file" : "name");
	if (options)
		r = sized_read("open", &SIZED_OPEN_OPTIONS, options, &o);
	if (r == 0)
		r = check_open_options(name, &o);
	if (r == 0)
		r = uri_path(name, &path);
	if (r < 0)
		return r;
	return file_open(client, path, open_flags(o.flags), o.mode ? o.mode : FILE_MODE_DEFAULT,
			 ret_file);
}
