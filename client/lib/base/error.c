#include "client/lib/base/error.h"

#include "client/lib/base/debug.h"
#include "client/lib/dsaio.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

const char *error_reconnect = "connect again (dsaio_connect(); in Python a new Handle)";

static _Thread_local char error_text[ERROR_TEXT_BYTES];

const char *dsaio_error(void)
{
	return error_text;
}

/*
 * Formats into a copy first, because an argument may be the old message.  Cuts a text that is too long.
 */
static void error_set(const char *format, va_list args, const char *reason)
{
	char text[ERROR_TEXT_BYTES];
	int n = vsnprintf(text, sizeof(text), format, args);

	if (reason && n >= 0 && (size_t)n < sizeof(text))
		(void)snprintf(text + n, sizeof(text) - (size_t)n, ": %s", reason);
	memcpy(error_text, text, sizeof(text));
	debug_log("error: %s", error_text);
}

int error_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_set(format, args, NULL);
	va_end(args);
	return error;
}

int error_fail_errno(int error, const char *format, ...)
{
	struct rlimit limit = { 0 };
	char text[192];
	const char *reason = text;
	va_list args;

	if (error == -EMFILE) { /* not the daemon's: those come with its own message */
		(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail */
		(void)snprintf(text, sizeof(text),
			       "this process has as many descriptors open as it may (RLIMIT_NOFILE "
			       "%ju): raise it (ulimit -n), or close some",
			       (uintmax_t)limit.rlim_cur);
	} else {
		reason = strerror_r(-error, text, sizeof(text));
	}
	va_start(args, format);
	error_set(format, args, reason);
	va_end(args);
	return error;
}

/* The advice for an errno that an op ended with. */
static const struct {
	int error;
	const char *advice;
	bool is_of_host; /* it is no advice for what cuFile reports */
} advices[] = {
	{ ENOSPC, "free some space on that file system or cluster, then write again", false },
	{ EDQUOT, "free some of the quota there, of the user or the pool, then write again",
	  false },
	{ EFBIG,
	  "the file may not grow that large: see ulimit -f, the file system's limit, or the size by which it was created",
	  false },
	{ ESTALE,
	  "it was replaced or removed longer ago than its store's trash_after, or nobody has written that range",
	  false },
	{ EHOSTDOWN, "its store's cluster does not answer: dsaioctl status says more", false },
	{ EIO, "the device or file system reports an error: see the kernel's log (dmesg)", true },
	{ EROFS, "the file system is mounted read-only", false },
	{ EFAULT, "the buffer is not memory that this process may use so", true },
	{ ENOMEDIUM,
	  "its store is drained: an administrator has it refuse new ops, until dsaioctl undrain",
	  false },
	{ ECANCELED, "it was cancelled; what the range holds is undefined", false },
	{ ETIMEDOUT,
	  "the handle's op_timeout_usec, or its store's op_timeout, is over; what the range holds is undefined",
	  false },
};

void error_op_text(const struct error_op *op, char *text, size_t size)
{
	bool is_sync = !op->len;
	char reason[128], size_now[64] = "", log[320] = "";
	const char *advice = op->because;
	const char *to_or_from = strcmp(op->verb, "pread") == 0 ? "from" : "to";

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]) && !advice; i++)
		if (advices[i].error == op->error && !(advices[i].is_of_host && op->log_place))
			advice = advices[i].advice;
	if (!advice && op->log_place) {
		(void)snprintf(log, sizeof(log), "see the daemon's log (%s)", op->log_place);
		advice = log;
	}
	if (op->file_size >= 0)
		(void)snprintf(size_now, sizeof(size_now),
			       "; the file's size is now %" PRId64 " bytes", op->file_size);
	if (is_sync)
		(void)snprintf(text, size, "%s of %s failed: %s%s%s", op->verb, op->file,
			       strerror_r(op->error, reason, sizeof(reason)), advice ? ": " : "",
			       advice ? advice : "");
	else
		(void)snprintf(text, size,
			       "%s of %" PRIu64 " bytes at %" PRIu64 " %s %s failed after %" PRIu64
			       " bytes: %s%s%s%s",
			       op->verb, op->len, op->off, to_or_from, op->file, op->done,
			       strerror_r(op->error, reason, sizeof(reason)), size_now,
			       advice ? ": " : "", advice ? advice : "");
}
