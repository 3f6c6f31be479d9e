#include "daemon/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t text_fill(struct error *error, const char *format, va_list args)
{
	int n = vsnprintf(error->text, sizeof(error->text), format, args);

	if (n < 0)
		n = 0;
	return (size_t)n < sizeof(error->text) ? (size_t)n : sizeof(error->text) - 1;
}

/* The text names the pid, because the client that reads it has a limit of its own. */
static const char *descriptors_text(char *text, size_t size)
{
	struct rlimit limit = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail */
	(void)snprintf(text, size,
		       "the daemon (pid %d) has as many descriptors open as it may (RLIMIT_NOFILE "
		       "%ju): end some of its clients, or raise the limit where the daemon starts "
		       "(ulimit -n; LimitNOFILE= of a service)",
		       getpid(), (uintmax_t)limit.rlim_cur);
	return text;
}

int error_set(struct error *error, int code, const char *format, ...)
{
	const char *why = strerrordesc_np(-code);
	char descriptors[256];
	va_list args;
	size_t n;

	/* The daemon's own objects have no file-system limit, so EFBIG means the process's limit. */
	if (code == -EFBIG)
		why = "File too large: raise the daemon's RLIMIT_FSIZE (ulimit -f, LimitFSIZE=)";
	if (code == -EMFILE)
		why = descriptors_text(descriptors, sizeof(descriptors));
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
