#include "client/lib/link/discover.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "client/lib/base/fd.h"
#include "client/lib/dsaio.h"
#include "client/lib/link/spawn.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/socket.h"
#include "proto/util/yes_no.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#define LOG_BYTES_MAX (1 << 20) /* more is thrown away before the next start */
#define LINE_BYTES 512u		/* of the log that an error quotes */
/*
 * Interval of the tries while another process holds the start lock (it needs a few milliseconds, or
 * is a daemon that exits), and the time until that is an error.
 */
#define LOCK_TRY_NSEC 2000000
#define LOCK_WAIT_NSEC (UINT64_C(10) * 1000000000)
/* The end of each message that says that nobody listens. */
#define IF_STOPPING                                                                                                  \
	"; one that is stopping listens no more (its log says which calls it waits for), nor does one whose socket " \
	"was removed: end that one first"

uint32_t discover_wait_msec = 30000;

/* ---- one socket ---- */

/* Returns 0 or -errno, without a message. */
static int socket_connect(const char *path, int *ret_fd)
{
	const struct timeval wait = { .tv_sec = discover_wait_msec / 1000 };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	(void)strcpy(address.sun_path, path);
	fd = fd_above_stdio(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	/* Where it fails, a full backlog is waited for longer. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	do
		r = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	while (r == -EINTR);
	if (r == -ECONNREFUSED && stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		r = -ENOTSOCK;
	if (r == -ENOTDIR)
		r = -ENOENT;
	if (r == -EPERM)
		r = -EACCES;
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/* The message for what socket_connect() said of a path. */
static int socket_fail(const char *path, int error)
{
	bool is_system = strcmp(path, SOCKET_SYSTEM) == 0;

	switch (error) {
	case -ENAMETOOLONG:
		return error_fail(
			error, "connect: the socket path %s has %zu bytes: at most %d are possible",
			path, strlen(path), SOCKET_PATH_BYTES - 1);
	case -ENOENT:
	case -ECONNREFUSED:
		if (is_system)
			return error_fail(
				error,
				"connect: nobody listens on %s, the system's socket: start its "
				"daemon with: systemctl start dsaiod; none is started in its "
				"place (DSAIO_SOCKET can name another)" IF_STOPPING,
				path);
		return error_fail(
			error,
			"connect: no daemon listens on %s: start it with: systemctl start dsaiod, "
			"or: dsaiod --user --socket %s" IF_STOPPING,
			path, path);
	case -ENOTSOCK:
		return error_fail(error,
				  "connect: %s is no socket: give the path that the daemon listens "
				  "on (its --socket)",
				  path);
	case -EACCES:
		return error_fail(error,
				  "connect: %s does not let this user in: ask for write permission "
				  "on the socket and its directories",
				  path);
	case -EPROTOTYPE:
		return error_fail(-EPROTO, "connect: what listens on %s is not dsaiod", path);
	case -EAGAIN:
		return error_fail(-ETIMEDOUT,
				  "connect: the daemon on %s has taken no connection for %u s: is "
				  "it stopped?",
				  path, discover_wait_msec / 1000);
	default:
		return error_fail_errno(error, "connect: %s", path);
	}
}

static int discover_at(const char *path, struct found *found)
{
	int r;

	if (!*path)
		return error_fail(-EINVAL,
				  "connect: the socket path is empty: give the daemon's (its "
				  "--socket), or NULL to have it found");
	found->is_named = true;
	r = socket_connect(path, &found->fd);
	if (r < 0)
		return socket_fail(path, r);
	(void)strcpy(found->path, path); /* a longer one cannot be connected to */
	return 0;
}

/* ---- starting one ---- */

/* 1: it may be started; 0: not, and why; -EINVAL. */
static int autostart_look(const char **ret_why)
{
	const char *value = secure_getenv("DSAIO_AUTOSTART");
	bool is_on = true;

	if (getauxval(AT_SECURE) || getuid() != geteuid() || getgid() != getegid()) {
		*ret_why = "a program with another user's rights starts none";
		return 0;
	}
	if (value && *value && yes_no_parse(value, &is_on) < 0)
		return error_fail(-EINVAL,
				  "connect: DSAIO_AUTOSTART=%s: must be 0, no or false (start no "
				  "daemon), or 1, yes or true (start one: the default)",
				  value);
	if (!is_on)
		*ret_why = "DSAIO_AUTOSTART forbids to start one";
	return is_on;
}

/* Opens a file beside the socket; the umask, which is the program's, has no say in its mode. */
static int file_open(const struct socket_dir *dir, const char *name, int flags)
{
	int fd = fd_above_stdio(
		openat(dir->fd, name,
		       flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));

	if (fd >= 0)
		(void)fchmod(fd, 0600); /* fails for another's: its use will, too */
	return fd;
}

/* Opens the log for a new daemon. */
static int log_open(const struct socket_dir *dir, struct found *found)
{
	struct stat st;

	/* Its name is no longer than the socket's. */
	(void)strcpy(found->log_path, dir->path);
	(void)strcpy(found->log_path + strlen(dir->path) - strlen(SOCKET_NAME), SOCKET_LOG);
	found->log_fd = file_open(dir, SOCKET_LOG, O_RDWR | O_APPEND);
	if (found->log_fd < 0 || fstat(found->log_fd, &st) < 0)
		return error_fail_errno(-errno, "connect: %s, for the daemon's messages",
					found->log_path);
	if (!S_ISREG(st.st_mode))
		return error_fail(-EEXIST, "connect: %s is no file: remove it", found->log_path);
	if (st.st_size > LOG_BYTES_MAX && ftruncate(found->log_fd, 0) == 0)
		st.st_size = 0;
	found->log_from = st.st_size;
	return 0;
}

/*
 * Makes the listening socket.  A path cannot be given relative to a descriptor, so the file is
 * looked for in the directory that was checked.
 */
static int listen_open(const struct socket_dir *dir, int *ret_fd)
{
	_cleanup_(closep) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)strcpy(address.sun_path, dir->path); /* it fits */
	fd = fd_above_stdio(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return error_fail_errno(-errno, "connect: socket");
	if (unlinkat(dir->fd, SOCKET_NAME, 0) < 0 && errno != ENOENT)
		return error_fail_errno(-errno, "connect: %s: removing the stale socket",
					dir->path);
	/* The umask is the program's: the mode is set where it lies, in a directory that is ours. */
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    fchmodat(dir->fd, SOCKET_NAME, 0600, 0) < 0 || listen(fd, SOCKET_BACKLOG) < 0)
		return error_fail_errno(-errno, "connect: %s: making the socket of a new daemon",
					dir->path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* We hold the start lock, and nobody listens. */
static int daemon_start(const struct socket_dir *dir, struct found *found)
{
	_cleanup_(closep) int listen_fd = -1;
	char program[PATH_MAX];
	int r;

	r = spawn_find(program, sizeof(program));
	if (r < 0)
		return error_fail(r,
				  "connect: no daemon runs, and one cannot be started: %s; or have "
				  "the system's started: systemctl start dsaiod",
				  dsaio_error());
	r = log_open(dir, found);
	if (r < 0)
		return r;
	r = listen_open(dir, &listen_fd);
	if (r < 0)
		return r;
	r = socket_connect(dir->path, &found->fd);
	if (r < 0)
		r = socket_fail(dir->path, r);
	else if ((r = spawn_daemon(program, dir->path, listen_fd, found->log_fd)) < 0)
		r = error_fail(r, "connect: no daemon runs: %s", dsaio_error());
	if (r < 0) {
		(void)unlinkat(dir->fd, SOCKET_NAME, 0); /* else it is stale: replaced */
		return r;
	}
	found->is_started = true;
	return 0;
}

/* ---- the user's own ---- */

/* To close it is not enough: a child that another thread has just forked holds it, too. */
static void lock_dropp(int *lock_fd)
{
	if (*lock_fd >= 0)
		(void)flock(*lock_fd, LOCK_UN); /* cannot fail for a lock of ours */
	closep(lock_fd);
}

static int own_connect(const struct socket_dir *dir, struct found *found)
{
	int r = socket_connect(dir->path, &found->fd);

	if (r == -ENOENT || r == -ECONNREFUSED)
		debug_log("connect: %s: %s", dir->path,
			  r == -ENOENT ? "not there" : "nobody listens");
	else if (r < 0)
		r = socket_fail(dir->path, r);
	return r;
}

/* Connects, starting a daemon if nobody listens. */
static int own_find(const struct socket_dir *dir, struct found *found)
{
	const struct timespec pause = { .tv_nsec = LOCK_TRY_NSEC };
	uint64_t deadline = clock_nsec() + LOCK_WAIT_NSEC;
	_cleanup_(lock_dropp) int lock_fd = -1;
	bool is_ours = false;
	int r;

	for (;;) {
		r = own_connect(dir, found);
		if (r != -ENOENT && r != -ECONNREFUSED)
			return r;
		if (is_ours) /* and its previous holder has started none */
			return daemon_start(dir, found);
		if (lock_fd < 0) {
			lock_fd = file_open(dir, SOCKET_LOCK, O_RDWR);
			debug_log("connect: takes %s.lock, or waits for it", dir->path);
		}
		is_ours = lock_fd >= 0 && flock(lock_fd, LOCK_EX | LOCK_NB) == 0;
		if (is_ours)
			continue;
		if (lock_fd < 0 || (errno != EWOULDBLOCK && errno != EINTR))
			return error_fail_errno(-errno, "connect: start lock %s.lock", dir->path);
		if (clock_nsec() > deadline)
			return error_fail(
				-ETIMEDOUT,
				"connect: nobody listens on %s, but its start lock %s.lock, which "
				"has a pid, is held: the daemon that was there does not end: is it "
				"stopped, does a call of it hang, or was its socket removed (then kill it)?",
				dir->path, dir->path);
		(void)nanosleep(&pause, NULL); /* a signal only shortens it */
	}
}

static int discover_own(struct found *found)
{
	struct socket_dir dir = { .fd = -1 };
	_cleanup_(closep) int dir_fd = -1;
	const char *why = NULL;
	char text[512];
	int r, may_start = autostart_look(&why);

	if (may_start < 0)
		return may_start;
	r = socket_dir_open(may_start, &dir, text, sizeof(text));
	dir_fd = dir.fd = fd_above_stdio(dir.fd);
	if (r == 0 && dir_fd < 0)
		return error_fail_errno(-errno, "connect: %s", dir.path);
	if (r == -EMFILE)
		return error_fail_errno(r, "connect: the directory of the user's own daemon");
	if (r < 0 && (r != -ENOENT || may_start))
		return error_fail(r, "connect: there is no %s, and of the user's own daemon: %s",
				  SOCKET_SYSTEM, text);
	if (r == 0) {
		(void)strcpy(found->path, dir.path);
		found->is_own = true;
		r = may_start ? own_find(&dir, found) : own_connect(&dir, found);
	}
	if (may_start || (r != -ENOENT && r != -ECONNREFUSED))
		return r;
	return error_fail(
		r,
		"connect: no daemon listens: there is no %s, and nobody is on %s; and "
		"%s: start one with: systemctl start dsaiod, or: dsaiod --user" IF_STOPPING,
		SOCKET_SYSTEM, dir.path, why);
}

int discover(const char *path, struct found *found)
{
	const char *named;
	int r;

	if (path)
		return discover_at(path, found);
	named = secure_getenv("DSAIO_SOCKET");
	if (named && *named) {
		debug_log("connect: DSAIO_SOCKET names %s", named);
		return discover_at(named, found);
	}
	r = socket_connect(SOCKET_SYSTEM, &found->fd);
	if (r == -ENOENT) {
		debug_log("connect: %s: not there", SOCKET_SYSTEM);
		return discover_own(found);
	}
	if (r < 0)
		return socket_fail(SOCKET_SYSTEM, r);
	(void)strcpy(found->path, SOCKET_SYSTEM);
	return 0;
}

int discover_again(const char *path, bool is_own, struct found *found)
{
	int r = is_own ? discover_own(found) : discover_at(path, found);

	if (r == 0 && strcmp(path, found->path) != 0)
		return error_fail(-ENOENT,
				  "connect: the user's own daemon was on %s, and is on %s now",
				  path, found->path);
	return r;
}

void found_deinit(struct found *found)
{
	closep(&found->fd);
	closep(&found->log_fd);
}

int discover_explain(const struct found *found)
{
	char text[4 * LINE_BYTES] = "", *line;
	struct stat st;
	ssize_t n = -1;
	off_t from;

	if (fstat(found->log_fd, &st) == 0) {
		from = st.st_size - (off_t)sizeof(text) + 1;
		if (from < found->log_from)
			from = found->log_from;
		n = pread(found->log_fd, text, sizeof(text) - 1, from);
	}
	if (n > 0 && text[n - 1] != '\n')
		text[0] = '\0'; /* cut off for want of room: it is no reason */
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (!*line)
		return error_fail(-ECHILD,
				  "connect: the daemon that was started for %s ended at once, and "
				  "its log %s has no word of it: is there room for a line (else "
				  "free some, or set XDG_RUNTIME_DIR to a directory elsewhere)?",
				  found->path, found->log_path);
	return error_fail(-ECHILD,
			  "connect: the daemon that was started for %s ended at once: %.*s (all of "
			  "its log: %s)",
			  found->path, (int)LINE_BYTES, line, found->log_path);
}
