#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/handle.h"

#include "tests/unit/suite.h"

#include <signal.h>
#include <string.h>

/* ---- states ---- */

static const struct {
	enum op_state from, to;
} allowed[] = {
	{ OP_FREE, OP_PREPARED },    { OP_PREPARED, OP_SUBMITTED }, { OP_PREPARED, OP_WAITING },
	{ OP_PREPARED, OP_BOUNCED }, { OP_PREPARED, OP_ENDED },	    { OP_WAITING, OP_SUBMITTED },
	{ OP_WAITING, OP_ENDED },    { OP_SUBMITTED, OP_ENDED },    { OP_BOUNCED, OP_ENDED },
	{ OP_ENDED, OP_FREE },
};
#define N_STATES (OP_ENDED + 1)

static bool is_allowed(int from, int to)
{
	for (int i = 0; i < N_ROWS(allowed); i++)
		if ((int)allowed[i].from == from && (int)allowed[i].to == to)
			return true;
	return false;
}

TEST(an_op_moves_as_its_table_says)
{
	for (int i = 0; i < N_ROWS(allowed); i++) {
		struct dsaio_op op;

		memset(&op, 0, sizeof(op));
		atomic_init(&op.state, allowed[i].from);
		op_change_state(&op, allowed[i].to);
		ck_assert_int_eq(op_state(&op), allowed[i].to);
	}
}

TEST_ABORTS(another_move_is_a_fault_of_ours, N_STATES *N_STATES) /* _i: from * N_STATES + to */
{
	struct dsaio_op op;

	if (is_allowed(_i / N_STATES, _i % N_STATES))
		abort(); /* not this test's: ends as expected */
	memset(&op, 0, sizeof(op));
	atomic_init(&op.state, _i / N_STATES);
	op_change_state(&op, (enum op_state)(_i % N_STATES));
}

/* ---- objects and results ---- */

static struct dsaio_client client;
static struct dsaio_handle handle;

TEST(a_free_object_is_used_again)
{
	struct op_pool pool = { .n_used = 0 };
	struct dsaio_op *ops[200], *again;

	for (int i = 0; i < 200; i++) {
		ops[i] = op_pool_take(&pool);
		ck_assert_ptr_nonnull(ops[i]);
		ck_assert_int_eq(op_state(ops[i]), OP_PREPARED);
		op_set_text(ops[i], strdup("why"));
	}
	ck_assert_uint_eq(pool.n_used, 200);
	op_change_state(ops[7], OP_ENDED);
	op_pool_release(&pool, ops[7]);
	again = op_pool_take(&pool);
	ck_assert_ptr_eq(again, ops[7]);
	ck_assert_ptr_null(again->text);
	op_pool_deinit(&pool);
}

static const struct {
	const char *what;
	uint8_t opcode;
	int64_t result, settled;
	uint64_t done, settled_done;
} ends[] = {
	{ "a whole read", RING_OP_READ, 100, 100, 100, 100 },
	{ "a read at the end of the file", RING_OP_READ, 40, 40, 40, 40 },
	{ "more than was asked for", RING_OP_READ, 101, -EIO, 101, 100 },
	{ "a write that is not whole", RING_OP_WRITE, 40, -EIO, 40, 40 },
	{ "a sync that claims bytes", RING_OP_FSYNC, 7, 0, 0, 0 },
	{ "a failed one", RING_OP_READ, -EFAULT, -EFAULT, 30, 30 },
};

TEST_TABLE(a_result_that_cannot_be_is_corrected, ends)
{
	struct dsaio_op op;

	memset(&op, 0, sizeof(op));
	op_set_io(&op, ends[_i].opcode, 0, ends[_i].opcode == RING_OP_FSYNC ? 0 : 100,
		  &(struct buffer_place){ .slab = NULL });
	op.part_of = (struct job_piece *)&op; /* a piece: no file, no message */
	op_set_result(&op, ends[_i].result, ends[_i].done);
	op_settle(&op);
	ck_assert_msg(op.result == ends[_i].settled && op.done == ends[_i].settled_done, "%s",
		      ends[_i].what);
}

/* ---- ended ops ---- */

static void ended_setup(void)
{
	memset(&handle, 0, sizeof(handle));
	handle.client = &client;
	ended_init(&handle.ended, &handle.pool);
}

static void ended_teardown(void)
{
	ended_clear(&handle.ended);
	ck_assert_uint_eq(handle.pool.n_used, 0);
	op_pool_deinit(&handle.pool);
}

/* An async op that the caller holds if it is_callers. */
static struct dsaio_op *start(bool is_callers)
{
	struct dsaio_op *op = op_pool_take(&handle.pool);

	ck_assert_ptr_nonnull(op);
	op_init(op, &handle, NULL, true, is_callers);
	return op;
}

static bool end(struct dsaio_op *op, int64_t result)
{
	op_set_result(op, result, 0);
	return ended_add(&handle.ended, op);
}

static void release(struct dsaio_op *op) /* dsaio_op_free() */
{
	ended_forget(&handle.ended, op);
	op_pool_unref(&handle.pool, op);
}

TEST(ops_are_reaped_in_the_order_of_their_ends)
{
	struct dsaio_op *a = start(true), *b = start(false), *c = start(true);
	struct dsaio_completion got[3];

	ck_assert(end(b, 1));
	ck_assert(end(a, -EIO));
	ck_assert(end(c, 3));
	ck_assert_int_eq(ended_take(&handle.ended, got, 2), 2);
	ck_assert_ptr_null(got[0].op); /* nobody held b */
	ck_assert_int_eq(got[0].result, 1);
	ck_assert_ptr_eq(got[1].op, a);
	ck_assert_int_eq(ended_take(&handle.ended, got + 2, 1), 1);
	ck_assert_int_eq(ended_take(&handle.ended, got, 1), 0);
	ck_assert_uint_eq(handle.ended.n_unreported, 0);
	release(a);
	release(c);
}

TEST(a_freed_op_still_counts_and_the_first_failure_is_kept)
{
	struct dsaio_op *a = start(true), *b = start(true), *c = start(true), *d = start(true);
	char *text = NULL;

	release(d); /* before its end */
	ck_assert(end(a, 1));
	op_set_text(b, strdup("b failed"));
	ck_assert(end(b, -ENOSPC));
	ck_assert(end(c, -EIO));
	ck_assert(!end(d, -EFAULT));
	release(c);
	release(b); /* it failed before c and d */
	ck_assert_ptr_eq(handle.ended.orphan, b);
	ck_assert_int_eq(ended_take_all(&handle.ended, false, &text), -ENOSPC);
	ck_assert_str_eq(text, "b failed");
	free(text);
	text = NULL;
	ck_assert_int_eq(ended_take_all(&handle.ended, false, &text), 0); /* reported once */
	ck_assert_ptr_null(text);
	release(a);
}

TEST(ops_of_blocking_calls_are_not_reported)
{
	struct dsaio_op *op = op_pool_take(&handle.pool);
	char *text = NULL;

	op_init(op, &handle, NULL, false, true);
	ck_assert(!end(op, -EIO));
	ck_assert(op_has_ended(op));
	ck_assert_int_eq(ended_take_all(&handle.ended, false, &text), 0);
	op_pool_unref(&handle.pool, op);
}

FIXTURE(ended_setup, ended_teardown)
TEST_MAIN
