#include "client/lib/base/debug.h"

#include "client/lib/base/cancel.h"
#include "client/lib/base/fd.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048u /* a message of error.h and its head; what is longer is cut */

_Atomic int debug_state = DEBUG_UNKNOWN;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char path[PATH_MAX]; /* "": off; written once, under pthread_once() */

static void path_read(void)
{
	const char *file = secure_getenv("DSAIO_DEBUG");

	if (file && strlen(file) < sizeof(path))
		memcpy(path, file, strlen(file) + 1);
	/* relaxed: see debug_is_on() */
	atomic_store_explicit(&debug_state, *path ? DEBUG_ON : DEBUG_OFF, memory_order_relaxed);
}

/* Would be a signal. */
static bool passes_limit(int fd, size_t len)
{
	struct rlimit limit;
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       (uint64_t)st.st_size + len > limit.rlim_cur;
}

/* Not blocking: it may be a pipe that nobody reads. */
static int file_open(void)
{
	return fd_above_stdio(
		open(path,
		     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK,
		     0600));
}

int debug_check(const char **ret_path)
{
	int fd;

	(void)pthread_once(&once, path_read); /* fails for wrong arguments only */
	*ret_path = secure_getenv("DSAIO_DEBUG");
	if (!*ret_path || !**ret_path || strcmp(*ret_path, "/dev/stderr") == 0)
		return 0;
	if (!*path)
		return -ENAMETOOLONG;
	fd = file_open();
	if (fd < 0)
		return -errno;
	(void)close(fd);
	return 0;
}

static void line_write(const char *line, size_t len)
{
	const bool is_stderr = strcmp(path, "/dev/stderr") == 0; /* a symbolic link */
	const int fd = is_stderr ? STDERR_FILENO : file_open();

	if (fd >= 0 && !passes_limit(fd, len))
		(void)!write(fd, line, len); /* a line that is lost is lost */
	if (fd >= 0 && !is_stderr)
		(void)close(fd);
}

void debug_write(const char *format, ...)
{
	CANCEL_DISABLE();
	char line[LINE_BYTES];
	int error = errno, n;
	struct timespec now;
	struct tm tm;
	va_list args;
	size_t len;

	(void)pthread_once(&once, path_read); /* fails for wrong arguments only */
	if (!*path)
		return;
	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail */
	(void)gmtime_r(&now.tv_sec, &tm);	   /* the year fits */
	len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line + len, sizeof(line) - len, ".%06ldZ %d.%d ", now.tv_nsec / 1000, getpid(),
		     gettid());
	len += (size_t)n; /* it fits by far */
	va_start(args, format);
	n = vsnprintf(line + len, sizeof(line) - len - 1, format, args);
	va_end(args);
	if (n > 0)
		len += (size_t)n < sizeof(line) - len - 2 ? (size_t)n : sizeof(line) - len - 2;
	line[len++] = '\n';
	line_write(line, len);
	errno = error;
}
