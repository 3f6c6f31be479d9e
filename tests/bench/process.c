#include "tests/bench/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/util/cleanup.h"

extern char **environ;

/* Enough for the log of a start or of an orderly stop. */
#define LOG_BYTES 16384
/* Longer than any start or stop that ends well; a guess. */
#define DAEMON_TIMEOUT_MSEC 20000

static void closedirp(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir); /* only read */
}

static void json_putp(struct json_object **o)
{
	(void)json_object_put(*o); /* NULL is fine */
}

static int write_text(const char *path, const char *text)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "we");

	if (!f || fputs(text, f) < 0 || fflush(f) != 0) {
		const int r = -errno;

		fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(-r));
		return r;
	}
	return 0;
}

/*
 * Appends to log what the daemon says until stop appears in it (1), its end of file (0; stop NULL
 * waits for that) or the time-out (-ETIMEDOUT).  Text that does not fit is dropped from the
 * middle: a full pipe would block the daemon.
 */
static int log_read(int fd, char *log, const char *stop)
{
	size_t len = strlen(log);

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;
		int r = poll(&p, 1, DAEMON_TIMEOUT_MSEC);

		if (r < 0 && errno == EINTR)
			continue;
		if (r == 0)
			return -ETIMEDOUT;
		if (len > LOG_BYTES / 2)
			len = LOG_BYTES / 2;
		n = read(fd, log + len, LOG_BYTES - 1 - len);
		if (n <= 0)
			return 0;
		len += (size_t)n;
		log[len] = '\0';
		if (stop && strstr(log, stop))
			return 1;
	}
}

/* In the child: becomes the daemon, or says why not. */
_Noreturn static void daemon_exec(const char *const argv[], int log_fd, pid_t parent)
{
	sigset_t none;

	/* It must not outlive a bench that was killed. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent ||
	    dup2(log_fd, STDERR_FILENO) < 0)
		_exit(127);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)unsetenv("NOTIFY_SOCKET");		/* not its service, if we run in one */
	execv(argv[0], (char *const *)(uintptr_t)argv); /* it does not write to them */
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

void private_daemon_stop(struct private_daemon *daemon)
{
	char log[LOG_BYTES] = "";
	int status;

	if (daemon->pid == 0)
		return;
	(void)kill(daemon->pid, SIGTERM);
	if (log_read(daemon->log_fd, log, NULL) == -ETIMEDOUT) {
		fprintf(stderr, "bench: the daemon does not end on SIGTERM, killing it\n");
		(void)kill(daemon->pid, SIGKILL);
	}
	while (waitpid(daemon->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fprintf(stderr, "bench: the daemon ended with %s %d; its log:\n%s",
			WIFEXITED(status) ? "status" : "signal",
			WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), log);
	closep(&daemon->log_fd);
	daemon->pid = 0;
}

void private_daemon_kill(struct private_daemon *daemon)
{
	(void)kill(daemon->pid, SIGKILL); /* it is ours, and not reaped */
	while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
		;
	closep(&daemon->log_fd);
	daemon->pid = 0;
}

int private_daemon_start(struct private_daemon *daemon, const char *program, const char *dir,
			 const char *name, const char *config)
{
	_cleanup_(freep) char *store = NULL;
	_cleanup_(freep) char *config_path = NULL;
	_cleanup_(closep) int log_in = -1;
	_cleanup_(closep) int log_out = -1;
	char log[LOG_BYTES] = "";
	const pid_t self = getpid();
	int fds[2], r;
	pid_t pid;

	r = snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s/%s.sock", dir, name);
	if (r < 0 || (size_t)r >= sizeof(daemon->socket_path)) {
		fprintf(stderr,
			"bench: %s is too long for a socket; set BENCH_DIR to a shorter "
			"path\n",
			dir);
		return -ENAMETOOLONG;
	}
	if (asprintf(&store, "bench=%s", dir) < 0 ||
	    asprintf(&config_path, "%s/%s.conf", dir, name) < 0)
		return -ENOMEM;
	r = write_text(config_path, config);
	if (r < 0)
		return r;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		r = -errno;
		fprintf(stderr, "bench: pipe: %s\n", strerror(-r));
		return r;
	}
	log_in = fds[0];
	log_out = fds[1];
	/* Nobody reads it until the stop: give it room.  Without, its 64 KiB must do. */
	(void)fcntl(log_in, F_SETPIPE_SZ, 1 << 20);

	pid = fork();
	if (pid < 0) {
		r = -errno;
		fprintf(stderr, "bench: fork: %s\n", strerror(-r));
		return r;
	}
	if (pid == 0) {
		const char *argv[] = { program,
				       "--config",
				       config_path,
				       "--socket",
				       daemon->socket_path,
				       "--store",
				       store,
				       daemon->is_user ? "--user" : NULL,
				       NULL };

		daemon_exec(argv, log_out, self);
	}
	closep(&log_out);
	log_out = -1;

	daemon->pid = pid;
	daemon->log_fd = TAKE_FD(log_in);
	r = log_read(daemon->log_fd, log, "ready: ");
	if (r == 1)
		return 0;
	fprintf(stderr, "bench: %s does not become ready; its log:\n%s", program, log);
	private_daemon_stop(daemon);
	return -ECHILD;
}

static int open_proc(pid_t pid, const char *what, FILE **ret_f)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
	*ret_f = fopen(path, "re");
	if (!*ret_f) {
		const int r = -errno;

		fprintf(stderr, "bench: cannot read %s: %s\n", path, strerror(-r));
		return r;
	}
	return 0;
}

static int read_ticks(pid_t pid, uint64_t *ret_ticks)
{
	_cleanup_(fclosep) FILE *f = NULL;
	char line[1024];
	const char *end;
	uint64_t user, system;
	int r = open_proc(pid, "stat", &f);

	if (r < 0)
		return r;
	/* The name, in brackets, may hold anything; the fields after it are fixed. */
	if (!fgets(line, sizeof(line), f) || !(end = strrchr(line, ')')) ||
	    sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
		   &user, &system) != 2) {
		fprintf(stderr, "bench: /proc/%d/stat is not as expected\n", pid);
		return -EBADMSG;
	}
	*ret_ticks = user + system;
	return 0;
}

static int add_switches(pid_t pid, const char *task, struct process_activity *a)
{
	_cleanup_(fclosep) FILE *f = NULL;
	char what[300], line[256];
	uint64_t n;
	int r;

	(void)snprintf(what, sizeof(what), "task/%s/status", task);
	r = open_proc(pid, what, &f);
	if (r < 0)
		return r;
	while (fgets(line, sizeof(line), f)) {
		const bool is_sleep = sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &n) == 1;

		if (is_sleep || sscanf(line, "nonvoluntary_ctxt_switches: %" SCNu64, &n) == 1)
			a->switches += n;
		if (is_sleep)
			a->sleeps += n;
	}
	return 0;
}

int process_activity(pid_t pid, struct process_activity *ret_activity)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	struct process_activity a = { 0 };
	const struct dirent *d;
	char path[64];
	int r;

	r = read_ticks(pid, &a.ticks);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir) {
		r = -errno;
		fprintf(stderr, "bench: cannot read %s: %s\n", path, strerror(-r));
		return r;
	}
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		r = add_switches(pid, d->d_name, &a);
		if (r < 0)
			return r;
	}
	*ret_activity = a;
	return 0;
}

int process_memory(pid_t pid, struct process_memory *ret_memory)
{
	_cleanup_(fclosep) FILE *f = NULL;
	_cleanup_(freep) char *line = NULL;
	struct process_memory m = { 0 };
	bool is_memfd = false;
	size_t size = 0;
	int r = open_proc(pid, "smaps", &f);

	if (r < 0)
		return r;
	while (getline(&line, &size, f) > 0) {
		uint64_t n;
		int at = 0;

		if (sscanf(line, "%*x-%*x %*s %*x %*x:%*x %*u %n", &at) == 0 && at > 0)
			is_memfd = strncmp(line + at, "/memfd:", 7) == 0;
		else if (sscanf(line, "Rss: %" SCNu64 " kB", &n) == 1)
			*(is_memfd ? &m.memfd_bytes : &m.own_bytes) += n * 1024;
	}
	if (m.own_bytes == 0) {
		fprintf(stderr, "bench: /proc/%d/smaps names no resident memory\n", pid);
		return -EBADMSG;
	}
	*ret_memory = m;
	return 0;
}

/* Room for a command line of fio: the arguments that differ lie in text. */
#define FIO_ARGS 20
#define FIO_LOOPS 5 /* its run time is in milliseconds: some tens of them would be too coarse */
struct fio_command {
	char *argv[FIO_ARGS];
	char text[4600];
};

/* n: what snprintf() into c->text returned, of lines with an argument each. */
static int fio_split(struct fio_command *c, int n, const char *path)
{
	int argc = 0;
	char *at;

	/* fio takes a colon for the end of a file's name. */
	if (n < 0 || (size_t)n >= sizeof(c->text) || strpbrk(path, ":\n")) {
		fprintf(stderr, "bench: fio cannot use the path %s; set BENCH_DIR\n", path);
		return -EINVAL;
	}
	for (char *arg = strtok_r(c->text, "\n", &at); arg; arg = strtok_r(NULL, "\n", &at))
		c->argv[argc++] = arg;
	c->argv[argc] = NULL;
	return 0;
}

static int fio_spawn(char *const argv[], int out_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r = posix_spawn_file_actions_init(&actions);

	if (r == 0) {
		r = posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
		if (r == 0)
			r = posix_spawnp(ret_pid, "fio", &actions, NULL, argv, environ);
		(void)posix_spawn_file_actions_destroy(&actions);
	}
	if (r == ENOENT)
		fprintf(stderr, "bench: fio, the reference, is not there; install it: "
				"apt-get install -y fio\n");
	else if (r != 0)
		fprintf(stderr, "bench: cannot run fio: %s\n", strerror(r));
	return -r;
}

int fio_output(char *const argv[], char **ret_output)
{
	_cleanup_(freep) char *output = NULL;
	_cleanup_(fclosep) FILE *in = NULL;
	_cleanup_(closep) int out_fd = -1;
	size_t size = 0;
	int fds[2], r, status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		r = -errno;
		fprintf(stderr, "bench: pipe: %s\n", strerror(-r));
		return r;
	}
	out_fd = fds[1];
	in = fdopen(fds[0], "r");
	if (!in) {
		(void)close(fds[0]); /* nothing is in it */
		return -ENOMEM;
	}
	r = fio_spawn(argv, out_fd, &pid);
	if (r < 0)
		return r;
	closep(&out_fd);
	out_fd = -1;

	if (getdelim(&output, &size, '\0', in) <
	    0) { /* nothing came: the memory has nothing in it */
		free(output);
		output = calloc(1, 1);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!output || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "bench: fio failed:\n%s\n", output ? output : "");
		return -EIO;
	}
	*ret_output = TAKE_PTR(output);
	return 0;
}

struct json_object *json_at(struct json_object *o, const char *const *path)
{
	for (; o && *path; path++) {
		if (strcmp(*path, "[0]") == 0)
			o = json_object_is_type(o, json_type_array)
				    ? json_object_array_get_idx(o, 0)
				    : NULL;
		else if (!json_object_object_get_ex(o, *path, &o))
			return NULL;
	}
	return o;
}

int fio_run_files(const char *dir, const char *name, unsigned n_files, uint64_t file_bytes,
		  double *ret_usec)
{
	_cleanup_(json_putp) struct json_object *all = NULL;
	_cleanup_(freep) char *output = NULL;
	struct json_object *n_ios, *msec;
	struct fio_command c;
	const char *json;
	int r;

	r = fio_split(&c,
		      snprintf(c.text, sizeof(c.text),
			       "fio\n--name=%s\n--directory=%s\n--rw=read\n--bs=%" PRIu64
			       "\n--filesize=%" PRIu64 "\n--nrfiles=%u\n"
			       "--file_service_type=sequential\n--iodepth=8\n--ioengine=libaio\n"
			       "--direct=1\n--loops=%d\n--output-format=json",
			       name, dir, file_bytes, file_bytes, n_files, FIO_LOOPS),
		      dir);
	if (r < 0)
		return r;
	r = fio_output(c.argv, &output);
	if (r < 0)
		return r;

	json = strchr(output, '{'); /* it may say something before */
	all = json ? json_tokener_parse(json) : NULL;
	n_ios = json_at(all, (const char *const[]){ "jobs", "[0]", "read", "total_ios", NULL });
	msec = json_at(all, (const char *const[]){ "jobs", "[0]", "read", "runtime", NULL });
	if (!n_ios || !msec || json_object_get_int64(n_ios) != (int64_t)n_files * FIO_LOOPS) {
		fprintf(stderr, "bench: fio did not read %u files %d times; it said:\n%s\n",
			n_files, FIO_LOOPS, output);
		return -EBADMSG;
	}
	*ret_usec = json_object_get_double(msec) * 1000 / (n_files * FIO_LOOPS);
	return 0;
}
