/*
 * Ends of ops on private memory: cancels, time-outs, and a daemon, a handle, a client or a process that goes.
 */
#include "tests/private_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define N_OPS 48
#define OP_BYTES (3 * MIB + 512)

struct job {
	struct rig rig;
	struct dsaio_op *ops[N_OPS];
	uint8_t *memory;
};

/* Writes in private memory, mostly not started. */
static void job_start(struct job *job)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	*job = (struct job){ .rig = RIG_NONE };
	profile.queue_depth = 2;
	profile.block_size = 64u << 10;
	rig_open(&job->rig, &profile);
	file_make_sparse(daemon_path(job->rig.daemon, "f"), N_OPS * OP_BYTES);
	rig_file(&job->rig, "f", O_RDWR);
	job->memory = private_new(N_OPS * OP_BYTES);
	pattern_fill(job->memory, N_OPS * OP_BYTES, SEED, 0);
	for (size_t i = 0; i < N_OPS; i++)
		CHECK_CALL(dsaio_pwrite_async(job->rig.handle, job->rig.files[0],
					      job->memory + i * OP_BYTES, OP_BYTES, i * OP_BYTES,
					      &job->ops[i]));
}

/* Each has ended: whole and in the file, or with that errno and a message. */
static unsigned job_check(struct job *job, int64_t error)
{
	unsigned n_failed = 0;

	for (size_t i = 0; i < N_OPS; i++) {
		int64_t r = op_wait(job->ops[i], 20000000);

		CHECK_EQ(op_is_done(job->ops[i]), 1);
		if (r == (int64_t)OP_BYTES) {
			file_check_pattern(daemon_path(job->rig.daemon, "f"), i * OP_BYTES,
					   OP_BYTES, SEED, i * OP_BYTES);
		} else {
			CHECK_EQ(r, error);
			CHECK(strlen(dsaio_op_error(job->ops[i])) > 0);
			CHECK(dsaio_op_bytes(job->ops[i]) < OP_BYTES);
			n_failed++;
		}
	}
	return n_failed;
}

static void job_end(struct job *job)
{
	for (size_t i = 0; i < N_OPS; i++)
		dsaio_op_free(job->ops[i]);
	rig_close(&job->rig);
}

TEST(killed, "the daemon is killed: every op ends once, whole or with -ECONNRESET")
{
	struct job job;
	uint8_t byte;

	job_start(&job);
	CHECK(op_wait(job.ops[0], -1) == (int64_t)OP_BYTES);
	daemon_kill(job.rig.daemon);
	test_note("%u of %u failed", job_check(&job, -ECONNRESET), N_OPS);
	CHECK(handle_wait(job.rig.handle, -1) != 0);
	CHECK_EQ(handle_wait(job.rig.handle, -1), -ENOTCONN);
	CHECK_FAILS(dsaio_pread(job.rig.handle, job.rig.files[0], &byte, 1, 0), -ENOTCONN,
		    "daemon");
	job_end(&job);
}

TEST(killed_blocking, "the daemon is killed: blocking ops in other threads end, too")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	uint8_t *memory = private_new(64 * MIB);
	pid_t pid;
	int64_t r;

	file_make_sparse(daemon_path(rig.daemon, "f"), 64 * MIB);
	rig_file(&rig, "f", O_RDWR);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, MIB, 0), MIB);
	daemon_hold(rig.daemon);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) { /* when the parent waits, or a little before */
		(void)poll(NULL, 0, 100);
		CHECK_SYS(kill(rig.daemon->pid, SIGKILL));
		_exit(0);
	}
	r = dsaio_pread(rig.handle, rig.files[0], memory, 64 * MIB, 0);
	CHECK_EQ(r, -ECONNRESET);
	CHECK(strstr(dsaio_error(), "daemon"));
	child_wait_ok(pid);
	daemon_kill(rig.daemon);
}

TEST(closed, "a handle is cancelled and closed: what has not started ends, the rest is whole")
{
	struct job job;

	job_start(&job);
	CHECK_EQ(dsaio_handle_cancel(job.rig.handle), 0);
	CHECK_EQ(dsaio_handle_close(TAKE_PTR(job.rig.handle), -1), -ECANCELED);
	CHECK(job_check(&job, -ECANCELED) > 0);
	for (size_t i = 0; i < N_OPS; i++)
		dsaio_op_free(job.ops[i]);
	rig_close(&job.rig);
}

TEST(disconnected, "a client disconnects with ops open")
{
	struct job job;
	struct daemon *daemon;

	job_start(&job);
	daemon = job.rig.daemon;
	(void)dsaio_disconnect(job.rig.client);
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

static void *close_later(void *arg)
{
	struct dsaio_op **ops = arg;

	for (size_t i = N_OPS; i-- > 1;)
		CHECK_CALL(dsaio_op_cancel(ops[i]));
	return NULL;
}

TEST(cancelled, "cancelled from another thread: each ends once, -ECANCELED or whole")
{
	struct job job;
	pthread_t thread;
	unsigned n;

	job_start(&job);
	CHECK_EQ(pthread_create(&thread, NULL, close_later, job.ops), 0);
	n = job_check(&job, -ECANCELED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(n > 0);
	CHECK_EQ(dsaio_op_result(job.ops[0]), OP_BYTES);
	CHECK_EQ(handle_wait(job.rig.handle, -1), -ECANCELED);
	job_end(&job);
}

TEST(cancelled_waiting, "ops that wait for their turn are cancelled, too")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	uint8_t *memory = private_new(32 * MIB);
	struct dsaio_op *first, *second, *third;
	void *pinned;

	file_make_sparse(daemon_path(rig.daemon, "f"), 32 * MIB);
	rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &pinned));
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], pinned, MIB, 0), MIB);
	CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], memory, 32 * MIB, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1); /* what needs messages is there */
	daemon_hold(rig.daemon);
	memset(memory, 1, 32 * MIB);
	memset(pinned, 2, MIB);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, 32 * MIB, 0, &first));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], pinned, MIB, MIB, &second));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, MIB, MIB, &third));
	CHECK_CALL(dsaio_op_cancel(second));
	CHECK_CALL(dsaio_op_cancel(third));
	CHECK_EQ(op_wait(second, -1), -ECANCELED); /* although the daemon stands still */
	CHECK_EQ(op_wait(third, -1), -ECANCELED);
	daemon_go_on(rig.daemon);
	CHECK_EQ(op_wait(first, -1), 32 * MIB);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 32 * MIB, 0), 32 * MIB);
	for (size_t i = 0; i < 32 * MIB; i++)
		CHECK(memory[i] == 1);
	dsaio_op_free(first);
	dsaio_op_free(second);
	dsaio_op_free(third);
}

TEST(forked, "a fork while the library's thread works: -EPERM in the child, the parent goes on")
{
	struct job job;
	uint8_t byte;
	pid_t pid;

	job_start(&job);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_pread(job.rig.handle, job.rig.files[0], &byte, 1, 0), -EPERM,
			    "fork");
		CHECK_FAILS(dsaio_pread_async(job.rig.handle, job.rig.files[0], &byte, 1, 0, NULL),
			    -EPERM, "fork");
		CHECK_FAILS(dsaio_op_cancel(job.ops[0]), -EPERM, "fork");
		(void)dsaio_handle_close(job.rig.handle, -1);
		(void)dsaio_disconnect(job.rig.client);
		CHECK_EQ(each_thread(getpid(), NULL), 1);
		_exit(0);
	}
	child_wait_ok(pid);
	CHECK_EQ(job_check(&job, 0), 0);
	job_end(&job);
}

TEST_MAIN
