#include "daemon/control/start_lock.h"

#include "daemon/base/log.h"
#include "daemon/base/systemd.h"
#include "proto/util/cleanup.h"
#include "proto/util/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* How often the daemon tries a lock that is not free, and after how many tries that is an error if
   the file does not name a living holder: the holder may be about to write its name. */
#define LOCK_TRY_NSEC 10000000
#define LOCK_UNKNOWN_TRIES 100u
/* The period of requests to systemd for more start time, and the time of each. */
#define LOCK_NOTIFY_TRIES 500u
#define LOCK_EXTEND "EXTEND_TIMEOUT_USEC=30000000\n"
#define SERVING " serving" /* behind pid and start time, until an orderly stop */
#define PF_EXITING 0x4ul   /* include/linux/sched.h; field 9 of /proc/PID/stat */

struct holder {
	pid_t pid;
	unsigned long long started; /* clock ticks since boot */
};

enum holder_state { HOLDER_UNKNOWN, HOLDER_LIVES, HOLDER_DIES };

static enum holder_state holder_look(int lock_fd, struct holder *ret_holder)
{
	struct process process;
	char text[64];
	ssize_t n = pread(lock_fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return HOLDER_UNKNOWN;
	text[n] = 0;
	if (sscanf(text, "%d %llu", &ret_holder->pid, &ret_holder->started) != 2)
		return HOLDER_UNKNOWN;
	if (!process_look(ret_holder->pid, &process) || process.started != ret_holder->started)
		return HOLDER_UNKNOWN; /* the previous holder: this one has not yet written */
	/* A busy host may take long to run the thread that was killed. */
	return process.state == 'Z' || (process.flags & PF_EXITING) ||
			       (process.pending >> (SIGKILL - 1) & 1)
		       ? HOLDER_DIES
		       : HOLDER_LIVES;
}

static int holder_write(int lock_fd)
{
	struct process process;
	char text[64];
	int n;

	/* Without /proc no other daemon could check whether this one lives. */
	if (!process_look(getpid(), &process))
		return errno == EMFILE || errno == ENFILE ? -errno : -ESRCH;
	n = snprintf(text, sizeof(text), "%d %llu" SERVING "\n", getpid(), process.started);
	if (ftruncate(lock_fd, 0) < 0 || pwrite(lock_fd, text, (size_t)n, 0) != n)
		return -errno;
	return 0;
}

static int lock_wait(const char *path, bool may_find_starting, int lock_fd, struct error *error)
{
	const struct timespec pause = { .tv_nsec = LOCK_TRY_NSEC };
	unsigned n_unknown = 0;

	for (unsigned n = 0;; n++) {
		struct holder holder;

		if (flock(lock_fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_set(error, -errno, "%s.lock", path);
		switch (holder_look(lock_fd, &holder)) {
		case HOLDER_LIVES:
			if (may_find_starting && ++n_unknown < LOCK_UNKNOWN_TRIES)
				break;
			return error_set_plain(error, -EADDRINUSE,
					       "a dsaiod with pid %d serves %s: stop it first, or "
					       "use another --socket",
					       holder.pid, path);
		case HOLDER_UNKNOWN:
			if (++n_unknown == LOCK_UNKNOWN_TRIES)
				return error_set_plain(error, -EADDRINUSE,
						       "another process holds %s.lock (fuser "
						       "%s.lock shows it), or reads the memory of "
						       "a dsaiod that has ended: stop it first, or "
						       "use another --socket",
						       path, path);
			break;
		case HOLDER_DIES:
			if (n % LOCK_NOTIFY_TRIES)
				break;
			log_notice("dsaiod: waiting until the last block of the dying dsaiod with "
				   "pid %d has completed",
				   holder.pid);
			/* fails if systemd did not start the daemon */
			(void)sd_notifyf(false,
					 LOCK_EXTEND
					 "STATUS=waiting for the dying dsaiod with pid %d: its "
					 "device has blocks in flight",
					 holder.pid);
			break;
		}
		(void)nanosleep(&pause, NULL); /* a signal only shortens it */
	}
}

/* Where the word stands in the file; -1: nowhere. */
static off_t serving_find(int lock_fd, pid_t *ret_pid)
{
	char text[64] = "";
	const char *serving;

	if (pread(lock_fd, text, sizeof(text) - 1, 0) <= 0)
		return -1;
	serving = strstr(text, SERVING);
	return serving && sscanf(text, "%d", ret_pid) == 1 ? serving - text : -1;
}

/* The lock is ours, and the file still has what its last holder wrote. */
static void log_predecessor(const char *path, int lock_fd)
{
	pid_t pid;

	if (serving_find(lock_fd, &pid) >= 0)
		log_event(NULL, LOG_FIELDS(.event = "crash", .is_warning = true),
			  "dsaiod: the last dsaiod on %s, with pid %d, did not stop in order: it "
			  "crashed or was killed: its clients reconnect, if they can",
			  path, pid);
}

static const void *mapping; /* of the lock's file: it keeps the lock until the kernel unmaps it */

int start_lock_take(const char *path, bool may_find_starting, int *ret_fd, struct error *error)
{
	_cleanup_(closep) int fd = -1;
	char lock_path[PATH_MAX];
	int r;

	(void)snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && errno == ENOENT)
		return error_set_plain(
			error, -ENOENT,
			"the directory of %s does not exist: make it (under systemd: "
			"RuntimeDirectory=dsaiod), or use another --socket",
			path);
	if (fd < 0)
		return error_set(error, -errno, "start lock %s", lock_path);
	r = lock_wait(path, may_find_starting, fd, error);
	if (r < 0)
		return r;
	mapping = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE, fd, 0);
	if (mapping == MAP_FAILED)
		return error_set(error, -errno, "start lock %s: mapping it", lock_path);
	log_predecessor(path, fd);
	r = holder_write(fd);
	if (r < 0)
		return error_set(error, r, "start lock %s: writing pid and start time", lock_path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void start_lock_release(int *fd)
{
	pid_t pid;
	off_t at = *fd >= 0 ? serving_find(*fd, &pid) : -1;

	if (at >= 0)
		(void)!ftruncate(*fd, at); /* on failure the next daemon logs a crash */
	if (*fd >= 0)
		(void)flock(*fd, LOCK_UN); /* it is mapped; fails only if not locked */
	closep(fd);
}
