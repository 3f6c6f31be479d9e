/*
 * dsaio_connect() where no daemon runs: one is started, for all of this user's programs, and gets
 * nothing of the program that happened to be first.
 *
 * It is over 600 lines because all its tests use the same environment without a daemon.
 */
#include "tests/places.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct dsaio_client *own_open(void)
{
	struct dsaio_client *client;

	CHECK_CALL(dsaio_connect(NULL, &client));
	return client;
}

/* ---- a newcomer ---- */

TEST(first_op, "a newcomer with nothing configured: the first op is done")
{
	const char *path = test_text("%s/f", test_dir());
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint8_t buf[10000];
	int64_t start;

	places_newcomer(30);
	file_make_pattern(path, sizeof(buf), 1);
	start = now_usec();
	client = own_open();
	CHECK_CALL(dsaio_handle_open(client, NULL, &handle));
	CHECK_CALL(dsaio_open(client, path, O_RDONLY, NULL, &file));
	CHECK_EQ(dsaio_pread(handle, file, buf, sizeof(buf), 0), sizeof(buf));
	test_note("from dsaio_connect() to the end of the first op: %.1f ms",
		  (double)(now_usec() - start) / 1000);
	pattern_check(buf, sizeof(buf), 1, 0, "first op");
	dsaio_file_close(file);
	(void)dsaio_handle_close(handle, -1);
	(void)dsaio_disconnect(client);
	places_stop();
	CHECK_EQ(places_log_count("ready:"), 1);
	CHECK_EQ(places_log_count("stopped"), 1);
}

TEST(runtime_dir_gone, "XDG_RUNTIME_DIR names nothing that is there: a directory in /tmp does")
{
	struct stat st;

	places_private(true);
	places_newcomer(30);
	CHECK_SYS(setenv("XDG_RUNTIME_DIR", "/run/user/4711", 1));
	(void)dsaio_disconnect(own_open());
	CHECK_SYS(unsetenv("XDG_RUNTIME_DIR"));
	(void)dsaio_disconnect(own_open());
	CHECK_SYS(stat(test_text("/tmp/dsaiod-%u", geteuid()), &st));
	CHECK_EQ(st.st_mode & 07777, 0700);
	CHECK_EQ(places_log_count("ready:"), 1);
	places_stop();
}

TEST(home, "without XDG_CONFIG_HOME the configuration is in ~/.config")
{
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_SYS(setenv("HOME", test_dir(), 1));
	CHECK_SYS(rename(getenv("XDG_CONFIG_HOME"), test_text("%s/.config", test_dir())));
	CHECK_SYS(unsetenv("XDG_CONFIG_HOME"));
	places_write(test_text("%s/.config/dsaiod/dsaiod.conf", test_dir()),
		     "[daemon]\ncolour = red\n");
	CHECK_FAILS(dsaio_connect(NULL, &client), -ECHILD,
		    test_text("%s/.config/dsaiod/dsaiod.conf:2;colour", test_dir()));
}

TEST(masked, "a umask that takes all: directory, socket and log are the user's own all the same")
{
	struct stat st;

	places_newcomer(30);
	(void)umask(0777);
	(void)dsaio_disconnect(own_open());
	(void)umask(0);
	CHECK_SYS(stat(places_own(""), &st));
	CHECK_EQ(st.st_mode & 07777, 0700);
	CHECK_SYS(stat(places_own("dsaiod.sock"), &st));
	CHECK_EQ(st.st_mode & 07777, 0600);
	(void)dsaio_disconnect(own_open());
	CHECK_EQ(places_log_count("ready:"), 1);
	places_stop();
}

/* ---- how long it lives ---- */

TEST(idle, "it ends when it has had no client for a while, and takes its socket away")
{
	struct dsaio_client *client;
	pid_t first;

	places_newcomer(1);
	client = own_open();
	first = places_pid();
	(void)usleep(1500000); /* longer than it may be without a client */
	CHECK_EQ(dsaio_handle_open(client, NULL, &(struct dsaio_handle *){ NULL }), 0);
	(void)dsaio_disconnect(client);
	places_wait_end(first);
	CHECK_EQ(access(places_own("dsaiod.sock"), F_OK), -1);
	CHECK_EQ(places_log_count("no client for 1 s"), 1);
	client = own_open();
	CHECK(places_pid() != first);
	(void)dsaio_disconnect(client);
	places_stop();
}

TEST(killed, "a killed daemon is started again by the next dsaio_connect")
{
	struct dsaio_client *old, *client;
	struct dsaio_handle *handle;
	pid_t pid;

	places_newcomer(30);
	old = own_open();
	for (int i = 0; i < 3; i++) {
		pid = places_pid();
		CHECK_SYS(kill(pid, SIGKILL));
		client = own_open(); /* it may still be dying */
		CHECK(places_pid() != pid);
		(void)dsaio_disconnect(client);
	}
	CHECK_CALL(dsaio_handle_open(old, NULL, &handle)); /* the old one goes on with the last */
	(void)dsaio_disconnect(old);
	places_stop();
}

TEST(at_the_end, "who connects while it ends gets a new one")
{
	places_newcomer(30);
	for (int i = 0; i < 50; i++) {
		struct dsaio_client *client = own_open();

		CHECK_SYS(kill(places_pid(), SIGTERM));
		(void)dsaio_disconnect(client);
	}
	(void)dsaio_disconnect(own_open());
	places_stop();
}

/* ---- whether, and what it says ---- */

static const struct {
	const char *what, *value;
	int error;
	const char *words;
} switches[] = {
	{ "0", "0", -ENOENT, "DSAIO_AUTOSTART;" PLACES_SYSTEM ";dsaiod --user;systemctl" },
	{ "no", "no", -ENOENT, "DSAIO_AUTOSTART" },
	{ "FALSE", "FALSE", -ENOENT, "DSAIO_AUTOSTART" },
	{ "maybe", "maybe", -EINVAL, "DSAIO_AUTOSTART=maybe;0, no or false;1, yes or true" },
	{ "1", "1", 0, "" },
	{ "Yes", "Yes", 0, "" },
	{ "empty", "", 0, "" },
};

TEST_TABLE(switched, switches, "DSAIO_AUTOSTART")
{
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_SYS(setenv("DSAIO_AUTOSTART", switches[row].value, 1));
	if (!switches[row].error) {
		(void)dsaio_disconnect(own_open());
		places_stop();
		return;
	}
	CHECK_FAILS(dsaio_connect(NULL, &client), switches[row].error, switches[row].words);
	CHECK_EQ(access(places_own(""), F_OK), -1); /* not even the directory */
}

TEST(switched_stale, "DSAIO_AUTOSTART=0 and a dead daemon's socket: an error, and it stays")
{
	struct dsaio_client *client;
	pid_t pid;

	places_newcomer(30);
	(void)dsaio_disconnect(own_open());
	pid = places_pid();
	CHECK_SYS(kill(pid, SIGKILL));
	places_wait_end(pid);
	CHECK_SYS(setenv("DSAIO_AUTOSTART", "0", 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), -ECONNREFUSED, places_own("dsaiod.sock"));
	CHECK_SYS(access(places_own("dsaiod.sock"), F_OK));
}

TEST(named, "DSAIO_SOCKET and a path never start one")
{
	const char *path = test_text("%s/nobody.sock", test_dir());
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_FAILS(socket_connect(path, &client), -ENOENT, path);
	CHECK_SYS(setenv("DSAIO_SOCKET", path, 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), -ENOENT, path);
	CHECK_EQ(access(places_own(""), F_OK), -1);
	CHECK_SYS(setenv("DSAIO_SOCKET", "", 1)); /* as if it were not set */
	(void)dsaio_disconnect(own_open());
	places_stop();
}

TEST(start_fails, "a daemon that cannot start: the error has its last line and names its log")
{
	struct dsaio_client *client;

	places_newcomer(30);
	(void)dsaio_disconnect(own_open());
	places_stop();
	places_write(test_text("%s/dsaiod/dsaiod.conf", getenv("XDG_CONFIG_HOME")),
		     "[daemon]\nidle_exit_sec = never\n");
	for (int i = 0; i < 2; i++)
		CHECK_FAILS(dsaio_connect(NULL, &client), -ECHILD,
			    test_text("idle_exit_sec = never;%s", places_own("dsaiod.log")));
	places_write(test_text("%s/dsaiod/dsaiod.conf", getenv("XDG_CONFIG_HOME")),
		     "[daemon]\nidle_exit_sec = 30\n");
	(void)dsaio_disconnect(own_open());
	places_stop();
}

TEST(start_is_silent, "a program that ends without a word instead of the daemon")
{
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_SYS(setenv("DSAIOD", "/bin/true", 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), -ECHILD,
		    test_text("%s has no word", places_own("dsaiod.log")));
}

/* The directory of the user's own socket lies on a small file system. */
static const char *run_dir_mount(void)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");

	CHECK_SYS(
		mount("tmpfs", dir, "tmpfs", 0, test_text("size=64k,mode=700,uid=%u", geteuid())));
	return dir;
}

/* A file there that leaves no room; the caller's. */
static int run_dir_fill(const char *dir)
{
	char bytes[4096] = "";
	int fd = (int)CHECK_SYS(
		open(test_text("%s/filler", dir), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));

	while (write(fd, bytes, sizeof(bytes)) > 0)
		;
	CHECK_EQ(errno, ENOSPC);
	return fd;
}

TEST(start_no_room, "no room for the daemon's lock and log: the error names the directory")
{
	_cleanup_(closep) int fd = -1;
	struct dsaio_client *client;
	const char *dir;

	places_private(false);
	places_newcomer(30);
	dir = run_dir_mount();
	fd = run_dir_fill(dir);
	for (int i = 0; i < 2; i++)
		CHECK_FAILS(dsaio_connect(NULL, &client), -ECHILD,
			    test_text("%s/dsaiod/dsaiod.log;room;XDG_RUNTIME_DIR", dir));
	CHECK_SYS(ftruncate(fd, 0));
	(void)dsaio_disconnect(own_open());
	places_stop();
}

TEST(start_no_lock,
     "a start that fails: the error has the cause of the log, however soon the daemon ends")
{
	_cleanup_(closep) int log_fd = -1, fd = -1;
	struct dsaio_client *client;
	const char *dir;

	places_private(false);
	places_newcomer(30);
	dir = run_dir_mount();
	CHECK_SYS(mkdir(test_text("%s/dsaiod", dir), 0700));
	/* The log has room in its page, and the lock has none. */
	log_fd = (int)CHECK_SYS(
		open(test_text("%s/dsaiod/dsaiod.log", dir), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	CHECK_EQ(write(log_fd, "x\n", 2), 2);
	fd = run_dir_fill(dir);
	for (int i = 0; i < 10; i++)
		CHECK_FAILS(dsaio_connect(NULL, &client), -ECHILD, "cannot start;No space left");
}

TEST(log_bounded, "the log is appended to, and begun anew when it has more than 1 MiB")
{
	struct stat st;

	places_newcomer(30);
	for (unsigned i = 1; i <= 2; i++) {
		(void)dsaio_disconnect(own_open());
		places_stop();
		CHECK_EQ(places_log_count("ready:"), i);
	}
	CHECK_SYS(truncate(places_own("dsaiod.log"), MIB + 1));
	(void)dsaio_disconnect(own_open());
	CHECK_SYS(stat(places_own("dsaiod.log"), &st));
	CHECK(st.st_size < 10000);
	CHECK_EQ(st.st_mode & 07777, 0600);
	CHECK_EQ(places_log_count("ready:"), 1);
	places_stop();
}

TEST(debug_file, "DSAIO_DEBUG tells where was looked, what was started, and what failed")
{
	static const char *const events[] = { PLACES_SYSTEM ": not there",
					      "dsaiod.sock: not there",
					      "started ",
					      "session begins",
					      "handle_open: handle ",
					      "channel: ",
					      "slow: pread of 100 bytes at 0 of ",
					      "error: ",
					      "ends" };
	const char *path = test_text("%s/debug", test_dir());
	const char *data = test_text("%s/data", test_dir());
	_cleanup_(fclosep) FILE *file = NULL;
	struct dsaio_handle *handle;
	struct dsaio_file *op_file;
	uint8_t buf[100];
	struct dsaio_client *client;
	struct dsaio_op *op;
	char text[16384];
	struct stat st;
	size_t n;

	places_newcomer(30);
	CHECK_SYS(setenv("DSAIO_DEBUG", path, 1));
	file_make_pattern(data, sizeof(buf), 1);
	client = own_open();
	CHECK(dsaio_handle_open(NULL, NULL, &handle) < 0);
	CHECK_CALL(dsaio_handle_open(client, NULL, &handle));
	CHECK_CALL(dsaio_open(client, data, O_RDONLY, NULL, &op_file));
	for (unsigned i = 0; i < 2; i++) { /* the first one asks the daemon for what it needs */
		if (i == 1)
			process_stop(places_pid());
		CHECK_CALL(dsaio_pread_async(handle, op_file, buf, sizeof(buf), 0, &op));
		if (i == 1) {
			(void)usleep(1000000); /* as long as a slow op takes */
			CHECK_SYS(kill(places_pid(), SIGCONT));
		}
		CHECK_EQ(op_wait(op, -1), sizeof(buf));
		dsaio_op_free(op);
	}
	(void)dsaio_disconnect(client);
	places_stop();
	file = fopen(path, "re");
	CHECK(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		CHECK_MSG(strstr(text, events[i]), "%s is not in: %s", events[i], text);
	CHECK_SYS(stat(path, &st));
	CHECK_EQ(st.st_mode & 07777, 0600);
}

/* ---- nothing of the program ---- */

/* The rest of a line of /proc/PID/NAME that starts with key. */
static const char *proc_line(pid_t pid, const char *name, const char *key)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/%s", pid, name), "re");
	char line[1024];

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, key, strlen(key)) == 0)
			return test_text("%s", line + strlen(key));
	test_fail("/proc/%d/%s has no %s", pid, name, key);
}

static const char *proc_link(pid_t pid, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlink(test_text("/proc/%d/%s", pid, name), target, sizeof(target) - 1);

	if (n < 0 && errno == ENOENT)
		return ""; /* a descriptor that is closed by now */
	CHECK_SYS(n);
	target[n] = '\0';
	return test_text("%s", target);
}

TEST(reset, "affinity, umask, signals, limits, directory, environment are the daemon's own")
{
	const char *cpus;
	struct rlimit limit = { .rlim_cur = 100 };
	struct dsaio_client *client;
	char environment[8192];
	unsigned soft, hard;
	cpu_set_t one, every;
	sigset_t all;
	pid_t pid;
	size_t n;
	int cpu = sched_getcpu();

	places_newcomer(30);
	/* All that this machine gives, whatever the test itself was started with. */
	memset(&every, 0xff, sizeof(every));
	CHECK_SYS(sched_setaffinity(0, sizeof(every), &every));
	cpus = proc_line(getpid(), "status", "Cpus_allowed:");
	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0 : (size_t)cpu, &one);
	CHECK_SYS(sched_setaffinity(0, sizeof(one), &one));
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	hard = (unsigned)limit.rlim_max;
	limit.rlim_cur = 100;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	(void)umask(0);
	CHECK_SYS(chdir(test_dir()));
	CHECK_SYS(setenv("SECRET", "x", 1));
	CHECK_SYS(setenv("PATH", test_dir(), 1));
	CHECK_SYS(setenv("USER", "somebody", 1));
	(void)signal(SIGUSR1, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)sigfillset(&all);
	CHECK_SYS(sigprocmask(SIG_SETMASK, &all, NULL));

	client = own_open();
	pid = places_pid();
	CHECK(!strcmp(proc_line(pid, "status", "Cpus_allowed:"), cpus));
	CHECK_EQ(strtoul(proc_line(pid, "status", "Umask:"), NULL, 8), 077);
	CHECK_EQ(strtoul(proc_line(pid, "status", "SigBlk:"), NULL, 16), 0);
	CHECK_EQ(strtoul(proc_line(pid, "status", "SigIgn:"), NULL, 16),
		 1u << (SIGPIPE - 1) | 1u << (SIGXFSZ - 1) | 1u << (SIGIO - 1));
	CHECK(sscanf(proc_line(pid, "limits", "Max open files"), "%u", &soft) == 1);
	CHECK(soft >= hard); /* more with CAP_SYS_RESOURCE */
	CHECK(!strcmp(proc_link(pid, "cwd"), "/"));
	CHECK(getsid(pid) != getsid(0));
	CHECK(getpgid(pid) != getpgid(0));
	{
		_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/environ", pid), "re");

		CHECK(file);
		n = fread(environment, 1, sizeof(environment) - 1, file);
		environment[n] = '\0';
	}
	for (size_t i = 0; i < n; i++)
		if (!environment[i])
			environment[i] = '\n';
	CHECK_MSG(!strstr(environment, "SECRET") &&
			  !strstr(environment, test_text("PATH=%s\n", test_dir())),
		  "%s", environment);
	CHECK_MSG(strstr(environment, "USER=somebody\n") &&
			  strstr(environment, "\nPATH=/usr/local/bin:"),
		  "%s", environment);
	CHECK_SYS(sigprocmask(SIG_UNBLOCK, &all, NULL));
	(void)dsaio_disconnect(client);
	places_stop();
}

TEST(descriptors, "no descriptor of the program's is the daemon's")
{
	struct dsaio_client *client;
	struct dirent *entry;
	int pair[2];
	pid_t pid;
	DIR *dir;

	places_newcomer(30);
	CHECK_SYS(pipe(pair)); /* no O_CLOEXEC */
	client = own_open();
	pid = places_pid();
	dir = opendir(test_text("/proc/%d/fd", pid));
	CHECK(dir);
	while ((entry = readdir(dir))) {
		const char *target;

		if (entry->d_name[0] == '.')
			continue;
		target = proc_link(pid, test_text("fd/%s", entry->d_name));
		for (int i = 0; i < 2; i++)
			CHECK(strcmp(target, proc_link(getpid(), test_text("fd/%d", pair[i]))) !=
			      0);
		if (atoi(entry->d_name) < 2)
			CHECK_MSG(!strcmp(target, "/dev/null"), "%s", target);
	}
	(void)closedir(dir);
	(void)dsaio_disconnect(client);
	places_stop();
}

TEST(piped, "who reads the program's output sees its end while the daemon lives")
{
	int pair[2];
	char byte;
	pid_t child;

	places_newcomer(30);
	CHECK_SYS(pipe(pair));
	child = (pid_t)CHECK_SYS(fork());
	if (child == 0) {
		CHECK_SYS(dup2(pair[1], STDOUT_FILENO));
		CHECK_SYS(dup2(pair[1], STDERR_FILENO));
		close(pair[0]);
		close(pair[1]);
		(void)dsaio_disconnect(own_open());
		_exit(0);
	}
	close(pair[1]);
	child_wait_ok(child);
	CHECK(wait_readable(pair[0], 60000000));
	CHECK_EQ(read(pair[0], &byte, 1), 0);
	CHECK_SYS(kill(places_pid(), 0));
	places_stop();
}

static volatile sig_atomic_t n_child_signals;

static void on_child(int number)
{
	(void)number;
	n_child_signals++;
}

static const struct {
	const char *what;
	void (*handler)(int);
} dispositions[] = { { "default", SIG_DFL }, { "ignored", SIG_IGN }, { "handled", on_child } };

TEST_TABLE(no_child, dispositions, "the program sees neither a child nor SIGCHLD, which is")
{
	struct dsaio_client *client;

	places_newcomer(30);
	(void)signal(SIGCHLD, dispositions[row].handler);
	client = own_open();
	CHECK_EQ(waitpid(-1, NULL, WNOHANG | __WALL), -1);
	CHECK_EQ(errno, ECHILD);
	CHECK_EQ(n_child_signals, 0);
	CHECK(signal(SIGCHLD, SIG_DFL) == dispositions[row].handler);
	(void)dsaio_disconnect(client);
	places_stop();
	CHECK_EQ(waitpid(-1, NULL, WNOHANG | __WALL), -1);
}

static _Atomic bool threads_end;

static void *thread_busy(void *arg)
{
	(void)arg;
	while (!atomic_load(&threads_end)) {
		void *volatile memory = malloc(1000);
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		free(memory);
		close(fd);
	}
	return NULL;
}

static void *thread_connect(void *arg)
{
	(void)arg;
	return own_open();
}

TEST(threads, "many threads, some of them connecting at the same time")
{
	pthread_t busy[8], connecting[8];

	places_newcomer(30);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&busy[i], NULL, thread_busy, NULL), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&connecting[i], NULL, thread_connect, NULL), 0);
	for (int i = 0; i < 8; i++) {
		void *client;

		CHECK_EQ(pthread_join(connecting[i], &client), 0);
		(void)dsaio_disconnect(client);
	}
	atomic_store(&threads_end, true);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(busy[i], NULL), 0);
	CHECK_EQ(places_log_count("ready:"), 1);
	places_stop();
}

TEST(no_stdio, "stdin, stdout and stderr are closed: the library leaves them so")
{
	struct dsaio_client *client;
	int saved = dup(STDOUT_FILENO);

	places_newcomer(30);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	client = own_open();
	for (int fd = 0; fd < 3; fd++)
		CHECK_EQ(fcntl(fd, F_GETFD), -1);
	(void)dsaio_disconnect(client);
	places_stop();
	CHECK_SYS(dup2(saved, STDOUT_FILENO));
}

TEST(no_descriptors, "few descriptors or none left: an error, or it works, and none is lost")
{
	struct rlimit limit = { .rlim_cur = 64 };
	struct dsaio_client *client;
	int fds[64], n = 0, r = -EMFILE;

	places_newcomer(30);
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 64;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	while ((fds[n] = dup(STDERR_FILENO)) >= 0)
		n++;
	for (int n_free = 0; r == -EMFILE; n_free++) {
		int n_there = 0;

		CHECK(n_free < n);
		r = dsaio_connect(NULL, &client);
		if (r < 0)
			CHECK_FAILS(r, -EMFILE, "connect;this process;RLIMIT_NOFILE 64;ulimit -n");
		else
			(void)dsaio_disconnect(client);
		for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO))
			fds[n + n_there++] = fd;
		CHECK_EQ(n_there, n_free);
		if (r < 0)
			CHECK_EQ(access(places_own("dsaiod.sock"), F_OK), -1);
		while (n_there)
			close(fds[n + --n_there]);
		close(fds[--n]);
	}
	CHECK_EQ(r, 0);
	CHECK_EQ(places_log_count("ready:"), 1);
	while (n)
		close(fds[--n]);
	places_stop();
}

TEST(few_for_daemon, "started with a small ulimit -n: a refusal names daemon, limit and cure")
{
	const struct rlimit limit = { .rlim_cur = 64, .rlim_max = 64 };
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	unsigned soft;
	int r = 0;

	places_newcomer(30);
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	client = own_open();
	CHECK(sscanf(proc_line(places_pid(), "limits", "Max open files"), "%u", &soft) == 1);
	if (soft == 64) {
		for (int i = 0; i < 64 && r == 0; i++)
			r = dsaio_handle_open(client, NULL, &handle);
		CHECK_FAILS(r, -EMFILE,
			    test_text("at most;daemon (pid %d, RLIMIT_NOFILE 64);ulimit -n",
				      places_pid()));
	} else {
		CHECK(soft >= 524288); /* with CAP_SYS_RESOURCE */
	}
	(void)dsaio_disconnect(client);
	places_stop();
}

TEST(set_user_id, "a set-user-id program obeys no variable and starts nothing")
{
	const char *program = test_text("%s/dsaioctl", test_dir());
	const char *build = getenv("BUILD");
	const char *debug = test_text("%s/open/debug", test_dir());
	const char *sanitizer = getenv("SANITIZE"); /* run.sh's */
	int status;

	test_needs_root();
	places_newcomer(30);
	CHECK_EQ(system(test_text("cp %s/dsaioctl %s", build && *build ? build : "build", program)),
		 0);
	CHECK_SYS(chown(program, 65534, 65534));
	CHECK_SYS(chmod(program, 04755));
	CHECK_SYS(mkdir(test_text("%s/open", test_dir()), 0777));
	CHECK_SYS(chmod(test_text("%s/open", test_dir()), 0777));
	CHECK_SYS(setenv("DSAIO_DEBUG", debug, 1));
	status = system(test_text("%s cat %s >%s/said 2>&1", program, program, test_dir()));
	CHECK(WIFEXITED(status));
	/* The leak check of a sanitizer cannot trace such a program, and ends it with 1. */
	CHECK_EQ(WEXITSTATUS(status), sanitizer && strstr(sanitizer, "address") ? 1 : 3);
	CHECK_EQ(system(test_text("grep -q \"another user's rights\" %s/said", test_dir())), 0);
	CHECK_EQ(access(debug, F_OK), -1);
	CHECK_EQ(access(places_own(""), F_OK), -1);
}

TEST_MAIN
