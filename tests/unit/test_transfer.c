/*
 * Ops that end before all of their blocks have started.
 */
#include "tests/unit/parts.h"

#include <errno.h>

TEST(a_cancelled_op_awaits_its_blocks)
{
	parts_setup();
	parts_put(1, RING_OP_READ, 0, 12 * PARTS_BLOCK);
	parts_turn(); /* starts a few of them */
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 4);
	transfer_cancel(&p.transfer, &p.channel.ops[0], ECANCELED);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 4);
	ck_assert_uint_eq(ring_client_ready(&p.ring), 0);
	for (int i = 0; i < 4; i++)
		parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, ring_result_failed(ECANCELED, 4 * PARTS_BLOCK));
	parts_teardown();
}

TEST(a_cancelled_op_that_waits_for_a_worker_ends_at_once)
{
	parts_setup();
	parts_put(1, RING_OP_FSYNC, 0, 0);
	parts_turn();
	ck_assert_uint_eq(p.channel.ops[0].state, OP_DEFERRED);
	transfer_cancel(&p.transfer, &p.channel.ops[0], ECANCELED);
	ck_assert_ptr_null(p.channel.worker_waiters.first);
	parts_turn();
	ck_assert_int_eq(parts_get().result, ring_result_failed(ECANCELED, 0));
	parts_teardown();
}

TEST_MAIN
