/*
 * Bad input of discovery and autostart: directories of others, links, sockets that refuse, no
 * program.  Each is an error with a message; nothing is followed, nothing is started.
 */
#include "tests/places.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define STRANGER 65534u /* a uid that is not ours */

static void nothing_started(const char *path)
{
	CHECK_EQ(access(path, F_OK), -1);
	CHECK_EQ(errno, ENOENT);
}

/* ---- E7: the runtime directory ---- */

struct place {
	const char *what;
	bool needs_root;
	void (*make)(void);
	int error;
	const char *words;
};

static const char *tmp_dir(void)
{
	return test_text("/tmp/dsaiod-%u", geteuid());
}

static void tmp_foreign(void)
{
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	CHECK_SYS(chown(tmp_dir(), STRANGER, STRANGER));
}

static void tmp_symlink(void)
{
	CHECK_SYS(mkdir("/tmp/elsewhere", 0700));
	CHECK_SYS(symlink("/tmp/elsewhere", tmp_dir()));
}

static void tmp_dangling(void)
{
	CHECK_SYS(symlink("/tmp/elsewhere", tmp_dir()));
}

static void tmp_file(void)
{
	places_write(tmp_dir(), "x");
}

static void tmp_open(void)
{
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	CHECK_SYS(chmod(tmp_dir(), 0777));
}

static void tmp_not_sticky(void)
{
	CHECK_SYS(chmod("/tmp", 0777));
}

static void tmp_read_only(void)
{
	CHECK_SYS(mount("tmpfs", "/tmp", "tmpfs", MS_RDONLY, "mode=1777"));
}

/* The directory is there, and its file system is read-only by now. */
static void tmp_read_only_inside(void)
{
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	CHECK_SYS(mount("tmpfs", tmp_dir(), "tmpfs", MS_RDONLY,
			test_text("mode=700,uid=%u", geteuid())));
}

static void run_set(const char *path)
{
	CHECK_SYS(setenv("XDG_RUNTIME_DIR", path, 1));
}

static void run_foreign(void)
{
	CHECK_SYS(mkdir("/tmp/run", 0777));
	CHECK_SYS(chown("/tmp/run", STRANGER, STRANGER));
	run_set("/tmp/run");
}

static void run_symlink(void)
{
	CHECK_SYS(mkdir("/tmp/elsewhere", 0700));
	CHECK_SYS(symlink("/tmp/elsewhere", "/tmp/run"));
	run_set("/tmp/run");
}

static void run_open(void)
{
	CHECK_SYS(mkdir("/tmp/run", 0700));
	CHECK_SYS(chmod("/tmp/run", 0777));
	run_set("/tmp/run");
}

static void run_read_only(void)
{
	CHECK_SYS(mkdir("/tmp/run", 0700));
	CHECK_SYS(mount("tmpfs", "/tmp/run", "tmpfs", MS_RDONLY,
			test_text("mode=700,uid=%u", geteuid())));
	run_set("/tmp/run");
}

static void run_long(void)
{
	const char *path = test_text("/tmp/%0100d", 1);

	CHECK_SYS(mkdir(path, 0700));
	run_set(path);
}

static void lock_symlink(void)
{
	places_write("/tmp/other", "x");
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	CHECK_SYS(symlink("/tmp/other", places_own("dsaiod.sock.lock")));
}

static void log_symlink(void)
{
	places_write("/tmp/other", "x");
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	CHECK_SYS(symlink("/tmp/other", places_own("dsaiod.log")));
}

static void log_fifo(void)
{
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	CHECK_SYS(mkfifo(places_own("dsaiod.log"), 0600));
}

static void socket_file(void)
{
	CHECK_SYS(mkdir(tmp_dir(), 0700));
	places_write(places_own("dsaiod.sock"), "x");
}

static const struct place places[] = {
	{ "in /tmp, of another owner", true, tmp_foreign, -EPERM,
	  "/tmp/dsaiod-;belongs to uid 65534" },
	{ "in /tmp, a symlink", false, tmp_symlink, -ENOTDIR, "/tmp/dsaiod-;symbolic link" },
	{ "in /tmp, a symlink to nothing", false, tmp_dangling, -ENOTDIR,
	  "/tmp/dsaiod-;symbolic link" },
	{ "in /tmp, a file", false, tmp_file, -ENOTDIR, "/tmp/dsaiod-;no directory" },
	{ "in /tmp, open to others", false, tmp_open, -EPERM, "/tmp/dsaiod-;mode 0777;chmod 700" },
	{ "in a /tmp that is not sticky", false, tmp_not_sticky, -EPERM,
	  "others may write to /tmp" },
	{ "in a /tmp that is read-only", false, tmp_read_only, -EROFS, "/tmp/dsaiod-;Read-only" },
	{ "in /tmp, unwritable", false, tmp_read_only_inside, -EROFS,
	  "dsaiod.sock.lock;Read-only" },
	{ "XDG_RUNTIME_DIR of another owner", true, run_foreign, -EPERM,
	  "/tmp/run;belongs to uid 65534" },
	{ "XDG_RUNTIME_DIR a symlink", false, run_symlink, -ENOTDIR,
	  "XDG_RUNTIME_DIR=/tmp/run;symbolic" },
	{ "XDG_RUNTIME_DIR open to others", false, run_open, -EPERM,
	  "others may write to /tmp/run" },
	{ "XDG_RUNTIME_DIR unwritable", false, run_read_only, -EROFS, "/tmp/run/dsaiod;Read-only" },
	{ "XDG_RUNTIME_DIR too long for a socket", false, run_long, -ENAMETOOLONG, "bytes;107" },
	{ "the lock a symlink", false, lock_symlink, -ELOOP, "dsaiod.sock.lock" },
	{ "the log a symlink", false, log_symlink, -ELOOP, "dsaiod.log" },
	{ "the log a fifo", false, log_fifo, -EEXIST, "dsaiod.log;no file" },
	{ "the socket a file", false, socket_file, -ENOTSOCK, "dsaiod.sock;no socket" },
};

/* A daemon and a client beside that nothing may disturb. */
static struct daemon *beside_open(void)
{
	struct daemon *daemon = daemon_start(NULL);

	beside_start(daemon);
	return daemon;
}

static void beside_check(struct daemon *daemon)
{
	beside_ok();
	CHECK(daemon_is_alive(daemon));
}

TEST_TABLE(e7, places, "E7 the user's own directory")
{
	struct daemon *daemon = beside_open();
	const struct place *place = &places[row];
	struct dsaio_client *client;
	struct stat st;

	if (place->needs_root)
		test_needs_root();
	places_private(true);
	places_newcomer(5);
	CHECK_SYS(unsetenv("XDG_RUNTIME_DIR"));
	place->make();
	for (int i = 0; i < 2; i++)
		CHECK_FAILS(dsaio_connect(NULL, &client), place->error, place->words);
	nothing_started("/tmp/elsewhere/dsaiod");
	nothing_started("/tmp/elsewhere/dsaiod.sock");
	CHECK(lstat(places_own("dsaiod.sock"), &st) < 0 || !S_ISSOCK(st.st_mode));
	if (access("/tmp/other", F_OK) == 0)
		CHECK_EQ(file_size("/tmp/other"), 1);
	/* So does a daemon that the user starts; the log is the library's alone. */
	if (!strstr(place->words, "dsaiod.log")) {
		int status = system(test_text("timeout 20 %s --user >%s/said 2>&1",
					      getenv("DSAIOD"), test_dir()));

		CHECK(WIFEXITED(status));
		CHECK(WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2);
	}
	beside_check(daemon);
}

static void connect_fails_as_stranger(int error, const char *words)
{
	pid_t pid = (pid_t)CHECK_SYS(fork());

	if (pid == 0) {
		struct dsaio_client *client;

		CHECK_SYS(setresuid(STRANGER, STRANGER, STRANGER));
		CHECK_FAILS(dsaio_connect(NULL, &client), error, words);
		_exit(0);
	}
	child_wait_ok(pid);
}

/* The message was "Permission denied", and named neither the owner nor a way out. */
TEST(e7_closed,
     "E7 another user has made the user's own directory in /tmp, and closed it: the owner is named")
{
	const char *dir = test_text("/tmp/dsaiod-%u", STRANGER);

	test_needs_root();
	places_private(true);
	places_newcomer(5);
	CHECK_SYS(unsetenv("XDG_RUNTIME_DIR"));
	CHECK_SYS(mkdir(dir, 0700));
	connect_fails_as_stranger(-EPERM, "/tmp/dsaiod-65534;belongs to uid 0;XDG_RUNTIME_DIR");
	CHECK_SYS(chown(dir, STRANGER, STRANGER));
	CHECK_SYS(chmod(dir, 0));
	connect_fails_as_stranger(-EACCES, "/tmp/dsaiod-65534: Permission denied");
}

/* Binds in the own directory, and listens as another user. */
static int listen_as_stranger(const char *path)
{
	int fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int r;

	CHECK(strlen(path) < sizeof(address.sun_path));
	(void)strcpy(address.sun_path, path);
	CHECK_SYS(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK_SYS(syscall(SYS_setresuid, -1, STRANGER, -1));
	r = listen(fd, 5);
	CHECK_SYS(syscall(SYS_setresuid, -1, 0, -1));
	CHECK_SYS(r);
	return fd;
}

TEST(e7_stranger, "E7 another user listens at the user's own socket: refused")
{
	struct daemon *daemon = beside_open();
	struct dsaio_client *client;
	int fd;

	test_needs_root();
	places_newcomer(5);
	CHECK_SYS(mkdir(places_own(""), 0700));
	fd = listen_as_stranger(places_own("dsaiod.sock"));
	CHECK_FAILS(dsaio_connect(NULL, &client), -EPERM, "belongs to uid 65534");
	close(fd);
	beside_check(daemon);
}

/* ---- E8 ---- */

#define PROCESSES 10

FAULT(e8, "E8 autostart by ten processes at once: one daemon")
{
	int go[2], all[2];
	pid_t children[PROCESSES];
	char byte;

	places_newcomer(30);
	CHECK_SYS(pipe2(go, O_CLOEXEC));
	CHECK_SYS(pipe2(all, O_CLOEXEC));
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = (pid_t)CHECK_SYS(fork());
		if (children[i] == 0) {
			struct dsaio_client *client;

			close(go[1]);
			(void)!read(go[0], &byte, 1); /* its end */
			CHECK_CALL(dsaio_connect(NULL, &client));
			CHECK_EQ(write(all[1], "x", 1), 1);
			(void)dsaio_disconnect(client);
			_exit(0);
		}
	}
	close(go[0]);
	close(all[1]);
	close(go[1]);
	for (int i = 0; i < PROCESSES; i++) {
		CHECK(wait_readable(all[0], 30000000));
		CHECK_EQ(read(all[0], &byte, 1), 1);
	}
	for (int i = 0; i < PROCESSES; i++)
		child_wait_ok(children[i]);
	close(all[0]);
	CHECK_EQ(places_log_count("ready:"), 1);
	/* No other was started and refused. */
	CHECK_EQ(places_log_count("dsaiod: ") - places_log_count("no flight recorder"), 1);
	places_stop();
}

FAULT(e8_dead, "E8 ten processes at once where a daemon was killed: one new daemon")
{
	pid_t children[PROCESSES], pid;
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_CALL(dsaio_connect(NULL, &client));
	(void)dsaio_disconnect(client);
	pid = places_pid();
	CHECK_SYS(kill(pid, SIGKILL));
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = (pid_t)CHECK_SYS(fork());
		if (children[i] == 0) {
			CHECK_CALL(dsaio_connect(NULL, &client));
			(void)dsaio_disconnect(client);
			_exit(0);
		}
	}
	for (int i = 0; i < PROCESSES; i++)
		child_wait_ok(children[i]);
	CHECK_EQ(places_log_count("ready:"), 2);
	places_stop();
}

/* ---- E9: no program ---- */

static const struct {
	const char *what, *program, *text;
	mode_t mode;
	int error;
	const char *words;
} programs[] = {
	{ "DSAIOD names nothing that is there", "none", NULL, 0, -ENOENT, "none;DSAIOD" },
	{ "DSAIOD names what is no program", "file", "x", 0600, -EACCES, "file;DSAIOD" },
	{ "DSAIOD names a directory", "", NULL, 0, -EACCES, "DSAIOD;no file" },
	{ "DSAIOD names a file that cannot run", "file", "\177ELF", 0700, -ENOEXEC, "file;exec" },
	{ "DSAIOD names what lacks its interpreter", "file", "#!/no/such/thing\n", 0700, -ENOENT,
	  "file;exec" },
};

TEST_TABLE(e9_program, programs, "E9")
{
	struct daemon *daemon = beside_open();
	const char *program = test_text("%s/%s", test_dir(), programs[row].program);
	struct dsaio_client *client;

	places_newcomer(5);
	if (programs[row].text) {
		places_write(program, programs[row].text);
		CHECK_SYS(chmod(program, programs[row].mode));
	}
	CHECK_SYS(setenv("DSAIOD", program, 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), programs[row].error, programs[row].words);
	nothing_started(places_own("dsaiod.sock"));
	beside_check(daemon);
}

FAULT(e9_relative,
      "E9 DSAIOD relative to the program's directory: found, or refused with a message")
{
	const char *build = getenv("BUILD");
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_SYS(chdir(build && *build ? build : "build"));
	CHECK_SYS(setenv("DSAIOD", "./none", 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), -ENOENT, "./none;DSAIOD");
	CHECK_SYS(setenv("DSAIOD", "./dsaiod", 1));
	CHECK_CALL(dsaio_connect(NULL, &client));
	(void)dsaio_disconnect(client);
	places_stop();
}

static const struct {
	const char *what;
	bool has_dsaiod;
	const char *words[4];
} beside[] = {
	{ "dsaiod is not installed: the message says how",
	  false,
	  { "no dsaiod in ", "install it", "DSAIOD", "systemctl start dsaiod" } },
	{ "the dsaiod beside the library is not executable: the message says so",
	  true,
	  { "/alone/dsaiod", "is not executable", "chmod", "DSAIOD" } },
};

TEST_TABLE(e9_beside, beside, "E9")
{
	const char *build = getenv("BUILD"), *alone = test_text("%s/alone", test_dir());
	_cleanup_(fclosep) FILE *file = NULL;
	char said[2048];
	size_t n;

	places_newcomer(5);
	CHECK_SYS(unsetenv("DSAIOD"));
	CHECK_SYS(mkdir(alone, 0755));
	CHECK_EQ(system(test_text("cp %s/dsaioctl %s", build && *build ? build : "build", alone)),
		 0);
	if (beside[row].has_dsaiod)
		places_write(test_text("%s/dsaiod", alone), "");
	/* PATH is no place to find it in. */
	(void)!system(test_text("PATH=%s:$PATH %s/dsaioctl cat %s/dsaioctl >%s/said 2>&1",
				build && *build ? build : "build", alone, alone,
				test_dir())); /* what it says tells */
	file = fopen(test_text("%s/said", test_dir()), "re");
	CHECK(file);
	n = fread(said, 1, sizeof(said) - 1, file);
	said[n] = '\0';
	if (access(places_own("dsaiod.log"), F_OK) == 0)
		test_skip("a dsaiod is installed on this host");
	for (size_t i = 0; i < ARRAY_SIZE(beside[row].words); i++)
		CHECK_MSG(strstr(said, beside[row].words[i]), "%s is not in: %s",
			  beside[row].words[i], said);
	nothing_started(places_own("dsaiod.sock"));
}

/* ---- E10: a system socket that refuses ---- */

static int system_listen(bool is_listening)
{
	int fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = PLACES_SYSTEM };

	CHECK_SYS(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	if (is_listening)
		CHECK_SYS(listen(fd, 5));
	return fd;
}

/* Answers each connection with these bytes, and hangs up if that is wanted. */
static void system_answer(const char *bytes, bool hangs_up)
{
	int fd = system_listen(true);

	if (CHECK_SYS(fork()) == 0) {
		for (;;) {
			int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

			if (client < 0)
				_exit(0);
			(void)!send(client, bytes, strlen(bytes), MSG_NOSIGNAL);
			if (hangs_up)
				close(client);
		}
	}
	close(fd);
}

static void refuses_stale(void)
{
	close(system_listen(false));
}

static void refuses_nonsense(void)
{
	system_answer("HTTP/1.1 400 Bad Request\r\n\r\n", false);
}

static void refuses_hang_up(void)
{
	system_answer("", true);
}

static void refuses_silence(void)
{
	system_answer("", false);
}

static void refuses_file(void)
{
	places_write(PLACES_SYSTEM, "x");
}

static void refuses_directory(void)
{
	CHECK_SYS(mkdir(PLACES_SYSTEM, 0755));
}

static void refuses_permission(void)
{
	(void)system_listen(true); /* stays open until the test's end */
	CHECK_SYS(chmod(PLACES_SYSTEM, 0600));
	CHECK_SYS(chmod(test_dir(), 0777));
	CHECK_SYS(setegid(STRANGER));
	CHECK_SYS(seteuid(STRANGER));
}

static void refuses_directory_permission(void)
{
	CHECK_SYS(chmod("/run/dsaiod", 0700));
	CHECK_SYS(chmod(test_dir(), 0777));
	CHECK_SYS(setegid(STRANGER));
	CHECK_SYS(seteuid(STRANGER));
}

static const struct {
	const char *what;
	bool needs_root;
	void (*make)(void);
	int error;
	const char *words;
} refusals[] = {
	{ "nobody listens", false, refuses_stale, -ECONNREFUSED,
	  "systemctl start dsaiod;none is started" },
	{ "it speaks nonsense", false, refuses_nonsense, -EPROTO, "is it another program" },
	{ "it hangs up", false, refuses_hang_up, -EPROTO, "is it another program" },
	{ "it says nothing", false, refuses_silence, -ETIMEDOUT, " (pid;has not answered for" },
	{ "it is a file", false, refuses_file, -ENOTSOCK, "no socket" },
	{ "it is a directory", false, refuses_directory, -ENOTSOCK, "no socket" },
	{ "it lets nobody in", true, refuses_permission, -EACCES, "permission" },
	{ "its directory lets nobody in", true, refuses_directory_permission, -EACCES,
	  "permission" },
};

TEST_TABLE(e10, refusals, "E10 the system's socket refuses, no second daemon")
{
	struct daemon *daemon = beside_open();
	struct dsaio_client *client;

	if (refusals[row].needs_root)
		test_needs_root();
	places_private(false);
	places_newcomer(5);
	CHECK_SYS(mkdir("/run/dsaiod", 0755));
	refusals[row].make();
	CHECK_FAILS(dsaio_connect(NULL, &client), refusals[row].error,
		    test_text("%s;%s", PLACES_SYSTEM, refusals[row].words));
	CHECK_SYS(seteuid(getuid()));
	nothing_started(places_own(""));
	beside_check(daemon);
}

TEST_MAIN
