/*
 * The outcome of a wait and the result of what it waits for are two values.
 */
#include "tests/harness.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define SEED 5
#define LARGE (64 * MIB)

static void kit_open(struct rig *rig, const struct dsaio_handle_options *options, void **ret_memory,
		     struct dsaio_file **ret_file)
{
	rig_open(rig, NULL);
	if (options) {
		dsaio_handle_close(rig->handle);
		CHECK_CALL(dsaio_handle_open_with(rig->client, options, &rig->handle));
	}
	file_make_pattern(daemon_path(rig->daemon, "f"), LARGE, SEED);
	*ret_file = rig_file(rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig->client, LARGE, ret_memory));
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
	CHECK_EQ(dsaio_wait(rig.handle, -1, &result), 0);
	CHECK_EQ(result, -EFAULT);
	CHECK_EQ(dsaio_wait(rig.handle, -1, NULL), 0);
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
	CHECK_FAILS(dsaio_wait(rig.handle, 1000, &result), -ETIMEDOUT, "1000 us");
	CHECK_EQ(result, 77);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(dsaio_op_wait(op, -1, &result), 0);
	CHECK_EQ(result, LARGE);
	CHECK_EQ(dsaio_wait(rig.handle, -1, &result), 0);
	CHECK_EQ(result, 1);
	dsaio_op_free(op);
}

TEST(op_timed_out, "an op that ends with -ETIMEDOUT is told from a wait that does")
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
	(void)dsaio_fsync(rig.handle, file); /* the channel is open */
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, LARGE, 0, &op));
	CHECK_EQ(dsaio_op_wait(op, 20000, &result), -ETIMEDOUT);
	CHECK_EQ(result, 77);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(dsaio_op_wait(op, -1, &result), 0);
	CHECK_EQ(result, -ETIMEDOUT);
	dsaio_op_free(op);
}

TEST_MAIN
