/*
 * The states of a block: every walk, and what each step is charged with.
 */
#include "tests/unit/parts.h"

#include <stdlib.h>

#define WALK_STEPS 4 /* as long as the longest life of one block */

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
			       .region = &p.slab.region,
			       .operation = opcode == RING_OP_WRITE ? BLOCK_WRITE : BLOCK_READ,
			       .bytes = PARTS_BLOCK,
			       .counted_bytes = PARTS_BLOCK,
			       .started_nsec = p.turn.now_nsec };
}

static void teardown(void)
{
	if (op->state == OP_READY) {
		ready_end(&p.ready, op);
		publish_end(&p.publish, op);
	}
	ck_assert_uint_eq(op->state, OP_ENDED);
	(void)parts_publish();
	parts_teardown();
}

/* The counts, in the order of enum block_charge. */
static void look(int64_t now[N_BLOCK_CHARGES])
{
	const int64_t counts[N_BLOCK_CHARGES] = {
		op->n_in_flight,
		(int64_t)p.channel.metrics.blocks_in_flight,
		p.channel.admit.n_in_flight,
		p.admit.n_in_flight,
		p.client.blocks_in_flight,
		p.inode.mode_lock.n_busy,
		p.channel.n_at_workers,
		p.channel.n_deep_at_workers,
		-(int64_t)p.admit.n_free_pages,
		p.channel.n_returned,
	};

	memcpy(now, counts, sizeof(counts));
	/* The sums of bytes agree. */
	ck_assert_uint_eq(p.admit.bytes_in_flight, p.admit.n_in_flight * PARTS_BLOCK);
	ck_assert_uint_eq(p.store.metrics[SCHED_NORMAL].blocks_in_flight,
			  p.channel.metrics.blocks_in_flight);
	ck_assert_uint_eq(p.store.metrics[SCHED_NORMAL].bytes_in_flight,
			  p.store.metrics[SCHED_NORMAL].blocks_in_flight * PARTS_BLOCK);
	ck_assert_uint_eq(p.channel.metrics.bytes_in_flight,
			  p.store.metrics[SCHED_NORMAL].blocks_in_flight * PARTS_BLOCK);
	ck_assert_uint_eq(p.channel.n_in_device, op->n_in_flight > 0);
}

#define STARTED (CHARGE_OP | CHARGE_METRICS | CHARGE_DEPTH)
#define WINDOW (CHARGE_WINDOW | CHARGE_CLIENT)

/* Every step that a kind may make, and what it holds after that. */
static const struct step {
	enum block_kind kind;
	enum block_state from, to;
	unsigned charges;
} steps[] = {
	{ BLOCK_OF_ENGINE, BLOCK_FREE, BLOCK_AT_ENGINE,
	  STARTED | WINDOW | CHARGE_LOCK | CHARGE_PAGE },
	{ BLOCK_OF_ENGINE, BLOCK_AT_ENGINE, BLOCK_FREE, 0 },
	{ BLOCK_OF_ENGINE, BLOCK_AT_ENGINE, BLOCK_RETURNED, STARTED | CHARGE_RETURNED },
	{ BLOCK_OF_ENGINE, BLOCK_RETURNED, BLOCK_FREE, 0 },
	{ BLOCK_OF_ENGINE, BLOCK_RETURNED, BLOCK_AT_WORKER,
	  STARTED | CHARGE_LOCK | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OF_ENGINE, BLOCK_AT_WORKER, BLOCK_FREE, 0 },
	{ BLOCK_OUTSIDE_WINDOW, BLOCK_FREE, BLOCK_AT_ENGINE, STARTED | CHARGE_LOCK | CHARGE_PAGE },
	{ BLOCK_OUTSIDE_WINDOW, BLOCK_AT_ENGINE, BLOCK_FREE, 0 },
	{ BLOCK_OUTSIDE_WINDOW, BLOCK_AT_ENGINE, BLOCK_RETURNED, STARTED | CHARGE_RETURNED },
	{ BLOCK_OUTSIDE_WINDOW, BLOCK_RETURNED, BLOCK_FREE, 0 },
	{ BLOCK_OUTSIDE_WINDOW, BLOCK_RETURNED, BLOCK_AT_WORKER,
	  STARTED | CHARGE_LOCK | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OUTSIDE_WINDOW, BLOCK_AT_WORKER, BLOCK_FREE, 0 },
	{ BLOCK_OF_WORKERS, BLOCK_FREE, BLOCK_AT_WORKER,
	  STARTED | CHARGE_LOCK | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OF_WORKERS, BLOCK_AT_WORKER, BLOCK_FREE, 0 },
	{ BLOCK_OF_WORKERS_ENGINE, BLOCK_FREE, BLOCK_AT_WORKER,
	  STARTED | CHARGE_CLIENT | CHARGE_LOCK | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OF_WORKERS_ENGINE, BLOCK_AT_WORKER, BLOCK_FREE, 0 },
	{ BLOCK_OF_GPU, BLOCK_FREE, BLOCK_AT_WORKER,
	  STARTED | WINDOW | CHARGE_LOCK | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OF_GPU, BLOCK_AT_WORKER, BLOCK_FREE, 0 },
	{ BLOCK_OF_GPU, BLOCK_AT_WORKER, BLOCK_HUNG,
	  STARTED | CHARGE_CLIENT | CHARGE_LOCK | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OF_GPU, BLOCK_HUNG, BLOCK_FREE, 0 },
	{ BLOCK_OF_EXTENSION, BLOCK_FREE, BLOCK_AT_WORKER,
	  CHARGE_OP | CHARGE_WORKER | CHARGE_DEEP },
	{ BLOCK_OF_EXTENSION, BLOCK_AT_WORKER, BLOCK_FREE, 0 },
};

/* Two blocks of a kind walk in turns, so that each step is also made while the other one is anywhere. */
struct walk {
	struct block request;
	struct lane_block *blocks[2];
	unsigned conditions;
	int64_t before[N_BLOCK_CHARGES];
	unsigned n_walks;
};

static void check(const struct walk *walk)
{
	int64_t now[N_BLOCK_CHARGES];

	look(now);
	for (unsigned c = 0; c < N_BLOCK_CHARGES; c++) {
		const int64_t held = !!(walk->blocks[0]->charges & 1u << c) +
				     !!(walk->blocks[1]->charges & 1u << c);

		ck_assert_msg(now[c] - walk->before[c] == held, "charge %u: %jd, held by %jd", c,
			      (intmax_t)(now[c] - walk->before[c]), (intmax_t)held);
	}
}

static void prepare(const struct walk *walk, struct lane_block *block, const struct step *step)
{
	block_prepare(block, step->kind, &walk->request);
	block->conditions = (uint16_t)(walk->conditions & step->charges);
	if (block->conditions & CHARGE_PAGE)
		block->page_off = bounce_take(&p.transfer.bounces);
}

static void make(struct walk *walk, unsigned i, const struct step *step)
{
	struct lane_block *block = walk->blocks[i];
	const unsigned optional = CHARGE_DEEP | CHARGE_PAGE;

	if (step->from == BLOCK_FREE)
		prepare(walk, block, step);
	else if (step->to == BLOCK_AT_WORKER)
		block->conditions = (uint16_t)(walk->conditions & CHARGE_DEEP);
	block_move(&p.transfer, block, step->to);
	ck_assert_uint_eq(block->state, step->to);
	ck_assert_uint_eq(block->charges, step->charges & (~optional | walk->conditions));
	check(walk);
	/* A free block is taken again, for the next step. */
	if (step->to == BLOCK_FREE)
		walk->blocks[i] = block_take(&p.channel.worker_blocks);
}

static void replay(struct walk *walk, const unsigned *path, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		make(walk, path[k] & 1, &steps[path[k] >> 1]);
}

/* Ends both blocks, by any step to FREE. */
static void finish(struct walk *walk)
{
	for (unsigned i = 0; i < 2; i++) {
		struct lane_block *block = walk->blocks[i];

		if (block->state == BLOCK_FREE)
			continue;
		if (block->state == BLOCK_RETURNED && op_returned(op) != &block->at_worker.block)
			continue; /* behind the other one */
		block_move(&p.transfer, block, BLOCK_FREE);
		walk->blocks[i] = block_take(&p.channel.worker_blocks);
		i = UINT32_MAX; /* from the start: the other may be the first now */
	}
	check(walk);
}

static bool may_make(const struct walk *walk, unsigned i, const struct step *step,
		     enum block_kind kind)
{
	const struct lane_block *block = walk->blocks[i];

	return step->kind == kind && step->from == block->state &&
	       (step->from != BLOCK_RETURNED || op_returned(op) == &block->at_worker.block);
}

/* Each step that may follow path, and all walks from there; then both blocks go back to where path ends. */
static void walk_on(struct walk *walk, enum block_kind kind, const unsigned *path, unsigned n)
{
	unsigned longer[WALK_STEPS];

	walk->n_walks++;
	if (n == WALK_STEPS)
		return;
	for (unsigned i = 0; i < n; i++)
		longer[i] = path[i];
	for (unsigned s = 0; s < 2 * sizeof(steps) / sizeof(*steps); s++) {
		if (!may_make(walk, s & 1, &steps[s >> 1], kind))
			continue;
		longer[n] = s;
		make(walk, s & 1, &steps[s >> 1]);
		walk_on(walk, kind, longer, n + 1);
		finish(walk);
		replay(walk, path, n);
	}
}

/* _i: the kind, and whether the conditions apply. */
TEST_LOOP(each_walk_leaves_all_counts_as_they_were, 2 * N_BLOCK_KINDS)
{
	const enum block_kind kind = (enum block_kind)(_i / 2);
	struct walk walk = { .request = setup(RING_OP_WRITE),
			     .conditions = _i % 2 ? CHARGE_DEEP | CHARGE_PAGE : 0 };

	for (unsigned i = 0; i < 2; i++)
		walk.blocks[i] = block_take(&p.channel.worker_blocks);
	look(walk.before);
	walk_on(&walk, kind, NULL, 0);
	ck_assert_uint_gt(walk.n_walks, WALK_STEPS);
	finish(&walk);
	for (unsigned i = 0; i < 2; i++)
		block_release(walk.blocks[i]);
	teardown();
}

TEST(the_table_of_steps_is_whole)
{
	unsigned n = 0;

	/* Another kind or state needs its steps above. */
	for (unsigned k = 0; k < N_BLOCK_KINDS; k++) {
		unsigned of_kind = 0;

		for (unsigned s = 0; s < sizeof(steps) / sizeof(*steps); s++)
			of_kind += steps[s].kind == k;
		ck_assert_uint_ge(of_kind, 2);
		n += of_kind;
	}
	ck_assert_uint_eq(n, sizeof(steps) / sizeof(*steps));
}

TEST(a_block_that_is_passed_on_is_charged_once)
{
	const struct block request = setup(RING_OP_WRITE);
	struct lane_block *first = block_take(&p.channel.worker_blocks);
	struct lane_block *second = block_take(&p.channel.worker_blocks);

	block_prepare(first, BLOCK_OF_ENGINE, &request);
	block_move(&p.transfer, first, BLOCK_AT_ENGINE);
	ready_end(&p.ready, op); /* all of it has started */
	block_pass_on(&p.transfer, first, second);
	ck_assert_uint_eq(first->state, BLOCK_FREE);
	ck_assert_uint_eq(first->charges, 0);
	ck_assert_uint_eq(second->state, BLOCK_AT_ENGINE);
	ck_assert_uint_eq(p.channel.admit.n_in_flight, 1);
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 1);
	ck_assert_uint_eq(op->state, OP_RUNNING);
	block_move(&p.transfer, second, BLOCK_FREE);
	ck_assert_uint_eq(p.admit.bytes_in_flight, 0);
	teardown();
}

TEST(the_guard_of_a_block_that_is_passed_on_ends_with_it)
{
	const struct block request = setup(RING_OP_READ);
	struct lane_block *first = block_take(&p.channel.worker_blocks);
	struct lane_block *second = block_take(&p.channel.worker_blocks);

	p.admit.is_shared = true;
	block_prepare(first, BLOCK_OF_ENGINE, &request);
	block_move(&p.transfer, first, BLOCK_AT_ENGINE);
	ck_assert(first->is_guarded);
	ck_assert_ptr_eq(p.admit.window.smalls.first, &p.client.small.node);
	block_pass_on(&p.transfer, first, second);
	block_move(&p.transfer, second, BLOCK_RETURNED);
	ck_assert_ptr_null(p.admit.window.smalls.first);
	ready_end(&p.ready, op);
	block_move(&p.transfer, second, BLOCK_FREE);
	teardown();
}

/* _i: its call hangs. */
TEST_LOOP(a_block_of_gpu_memory_counts_in_the_window_until_it_hangs, 2)
{
	const struct block request = setup(RING_OP_READ);
	struct lane_block *block = block_take(&p.channel.worker_blocks);

	p.slab.region.kind = REGION_GPU;
	block_prepare(block, BLOCK_OF_GPU, &request);
	ck_assert_uint_eq(blocks_hung_nsec(&p.transfer), 0);
	block_move(&p.transfer, block, BLOCK_AT_WORKER);
	ck_assert_uint_eq(p.admit.gpu_bytes, PARTS_BLOCK);
	ck_assert_uint_eq(blocks_hung_nsec(&p.transfer), p.turn.now_nsec + WINDOW_HUNG_NSEC);
	p.turn.now_nsec += WINDOW_HUNG_NSEC - !_i;
	blocks_give_up_hung(&p.transfer);
	ck_assert_uint_eq(block->state, _i ? BLOCK_HUNG : BLOCK_AT_WORKER);
	ck_assert_uint_eq(p.admit.bytes_in_flight, _i ? 0 : PARTS_BLOCK);
	ck_assert_uint_eq(p.client.blocks_in_flight, 1);
	ck_assert_uint_eq(blocks_hung_nsec(&p.transfer), _i ? 0 : p.turn.now_nsec + 1);
	block_move(&p.transfer, block, BLOCK_FREE);
	ck_assert_uint_eq(blocks_hung_nsec(&p.transfer), 0);
	ck_assert_uint_eq(p.admit.gpu_bytes, 0);
	teardown();
}

TEST(the_oldest_block_at_the_engine_is_found)
{
	struct block request = setup(RING_OP_READ);
	struct lane_block array[3] = { 0 }, *blocks[3];
	const struct block_pool own = p.transfer.blocks;
	const uint64_t started[] = { 30, 10, 20 };

	p.transfer.blocks = (struct block_pool){ .blocks = array, .n_max = 3 };
	ck_assert_ptr_null(blocks_oldest(&p.transfer));
	for (unsigned i = 0; i < 3; i++) {
		blocks[i] = block_take(&p.transfer.blocks);
		request.started_nsec = started[i];
		block_prepare(blocks[i], BLOCK_OF_ENGINE, &request);
		block_move(&p.transfer, blocks[i], BLOCK_AT_ENGINE);
	}
	ready_end(&p.ready, op);
	ck_assert_ptr_eq(blocks_oldest(&p.transfer), &blocks[1]->at_worker.block);
	ck_assert(block_is_at_engine(&blocks[1]->at_worker.block, 10));
	ck_assert(!block_is_at_engine(&blocks[1]->at_worker.block, 11)); /* it was used again */
	block_move(&p.transfer, blocks[1], BLOCK_FREE);
	ck_assert(!block_is_at_engine(&blocks[1]->at_worker.block, 10));
	ck_assert_ptr_eq(blocks_oldest(&p.transfer), &blocks[2]->at_worker.block);
	block_move(&p.transfer, blocks[2], BLOCK_FREE);
	block_move(&p.transfer, blocks[0], BLOCK_FREE);
	ck_assert_ptr_null(blocks_oldest(&p.transfer));
	p.transfer.blocks = own;
	teardown();
}

TEST(blocks_are_used_again_before_fresh_ones)
{
	struct lane_block array[3] = { 0 };
	struct block_pool blocks = { .blocks = array, .n_max = 3 };
	struct lane_block *first = block_take(&blocks);

	ck_assert_ptr_eq(first, &array[0]);
	block_release(first);
	ck_assert_ptr_eq(block_take(&blocks), first);
	ck_assert_ptr_eq(block_take(&blocks), &array[1]);
	ck_assert_uint_eq(blocks.n_fresh, 2);
}

TEST_MAIN
