/*
 * The result of an op, and the transitions of its state, without a lane.
 */
#include "daemon/lane/op.h"

#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

TEST(the_lowest_failure_decides)
{
	struct op op = { .len = 1 << 20, .end = 1 << 20 };

	ck_assert_int_eq(op_result(&op), 1 << 20);
	op_stop_at(&op, 65536, EIO);
	op_stop_at(&op, 131072, ENOSPC);
	ck_assert_int_eq(ring_result_errno(op_result(&op)), EIO);
	ck_assert_uint_eq(ring_result_done(op_result(&op)), 65536);
	op_stop_at(&op, 4096, ENOSPC);
	ck_assert_int_eq(ring_result_errno(op_result(&op)), ENOSPC);
	ck_assert_uint_eq(ring_result_done(op_result(&op)), 4096);
	op_stop_at(&op, 100, 0);
	ck_assert_int_eq(op_result(&op), 100);
}

TEST(an_op_of_no_bytes_can_fail)
{
	struct op op = { .opcode = RING_OP_FSYNC };

	op_stop_at(&op, 0, 0);
	ck_assert_int_eq(op_result(&op), 0);
	op_stop_at(&op, 0, EIO);
	ck_assert_int_eq(ring_result_errno(op_result(&op)), EIO);
	ck_assert_uint_eq(ring_result_done(op_result(&op)), 0);
}

static const struct {
	enum op_state from, to;
} moves[] = {
	{ OP_FREE, OP_WAITS_ORDER }, { OP_WAITS_ORDER, OP_READY }, { OP_WAITS_ORDER, OP_ENDED },
	{ OP_READY, OP_DEFERRED },   { OP_READY, OP_RUNNING },	   { OP_DEFERRED, OP_READY },
	{ OP_DEFERRED, OP_RUNNING }, { OP_RUNNING, OP_READY },	   { OP_RUNNING, OP_ENDED },
	{ OP_ENDED, OP_FREE },
};

TEST(an_op_moves_along_its_states)
{
	for (int i = 0; i < N_ROWS(moves); i++) {
		struct op op = { .state = (uint8_t)moves[i].from };

		op_set_state(&op, moves[i].to);
		ck_assert_uint_eq(op.state, moves[i].to);
	}
}

/* _i: a pair of states that is not among them. */
TEST_ABORTS(no_op_leaves_them, N_OP_STATES *N_OP_STATES)
{
	const enum op_state from = (enum op_state)(_i / N_OP_STATES);
	const enum op_state to = (enum op_state)(_i % N_OP_STATES);
	struct op op = { .state = (uint8_t)from };

	for (int i = 0; i < N_ROWS(moves); i++)
		if (moves[i].from == from && moves[i].to == to)
			abort(); /* a legal one: as the assertion would */
	op_set_state(&op, to);
}

TEST_MAIN
