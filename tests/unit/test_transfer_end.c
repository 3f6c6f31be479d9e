/*
 * Blocks that are back: continued, handed to a worker, or ended with their op.
 */
#include "tests/unit/journal.h"
#include "tests/unit/parts.h"

#include <errno.h>

TEST(a_short_block_goes_on_at_a_boundary)
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

TEST_TABLE(a_result_reaches_the_op, ends)
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

TEST(an_error_names_the_bytes_before_it)
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

TEST(an_error_of_the_device_is_a_warning)
{
	parts_setup();
	journal_take();
	parts_put(1, RING_OP_READ, 0, PARTS_BLOCK);
	parts_turn();
	parts_end_block(-EIO);
	parts_turn();
	ck_assert_msg(journal_has("4", "io-error\nDSAIO_STORE="), "%s", journal_text);
	parts_teardown();
}

/* 31 of 32 MiB were on the disk, and none was counted. */
TEST(bytes_written_behind_a_block_that_failed_are_counted)
{
	parts_setup();
	parts_put(1, RING_OP_WRITE, 0, 2 * PARTS_BLOCK);
	parts_turn();
	parts_end_block(-EFAULT);
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, ring_result_failed(EFAULT, 0));
	ck_assert_uint_eq(metrics_get(&p.channel.metrics.write_bytes), PARTS_BLOCK);
	ck_assert_uint_eq(lane_store_written(&p.store), PARTS_BLOCK);
	parts_teardown();
}

TEST(memory_whose_blocks_stall_the_lane_is_banned)
{
	const struct stall_table *stalls = &p.transfer.stalls;
	const struct inode_id other = { .dev = 1 };

	parts_setup();
	for (unsigned i = 0; i < 2 * STALLS_MAX; i++) {
		parts_put(i, RING_OP_READ, 0, PARTS_BLOCK);
		parts_turn();
		p.fake.blocks[0]->has_stalled = i % 2;
		ck_assert(
			!stall_table_bans(stalls, &p.slab.memory, p.channel.uid, p.turn.now_nsec));
		parts_end_block(PARTS_BLOCK);
		parts_turn();
		ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	}
	ck_assert(stall_table_bans(stalls, &p.slab.memory, p.channel.uid, p.turn.now_nsec));
	ck_assert(!stall_table_bans(stalls, &other, p.channel.uid, p.turn.now_nsec));
	ck_assert(!stall_table_bans(stalls, &p.slab.memory, p.channel.uid,
				    p.turn.now_nsec + STALLS_BAN_NSEC));
	parts_teardown();
}

TEST(a_returned_block_waits_for_a_worker_without_the_mode_lock)
{
	struct op *op;

	parts_setup();
	p.store.is_multi_user = true;
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
	parts_teardown();
}

TEST(a_failed_block_of_a_worker_releases_the_mode_lock)
{
	parts_setup();
	atomic_store(&p.file.target.buffered_fd, 99);
	parts_set_workers(1);
	parts_put(1, RING_OP_WRITE, 100, 200);
	parts_turn();
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 1);
	parts_put(2, RING_OP_WRITE, 1 << 20, PARTS_BLOCK);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 0); /* direct: waits for its turn */
	parts_end_worker(50, -EIO);
	parts_turn();
	ck_assert_int_eq(parts_get().result, ring_result_failed(EIO, 50));
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 1);
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	parts_end_block(PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	parts_teardown();
}

static const struct {
	const char *what;
	int64_t result; /* of the unit around bytes 100 to 300 */
	int64_t want;
} pages[] = {
	{ "whole", 4096, 200 },
	{ "the end of the file behind it", 512, 200 },
	{ "the end of the file within it", 150, 50 },
	{ "the end of the file before it", 20, 0 },
};

TEST_TABLE(an_unaligned_read_is_copied_from_its_page, pages)
{
	const struct block *block;

	parts_setup();
	memset(parts_memory, 0x5a, 4096);
	parts_put(1, RING_OP_READ, 100, 200);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	block = p.fake.blocks[0];
	ck_assert_ptr_eq(block->region, &p.transfer.bounces.region);
	ck_assert(block->off == 0 && block->bytes == 4096);
	ck_assert_uint_eq(p.admit.n_free_pages, BOUNCES - 1);
	memset(block->region->base + block->region_off, 7, 4096);
	parts_end_block(pages[_i].result);
	parts_turn();
	if (p.fake.engine.n_in_flight) { /* continued: no more than before */
		parts_end_block(0);
		parts_turn();
	}
	ck_assert_msg(parts_get().result == pages[_i].want, "%s", pages[_i].what);
	for (int64_t i = 0; i < 4096; i++)
		ck_assert_int_eq(parts_memory[i], i >= 100 && i < 100 + pages[_i].want ? 7 : 0x5a);
	ck_assert_uint_eq(p.admit.n_free_pages, BOUNCES);
	parts_teardown();
}

TEST(a_returned_unaligned_read_becomes_one_of_its_range)
{
	const struct block *block;

	parts_setup();
	p.store.is_multi_user = true;
	parts_set_workers(1);
	parts_put(1, RING_OP_READ, 100, 200);
	parts_turn();
	parts_end_block(-EOPNOTSUPP);
	parts_turn();
	ck_assert(p.file.no_nowait);
	ck_assert_uint_eq(p.admit.n_free_pages, BOUNCES);
	ck_assert_uint_eq(p.admit.bytes_in_flight, 0);
	ck_assert_uint_eq(p.channel.metrics.bytes_in_flight, 4096);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 1);
	block = p.workers.blocks[0];
	ck_assert(block->is_bounced && !block->is_nowait && block->off == 100 &&
		  block->bytes == 200 && block->region == &p.slab.region &&
		  block->region_off == 100);
	parts_end_worker(200, 0);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 200);
	ck_assert_uint_eq(p.channel.metrics.bytes_in_flight, 0);
	parts_teardown();
}

/* Beside these each block of a device seemed to have waited, and the window closed. */
TEST(the_window_learns_nothing_from_blocks_that_no_device_did)
{
	static const struct {
		bool is_late; /* not there at the first look after io_submit() */
		int64_t result;
		uint64_t lowest_nsec;
	} blocks[] = { { false, PARTS_BLOCK, 0 }, { true, 0, 0 }, { true, PARTS_BLOCK, 20000 } };

	parts_setup();
	for (unsigned i = 0; i < 3; i++) {
		parts_put(i, RING_OP_READ, 0, PARTS_BLOCK);
		parts_turn();
		if (blocks[i].is_late)
			parts_turn();
		parts_end_block(blocks[i].result);
		parts_turn();
		ck_assert_int_eq(parts_get().result, blocks[i].result);
		ck_assert_uint_eq(window_lowest_nsec(&p.admit.window, false, PARTS_BLOCK),
				  blocks[i].lowest_nsec);
	}
	parts_teardown();
}

TEST(the_window_learns_of_gpu_memory_apart)
{
	parts_setup();
	p.slab.region.kind = REGION_GPU;
	parts_set_workers(1);
	parts_put(1, RING_OP_READ, 0, PARTS_BLOCK);
	parts_turn();
	parts_turn();
	parts_end_worker(PARTS_BLOCK, PARTS_BLOCK);
	parts_turn();
	ck_assert_int_eq(parts_get().result, PARTS_BLOCK);
	ck_assert_uint_eq(
		window_lowest_nsec(&p.admit.window, WINDOW_READ + WINDOW_GPU, PARTS_BLOCK), 20000);
	ck_assert_uint_eq(window_lowest_nsec(&p.admit.window, WINDOW_READ, PARTS_BLOCK), 0);
	parts_teardown();
}

TEST_MAIN
