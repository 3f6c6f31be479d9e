#include "daemon/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static size_t text_fill(struct error *error, const char *format, va_list args)
{
	int n = vsnprintf(error->text, sizeof(error->text), format, args);

	if (n < 0)
		n = 0;
	return (size_t)n < sizeof(error->text) ? (size_t)n : sizeof(error->text) - 1;
}

int error_set(struct error *error, int code, const char *format, ...)
{
	/* What the daemon makes has no file system's limit, and the process's is often forgotten. */
	const char *why = code == -EFBIG ? "File too large: raise the daemon's RLIMIT_FSIZE "
					   "(ulimit -f, LimitFSIZE=)"
					 : strerrordesc_np(-code);
	va_list args;
	size_t n;

	va_start(args, format);
	n = text_fill(error, format, args);
	va_end(args);
	if (why)
		(void)snprintf(error->text + n, sizeof(error->text) - n, ": %s", why); /* may cut */
	else
		(void)snprintf(error->text + n, sizeof(error->text) - n, ": errno %d", -code);
	return error->code = code;
}

int error_set_plain(struct error *error, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)text_fill(error, format, args);
	va_end(args);
	return error->code = code;
}
