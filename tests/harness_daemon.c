/*
 * Daemons of tests.
 */
#include "tests/harness_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MANY_DESCRIPTORS 20000u /* of a daemon for many, and of its test */

static struct daemon daemons[DAEMONS_MAX];
static bool daemon_just_killed[DAEMONS_MAX];
static int n_daemons;

static const char *daemon_program(void)
{
	const char *build = getenv("BUILD");

	return test_text("%s/dsaiod", build && *build ? build : "build");
}

static void daemon_exec(const struct daemon *daemon, const struct daemon_options *options)
{
	const char *prefix = getenv("TEST_DAEMON_PREFIX");
	_cleanup_(freep) char *words = strdup(prefix ? prefix : "");
	const char *argv[128];
	char *rest = words, *word;
	bool has_config = false;
	int n = 0;

	while (words && (word = strsep(&rest, " ")) && n < 32)
		if (*word)
			argv[n++] = word;
	argv[n++] = daemon_program();
	argv[n++] = "--socket";
	argv[n++] = options->socket_path ? options->socket_path : daemon->socket_path;
	if (*daemon->store_dir) {
		argv[n++] = "--store";
		argv[n++] = test_text("t=%s", daemon->store_dir);
	}
	for (int i = 0; options->args && options->args[i] && n < 120; i++) {
		has_config |= !strcmp(options->args[i], "--config");
		argv[n++] = options->args[i];
	}
	(void)setenv("STATE_DIRECTORY", test_text("%s/state", test_dir()), 1); /* nor the host's */
	if (!has_config) {						       /* not the host's */
		argv[n++] = "--config";
		argv[n++] = "/dev/null";
	}
	argv[n] = NULL;
	if (options->before_exec)
		options->before_exec();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* after a change of user, which clears it */
	(void)execvp(argv[0], (char **)(uintptr_t)argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static void daemon_fork(struct daemon *daemon, const struct daemon_options *options)
{
	int log = (int)CHECK_SYS(
		open(daemon->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));

	(void)fflush(NULL); /* or the child prints it again */
	daemon->pid = (pid_t)CHECK_SYS(fork());
	if (daemon->pid == 0) {
		(void)dup2(log, STDERR_FILENO); /* what it would say shows as a missing ready: */
		(void)dup2(log, STDOUT_FILENO);
		(void)signal(SIGPIPE, SIG_DFL);
		daemon_exec(daemon, options);
	}
	close(log);
	daemon->pid_fd = (int)CHECK_SYS(syscall(SYS_pidfd_open, daemon->pid, 0));
}

static struct daemon *daemon_slot(const struct daemon_options *options)
{
	struct daemon *daemon = &daemons[n_daemons];
	int n;

	CHECK(n_daemons < DAEMONS_MAX);
	*daemon = (struct daemon){ .pid_fd = -1 };
	daemon_just_killed[n_daemons] = options->not_stopped;
	n = snprintf(daemon->log_path, sizeof(daemon->log_path), "%s/daemon-%d.log", test_dir(),
		     n_daemons);
	CHECK(n < (int)sizeof(daemon->log_path));
	n = snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s",
		     options->socket_path ? options->socket_path
					  : test_text("%s/s.sock", test_dir()));
	CHECK(options->socket_path || n < (int)sizeof(daemon->socket_path));
	n = snprintf(daemon->store_dir, sizeof(daemon->store_dir), "%s",
		     options->store_dir ? options->store_dir : test_text("%s/store", test_dir()));
	CHECK(n < (int)sizeof(daemon->store_dir));
	if (!options->store_dir && mkdir(daemon->store_dir, 0777) < 0 && errno != EEXIST)
		test_fail("%s: %s", daemon->store_dir, strerror(errno));
	n_daemons++;
	return daemon;
}

static char *file_text(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	char *text = calloc(1, 65536);

	if (file && text)
		text[fread(text, 1, 65535, file)] = 0;
	return text_keep(text);
}

void daemon_open_to_all(const struct daemon *daemon)
{
	CHECK_SYS(chmod(daemon->store_dir, 0755));
	CHECK_SYS(chmod(daemon->socket_path, 0666));
}

bool daemon_log_has(const struct daemon *daemon, const char *text)
{
	return strstr(file_text(daemon->log_path), text) != NULL;
}

unsigned daemon_log_count(const struct daemon *daemon, const char *text)
{
	_cleanup_(fclosep) FILE *file = fopen(daemon->log_path, "re");
	char line[2048];
	unsigned n = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, text) != NULL;
	return n;
}

/* Waits until the log has text, or the daemon or the time ends. */
static bool log_wait(const struct daemon *daemon, const char *text, int64_t timeout_usec)
{
	_cleanup_(closep) int watch = (int)CHECK_SYS(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
	int64_t deadline = deadline_after(timeout_usec);
	struct pollfd pollfds[2] = { { .fd = watch, .events = POLLIN },
				     { .fd = daemon->pid_fd, .events = POLLIN } };

	CHECK_SYS(inotify_add_watch(watch, daemon->log_path, IN_MODIFY));
	for (;;) {
		char events[4096];

		if (daemon_log_has(daemon, text))
			return true;
		if (pollfds[1].revents || now_usec() >= deadline)
			return false;
		(void)poll(pollfds, 2, msec_until(deadline)); /* whatever it says: look again */
		while (read(watch, events, sizeof(events)) > 0)
			;
	}
}

void daemon_log_wait(const struct daemon *daemon, const char *text)
{
	if (!log_wait(daemon, text, ANSWER_USEC))
		test_fail("the daemon's log has no \"%s\": %s", text, file_text(daemon->log_path));
}

struct daemon *daemon_start_with(const struct daemon_options *options)
{
	struct daemon *daemon = daemon_slot(options);

	daemon_fork(daemon, options);
	if (!log_wait(daemon, "ready:", ANSWER_USEC))
		test_fail("the daemon does not get ready: %s", file_text(daemon->log_path));
	return daemon;
}

void daemon_again(struct daemon *daemon, const char *const *args)
{
	CHECK(!daemon->pid);
	daemon_fork(daemon, &(struct daemon_options){ .args = args });
	if (!log_wait(daemon, "ready:", ANSWER_USEC))
		test_fail("the next daemon does not get ready: %s", file_text(daemon->log_path));
}

struct daemon *daemon_start(const char *const *args)
{
	return daemon_start_with(&(struct daemon_options){ .args = args });
}

struct daemon *daemon_start_for_many(const char *config)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");
	struct rlimit limit;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_max < MANY_DESCRIPTORS)
		test_skip("needs a hard RLIMIT_NOFILE of %u", MANY_DESCRIPTORS);
	limit.rlim_cur = MANY_DESCRIPTORS;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	CHECK(file);
	CHECK(fputs(config, file) >= 0);
	CHECK(fflush(file) == 0);
	return daemon_start(DAEMON_ARGS("--config", path));
}

/* Waits for its end; returns its wait status. */
static int daemon_reap(struct daemon *daemon)
{
	int status;

	if (!wait_readable(daemon->pid_fd, ANSWER_USEC))
		test_fail("the daemon does not end: %s", file_text(daemon->log_path));
	while (waitpid(daemon->pid, &status, 0) < 0)
		if (errno != EINTR)
			test_fail("waitpid: %s", strerror(errno));
	close(daemon->pid_fd);
	daemon->pid_fd = -1;
	daemon->pid = 0;
	return status;
}

int daemon_start_fails(const struct daemon_options *options, char **ret_said)
{
	struct daemon *daemon = daemon_slot(options);
	int status;

	daemon_fork(daemon, options);
	if (log_wait(daemon, "ready:", ANSWER_USEC))
		test_fail("the daemon runs, but should not: %s", file_text(daemon->log_path));
	status = daemon_reap(daemon);
	*ret_said = file_text(daemon->log_path);
	if (!WIFEXITED(status))
		test_fail("the daemon died of signal %d: %s", WTERMSIG(status), *ret_said);
	return WEXITSTATUS(status);
}

void daemon_wait_end(struct daemon *daemon, int wanted_status)
{
	int status = daemon_reap(daemon);

	if (WIFSIGNALED(status))
		test_fail("the daemon died of signal %d: %s", WTERMSIG(status),
			  file_text(daemon->log_path));
	if (WEXITSTATUS(status) != wanted_status)
		test_fail("the daemon ended with status %d, not %d: %s", WEXITSTATUS(status),
			  wanted_status, file_text(daemon->log_path));
}

void daemon_stop(struct daemon *daemon)
{
	(void)kill(daemon->pid, SIGTERM); /* if it is gone, its status tells */
	daemon_wait_end(daemon, 0);
}

void daemon_kill(struct daemon *daemon)
{
	(void)kill(daemon->pid, SIGKILL); /* if it is gone, all is well */
	(void)daemon_reap(daemon);
}

bool daemon_is_alive(const struct daemon *daemon)
{
	struct pollfd pollfd = { .fd = daemon->pid_fd, .events = POLLIN };

	return daemon->pid && poll(&pollfd, 1, 0) == 0;
}

void daemon_queue_long(const struct daemon *daemon)
{
	_cleanup_(closep) int pidfd = (int)CHECK_SYS(syscall(SYS_pidfd_open, daemon->pid, 0));

	for (int at = 3; at < 64; at++) {
		_cleanup_(closep) int fd = (int)syscall(SYS_pidfd_getfd, pidfd, at, 0);
		int is_listening = 0;
		socklen_t len = sizeof(is_listening);

		if (fd < 0 && errno == EPERM)
			test_skip("the daemon's socket cannot be had: run it as root");
		if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) < 0 ||
		    !is_listening)
			continue;
		CHECK_SYS(listen(fd, 1024));
		return;
	}
	test_fail("the daemon listens at none of its descriptors");
}

char *daemon_path(const struct daemon *daemon, const char *name)
{
	return *name == '/' ? test_text("%s", name) : test_text("%s/%s", daemon->store_dir, name);
}

static uint64_t status_number(const char *status, const char *key)
{
	const char *line = strstr(status, key);

	return line ? strtoull(line + strlen(key), NULL, 10) : 0;
}

struct usage daemon_usage(const struct daemon *daemon)
{
	struct usage usage = { 0 };
	char path[64], target[256], status[8192] = "";
	_cleanup_(closep) int status_fd = -1;
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", daemon->pid);
	dir = opendir(path);
	CHECK_MSG(dir, "%s", path);
	while ((entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = 0;
		/* A nameless file is a probe's, which measures the store for a moment after the start. */
		if (strstr(target, "/#") && strstr(target, " (deleted)"))
			continue;
		usage.n_fds++;
		if (!strncmp(target, "/memfd:", 7))
			usage.n_memfds++;
	}
	closedir(dir);

	(void)snprintf(path, sizeof(path), "/proc/%d/status", daemon->pid);
	status_fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	CHECK_SYS(read(status_fd, status, sizeof(status) - 1));
	usage.n_threads = (unsigned)status_number(status, "\nThreads:");
	usage.locked_kib = status_number(status, "\nVmLck:");
	usage.rss_kib = status_number(status, "\nVmRSS:");
	return usage;
}

struct usage daemon_usage_settled(const struct daemon *daemon)
{
	struct usage last = daemon_usage(daemon), now;

	/* The kernel tells nobody when a process's fds change: the same ten times in a row. */
	for (unsigned n_same = 0; n_same < 10; last = now) {
		(void)poll(NULL, 0, 10);
		now = daemon_usage(daemon);
		if (now.n_fds == last.n_fds && now.n_memfds == last.n_memfds &&
		    now.n_threads == last.n_threads && now.locked_kib == last.locked_kib)
			n_same++;
		else
			n_same = 0;
	}
	return last;
}

void daemon_usage_back(const struct daemon *daemon, const struct usage *before)
{
	int64_t deadline = deadline_after(ANSWER_USEC);
	struct usage now;

	/* As above. */
	do {
		now = daemon_usage(daemon);
		if (now.n_fds <= before->n_fds && now.n_memfds <= before->n_memfds &&
		    now.locked_kib <= before->locked_kib)
			return;
		(void)poll(NULL, 0, 20);
	} while (now_usec() < deadline);
	test_fail("the daemon keeps: fds %u -> %u, memfds %u -> %u, locked kB %" PRIu64
		  " -> %" PRIu64,
		  before->n_fds, now.n_fds, before->n_memfds, now.n_memfds, before->locked_kib,
		  now.locked_kib);
}

int64_t daemon_cpu_msec(const struct daemon *daemon)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/stat", daemon->pid), "re");
	unsigned long user, system; /* clock ticks */

	CHECK(file);
	CHECK_EQ(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
			&user, &system),
		 2);
	return (int64_t)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

void daemons_end(void)
{
	for (int i = 0; i < n_daemons; i++)
		if (daemons[i].pid) {
			if (daemon_just_killed[i])
				daemon_kill(&daemons[i]);
			else
				daemon_stop(&daemons[i]);
		}
}
