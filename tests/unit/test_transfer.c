/*
 * Blocks from the start to their op, by an engine that does what the test says.
 */
#include "tests/unit/parts.h"

#include <errno.h>

START_TEST(an_op_goes_block_by_block)
{
	parts_setup();
	parts_put(7, RING_OP_READ, 0, 3 * PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 3);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(p.fake.blocks[i]->off, i * PARTS_BLOCK);
		ck_assert_ptr_eq(p.fake.blocks[i]->target, &p.file.target);
		ck_assert_ptr_eq(p.fake.blocks[i]->region, &p.slab.region);
		ck_assert_uint_eq(p.fake.blocks[i]->region_off, i * PARTS_BLOCK);
		ck_assert(!p.fake.blocks[i]->is_write && !p.fake.blocks[i]->is_nowait);
	}
	ck_assert_uint_eq(p.admit.bytes_in_flight, 3 * PARTS_BLOCK);
	parts_end_block(PARTS_BLOCK);
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(ring_client_ready(&p.ring), 0); /* the last is in flight */
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 3 * PARTS_BLOCK);
	parts_teardown();
}
END_TEST

START_TEST(what_the_engine_does_not_take_is_tried_again)
{
	parts_setup();
	p.fake.takes = 1;
	parts_put(1, RING_OP_READ, 0, 3 * PARTS_BLOCK);
	parts_turn();
	ck_assert(engine_queue_has_waiting(&p.engine));
	for (int i = 0; i < 4; i++)
		parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 3);
	for (int i = 0; i < 3; i++)
		parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 3 * PARTS_BLOCK);
	parts_teardown();
}
END_TEST

START_TEST(a_short_block_goes_on_at_a_boundary)
{
	parts_setup();
	parts_put(1, RING_OP_WRITE, 8192, PARTS_BLOCK);
	parts_turn();
	parts_end_block(4096 + 77);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	ck_assert_uint_eq(p.fake.blocks[0]->off, 8192 + 4096);
	ck_assert_uint_eq(p.fake.blocks[0]->len, PARTS_BLOCK - 4096);
	ck_assert_uint_eq(p.fake.blocks[0]->region_off, 4096);
	parts_end_block(PARTS_BLOCK - 4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	parts_teardown();
}
END_TEST

static const struct {
	const char *what;
	uint8_t opcode;
	int64_t results[20]; /* of the block, each time */
	int n_results;
	int64_t result; /* of the op of one block */
} ends[] = {
	{ "whole", RING_OP_READ, { PARTS_BLOCK }, 1, PARTS_BLOCK },
	{ "the end of the file", RING_OP_READ, { 4096, 0 }, 2, 4096 },
	{ "behind it", RING_OP_READ, { 0 }, 1, 0 },
	{ "tried again", RING_OP_READ, { -EINTR, -EAGAIN, PARTS_BLOCK }, 3, PARTS_BLOCK },
};

START_TEST(a_result_reaches_the_op)
{
	parts_setup();
	parts_put(1, ends[_i].opcode, 0, PARTS_BLOCK);
	parts_turn();
	for (int i = 0; i < ends[_i].n_results; i++) {
		ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
		parts_end_block(ends[_i].results[i]);
		parts_turn();
	}
	ck_assert_msg(parts_get().result == ends[_i].result, "%s", ends[_i].what);
	parts_teardown();
}
END_TEST

START_TEST(an_error_names_the_bytes_before_it)
{
	int64_t result;

	parts_setup();
	parts_put(1, RING_OP_WRITE, 0, 2 * PARTS_BLOCK);
	parts_turn();
	parts_end_block(PARTS_BLOCK);
	parts_end_block(-ENOSPC);
	parts_turn();
	result = parts_get().result;
	ck_assert_int_eq(result, ring_result_failed(ENOSPC, PARTS_BLOCK));
	parts_teardown();
}
END_TEST

START_TEST(a_cancelled_op_awaits_its_blocks)
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
END_TEST

START_TEST(a_returned_block_waits_for_a_worker_without_the_mode_lock)
{
	struct op *op;

	parts_setup();
	p.store.is_multi_user = true;
	p.channel.n_pieces = 4; /* as many as may hang */
	parts_put(1, RING_OP_WRITE, 0, 2 * PARTS_BLOCK);
	parts_turn();
	op = &p.channel.ops[0];
	ck_assert_uint_eq(op->state, OP_RUNNING);
	ck_assert(p.fake.blocks[0]->is_nowait);
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 2);
	parts_end_block(-EAGAIN);
	parts_turn();
	ck_assert_uint_eq(op->state, OP_DEFERRED);
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 1);
	ck_assert_ptr_null(p.channel.ready.first);
	transfer_cancel(&p.transfer, op, ECANCELED);
	parts_end_block(-EAGAIN); /* comes back when it is cancelled */
	parts_turn();
	ck_assert_int_eq(parts_get().result, ring_result_failed(ECANCELED, 0));
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 0);
	p.channel.n_pieces = 0;
	parts_teardown();
}
END_TEST

/* Its depth is full of blocks that came back, so no other op of the channel can go before them. */
START_TEST(returned_blocks_go_before_ops_that_need_their_depth)
{
	struct op *returned, *other;
	struct admit_head head;

	parts_setup();
	p.store.is_multi_user = true;
	atomic_store(&p.file.target.buffered_fd, 99);
	p.channel.n_pieces = 4;
	parts_put(1, RING_OP_WRITE, 0, PARTS_DEPTH * PARTS_BLOCK / 2);
	parts_put(2, RING_OP_WRITE, (1u << 20) + 100, 100); /* buffered: waits for the mode lock */
	for (int i = 0; i < 6; i++)
		parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, PARTS_DEPTH / 2);
	while (p.fake.n_done < (int)PARTS_DEPTH / 2)
		parts_end_block(-EAGAIN);
	parts_turn();
	returned = &p.channel.ops[0];
	other = &p.channel.ops[1];
	p.channel.n_pieces = 0; /* a worker is free */
	ready_let_in(&p.ready, &p.channel.worker_waiters);
	ck_assert_uint_eq(returned->state, OP_READY);
	ck_assert_uint_eq(other->state, OP_READY);
	list_remove(&p.channel.ready, &other->waiter.node);
	list_push_front(&p.channel.ready, &other->waiter.node);
	head = transfer_look(&p.channel.admit, &p.transfer);
	ck_assert_ptr_eq(p.transfer.next.op, returned);
	ck_assert(head.is_piece && head.is_counted && !head.must_defer);
	transfer_cancel(&p.transfer, returned, ECANCELED);
	transfer_cancel(&p.transfer, other, ECANCELED);
	(void)publish_run(&p.publish);
	parts_teardown();
}
END_TEST

START_TEST(a_side_lane_gets_blocks_of_its_part)
{
	static struct side_lane side;
	const struct lane_board awake = { 0 };
	const struct lane_doorbell doorbell = { .board = &awake, .event_fd = -1 };
	struct block *block;

	parts_setup();
	memset(&side, 0, sizeof(side));
	ck_assert_int_eq(side_lane_init(&side, PARTS_DEPTH, &doorbell), 0);
	ck_assert_int_eq(transfer_prepare_side(&p.transfer, 1), 0);
	transfer_add_side(&p.transfer, &side, PARTS_DEPTH, &doorbell);
	admit_channel_deinit(&p.channel.admit);
	p.channel.admit.lanes = calloc(2, sizeof(*p.channel.admit.lanes));
	p.channel.profile.intra_op_parallelism = 2;
	parts_put(1, RING_OP_READ, 0, 2 * PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	block = block_queue_pop(&side.from_home);
	ck_assert_ptr_nonnull(block);
	ck_assert_uint_eq(block->off, PARTS_BLOCK);
	block->result = PARTS_BLOCK;
	block_queue_push(&side.to_home, block);
	ck_assert(transfer_is_ready(&p.transfer));
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 2 * PARTS_BLOCK);
	side_lane_deinit(&side);
	parts_teardown();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, an_op_goes_block_by_block);
	tcase_add_test(tcase, what_the_engine_does_not_take_is_tried_again);
	tcase_add_test(tcase, a_short_block_goes_on_at_a_boundary);
	tcase_add_loop_test(tcase, a_result_reaches_the_op, 0, N_ROWS(ends));
	tcase_add_test(tcase, an_error_names_the_bytes_before_it);
	tcase_add_test(tcase, a_cancelled_op_awaits_its_blocks);
	tcase_add_test(tcase, a_returned_block_waits_for_a_worker_without_the_mode_lock);
	tcase_add_test(tcase, returned_blocks_go_before_ops_that_need_their_depth);
	tcase_add_test(tcase, a_side_lane_gets_blocks_of_its_part);
}

SUITE("transfer", add_tests)
