/*
 * Start and end of the daemon, orderly and not, with ops in flight: every op ends once, waits
 * return, and a new daemon on the same socket serves a new connection.
 */
#include "tests/harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_OPS 64
#define OP_BYTES (4 * MIB)

struct job {
	struct rig rig;
	struct dsaio_op *ops[N_OPS];
	uint8_t *memory;
};

/* Many writes in flight, to a file that has its size already. */
static void job_start(struct job *job, struct daemon *daemon)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	void *memory;

	*job = (struct job){ .rig = { .daemon = daemon } };
	profile.queue_depth = 4; /* so that some are in flight and most are not */
	rig_open(&job->rig, &profile);
	file_make_pattern(daemon_path(daemon, "f"), N_OPS * OP_BYTES, 1);
	rig_file(&job->rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(job->rig.client, N_OPS * OP_BYTES, NULL, &memory));
	job->memory = memory;
	pattern_fill(memory, N_OPS * OP_BYTES, 2, 0);
	for (unsigned i = 0; i < N_OPS; i++) {
		struct dsaio_io io = { .opcode = DSAIO_WRITE,
				       .file = job->rig.files[0],
				       .buf = job->memory + i * OP_BYTES,
				       .len = OP_BYTES,
				       .off = i * OP_BYTES,
				       .user_data = &job->ops[i] };

		CHECK_EQ(dsaio_submit(job->rig.handle, &io, sizeof(struct dsaio_io), 1, 0,
				      &job->ops[i]),
			 1);
	}
}

/* Each ends once: whole, with its bytes in the file, or with -ECONNRESET. */
static void job_check(struct job *job)
{
	struct dsaio_completion taken[16];
	unsigned n_done = 0, n_reported = 0;
	bool reported[N_OPS] = { false };

	for (unsigned i = 0; i < N_OPS; i++) {
		int64_t r = op_wait(job->ops[i], 20000000);

		CHECK_EQ(op_is_done(job->ops[i]), 1);
		if (r == (int64_t)OP_BYTES) {
			n_done++;
			file_check_pattern(daemon_path(job->rig.daemon, "f"), i * OP_BYTES,
					   OP_BYTES, 2, i * OP_BYTES);
		} else {
			CHECK_EQ(r, -ECONNRESET);
			CHECK(strlen(dsaio_op_error(job->ops[i])) > 0);
		}
	}
	for (;;) {
		int n = dsaio_handle_reap(job->rig.handle, taken, sizeof(taken[0]), 0,
					  ARRAY_SIZE(taken), 0);

		if (n <= 0)
			break;
		for (int i = 0; i < n; i++) {
			struct dsaio_op **slot = taken[i].user_data;

			CHECK(!reported[slot - job->ops]);
			reported[slot - job->ops] = true;
			n_reported++;
		}
	}
	CHECK_EQ(n_reported, N_OPS);
	test_note("%u of %u ops were done, the others ended with -ECONNRESET", n_done, N_OPS);
}

static void job_end(struct job *job)
{
	for (unsigned i = 0; i < N_OPS; i++)
		dsaio_op_free(job->ops[i]);
	rig_close(&job->rig);
}

/*
 * Results that a client gets after its daemon has ended.  An op that is submitted before the library has
 * noticed is one of the open ones: -ECONNRESET.
 */
static void check_not_connected(struct rig *rig, void *pinned)
{
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t buf[4096];
	void *memory;
	int64_t r;

	r = dsaio_pread(rig->handle, rig->files[0], pinned, 4096, 0);
	CHECK_MSG(r == -ECONNRESET || r == -ENOTCONN, "%" PRId64, r);
	CHECK_FAILS(r, r, "daemon;connect again");
	CHECK_FAILS(dsaio_pread(rig->handle, rig->files[0], pinned, 4096, 0), -ENOTCONN,
		    "daemon;connect again");
	/* It may run, or be started by the new connection. */
	CHECK(!strstr(dsaio_error(), "start it"));
	CHECK_FAILS(dsaio_pread(rig->handle, rig->files[0], buf, 4096, 0), -ENOTCONN, "daemon");
	CHECK_FAILS(dsaio_pread_async(rig->handle, rig->files[0], buf, 4096, 0, &op), -ENOTCONN,
		    "daemon");
	CHECK_FAILS(dsaio_pwrite_async(rig->handle, rig->files[0], buf, 4096, 0, NULL), -ENOTCONN,
		    "daemon");
	CHECK_FAILS(dsaio_fsync(rig->handle, rig->files[0], 0), -ENOTCONN, "daemon");
	CHECK_FAILS(dsaio_handle_open(rig->client, NULL, &handle), -ENOTCONN, "daemon");
	CHECK_FAILS(dsaio_alloc(rig->client, 64 * MIB, NULL, &memory), -ENOTCONN, "daemon");
	CHECK_FAILS(dsaio_open(rig->client, daemon_path(rig->daemon, "g"), O_RDWR | O_CREAT, NULL,
			       &file),
		    -ENOTCONN, "daemon");
}

TEST(ready, "the daemon says when it is ready, on stderr and to systemd, and that it stops")
{
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = test_text("%s/notify", test_dir());
	struct daemon *daemon;
	bool ready = false, serving = false, stopping = false;
	char text[4096];

#ifdef DSAIO_WITHOUT_SYSTEMD
	test_skip("the daemon is built without libsystemd");
#endif
	CHECK(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path));
	CHECK_SYS(fd);
	CHECK_SYS(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK_SYS(chmod(path, 0777)); /* as systemd's is: services run as other users */
	CHECK_SYS(setenv("NOTIFY_SOCKET", path, 1));
	daemon = daemon_start(NULL);
	CHECK(daemon_log_has(daemon, test_text("ready: %s", daemon->socket_path)));
	daemon_stop(daemon);
	for (ssize_t n; (n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0;) {
		text[n] = 0;
		if (strstr(text, "READY=1"))
			ready = true;
		/* It was "serving 0 store(s)" while it served automatic ones. */
		if (strstr(text, test_text("STATUS=serving on %s", daemon->socket_path)))
			serving = true;
		if (strstr(text, "STOPPING=1"))
			stopping = true;
	}
	CHECK(ready);
	CHECK(serving);
	CHECK(stopping);
}

TEST(no_socket_left, "an orderly stop removes the socket, and a second daemon starts there")
{
	struct daemon *daemon = daemon_start(NULL);
	struct stat st;

	CHECK_SYS(stat(daemon->socket_path, &st));
	daemon_stop(daemon);
	CHECK(stat(daemon->socket_path, &st) < 0 && errno == ENOENT);
	daemon = daemon_start(NULL);
	CHECK(!daemon_log_has(daemon, "did not stop in order"));
}

TEST(hangup, "SIGHUP does not end the daemon: it is logged, and clients go on")
{
	struct daemon *daemon = daemon_start(NULL);

	beside_start(daemon);
	CHECK_SYS(kill(daemon->pid, SIGHUP));
	daemon_log_wait(daemon, "SIGHUP has no effect");
	beside_ok();
	beside_stop();
	daemon_stop(daemon);
}

static const struct {
	const char *what;
	int signal;
} signals[] = { { "SIGTERM", SIGTERM }, { "SIGINT", SIGINT } };

TEST_TABLE(stop, signals, "stop with ops in flight: the daemon drains and exits with 0")
{
	struct daemon *daemon = daemon_start(NULL);
	struct job job;

	job_start(&job, daemon);
	CHECK_SYS(kill(daemon->pid, signals[row].signal));
	job_check(&job);
	daemon_wait_end(daemon, 0);
	check_not_connected(&job.rig, job.memory);
	job_end(&job);
}

TEST(stop_twice, "a second signal logged once more that ops complete, although it cancels them")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);

	process_stop(rig.daemon->pid); /* so the second signal comes before the stop is over */
	CHECK_SYS(kill(rig.daemon->pid, SIGTERM));
	CHECK_SYS(kill(rig.daemon->pid, SIGINT));
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	daemon_wait_end(rig.daemon, 0);
	/* Which of the two the kernel delivers first does not matter. */
	CHECK(daemon_log_has(rig.daemon, "stopping on Terminated") !=
	      daemon_log_has(rig.daemon, "stopping on Interrupt"));
	CHECK(daemon_log_has(rig.daemon, "Terminated during the stop") !=
	      daemon_log_has(rig.daemon, "Interrupt during the stop"));
}

TEST(stop_idle, "stop with an idle client: it hears of it at its next call")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory;
	int64_t r;

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDWR), memory, 4096, 0), 4096);
	daemon_stop(rig.daemon);
	check_not_connected(&rig, memory);
	r = handle_wait(rig.handle, -1);
	CHECK(r == 0 || r == -ENOTCONN);
}

TEST(stop_unused, "stop with a client that has done nothing yet, or only by its own descriptors")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle *handle;
	struct dsaio_op *taken[4];
	uint8_t buf[4096];
	void *memory;
	int r;

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDWR), buf, 4095, 1), 4095);
	daemon_stop(rig.daemon);
	r = dsaio_handle_open(rig.client, NULL, &handle);
	CHECK(r == -ENOTCONN || r == -ESHUTDOWN); /* the daemon's last word, or the library's */
	CHECK_FAILS(ops_reap(rig.handle, taken, 0, 4, 0), -ENOTCONN, "daemon");
	check_not_connected(&rig, memory);
}

TEST(stop_hung_client, "stop does not wait for a client that stands still")
{
	struct daemon *daemon = daemon_start(NULL);
	siginfo_t info;
	pid_t pid;

	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		struct job job;

		job_start(&job, daemon);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	CHECK_SYS(waitid(P_PID, (id_t)pid, &info, WSTOPPED));
	daemon_stop(daemon);
	CHECK_SYS(kill(pid, SIGKILL));
}

TEST(killed, "kill -9 with ops in flight: each op ends once, later calls say -ENOTCONN")
{
	struct daemon *daemon = daemon_start(NULL);
	struct job job;

	job_start(&job, daemon);
	daemon_kill(daemon);
	job_check(&job);
	check_not_connected(&job.rig, job.memory);
	job_end(&job);
}

struct sleeper {
	pthread_t thread;
	struct job *job;
	int kind;
	int64_t result;
	uint8_t *memory;
};

static void *sleeper_run(void *arg)
{
	struct sleeper *s = arg;
	struct rig *rig = &s->job->rig;

	switch (s->kind) {
	case 0:
		s->result = handle_wait(rig->handle, -1);
		break;
	case 1:
		s->result = op_wait(s->job->ops[N_OPS - 1], -1);
		break;
	case 2:
		/* Waits for the last write, which it overlaps. */
		s->result = dsaio_pread(rig->handle, rig->files[0], s->memory, OP_BYTES,
					(N_OPS - 1) * OP_BYTES);
		break;
	default:
		s->result = dsaio_fsync(rig->handle, rig->files[0], 0);
	}
	return NULL;
}

TEST(killed_waits, "kill -9 while threads sleep in dsaio_handle_wait, op_wait, pread and fsync")
{
	struct daemon *daemon = daemon_start(NULL);
	struct sleeper sleepers[4] = { 0 };
	uint8_t *memory = malloc(OP_BYTES);
	struct job job;

	CHECK(memory);
	job_start(&job, daemon);
	process_stop(daemon->pid); /* nothing more ends */
	for (int i = 0; i < 4; i++) {
		sleepers[i].job = &job;
		sleepers[i].kind = i;
		sleepers[i].memory = memory;
		CHECK_EQ(pthread_create(&sleepers[i].thread, NULL, sleeper_run, &sleepers[i]), 0);
	}
	(void)poll(NULL, 0, 50); /* most will sleep then; if not, the test is only easier */
	daemon_kill(daemon);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(sleepers[i].thread, NULL), 0);
	CHECK_EQ(sleepers[0].result, -ECONNRESET);
	CHECK_EQ(sleepers[1].result, -ECONNRESET);
	for (int i = 2; i < 4; i++) /* -ENOTCONN: it had not yet called */
		CHECK_MSG(sleepers[i].result == -ECONNRESET || sleepers[i].result == -ENOTCONN,
			  "%d: %" PRId64, i, sleepers[i].result);
	job_end(&job);
	free(memory);
}

static const struct {
	const char *what;
	bool pinned;
} memories[] = { { "with a channel", true }, { "without a channel", false } };

TEST_TABLE(killed_fd, memories, "kill -9 makes dsaio_handle_fd readable")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *taken[4];
	uint8_t buf[4096];
	void *memory;
	int fd, r;

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDWR),
			     memories[row].pinned ? memory : buf, 4096, 0),
		 4096);
	fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle));
	CHECK_EQ(ops_reap(rig.handle, taken, 0, 4, 0), 0);
	daemon_kill(rig.daemon);
	do { /* as an event loop does */
		CHECK(wait_readable(fd, 60000000));
		r = ops_reap(rig.handle, taken, 0, 4, 0);
	} while (r == 0);
	CHECK_FAILS(r, -ENOTCONN, "daemon");
}

TEST(killed_fd_later,
     "dsaio_handle_fd first called after kill -9 is readable; then dsaio_handle_reap fails")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *taken[4];
	int fd;

	daemon_kill(rig.daemon);
	fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle));
	CHECK(wait_readable(fd, 60000000));
	CHECK_FAILS(ops_reap(rig.handle, taken, 0, 4, 0), -ENOTCONN, "daemon");
	CHECK_EQ(dsaio_handle_fd(rig.handle), fd); /* it never changes */
	CHECK(wait_readable(fd, 60000000));
}

TEST(restart, "after kill -9 a new daemon takes the socket over, and a new connection works")
{
	struct daemon *daemon = daemon_start(NULL), *next;
	const pid_t pid = daemon->pid;
	struct job job, again;

	job_start(&job, daemon);
	daemon_kill(daemon);
	next = daemon_start(NULL);
	CHECK(daemon_log_has(next, test_text("with pid %d, did not stop in order", pid)));
	job_start(&again, next);
	CHECK_EQ(handle_wait(again.rig.handle, -1), N_OPS);
	for (unsigned i = 0; i < N_OPS; i++)
		CHECK_EQ(dsaio_op_result(again.ops[i]), OP_BYTES);
	/* The old connection does not come back to life, and hurts nobody. */
	check_not_connected(&job.rig, job.memory);
	job_end(&job);
	job_end(&again);
	CHECK(daemon_wait_clients(next, 0, 0));
}

TEST(close_in_flight, "dsaio_disconnect with ops in flight awaits them; the daemon has all back")
{
	struct daemon *daemon = daemon_start(NULL);
	struct job job;

	job_start(&job, daemon);
	rig_close(&job.rig); /* with open ops that nobody frees any more: they are the client's */
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

TEST(handle_close, "dsaio_handle_close with ops in flight: they are done, and stay readable")
{
	struct daemon *daemon = daemon_start(NULL);
	struct job job;

	job_start(&job, daemon);
	CHECK_EQ(dsaio_handle_close(job.rig.handle, -1), 0);
	job.rig.handle = NULL;
	for (unsigned i = 0; i < N_OPS; i++) {
		CHECK_EQ(op_is_done(job.ops[i]), 1);
		CHECK_EQ(dsaio_op_result(job.ops[i]), OP_BYTES);
	}
	CHECK_CALL(dsaio_free(job.rig.client, job.memory)); /* nobody uses it */
	job_end(&job);
}

TEST_MAIN
