/*
 * Blocks that the engine does not take at once, and side lanes' queues of them.
 */
#include "daemon/lane/side_lane.h"

#include "tests/unit/suite.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct {
	struct engine engine;
	int takes;
	struct block *blocks[8];
} fake;
static struct engine_queue queue;
static struct block blocks[8];

static int fake_submit(struct engine *engine, struct block **given, int n)
{
	int taken = 0;

	for (; taken < n && taken < fake.takes; taken++)
		fake.blocks[engine->n_in_flight++] = given[taken];
	return taken;
}

static int fake_reap(struct engine *engine, struct block **ret_blocks, int n)
{
	int r = (int)engine->n_in_flight;

	ck_assert_int_le(r, n);
	memcpy(ret_blocks, fake.blocks, (size_t)r * sizeof(*ret_blocks));
	engine->n_in_flight = 0;
	return r;
}

static const struct engine_ops ops = { .submit = fake_submit, .reap = fake_reap };

static void setup(int takes)
{
	memset(&fake, 0, sizeof(fake));
	fake.takes = takes;
	fake.engine.depth = 4;
	queue = (struct engine_queue){ .ops = &ops, .engine = &fake.engine, .depth = 4 };
}

TEST(blocks_that_are_not_taken_keep_their_order)
{
	setup(2);
	for (int i = 0; i < 4; i++) {
		ck_assert(engine_queue_has_room(&queue));
		engine_queue_add(&queue, &blocks[i]);
	}
	ck_assert(!engine_queue_has_room(&queue));
	ck_assert_int_eq(engine_queue_submit(&queue), 2);
	ck_assert(!engine_queue_has_room(&queue)); /* two are in flight, two wait */
	fake.takes = 1;
	ck_assert_int_eq(engine_queue_submit(&queue), 1);
	ck_assert_int_eq(engine_queue_submit(&queue), 1);
	ck_assert_int_eq(engine_queue_submit(&queue), 0);
	ck_assert(!engine_queue_has_waiting(&queue));
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(fake.blocks[i], &blocks[i]);
}

TEST(blocks_to_be_continued_count_as_the_engines)
{
	setup(4);
	for (int i = 0; i < 3; i++)
		engine_queue_add(&queue, &blocks[i]);
	engine_queue_add_again(&queue, &blocks[3]);
	ck_assert(!engine_queue_has_room(&queue));
	ck_assert(engine_queue_has_waiting(&queue));
	ck_assert_int_eq(engine_queue_submit(&queue), 4);
	ck_assert_ptr_eq(fake.blocks[3], &blocks[3]);
	ck_assert(!engine_queue_has_waiting(&queue));
}

TEST(a_side_lane_does_blocks_and_gives_them_back)
{
	static struct side_lane side;
	struct lane_board board = { .lane_state = 1 }; /* home sleeps */
	const struct lane_doorbell home = { .board = &board, .event_fd = eventfd(0, 0) };
	struct block *results[2];
	eventfd_t rings;

	setup(4);
	memset(&side, 0, sizeof(side));
	ck_assert_int_eq(side_lane_init(&side, 4, &home), 0);
	for (int turn = 0; turn < 5; turn++) { /* around the queue's end */
		block_queue_push(&side.from_home, &blocks[0]);
		block_queue_push(&side.from_home, &blocks[1]);
		ck_assert(block_queue_has_any(&side.from_home));
		ck_assert_int_gt(side_lane_turn(&side, &queue), 0);
		ck_assert(!block_queue_has_any(&side.from_home));
		for (int i = 0; i < 2; i++)
			results[i] = block_queue_pop(&side.to_home);
		ck_assert(results[0] == &blocks[0] && results[1] == &blocks[1]);
		ck_assert_ptr_null(block_queue_pop(&side.to_home));
		ck_assert_int_eq(side_lane_turn(&side, &queue), 0);
	}
	/* It slept once, so it was rung once. */
	ck_assert_int_eq(eventfd_read(home.event_fd, &rings), 0);
	ck_assert_uint_eq(rings, 1);
	side_lane_deinit(&side);
	(void)close(home.event_fd);
}

TEST_MAIN
