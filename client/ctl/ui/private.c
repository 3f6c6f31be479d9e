#include "client/ctl/ui/private.h"

#include "client/ctl/ui/memory.h"
#include "client/lib/dsaio.h"
#include "client/lib/link/spawn.h"
#include "proto/recording.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LINE_BYTES 512u	     /* of the daemon's log that an error quotes */
#define STOP_WAIT_MSEC 10000 /* for an orderly stop; then SIGKILL */
#define DIR_BYTES 100u	     /* a socket path has at most 107 */
#define READY "ready:"
#define FILES_MIN 64u /* descriptors of the daemon: some 20 for one file, the rest is a guess */

/* The keeper's state. */
struct keeper {
	int fd; /* to dsaioctl, once: READY, or why not; its end closes: the order to stop */
	FILE *log; /* the daemon's standard error, without a buffer: poll(2) says whether a line is there */
	pid_t daemon;
	bool is_ready;
	char *line; /* the one that is read */
	size_t line_bytes;
	char last[LINE_BYTES]; /* the last one that is not empty */
};

/* The directory that the path is, or that it is in. */
static const char *directory_of(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return path;
	return dirname(text_new("%s", path));
}

/*
 * Makes the daemon's command line, with a --store for each file system among paths.  In the keeper,
 * which ends with it.  Returns NULL on failure, with the message in text (of LINE_BYTES).
 */
static const char **make_arguments(const char *daemon_path, const char *socket_path,
				   const char *const *paths, size_t n_paths, char *text)
{
	/* The configuration of the system's daemon is not for this one. */
	const char *const first[] = { daemon_path, "--socket", socket_path, "--config",
				      "/dev/null" };
	const char **argv = NEW_ARRAY(const char *, 2 * n_paths + 6);
	_cleanup_(freep) dev_t *devices = NEW_ARRAY(dev_t, n_paths);
	size_t n = sizeof(first) / sizeof(first[0]), n_devices = 0;

	memcpy(argv, first, sizeof(first));
	for (size_t i = 0; i < n_paths; i++) {
		const char *dir = directory_of(paths[i]);
		_cleanup_(freep) char *real = realpath(dir, NULL);
		struct stat st;
		size_t known = 0;

		if (!real || stat(real, &st) < 0) {
			(void)snprintf(text, LINE_BYTES, "%s: %s", dir, strerror(errno));
			return NULL;
		}
		while (known < n_devices && devices[known] != st.st_dev)
			known++;
		if (known < n_devices)
			continue;
		devices[n_devices++] = st.st_dev;
		argv[n++] = "--store";
		argv[n++] = text_new("private%zu=%s", n_devices, real);
	}
	return argv;
}

static int make_directory(char *path, size_t size, char *text, size_t text_size)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	const char *const parents[] = { runtime && *runtime == '/' ? runtime : "/tmp", "/tmp" };

	/* $XDG_RUNTIME_DIR may not exist or belong to another user, for example after sudo. */
	for (size_t i = 0; i < 2; i++)
		if ((size_t)snprintf(path, size, "%s/dsaioctl-XXXXXX", parents[i]) < size &&
		    mkdtemp(path))
			return 0;
	(void)snprintf(text, text_size, "%s: cannot make a directory for the socket: %s", path,
		       strerror(errno));
	return -errno;
}

/* In the child: becomes the daemon.  Does not return. */
static void run_daemon(const char **argv, int log_fd, pid_t parent)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* The keeper may have ended before this took effect: then nothing would stop us. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
		_exit(1);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0 ||
	    dup2(log_fd, STDERR_FILENO) < 0)
		_exit(1);
	(void)execv(argv[0], (char *const *)argv);
	(void)dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
	_exit(1);
}

/* Reads a line of the daemon's log.  Returns false at its end. */
static bool read_log(struct keeper *keeper)
{
	if (getline(&keeper->line, &keeper->line_bytes, keeper->log) < 0)
		return false;
	keeper->line[strcspn(keeper->line, "\n")] = '\0';
	if (keeper->line[0])
		(void)snprintf(keeper->last, sizeof(keeper->last), "%s", keeper->line);
	if (keeper->is_ready || !strstr(keeper->line, READY))
		return true;
	keeper->is_ready = true;
	/* If it does not arrive, dsaioctl has ended, and its end is closed. */
	(void)!write(keeper->fd, READY, strlen(READY));
	(void)shutdown(keeper->fd, SHUT_WR);
	return true;
}

/* Stops the daemon, and reads its log to the end, so that a full pipe does not block it. */
static void stop_daemon(struct keeper *keeper)
{
	struct pollfd fd = { .fd = fileno(keeper->log), .events = POLLIN };

	(void)kill(keeper->daemon, SIGTERM); /* it is our child, not yet waited for */
	while (poll(&fd, 1, STOP_WAIT_MSEC) > 0)
		if (!read_log(keeper))
			return;
	(void)kill(keeper->daemon, SIGKILL);
}

static void keeper_run(struct keeper *keeper)
{
	struct pollfd fds[2] = { { .fd = fileno(keeper->log), .events = POLLIN },
				 { .fd = keeper->fd } };
	bool is_alive = true, is_asked = false;

	while (is_alive && !is_asked) {
		if (poll(fds, 2, -1) < 0)
			continue; /* EINTR */
		if (fds[0].revents)
			is_alive = read_log(keeper);
		is_asked = fds[1].revents != 0; /* POLLHUP */
	}
	if (is_asked) {
		stop_daemon(keeper);
	} else {
		if (!keeper->is_ready)
			(void)!write(keeper->fd, keeper->last, strlen(keeper->last));
		else
			(void)dprintf(STDERR_FILENO, "dsaioctl: its private daemon ended: %s\n",
				      keeper->last);
	}
	while (waitpid(keeper->daemon, NULL, 0) < 0 && errno == EINTR)
		;
}

/* In the child: keeps the daemon.  Does not return. */
static void run_keeper(int fd, const char **argv, const char *why, const char *dir,
		       const char *socket_path)
{
	struct keeper keeper = { .fd = fd, .daemon = -1 };
	const pid_t self = getpid();
	char path[PATH_MAX];
	int log_fds[2];

	(void)signal(SIGPIPE, SIG_IGN);
	/* Ctrl-C is for dsaioctl, which we outlive to clean up. */
	if (argv && setsid() >= 0 && pipe2(log_fds, O_CLOEXEC) == 0)
		keeper.daemon = fork();
	if (keeper.daemon == 0)
		run_daemon(argv, log_fds[1], self);
	if (keeper.daemon > 0) {
		keeper.log = need_memory(fdopen(log_fds[0], "r"));
		(void)setvbuf(keeper.log, NULL, _IONBF, 0);
		(void)close(log_fds[1]);
		keeper_run(&keeper);
	} else {
		(void)dprintf(fd, "%s", argv ? strerror(errno) : why);
	}

	(void)snprintf(path, sizeof(path), "%s.lock", socket_path);
	/* The daemon removed these, except the lock, unless it was killed. */
	(void)unlink(socket_path);
	(void)unlink(path);
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++) {
		(void)snprintf(path, sizeof(path), "%s." RECORDING_NOW ".%u", socket_path, i);
		(void)unlink(path);
	}
	(void)rmdir(dir);
	_exit(0);
}

/* Reads the keeper's answer.  Returns 0 if the daemon is ready. */
static int read_answer(int fd, char *text, size_t size)
{
	char answer[LINE_BYTES + 1];
	size_t n_answer = 0;
	ssize_t n;

	while ((n = read(fd, answer + n_answer, LINE_BYTES - n_answer)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			n_answer += (size_t)n;
	}
	answer[n_answer] = '\0';
	if (strcmp(answer, READY) == 0)
		return 0;
	(void)snprintf(text, size, "the private daemon did not start: %s",
		       n_answer ? answer : "it said nothing");
	return -ECHILD;
}

/* The daemon raises its soft limit itself; the hard one it has from us. */
static int raise_files_limit(char *text, size_t size)
{
	struct rlimit limit;

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail */
	if (limit.rlim_max < FILES_MIN) {
		(void)snprintf(text, size,
			       "a private daemon needs %u descriptors, and the limit is %ju "
			       "(RLIMIT_NOFILE): raise it (ulimit -n)",
			       FILES_MIN, (uintmax_t)limit.rlim_max);
		return -EMFILE;
	}
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit); /* up to the hard limit: cannot fail */
	return 0;
}

int private_start(const char *const *paths, size_t n_paths, struct private_daemon *ret_daemon,
		  char *text, size_t size)
{
	_cleanup_(closep) int fd = -1, keeper_fd = -1;
	char daemon_path[PATH_MAX + 16], dir[DIR_BYTES], socket_path[DIR_BYTES + 8];
	char why[LINE_BYTES];
	int pair[2], r;
	pid_t keeper = -1;

	r = raise_files_limit(text, size);
	if (r < 0)
		return r;
	r = spawn_find(daemon_path, sizeof(daemon_path));
	if (r < 0) {
		(void)snprintf(text, size, "%s", dsaio_error());
		return r;
	}
	r = make_directory(dir, sizeof(dir), text, size);
	if (r < 0)
		return r;
	(void)snprintf(socket_path, sizeof(socket_path), "%s/s.sock", dir);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
		fd = pair[0];
		keeper_fd = pair[1];
		keeper = fork();
	}
	if (keeper == 0) {
		(void)close(fd); /* else the keeper would never see it closed */
		run_keeper(keeper_fd, make_arguments(daemon_path, socket_path, paths, n_paths, why),
			   why, dir, socket_path);
	}
	if (keeper < 0) {
		r = -errno;
		(void)rmdir(dir);
		(void)snprintf(text, size, "cannot start a private daemon: %s", strerror(-r));
		return r;
	}
	(void)close(TAKE_FD(keeper_fd));
	r = read_answer(fd, text, size);
	if (r < 0) {
		(void)close(TAKE_FD(fd));
		(void)waitpid(keeper, NULL, 0);
		return r;
	}
	*ret_daemon = (struct private_daemon){ .keeper = keeper, .fd = TAKE_FD(fd) };
	memcpy(ret_daemon->socket_path, socket_path, sizeof(socket_path));
	return 0;
}

void private_stop(struct private_daemon *daemon)
{
	if (daemon->keeper <= 0)
		return;
	(void)close(daemon->fd);
	while (waitpid(daemon->keeper, NULL, 0) < 0 && errno == EINTR)
		;
	*daemon = (struct private_daemon){ .fd = -1 };
}
