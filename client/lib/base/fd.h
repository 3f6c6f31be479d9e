/*
 * Descriptors above 0, 1 and 2.
 *
 * A program whose stdout is closed would get the daemon's socket, or a tensor file, as its fd 1,
 * and its next line of output would land there.  So all descriptors that the library keeps are above.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_FD_H
#define DSAIO_CLIENT_LIB_BASE_FD_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define FD_ABOVE_STDIO 3

/* A duplicate of fd.  Returns it, or -1 with errno (EMFILE: this process may have no more). */
static inline int fd_duplicate(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE_STDIO);

	if (copy < 0 && errno == EINVAL) /* RLIMIT_NOFILE is not even above these */
		errno = EMFILE;
	return copy;
}

/* Takes fd, or -1 with errno.  Returns it, moved if need be, or -1 with errno. */
static inline int fd_above_stdio(int fd)
{
	int moved, error;

	if (fd < 0 || fd >= FD_ABOVE_STDIO)
		return fd;
	moved = fd_duplicate(fd);
	error = errno;
	(void)close(fd); /* nothing was written to it */
	errno = error;
	return moved;
}

#endif
