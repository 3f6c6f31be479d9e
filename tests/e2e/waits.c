/*
 * Waits: the outcome of a wait and the result of what it waits for are two values; a wait for some
 * of many ops.
 */
#include "tests/harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SEED 5
#define LARGE (64 * MIB)

static void kit_open(struct rig *rig, const struct dsaio_handle_options *options, void **ret_memory,
		     struct dsaio_file **ret_file)
{
	rig_open(rig, NULL);
	if (options) {
		(void)dsaio_handle_close(rig->handle, -1);
		CHECK_CALL(dsaio_handle_open(rig->client, options, &rig->handle));
	}
	file_make_pattern(daemon_path(rig->daemon, "f"), LARGE, SEED);
	*ret_file = rig_file(rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig->client, LARGE, NULL, ret_memory));
}

TEST(op_ends, "dsaio_op_wait returns 0 for an op that has ended, also where the op has failed")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	int64_t result = 77;
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory;

	kit_open(&rig, NULL, &memory, &file);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
	CHECK_EQ(dsaio_op_wait(op, -1, NULL), 0);
	CHECK_EQ(dsaio_op_wait(op, 0, &result), 0);
	CHECK_EQ(result, 4096);
	dsaio_op_free(op);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, (void *)(uintptr_t)4096, 4096, 0, &op));
	CHECK_EQ(dsaio_op_wait(op, -1, &result), 0);
	CHECK_EQ(result, -EFAULT);
	CHECK_MSG(strcmp(dsaio_error(), dsaio_op_error(op)) == 0, "%s", dsaio_error());
	dsaio_op_free(op);
	CHECK_EQ(dsaio_handle_wait(rig.handle, -1, &result), 0);
	CHECK_EQ(result, -EFAULT);
	CHECK_EQ(dsaio_handle_wait(rig.handle, -1, NULL), 0);
}

TEST(wait_is_over, "a wait that times out leaves the result alone")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	int64_t result = 77;
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory;

	kit_open(&rig, NULL, &memory, &file);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, 0), 4096); /* the channel is open */
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, LARGE, 0, &op));
	CHECK_FAILS(dsaio_op_wait(op, 1000, &result), -ETIMEDOUT, "1000 us");
	CHECK_FAILS(dsaio_handle_wait(rig.handle, 1000, &result), -ETIMEDOUT, "1000 us");
	/* A program that counts down to its deadline must not wait forever. */
	CHECK_FAILS(dsaio_op_wait(op, -2, &result), -EINVAL, "timeout_usec -2");
	CHECK_FAILS(dsaio_handle_wait(rig.handle, -1000, &result), -EINVAL, "timeout_usec -1000");
	CHECK_EQ(result, 77);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(dsaio_op_wait(op, -1, &result), 0);
	CHECK_EQ(result, LARGE);
	CHECK_EQ(dsaio_handle_wait(rig.handle, -1, &result), 0);
	CHECK_EQ(result, 1);
	dsaio_op_free(op);
}

TEST(op_timed_out, "an op that ends with -ETIMEDOUT differs from a wait that does")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	int64_t result = 77;
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory;

	/* 16384 blocks, one after the other: no device does them in that time. */
	profile.queue_depth = 1;
	profile.block_size = 4096;
	options.profile = &profile;
	options.op_timeout_usec = 5000;
	kit_open(&rig, &options, &memory, &file);
	(void)dsaio_fsync(rig.handle, file, 0); /* the channel is open */
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, LARGE, 0, &op));
	CHECK_EQ(dsaio_op_wait(op, 20000, &result), -ETIMEDOUT);
	CHECK_EQ(result, 77);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(dsaio_op_wait(op, -1, &result), 0);
	CHECK_EQ(result, -ETIMEDOUT);
	dsaio_op_free(op);
}

enum { N_COPIED = 64 }; /* half of them are more than the library copies at a time */

static void start_copied(struct dsaio_handle *handle, struct dsaio_file *file, uint8_t *private,
			 struct dsaio_op **ops)
{
	const size_t len = LARGE / N_COPIED;

	for (size_t i = 0; i < N_COPIED; i++)
		CHECK_CALL(
			dsaio_pread_async(handle, file, private + i * len, len, i * len, &ops[i]));
}

static void end_copied(struct dsaio_op **ops)
{
	for (size_t i = 0; i < N_COPIED; i++) {
		const int64_t result = op_wait(ops[i], -1);

		CHECK(result == -ETIMEDOUT || result == LARGE / N_COPIED);
		dsaio_op_free(ops[i]);
	}
}

TEST(copies_timed_out, "an op that waits for memory to copy through ends with -ETIMEDOUT in time")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	uint8_t *private = malloc(LARGE);
	struct dsaio_op *ops[N_COPIED];
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	void *memory;

	kit_open(&rig, NULL, &memory, &file);
	options.op_timeout_usec = 50000;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &handle));
	start_copied(rig.handle, file, private, ops); /* the memory is there */
	end_copied(ops);
	start_copied(handle, file, private, ops); /* the channels are open */
	end_copied(ops);
	process_stop(rig.daemon->pid);
	start_copied(handle, file, private, ops);
	CHECK_EQ(op_wait(ops[N_COPIED - 1], 20000000), -ETIMEDOUT);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	end_copied(ops);
	(void)dsaio_handle_close(handle, -1);
	free(private);
}

/* ---- dsaio_handle_reap ---- */

#define N 64

static void start_reads(struct rig *rig, struct dsaio_file *file, uint8_t *memory, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK_CALL(dsaio_pread_async(rig->handle, file, memory + i * 4096, 4096, i * 4096,
					     NULL));
}

TEST(reap_wait, "dsaio_handle_reap returns min to max ops, and what is left when none is open")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_completion taken[N];
	struct dsaio_file *file;
	unsigned n_taken = 0;
	void *memory;
	int n;

	kit_open(&rig, NULL, &memory, &file);
	CHECK_EQ(dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 1, N, -1),
		 0); /* none was started */
	for (unsigned round = 0; round < 20; round++) {
		start_reads(&rig, file, memory, N);
		for (n_taken = 0; n_taken < N; n_taken += (unsigned)n) {
			n = dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 3, 7, -1);
			CHECK_MSG(n >= 3 || n_taken + (unsigned)n == N, "%d after %u", n, n_taken);
			CHECK_MSG(n <= 7, "%d", n);
			for (int i = 0; i < n; i++)
				CHECK_EQ(taken[i].result, 4096);
		}
		CHECK_EQ(dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 1, N, -1), 0);
	}
	CHECK_EQ(handle_wait(rig.handle, -1), 0); /* all were reported */
	pattern_check(memory, N * 4096, SEED, 0, "read");
}

TEST(reap_wait_time, "dsaio_handle_reap: a time-out reports what has ended")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *taken[N], *op;
	struct dsaio_file *file;
	void *memory;

	kit_open(&rig, NULL, &memory, &file);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
	CHECK_EQ(op_wait(op, -1), 4096);
	process_stop(rig.daemon->pid);
	start_reads(&rig, file, memory, 4);
	CHECK_EQ(ops_reap(rig.handle, taken, 5, N, 10000), 1);
	CHECK(taken[0] == op);
	CHECK_FAILS(ops_reap(rig.handle, taken, 1, N, 10000), -ETIMEDOUT, "10000 us");
	CHECK_FAILS(ops_reap(rig.handle, taken, 1, N, 0), -ETIMEDOUT, "handle_reap");
	CHECK_FAILS(ops_reap(rig.handle, taken, 1, N, -2), -EINVAL, "timeout_usec -2");
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(ops_reap(rig.handle, taken, 4, N, -1), 4);
}

TEST(reap_wait_freed, "dsaio_handle_reap does not wait for ops that their owner freed")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *taken[N], *op;
	struct dsaio_file *file;
	void *memory;

	kit_open(&rig, NULL, &memory, &file);
	for (unsigned i = 0; i < N; i++) {
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
		dsaio_op_free(op);
	}
	CHECK_EQ(ops_reap(rig.handle, taken, 1, N, -1), 0);
	CHECK_EQ(handle_wait(rig.handle, -1), N);
}

TEST(reap_wait_wrong, "dsaio_handle_reap refuses min and max that make no sense")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *taken[N];

	CHECK_FAILS(ops_reap(rig.handle, taken, -1, N, -1), -EINVAL, "min -1, max 64");
	CHECK_FAILS(ops_reap(rig.handle, taken, 3, 2, -1), -EINVAL, "min 3, max 2");
	CHECK_FAILS(ops_reap(rig.handle, taken, 1, 0, -1), -EINVAL, "min 1, max 0");
	CHECK_FAILS(dsaio_handle_reap(rig.handle, NULL, 40, 1, 1, -1), -EINVAL, "completions");
	CHECK_FAILS(ops_reap(NULL, taken, 1, 1, -1), -EINVAL, "handle");
	daemon_kill(rig.daemon);
	CHECK_EQ(ops_reap(rig.handle, taken, 1, 1, -1), -ENOTCONN);
}

struct reaper {
	struct rig *rig;
	pthread_t thread;
	unsigned n_taken;
	_Atomic bool *must_end;
};

static void *reaper_run(void *arg)
{
	struct reaper *r = arg;
	struct dsaio_op *taken[8];

	while (!atomic_load(r->must_end)) {
		int n = ops_reap(r->rig->handle, taken, 2, 8, 100000);

		if (n == -ETIMEDOUT)
			continue;
		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			dsaio_op_free(taken[i]);
		r->n_taken += (unsigned)n;
	}
	return NULL;
}

TEST(reap_wait_threads, "of two threads in dsaio_handle_reap each op is reported to one")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct reaper reapers[2];
	struct dsaio_file *file;
	_Atomic bool must_end = false;
	unsigned n_left;
	void *memory;

	kit_open(&rig, NULL, &memory, &file);
	for (unsigned i = 0; i < 2; i++) {
		reapers[i] = (struct reaper){ .rig = &rig, .must_end = &must_end };
		CHECK_EQ(pthread_create(&reapers[i].thread, NULL, reaper_run, &reapers[i]), 0);
	}
	for (unsigned round = 0; round < 100; round++)
		start_reads(&rig, file, memory, N);
	atomic_store(&must_end, true);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(reapers[i].thread, NULL), 0);
	n_left = (unsigned)handle_wait(rig.handle, -1);
	CHECK_EQ(reapers[0].n_taken + reapers[1].n_taken + n_left, 100 * N);
}

TEST_MAIN
