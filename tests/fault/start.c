/*
 * Starts that fail: C15 to C18.  The daemon says on one line what is wrong and what to do,
 * and ends with exit status 1 (it cannot start) or 2 (wrong usage).
 */
#include "proto/util/process.h"
#include "tests/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void check_said(int status, int wanted, const char *said, const char *words)
{
	CHECK_MSG(status == wanted, "exit status %d: %s", status, said);
	check_fails("the start", 0, 0, said, words, __FILE__, __LINE__);
}

/* ---- C15 ---- */

TEST(c15_missing, "C15 store directory missing")
{
	const char *dir = test_text("%s/no such directory", test_dir());
	char *said;
	int status = daemon_start_fails(
		&(struct daemon_options){ .store_dir = "",
					  .args = DAEMON_ARGS("--store", test_text("nv=%s", dir)) },
		&said);

	check_said(status, 1, said, test_text("nv;%s;No such file", dir));
}

TEST(c15_file, "C15 store directory that is a file")
{
	const char *path = test_text("%s/file", test_dir());
	char *said;
	int status;

	file_make_pattern(path, 10, 1);
	status = daemon_start_fails(
		&(struct daemon_options){
			.store_dir = "", .args = DAEMON_ARGS("--store", test_text("nv=%s", path)) },
		&said);
	check_said(status, 1, said, test_text("nv;%s;director", path));
}

TEST(c15_beside, "C15 one missing of two store directories: it does not half start")
{
	const char *dir = test_text("%s/missing", test_dir());
	struct stat st;
	char *said;
	int status = daemon_start_fails(
		&(struct daemon_options){ .args = DAEMON_ARGS("--store", test_text("nv=%s", dir)) },
		&said);

	check_said(status, 1, said, test_text("nv;%s", dir));
	CHECK(stat(test_text("%s/s.sock", test_dir()), &st) < 0);
}

/* ---- C16 ---- */

TEST(c16_daemon, "C16 socket path too long, in the daemon")
{
	char *path = test_text("%s/%0200d.sock", test_dir(), 0);
	char *said;
	int status = daemon_start_fails(&(struct daemon_options){ .socket_path = path }, &said);

	CHECK(status == 1 || status == 2);
	check_said(status, status, said, test_text("107;%zu", strlen(path)));
}

TEST(c16_library, "C16 socket path too long, in the library")
{
	char *path = test_text("/%0107d", 0);
	struct dsaio_client *client;

	CHECK_FAILS(socket_connect(path, &client), -ENAMETOOLONG, "107;108");
	path[107] = 0; /* exactly as long as can be */
	CHECK_EQ(socket_connect(path, &client), -ENOENT);
}

TEST(c16_longest, "C16 a socket path of exactly 107 bytes works")
{
	char path[108];
	int n = snprintf(path, sizeof(path), "%s/", test_dir());
	struct daemon *daemon;

	memset(path + n, 'x', sizeof(path) - 1 - (size_t)n);
	path[107] = 0;
	daemon = daemon_start_with(&(struct daemon_options){ .socket_path = path });
	(void)dsaio_disconnect(client_open(daemon));
}

/* ---- C17 ---- */

TEST(c17_live, "C17 socket of a live daemon: refused, the living one named and undisturbed")
{
	struct daemon *daemon = daemon_start(NULL);
	char *said;
	int status;

	beside_start(daemon);
	for (unsigned i = 0; i < 3; i++) {
		status = daemon_start_fails(&(struct daemon_options){ 0 }, &said);
		check_said(status, 1, said, test_text("%s;%d", daemon->socket_path, daemon->pid));
		beside_ok();
		(void)dsaio_disconnect(client_open(daemon));
	}
}

TEST(c17_stopped, "C17 socket of a daemon that stands still: refused just the same")
{
	struct daemon *daemon = daemon_start(NULL);
	char *said;
	int status;

	process_stop(daemon->pid);
	status = daemon_start_fails(&(struct daemon_options){ 0 }, &said);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	check_said(status, 1, said, test_text("%d", daemon->pid));
	(void)dsaio_disconnect(client_open(daemon));
}

TEST(c17_other, "C17 socket of another program that lives: refused, the socket is left alone")
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	_cleanup_(closep) int client = (int)CHECK_SYS(
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = test_text("%s/s.sock", test_dir());
	char *said;
	int status;

	CHECK(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path));
	CHECK_SYS(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK_SYS(listen(fd, 5));
	status = daemon_start_fails(&(struct daemon_options){ 0 }, &said);
	check_said(status, 1, said, path);
	CHECK_SYS(connect(client, (struct sockaddr *)&address, sizeof(address)));
}

/* ---- C18 ---- */

TEST(c18_killed, "C18 stale socket file of a killed daemon: taken over")
{
	struct daemon *daemon = daemon_start(NULL);
	struct stat st;

	for (unsigned i = 0; i < 3; i++) {
		daemon_kill(daemon);
		CHECK_SYS(stat(daemon->socket_path, &st));
		daemon = daemon_start(NULL);
		(void)dsaio_disconnect(client_open(daemon));
	}
	beside_start(daemon);
	beside_ok();
}

TEST(c18_foreign, "C18 stale socket file without a lock file: taken over")
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = test_text("%s/s.sock", test_dir());
	struct daemon *daemon;

	CHECK(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path));
	CHECK_SYS(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	close(fd);
	fd = -1;
	daemon = daemon_start(NULL);
	(void)dsaio_disconnect(client_open(daemon));
}

TEST(c18_no_socket, "C18 a file in the socket's place that is no socket: refused, and it stays")
{
	const char *path = test_text("%s/s.sock", test_dir());
	char *said;
	int status;

	file_make_pattern(path, 100, 1);
	status = daemon_start_fails(&(struct daemon_options){ 0 }, &said);
	check_said(status, 1, said, path);
	file_check_pattern(path, 0, 100, 1, 0);
}

TEST(c18_dead_pid, "C18 a lock file that names a living process but is not locked: taken over")
{
	const char *path = test_text("%s/s.sock.lock", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");
	struct daemon *daemon;

	CHECK(file);
	CHECK(fprintf(file, "%d 1\n", getpid()) > 0);
	CHECK(fflush(file) == 0);
	daemon = daemon_start(NULL);
	(void)dsaio_disconnect(client_open(daemon));
}

TEST(c18_no_directory, "C18 no directory for the socket: the message names it")
{
	const char *path = test_text("%s/none/s.sock", test_dir());
	char *said;
	int status = daemon_start_fails(&(struct daemon_options){ .socket_path = path }, &said);

	check_said(status, 1, said, test_text("%s/none", test_dir()));
}

/* ---- a service that cannot start ---- */

#define OTHER 65534u /* a uid that is not ours */

static int listen_fd;

/* As systemd hands over a socket. */
static void hand_over(void)
{
	CHECK_EQ(dup2(listen_fd, 3), 3);
	CHECK_SYS(setenv("LISTEN_FDS", "1", 1));
	CHECK_SYS(setenv("LISTEN_PID", test_text("%d", getpid()), 1));
}

/* Another user cannot read the service's journal without sudo. */
static void check_refused(const char *path, bool is_other)
{
	struct dsaio_client *client;

	if (is_other)
		CHECK_SYS(seteuid(OTHER)); /* as SO_PEERCRED tells it */
	CHECK_FAILS(socket_connect(path, &client), -ECHILD,
		    test_text("the service cannot start;(%sjournalctl -u "
			      "dsaiod);--check-config;next client starts it again",
			      is_other ? "sudo " : ""));
}

TEST(refused, "a client that waits for a service that cannot start is refused, not left waiting")
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = test_text("%s/s.sock", test_dir());
	const char *config = test_text("%s/conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(config, "we");
	char *said;
	int status;

	CHECK(file);
	CHECK(fputs("[daemon]\npool_size = much\n", file) >= 0);
	CHECK(fflush(file) == 0);
	CHECK(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path));
	listen_fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM, 0)); /* this process ends with it */
	CHECK_SYS(bind(listen_fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK_SYS(listen(listen_fd, 5));
	CHECK_SYS(chmod(path, 0666));
	CHECK_SYS(chmod(test_dir(), 0755));
	for (unsigned i = 0; i < 3; i++) {
		pid_t client = (pid_t)CHECK_SYS(fork());

		if (client == 0) {
			check_refused(path, i == 2 && geteuid() == 0);
			_exit(0);
		}
		CHECK(wait_readable(listen_fd, 60000000));
		status = daemon_start_fails(
			&(struct daemon_options){ .args = DAEMON_ARGS("--config", config),
						  .before_exec = hand_over },
			&said);
		check_said(status, 2, said, "pool_size;much");
		child_wait_ok(client);
	}
}

/* ---- limits ---- */

static rlim_t file_bytes;

static void limit_files(void)
{
	const struct rlimit limit = { .rlim_cur = file_bytes, .rlim_max = file_bytes };

	(void)signal(SIGXFSZ, SIG_DFL);
	CHECK_SYS(setrlimit(RLIMIT_FSIZE, &limit));
}

/* The limit may be that of a program which has started the daemon: no client's call ends it. */
TEST(file_size_limit, "a daemon with a small RLIMIT_FSIZE says so, and stays")
{
	struct daemon *daemon;
	struct dsaio_client *client;
	void *slab;

	file_bytes = 4096;
	daemon = daemon_start_with(&(struct daemon_options){ .before_exec = limit_files });
	CHECK_FAILS(socket_connect(daemon->socket_path, &client), -EFBIG, "RLIMIT_FSIZE");
	CHECK(daemon_is_alive(daemon));
	daemon_stop(daemon);
	file_bytes = 8u << 20;
	daemon = daemon_start_with(&(struct daemon_options){ .before_exec = limit_files });
	client = client_open(daemon);
	CHECK_FAILS(dsaio_alloc(client, 16u << 20, NULL, &slab), -EFBIG, "16 MiB;RLIMIT_FSIZE");
	CHECK_CALL(dsaio_alloc(client, 1u << 20, NULL, &slab));
	(void)dsaio_disconnect(client);
}

/* ---- the start lock ---- */

#define PF_EXITING 0x4ul /* include/linux/sched.h */

/* A process that holds the start lock as a daemon does, and ends, but waits for a close on its way. */
static pid_t dying_holder_start(const struct fuse *fs)
{
	struct process process;
	pid_t pid;

	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		/* The kernel closes descriptors in their order. */
		int hung = (int)CHECK_SYS(open(fuse_path(fs, 'a'), O_RDONLY | O_CLOEXEC));
		int lock = (int)CHECK_SYS(open(test_text("%s/s.sock.lock", test_dir()),
					       O_RDWR | O_CREAT | O_CLOEXEC, 0600));

		CHECK(hung < lock);
		CHECK_SYS(flock(lock, LOCK_EX));
		CHECK(process_look(getpid(), &process));
		CHECK(dprintf(lock, "%d %llu\n", getpid(), process.started) > 0);
		atomic_store(&fs->control->is_flush_hung, true);
		_exit(0);
	}
	while (!atomic_load(&fs->control->n_hung))
		(void)poll(NULL, 0, 5); /* nobody reports that the close waits */
	CHECK(process_look(pid, &process));
	CHECK_MSG(process.state != 'Z' && (process.flags & PF_EXITING), "state %c, flags %lx",
		  process.state, process.flags);
	return pid;
}

TEST(dying, "a start waits for a dying daemon that is no zombie yet")
{
	struct fuse fs;
	pid_t holder, releaser;

	test_needs_root();
	fuse_start(&fs, 0);
	holder = dying_holder_start(&fs);
	releaser = (pid_t)CHECK_SYS(fork());
	if (releaser == 0) { /* once the daemon waits */
		struct daemon first = { .pid_fd = -1 };

		(void)snprintf(first.log_path, sizeof(first.log_path), "%s/daemon-0.log",
			       test_dir());
		while (!daemon_log_has(&first, test_text("dying dsaiod with pid %d", holder)))
			(void)poll(NULL, 0, 10);
		CHECK_SYS(kill(fs.pid, SIGKILL)); /* its calls return */
		_exit(0);
	}
	(void)daemon_start(NULL); /* gets ready */
	child_wait_ok(releaser);
	child_wait_ok(holder);
}

TEST_MAIN
