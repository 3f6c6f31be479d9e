/*
 * Which block starts, at which engine, and what waits outside.
 */
#include "tests/unit/parts.h"

#include <errno.h>

TEST(an_op_goes_block_by_block)
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
		ck_assert(p.fake.blocks[i]->operation == BLOCK_READ &&
			  !p.fake.blocks[i]->is_nowait);
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

TEST_LOOP(a_turn_starts_more_blocks_if_they_are_small, 2)
{
	const uint64_t len = _i ? 4096 : PARTS_BLOCK;

	parts_setup();
	for (uint64_t i = 0; i < 20; i++)
		parts_put(i, RING_OP_READ, 0, len);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, _i ? 16 : 4);
	for (uint32_t n; (n = p.fake.engine.n_in_flight) > 0; parts_turn())
		while (n-- > 0)
			parts_end_block((int64_t)len);
	for (uint64_t i = 0; i < 20; i++)
		ck_assert_int_eq(parts_get().result, (int64_t)len);
	parts_teardown();
}

TEST(what_the_engine_does_not_take_is_tried_again)
{
	parts_setup();
	p.fake.takes = 1;
	parts_put(1, RING_OP_READ, 0, 3 * PARTS_BLOCK);
	parts_turn();
	ck_assert(transfer_has_waiting(&p.transfer));
	for (int i = 0; i < 4; i++)
		parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 3);
	ck_assert(!transfer_has_waiting(&p.transfer));
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(p.fake.blocks[i]->off, i * PARTS_BLOCK); /* in their order */
		parts_end_block(PARTS_BLOCK);
	}
	parts_turn();
	ck_assert_int_eq(parts_get().result, 3 * PARTS_BLOCK);
	parts_teardown();
}

TEST(blocks_that_wait_for_the_engine_count_as_its_own)
{
	parts_setup();
	p.fake.engine.depth = 4;
	p.fake.takes = 2;
	parts_put(1, RING_OP_READ, 0, 5 * PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 2);
	ck_assert_int_eq(p.transfer.n_waiting, 2);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 4);
	ck_assert(!transfer_has_waiting(&p.transfer));
	p.fake.takes = 0;
	parts_end_block(4096); /* the rest of it goes to the engine again */
	(void)transfer_reap(&p.transfer);
	ck_assert(transfer_has_waiting(&p.transfer));
	ck_assert_uint_eq(p.transfer.n_again, 1);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 3);
	ck_assert_int_eq(p.transfer.n_waiting, 1); /* no other block has taken its place */
	p.fake.takes = 4;
	parts_turn();
	ck_assert_uint_eq(p.fake.blocks[3]->off, 4096);
	for (int i = 0; i < 3; i++)
		parts_end_block(PARTS_BLOCK);
	parts_end_block(PARTS_BLOCK - 4096);
	parts_turn();
	ck_assert_uint_eq(p.fake.blocks[0]->off, 4 * PARTS_BLOCK);
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 5 * PARTS_BLOCK);
	parts_teardown();
}

static const struct {
	const char *what;
	uint8_t opcode;
	uint64_t off, len, slab_off;
	enum block_operation operation;
	bool is_buffered, is_bounced;
} for_workers[] = {
	{ "an fsync", RING_OP_FSYNC, 0, 0, 0, BLOCK_FSYNC, false, false },
	{ "an fdatasync", RING_OP_FDATASYNC, 0, 0, 0, BLOCK_FDATASYNC, false, false },
	{ "an unaligned write", RING_OP_WRITE, 100, 200, 100, BLOCK_WRITE, true, false },
	{ "a read to misaligned memory", RING_OP_READ, 0, 131072, 1, BLOCK_READ, false, true },
	{ "a write from misaligned memory", RING_OP_WRITE, 0, 131072, 1, BLOCK_WRITE, true, false },
};

TEST_TABLE(a_block_that_may_block_goes_to_a_worker, for_workers)
{
	const bool is_sync = !for_workers[_i].len;
	const struct block *block;

	parts_setup();
	atomic_store(&p.file.target.buffered_fd, 99);
	parts_set_workers(1);
	ring_client_put(&p.ring, &(struct ring_entry){ .id = 1,
						       .opcode = for_workers[_i].opcode,
						       .file = p.file_id,
						       .slab = is_sync ? 0 : p.slab_id,
						       .off = for_workers[_i].off,
						       .slab_off = for_workers[_i].slab_off,
						       .len = for_workers[_i].len });
	(void)ring_client_submit(&p.ring);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 0);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	block = p.workers.blocks[0];
	ck_assert_msg(block->operation == for_workers[_i].operation &&
			      block->is_buffered == for_workers[_i].is_buffered &&
			      block->is_bounced == for_workers[_i].is_bounced &&
			      block->bytes == for_workers[_i].len,
		      "%s: operation %d of %u bytes", for_workers[_i].what, block->operation,
		      block->bytes);
	/* It counts in the depth of its channel, and not in the window. */
	ck_assert_uint_eq(p.channel.admit.n_in_flight, 1);
	ck_assert_uint_eq(p.admit.bytes_in_flight, 0);
	ck_assert_uint_eq(p.channel.n_at_workers, 1);
	parts_end_worker(block->bytes, 0);
	parts_turn();
	ck_assert_int_eq(parts_get().result, (int64_t)for_workers[_i].len);
	ck_assert_uint_eq(p.channel.n_at_workers, 0);
	parts_teardown();
}

TEST(an_op_without_a_worker_waits_outside_without_the_mode_lock)
{
	parts_setup();
	atomic_store(&p.file.target.buffered_fd, 99);
	parts_put(1, RING_OP_WRITE, 100, 200);		   /* for a worker */
	parts_put(2, RING_OP_WRITE, 1 << 20, PARTS_BLOCK); /* of the same inode */
	parts_turn();
	parts_turn();
	ck_assert_uint_eq(p.channel.ops[0].state, OP_DEFERRED);
	ck_assert_uint_eq(p.channel.ops[0].n_in_flight, 0);
	ck_assert(!p.channel.ops[0].waiter.is_reserved);
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	parts_end_block(PARTS_BLOCK);
	parts_set_workers(1);
	parts_turn();
	ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 1);
	parts_end_worker(200, 200);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 200);
	parts_teardown();
}

TEST(gpu_memory_and_host_memory_do_not_take_each_others_workers)
{
	struct worker_block *block;

	parts_setup();
	atomic_store(&p.file.target.buffered_fd, 99);
	p.slab.region.kind = REGION_GPU;
	parts_set_workers(PARTS_DEPTH);
	parts_put(1, RING_OP_READ, 0, 6 * PARTS_BLOCK);
	parts_turn();
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 0);
	ck_assert_uint_eq(p.channel.n_at_workers, 6); /* more than of other blocks */
	ck_assert_uint_eq(p.channel.n_deep_at_workers, 6);
	block = container_of(p.workers.blocks[0], struct worker_block, block);
	ck_assert(block->work.may_exceed_max);
	ck_assert_uint_eq(lane_block_of(p.workers.blocks[0])->kind, BLOCK_OF_GPU);
	p.slab.region.kind = REGION_HOST;
	parts_put(2, RING_OP_WRITE, (1 << 20) + 100, 200);
	parts_turn();
	ck_assert_uint_eq(p.channel.n_at_workers, 7); /* although these six may hang */
	ck_assert_uint_eq(p.channel.n_deep_at_workers, 6);
	for (int i = 0; i < 6; i++)
		parts_end_worker(PARTS_BLOCK, 0);
	parts_end_worker(200, 0);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 6 * PARTS_BLOCK);
	ck_assert_int_eq(parts_get().result, 200);
	ck_assert_uint_eq(p.channel.n_at_workers, 0);
	ck_assert_uint_eq(p.channel.n_deep_at_workers, 0);
	parts_teardown();
}

TEST(the_window_admits_gpu_memory_as_it_does_host_memory)
{
	parts_setup();
	p.slab.region.kind = REGION_GPU;
	parts_set_workers(PARTS_DEPTH);
	p.admit.shared_until_nsec = UINT64_MAX;
	window_set_most(&p.admit.window, UINT64_C(4) * PARTS_BLOCK);
	parts_put(1, RING_OP_READ, 0, 6 * PARTS_BLOCK);
	parts_turn();
	parts_turn();
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 4); /* although more workers are free */
	ck_assert_uint_eq(p.admit.bytes_in_flight, 4 * PARTS_BLOCK);
	parts_end_worker(PARTS_BLOCK, PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 4);
	p.turn.now_nsec += WINDOW_HUNG_NSEC; /* these four hang: the others need the window */
	parts_turn();
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 5);
	ck_assert_uint_eq(p.admit.bytes_in_flight, PARTS_BLOCK);
	ck_assert_uint_eq(p.channel.admit.n_in_flight, 5);
	for (int i = 0; i < 5; i++)
		parts_end_worker(PARTS_BLOCK, PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 6 * PARTS_BLOCK);
	ck_assert_uint_eq(p.admit.bytes_in_flight, 0);
	parts_teardown();
}

/* A full engine of the lane is no reason: workers need no room there. */
TEST(gpu_memory_needs_no_room_in_the_lanes_engine)
{
	parts_setup();
	p.fake.engine.depth = 0;
	p.slab.region.kind = REGION_GPU;
	parts_set_workers(1);
	parts_put(1, RING_OP_READ, 0, PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	parts_end_worker(PARTS_BLOCK, PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	parts_teardown();
}

static const struct {
	uint64_t limit_mib; /* in a second; 0: none */
	uint32_t block;
} limited_rows[] = {
	{ 0, 1u << 20 },
	{ 4, 64u << 10 },
	{ 45, 448u << 10 },
	{ 800, 1u << 20 },
};

/* They had a debt of seconds, for which the store's other clients waited. */
TEST_TABLE(a_limited_store_cuts_the_blocks_of_a_client_that_is_alone, limited_rows)
{
	struct limiter limiter = { 0 };

	limiter_set(&limiter,
		    &(struct rate_limit){ .bytes_per_sec = limited_rows[_i].limit_mib << 20 });
	parts_setup();
	p.admit.limiter = &limiter;
	p.channel.profile.block_size = 1u << 20;
	parts_put(1, RING_OP_READ, 0, 1u << 20);
	parts_turn();
	ck_assert(!p.admit.is_shared);
	ck_assert_uint_eq(p.fake.blocks[0]->len, limited_rows[_i].block);
	p.admit.limiter = NULL;
	parts_turn();
	while (p.fake.n_done < (int)p.fake.engine.n_in_flight)
		parts_end_block(p.fake.blocks[p.fake.n_done]->len);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 1 << 20);
	parts_teardown();
}

TEST(an_op_of_many_blocks_is_one_op_of_a_limit)
{
	struct limiter limiter = { 0 };

	limiter_set(&limiter, &(struct rate_limit){ .ops_per_sec = 1000 });
	parts_setup();
	p.channel.admit.limiters[0] = &limiter;
	parts_put(1, RING_OP_READ, 0, 3 * PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 3);
	ck_assert_uint_eq(p.channel.admit.shares[0].ops.left, 9); /* of ten that were bought */
	for (int i = 0; i < 3; i++)
		parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 3 * PARTS_BLOCK);
	parts_teardown();
}

/* Its limit may last: aligned writes of others to the file do not wait so long. */
TEST(a_channel_that_a_limit_holds_back_has_no_mode_lock_reserved)
{
	struct limiter limiter = { 0 };

	parts_setup();
	parts_set_workers(1);
	atomic_store(&p.file.target.buffered_fd, 99);
	parts_put(1, RING_OP_WRITE, 1 << 20, PARTS_BLOCK);
	parts_turn();
	parts_put(2, RING_OP_WRITE, 100, 200); /* buffered: waits for the mode lock */
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	ck_assert_uint_eq(p.channel.ops[1].state, OP_DEFERRED);
	limiter_set(&limiter, &(struct rate_limit){ .bytes_per_sec = 1 });
	(void)limiter_ask(&limiter, &p.channel.admit.shares[0], 1000, p.turn.now_nsec);
	limiter_charge(&limiter, &p.channel.admit.shares[0], 1000, 1, p.turn.now_nsec);
	p.channel.admit.limiters[0] = &limiter;
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	ck_assert(p.channel.admit.limit_wait.is_waiting);
	ck_assert_uint_eq(p.inode.mode_lock.n_reserved, 0);
	transfer_cancel(&p.transfer, &p.channel.ops[1], ECANCELED);
	(void)parts_publish();
	parts_teardown();
}

TEST(the_engine_is_asked_what_it_can_do)
{
	struct engine_ops ops = parts_engine_ops;

	parts_setup();
	p.fake.engine.ops = &ops;
	parts_set_workers(1);
	ops.max_bytes = 8192;
	parts_put(1, RING_OP_READ, 0, 16384);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 2);
	ck_assert_uint_eq(p.fake.blocks[1]->len, 8192);
	parts_end_block(8192);
	parts_end_block(8192);
	ops.operations = 1u << BLOCK_WRITE;
	parts_put(2, RING_OP_READ, 0, 4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 16384);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	parts_end_worker(4096, 4096);
	ops = parts_engine_ops;
	ops.has_nowait = false;
	p.store.is_multi_user = true; /* no block may wait */
	parts_put(3, RING_OP_READ, 0, 4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 4096);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	parts_end_worker(4096, 4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 4096);
	ops = parts_engine_ops;
	ops.window_regions = 0;
	parts_put(4, RING_OP_READ, 0, 4096);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	ck_assert_uint_eq(p.admit.bytes_in_flight, 0);
	parts_end_block(4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 4096);
	parts_teardown();
}

TEST(a_file_is_extended_before_its_end_is_written)
{
	const struct block *step;

	parts_setup();
	parts_set_workers(1);
	ring_client_put(&p.ring, &(struct ring_entry){ .id = 1,
						       .opcode = RING_OP_WRITE,
						       .file = p.file_id,
						       .slab = p.slab_id,
						       .len = 512u << 10,
						       .grow_end = 512u << 10 });
	(void)ring_client_submit(&p.ring);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 0);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	step = p.workers.blocks[0];
	ck_assert_uint_eq(step->operation, BLOCK_EXTEND);
	ck_assert_ptr_eq(step->step, &p.file.extension.step);
	ck_assert_uint_eq(step->step->len, 512u << 10);
	ck_assert_uint_eq(p.channel.admit.n_in_flight, 0); /* no depth */
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 0);	   /* no mode lock */
	parts_end_worker(0, -ENOSPC);
	parts_turn();
	ck_assert_int_eq(parts_get().result, ring_result_failed(ENOSPC, 0));
	ck_assert(!p.file.extension.is_running);
	parts_teardown();
}

/* Its depth is full of blocks that came back, so no other op of the channel can go before them. */
TEST(returned_blocks_go_before_ops_that_need_their_depth)
{
	struct op *returned, *other;
	struct next_block next;
	struct admit_head head;

	parts_setup();
	p.store.is_multi_user = true;
	atomic_store(&p.file.target.buffered_fd, 99);
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
	parts_set_workers(1);
	ck_assert_uint_eq(returned->state, OP_READY);
	ck_assert_uint_eq(other->state, OP_READY);
	list_remove(&p.channel.ready, &other->waiter.node);
	list_push_front(&p.channel.ready, &other->waiter.node);
	next = transfer_look(&p.transfer, &p.channel);
	head = transfer_head(&p.transfer, &next);
	ck_assert_ptr_eq(next.op, returned);
	ck_assert(head.is_unlimited && head.is_counted && !head.must_defer);
	transfer_cancel(&p.transfer, returned, ECANCELED);
	transfer_cancel(&p.transfer, other, ECANCELED);
	(void)parts_publish();
	parts_teardown();
}

/* _i: its memory is a GPU's. */
TEST_LOOP(admission_knows_the_memory_of_a_block, 2)
{
	struct next_block next;
	struct admit_head head;
	struct op *op;

	parts_setup();
	p.slab.region.kind = _i ? REGION_GPU : REGION_HOST;
	parts_put(1, RING_OP_READ, 0, PARTS_DEPTH * PARTS_BLOCK);
	parts_set_workers(PARTS_DEPTH);
	parts_turn();
	op = &p.channel.ops[0];
	ck_assert_uint_eq(op->state, OP_READY); /* a turn starts some of its blocks */
	next = transfer_look(&p.transfer, &p.channel);
	head = transfer_head(&p.transfer, &next);
	ck_assert_ptr_eq(next.op, op);
	ck_assert(head.is_gpu == (_i != 0));
	transfer_cancel(&p.transfer, op, ECANCELED);
	while (p.fake.n_done < (int)p.fake.engine.n_in_flight)
		parts_end_block(-EIO);
	while (p.workers.n_done < (int)p.workers.engine.n_in_flight)
		parts_end_worker(0, -EIO);
	parts_turn();
	(void)parts_get(); /* either error */
	parts_teardown();
}

TEST_MAIN
