/* The public calls on ops (api/op.c): arguments, results of waits, and how ops are reported. */
#include "client/lib/dsaio.h"
#include "tests/unit/client_handle.h"

#include <errno.h>
#include <sys/uio.h>

/* Completes all that is in the ring with that result. */
static void lane_complete(int64_t result)
{
	while (ring_lane_ready(&lane) > 0)
		complete(take(), result);
}

static struct dsaio_op *read_start(void)
{
	struct dsaio_op *op;

	ck_assert_int_eq(dsaio_pread_async(&handle, &file, memory, 512, 0, &op), 0);
	return op;
}

/* ---- arguments ---- */

static const struct iovec iov[] = { { memory, 512 } };
static const struct iovec endless[] = { { memory, SIZE_MAX }, { memory, 1 } };

static const struct {
	const char *what;
	struct dsaio_io io;
	int error;
	const char *words;
} ios[] = {
	{ "no such opcode", { .opcode = 77 }, -EINVAL, "opcode 77" },
	{ "an unknown flag", { .opcode = DSAIO_READ, .flags = 16 }, -E2BIG, DSAIO_VERSION },
	{ "a later field", { .opcode = DSAIO_READ, .zero = 1 }, -E2BIG, DSAIO_VERSION },
	{ "a data sync of a read",
	  { .opcode = DSAIO_READ, .flags = DSAIO_DATASYNC },
	  -EINVAL,
	  "DSAIO_FSYNC alone" },
	{ "a linked write",
	  { .opcode = DSAIO_WRITE, .flags = DSAIO_LINKED },
	  -EINVAL,
	  "DSAIO_FSYNC alone" },
	{ "a write that syncs, and an older daemon",
	  { .opcode = DSAIO_WRITE, .flags = DSAIO_DSYNC },
	  -EOPNOTSUPP,
	  "older" },
	{ "a read that syncs",
	  { .opcode = DSAIO_READ, .flags = DSAIO_DSYNC },
	  -EINVAL,
	  "DSAIO_WRITE alone" },
	{ "file and path",
	  { .opcode = DSAIO_READ, .file = &file, .path = "x" },
	  -EINVAL,
	  "path x" },
	{ "no iov", { .opcode = DSAIO_READ, .file = &file, .n_iov = 2 }, -EINVAL, "n_iov 2" },
	{ "buf and iov",
	  { .opcode = DSAIO_READ, .file = &file, .buf = memory, .iov = iov, .n_iov = 1 },
	  -EINVAL,
	  "set iov" },
	{ "no buffer of iov", { .opcode = DSAIO_READ, .file = &file, .iov = iov }, -EINVAL, "iov" },
	{ "iov of 2^64 bytes",
	  { .opcode = DSAIO_READ, .file = &file, .iov = endless, .n_iov = 2 },
	  -EINVAL,
	  "2^63" },
	{ "a sync of a range",
	  { .opcode = DSAIO_FSYNC, .file = &file, .len = 1 },
	  -EINVAL,
	  "whole file" },
	{ "time below never",
	  { .opcode = DSAIO_READ, .file = &file, .timeout_usec = -2 },
	  -EINVAL,
	  "timeout_usec -2" },
	{ "no file", { .opcode = DSAIO_READ }, -EINVAL, "file is NULL" },
};

TEST_TABLE(an_io_that_cannot_be_is_refused_with_its_message, ios)
{
	int r = dsaio_submit(&handle, &ios[_i].io, sizeof(struct dsaio_io), 1, 0, NULL);

	ck_assert_msg(r == ios[_i].error, "%s: %d", ios[_i].what, r);
	ck_assert_msg(strstr(dsaio_error(), ios[_i].words), "%s: %s", ios[_i].what, dsaio_error());
}

TEST(arguments_of_calls_are_checked)
{
	struct dsaio_io io = { .opcode = DSAIO_READ };
	struct dsaio_completion ended[2];
	struct dsaio_op *ops[2];

	ck_assert_int_eq(dsaio_submit(NULL, &io, sizeof(struct dsaio_io), 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_submit(&handle, NULL, sizeof(struct dsaio_io), 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_submit(&handle, &io, sizeof(struct dsaio_io), -1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_submit(&handle, &io, sizeof(struct dsaio_io), 1, ~0u, NULL), -E2BIG);
	ck_assert_int_eq(dsaio_submit(&handle, &io, sizeof(struct dsaio_io), 0, 0, NULL), 0);
	ck_assert_int_eq(dsaio_submit(&handle, &io, sizeof(io) - 8, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_handle_reap(&handle, NULL, sizeof(ended[0]), 0, 1, 0), -EINVAL);
	ck_assert_int_eq(dsaio_handle_reap(&handle, ended, sizeof(ended[0]), 0, 0, 0), -EINVAL);
	ck_assert_int_eq(dsaio_handle_reap(&handle, ended, sizeof(ended[0]), -1, 2, 0), -EINVAL);
	ck_assert_int_eq(dsaio_handle_reap(&handle, ended, sizeof(ended[0]), 3, 2, 0), -EINVAL);
	ck_assert_int_eq(dsaio_handle_reap(&handle, ended, sizeof(ended[0]), 1, 2, -2), -EINVAL);
	ck_assert_int_eq(dsaio_handle_reap(&handle, ended, sizeof(ended[0]) - 8, 1, 2, 0), -EINVAL);
	ck_assert_int_eq(dsaio_fsync(&handle, NULL, 2), -E2BIG);
	ck_assert_int_eq(dsaio_fsync_async(&handle, NULL, 2, NULL), -E2BIG);
	ck_assert_int_eq(dsaio_handle_wait(&handle, -2, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_op_wait(NULL, 0, NULL), -EINVAL);
	ops[0] = NULL;
	ck_assert_int_eq(dsaio_op_wait_many(ops, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_op_wait_many(ops, -1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_op_wait_many(NULL, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_op_wait_many(ops, 1, -2, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_op_wait_many(NULL, 0, 0, NULL), 0);
	ck_assert_int_eq(dsaio_pread_path(NULL, "x", memory, 512, 0), -EINVAL);
	ck_assert_int_eq(dsaio_pwrite_path(&handle, NULL, memory, 512, 0), -EINVAL);
	ck_assert_int_eq(dsaio_pread_path_async(NULL, "x", memory, 512, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_pread_path_async(&handle, NULL, memory, 512, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_pwrite_path_async(&handle, NULL, memory, 512, 0, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_op_cancel(NULL), -EINVAL);
	dsaio_op_free(NULL);
	dsaio_op_free_many(ops, 1);
}

/* ---- one op ---- */

TEST(a_wait_for_many_has_the_result_of_each)
{
	struct dsaio_op *ops[3] = { read_start(), read_start(), read_start() };
	int64_t results[3];

	complete(take(), 512);
	ck_assert_int_eq(dsaio_op_wait_many(ops, 1, 0, results), 0);
	ck_assert_int_eq(results[0], 512);
	ck_assert_int_eq(dsaio_op_wait_many(ops, 3, 0, results), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), "op_wait_many: the op on 512 bytes at 0"));
	complete(take(), ring_result_failed(EIO, 100));
	complete(take(), 511);
	ck_assert_int_eq(dsaio_op_wait_many(ops, 3, -1, results), 0);
	ck_assert_int_eq(results[0], 512);
	ck_assert_int_eq(results[1], -EIO);
	ck_assert_int_eq(results[2], 511);
	ck_assert_int_eq(dsaio_op_wait_many(ops, 3, 0, NULL), 0);
	ck_assert_ptr_nonnull(strstr(dsaio_op_error(ops[1]), "after 100 bytes"));
	dsaio_op_free_many(ops, 3);
}

TEST(a_failed_op_tells_why_and_how_far_it_came)
{
	struct dsaio_op *op = read_start();
	int64_t result;

	lane_complete(ring_result_failed(EIO, 100));
	ck_assert_int_eq(dsaio_op_wait(op, -1, &result), 0); /* the wait's outcome */
	ck_assert_int_eq(result, -EIO);
	ck_assert_uint_eq(dsaio_op_bytes(op), 100);
	ck_assert_ptr_nonnull(strstr(dsaio_op_error(op), "after 100 bytes"));
	ck_assert_str_eq(dsaio_op_error(op), dsaio_error());
	dsaio_op_free(op);
}

/* ---- all ops of a handle ---- */

TEST(a_wait_for_all_counts_those_that_nobody_holds)
{
	int64_t result;

	ck_assert_int_eq(dsaio_pread_async(&handle, &file, memory, 512, 0, NULL), 0);
	dsaio_op_free(read_start());
	lane_complete(512);
	ck_assert_int_eq(dsaio_handle_wait(&handle, -1, &result), 0);
	ck_assert_int_eq(result, 2);
	ck_assert_int_eq(dsaio_pread_async(&handle, &file, memory, 512, 0, NULL), 0);
	lane_complete(ring_result_failed(ENOSPC, 0));
	ck_assert_int_eq(dsaio_handle_wait(&handle, -1, &result), 0);
	ck_assert_int_eq(result, -ENOSPC);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), "pread of 512 bytes"));
	ck_assert_int_eq(dsaio_handle_wait(&handle, -1, &result), 0);
	ck_assert_int_eq(result, 0);
}

TEST(a_write_to_a_rados_store_makes_the_file_longer_up_to_its_size)
{
	struct ring_entry entry;
	struct dsaio_op *op;

	file.named.id = 1;
	file.session.offset_align = file.session.memory_align = 1;
	ck_assert_int_eq(dsaio_pwrite_async(&handle, &file, memory + 3, 300, 50, &op), 0);
	entry = take_entry();
	ck_assert_uint_eq(entry.grow_end, 0);
	complete(entry.id, 300);
	ck_assert_int_eq(dsaio_op_wait(op, -1, NULL), 0);
	dsaio_op_free(op);
	ck_assert_int_eq(dsaio_file_size(&file), 350);
	file.named.size = 400;
	ck_assert_int_eq(dsaio_pwrite_async(&handle, &file, memory, 300, 101, &op), 0);
	ck_assert_int_eq(dsaio_op_result(op), -EFBIG);
	ck_assert_ptr_nonnull(strstr(dsaio_op_error(op), "created with a size"));
	dsaio_op_free(op);
	ck_assert_int_eq(dsaio_pread_async(&handle, &file, memory, 300, 300, &op), 0);
	entry = take_entry();
	ck_assert_uint_eq(entry.len, 100); /* up to the end */
	complete(entry.id, 100);
	ck_assert_int_eq(dsaio_op_wait(op, -1, NULL), 0);
	dsaio_op_free(op);
}

static const int64_t results[] = { -ETIMEDOUT, -EIO };

TEST_TABLE(a_write_of_unknown_outcome_says_so_when_it_has_ended, results)
{
	int64_t result = ring_result_failed((int)-results[_i], 0);
	struct dsaio_op *op = read_start();

	ck_assert(!dsaio_op_is_unknown(op));
	lane_complete(_i == 0 ? ring_result_unknown(result) : result);
	ck_assert_int_eq(dsaio_op_wait(op, -1, NULL), 0);
	ck_assert_int_eq(dsaio_op_result(op), results[_i]);
	ck_assert_int_eq(dsaio_op_is_unknown(op), _i == 0);
	ck_assert(!dsaio_op_is_unknown(NULL));
	dsaio_op_free(op);
}

FIXTURE(handle_setup, handle_teardown)
TEST_MAIN
