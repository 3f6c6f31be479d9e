/*
 * The counts that a block is part of, step by step.
 */
#include "tests/unit/parts.h"

#include "daemon/lane/in_flight.h"

static struct op *op;

/* An op of one block, which has not started. */
static struct block setup(uint8_t opcode)
{
	parts_setup();
	parts_put(1, opcode, 0, PARTS_BLOCK);
	ck_assert_int_eq(intake_take(&p.intake), 1);
	op = &p.channel.ops[0];
	return (struct block){ .op = op,
			       .target = &p.file.target,
			       .operation = opcode == RING_OP_WRITE ? BLOCK_WRITE : BLOCK_READ,
			       .bytes = PARTS_BLOCK,
			       .counted_bytes = PARTS_BLOCK };
}

/* All of the op has started and ended. */
static void teardown(void)
{
	ck_assert_uint_eq(op->state, OP_ENDED);
	ck_assert_uint_eq(p.channel.metrics.blocks_in_flight, 0);
	ck_assert_uint_eq(p.store.metrics.bytes_in_flight, 0);
	ck_assert_uint_eq(p.client.blocks_in_flight, 0);
	(void)publish_run(&p.publish);
	parts_teardown();
}

static void check(uint32_t depth, uint64_t window, uint32_t n_locks, uint64_t bytes)
{
	ck_assert_uint_eq(p.channel.admit.lanes[0].n_in_flight, depth);
	ck_assert_uint_eq(p.admit.bytes_in_flight, window);
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, n_locks);
	ck_assert_uint_eq(p.store.metrics.bytes_in_flight, bytes);
	ck_assert_uint_eq(p.channel.metrics.bytes_in_flight, bytes);
}

TEST(a_returned_block_counts_in_the_depth_only)
{
	struct block block = setup(RING_OP_WRITE);

	in_flight_enter(&p.transfer, &block);
	in_flight_begin(&p.transfer, &block);
	ready_end(&p.ready, op); /* all of it has started */
	check(1, PARTS_BLOCK, 1, PARTS_BLOCK);
	ck_assert_uint_eq(p.channel.n_in_device, 1);
	in_flight_leave(&p.transfer, &block);
	check(1, 0, 0, PARTS_BLOCK);
	block.is_for_workers = true;
	in_flight_enter(&p.transfer, &block);
	check(1, 0, 1, PARTS_BLOCK);
	in_flight_leave(&p.transfer, &block);
	ck_assert_uint_eq(op->state, OP_RUNNING);
	in_flight_end(&p.transfer, &block);
	check(0, 0, 0, 0);
	teardown();
}

TEST(where_workers_are_the_engine_a_block_is_its_clients)
{
	struct block block = setup(RING_OP_READ);

	block.is_for_workers = block.workers_are_engine = true;
	in_flight_enter(&p.transfer, &block);
	in_flight_begin(&p.transfer, &block);
	ready_end(&p.ready, op);
	check(1, 0, 0, PARTS_BLOCK);
	ck_assert_uint_eq(p.client.blocks_in_flight, 1);
	in_flight_leave(&p.transfer, &block);
	in_flight_end(&p.transfer, &block);
	teardown();
}

/* _i: its call hangs. */
TEST_LOOP(a_block_of_gpu_memory_counts_in_the_window_until_it_hangs, 2)
{
	struct worker_block workers = { .block = setup(RING_OP_READ) };
	struct block *block = &workers.block;

	p.slab.region.kind = REGION_GPU;
	block->region = &p.slab.region;
	block->is_for_workers = block->workers_are_engine = true;
	block->started_nsec = p.turn.now_nsec;
	ck_assert_uint_eq(in_flight_hung_nsec(&p.transfer), 0);
	in_flight_enter(&p.transfer, block);
	in_flight_begin(&p.transfer, block);
	ready_end(&p.ready, op);
	check(1, PARTS_BLOCK, 0, PARTS_BLOCK);
	ck_assert_uint_eq(in_flight_hung_nsec(&p.transfer), p.turn.now_nsec + WINDOW_HUNG_NSEC);
	p.turn.now_nsec += WINDOW_HUNG_NSEC - !_i;
	in_flight_give_up_hung(&p.transfer);
	check(1, _i ? 0 : PARTS_BLOCK, 0, PARTS_BLOCK);
	ck_assert_uint_eq(p.client.blocks_in_flight, 1);
	ck_assert_uint_eq(in_flight_hung_nsec(&p.transfer), _i ? 0 : p.turn.now_nsec + 1);
	in_flight_leave(&p.transfer, block);
	ck_assert_uint_eq(in_flight_hung_nsec(&p.transfer), 0);
	in_flight_end(&p.transfer, block);
	check(0, 0, 0, 0);
	teardown();
}

TEST(an_extension_counts_in_its_op_only)
{
	(void)setup(RING_OP_WRITE);
	in_flight_begin_op(&p.transfer, op);
	check(0, 0, 0, 0);
	ck_assert_uint_eq(op->n_in_flight, 1);
	ck_assert_uint_eq(p.channel.n_in_device, 1);
	in_flight_end_op(&p.transfer, op);
	ck_assert_uint_eq(op->state, OP_READY); /* it has blocks to start */
	in_flight_begin_op(&p.transfer, op);
	ready_end(&p.ready, op);
	in_flight_end_op(&p.transfer, op);
	teardown();
}

TEST_MAIN
