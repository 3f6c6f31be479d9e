#include "client/lib/link/holder.h"

#include "client/lib/base/fd.h"
#include "proto/util/cleanup.h"
#include "proto/util/process.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whoever makes the file could name any process in it, but a daemon's is its own, or root's. */
static bool is_own_lock(int lock_fd, pid_t pid)
{
	struct stat file, process;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	return fstat(lock_fd, &file) == 0 && stat(path, &process) == 0 &&
	       (file.st_uid == 0 || file.st_uid == process.st_uid);
}

/* The process that wrote its name last, if it lives. */
static pid_t holder_read(int lock_fd)
{
	unsigned long long started;
	struct process process;
	char text[64];
	ssize_t n = pread(lock_fd, text, sizeof(text) - 1, 0);
	int pid;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "%d %llu", &pid, &started) != 2 || !process_look(pid, &process) ||
	    process.started != started || !is_own_lock(lock_fd, pid))
		return 0;
	return pid;
}

/* A process that has ended is seen until its parent waits for it, but its lock is free. */
static bool is_held(int lock_fd)
{
	if (flock(lock_fd, LOCK_SH | LOCK_NB) < 0)
		return errno == EWOULDBLOCK;
	/* A close is not enough: a child that another thread has just forked holds it, too. */
	(void)flock(lock_fd, LOCK_UN); /* cannot fail for a lock of ours */
	return false;
}

pid_t holder_find(const char *socket_path)
{
	char path[SOCKET_PATH_BYTES + sizeof(".lock")];
	_cleanup_(closep) int fd = -1;
	pid_t pid;

	if ((size_t)snprintf(path, sizeof(path), "%s.lock", socket_path) >= sizeof(path))
		return 0;
	fd = fd_above_stdio(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
	if (fd < 0)
		return 0;
	pid = holder_read(fd);
	return pid > 0 && is_held(fd) ? pid : 0;
}
