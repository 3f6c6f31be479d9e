/*
 * dsaio_open(): checks the options and finds the path in a name; file.c opens it.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/uri.h"
#include "client/lib/io/file_open.h"
#include "proto/util/cleanup.h"

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

int dsaio_open(struct dsaio_client *client, const char *name, int flags,
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
	if (r == 0 && (o.flags & DSAIO_OPEN_URI))
		r = uri_path(name, &path);
	if (r < 0)
		return r;
	return file_open(client, path ? path : name, flags, o.mode ? o.mode : FILE_MODE_DEFAULT,
			 ret_file);
}
