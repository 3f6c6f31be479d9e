/*
 * Blocks that are set aside.
 */
#include "daemon/lane/blocks.h"

#include "tests/unit/suite.h"

#include <stdlib.h>

TEST(the_blocks_of_a_lane_are_used_when_it_runs)
{
	struct blocks blocks = { .depth = 2 };
	struct block *taken[4];

	ck_assert_int_eq(blocks_prepare_lane(&blocks, 0), 0);
	ck_assert_int_eq(blocks_prepare_lane(&blocks, 1), 0);
	blocks_add_lane(&blocks);
	taken[0] = block_take(&blocks);
	taken[1] = block_take(&blocks);
	ck_assert_uint_eq(blocks.n_fresh, blocks.n);
	blocks_add_lane(&blocks);
	taken[2] = block_take(&blocks);
	taken[3] = block_take(&blocks);
	ck_assert_ptr_eq(taken[1], taken[0] + 1);
	ck_assert_ptr_eq(taken[2], blocks.lanes[1]);
	/* The last one given is the next one taken. */
	block_give(&blocks, taken[0]);
	block_give(&blocks, taken[3]);
	ck_assert_ptr_eq(block_take(&blocks), taken[3]);
	ck_assert_ptr_eq(block_take(&blocks), taken[0]);
	blocks_deinit(&blocks);
}

TEST(blocks_for_workers_are_used_again_before_fresh_ones)
{
	struct worker_block array[3] = { 0 };
	struct worker_blocks blocks = { .blocks = array, .n_max = 3 };
	struct block *first = worker_block_take(&blocks);

	ck_assert_ptr_eq(first, &array[0].block);
	worker_block_give(&blocks, first);
	ck_assert_ptr_eq(worker_block_take(&blocks), first);
	ck_assert_ptr_eq(worker_block_take(&blocks), &array[1].block);
	ck_assert_uint_eq(blocks.n_fresh, 2);
}

TEST_MAIN
