/*
 * Admission alone: decisions about heads that a table describes, depth, pages and shares.
 */
#include "tests/unit/admit_parts.h"

static const struct decision_row {
	const char *name;
	int n_clients;
	uint64_t in_flight; /* of the first client, in blocks of 1 MiB and the rest */
	struct admit_head heads[2];
	enum admit_answer what;
	int side; /* -1: none */
} decision_rows[] = {
	/* One client. */
	{ "alone: a block starts", 1, 0, { { HEAD(.bytes = MIB(1)) } }, ADMIT_START, 0 },
	{ "alone: at the limit", 1, MIB(16), { { HEAD(.bytes = 4096) } }, ADMIT_NOTHING, -1 },
	{ "alone: the last that fits",
	  1,
	  MIB(15) + KIB(512),
	  { { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
	{ "alone: less than half of it fits",
	  1,
	  MIB(15) + KIB(513),
	  { { HEAD(.bytes = MIB(1)) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "alone: a block larger than the limit, nothing in flight",
	  1,
	  0,
	  { { HEAD(.bytes = MIB(256)) } },
	  ADMIT_START,
	  0 },
	{ "alone: a block larger than the limit, half of it in flight",
	  1,
	  MIB(8),
	  { { HEAD(.bytes = MIB(256)) } },
	  ADMIT_START,
	  0 },
	{ "alone: a block larger than the limit, and more in flight",
	  1,
	  MIB(8) + 512,
	  { { HEAD(.bytes = MIB(256)) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "no room in the engine", 1, 0, { { .bytes = 4096 } }, ADMIT_NOTHING, -1 },
	{ "no room in the engine, but a worker thread does it",
	  1,
	  0,
	  { { .bytes = 4096, .is_unlimited = true } },
	  ADMIT_START,
	  0 },
	{ "a sync needs no room",
	  1,
	  MIB(64),
	  { { .bytes = 0, .is_unlimited = true } },
	  ADMIT_START,
	  0 },
	{ "the op has to wait outside",
	  1,
	  0,
	  { { HEAD(.bytes = 4096, .must_defer = true) } },
	  ADMIT_DEFER,
	  0 },
	{ "shared: a block starts",
	  2,
	  0,
	  { { HEAD(.bytes = MIB(1)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
	{ "shared: the window is full",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "shared: a small block of a client without any passes the full window",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1)) }, { HEAD(.bytes = KIB(64)) } },
	  ADMIT_START,
	  1 },
	{ "shared: a larger one does not",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1)) }, { HEAD(.bytes = KIB(64) + 512) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "shared: nor a small one of a client with blocks in flight",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = KIB(4)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "shared: nor one whose op has to wait outside",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1)) }, { HEAD(.bytes = 4096, .must_defer = true) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "shared: nor one without room in the engine",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1)) }, { .bytes = 4096 } },
	  ADMIT_NOTHING,
	  -1 },
	{ "shared: but a worker thread needs no room there",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1)) }, { .bytes = 4096, .is_unlimited = true } },
	  ADMIT_START,
	  1 },
	{ "shared: a piece starts whatever is in flight",
	  2,
	  MIB(2),
	  { { HEAD(.bytes = MIB(1), .is_unlimited = true) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
	{ "shared: half of the block fits",
	  2,
	  KIB(256),
	  { { HEAD(.bytes = KIB(512)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
	{ "shared: less than half of it fits",
	  2,
	  KIB(256) + 512,
	  { { HEAD(.bytes = KIB(512)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_NOTHING,
	  -1 },
	{ "shared: a block larger than the limit, half of it in flight",
	  2,
	  KIB(256),
	  { { HEAD(.bytes = MIB(8)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
	{ "shared: a smaller block that fits",
	  2,
	  KIB(256) + 512,
	  { { HEAD(.bytes = KIB(128)) }, { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
};

TEST_TABLE(the_decision_is, decision_rows)
{
	const struct decision_row *row = &decision_rows[_i];
	struct admit_channel *channel;
	enum admit_answer answer;
	uint64_t left;

	setup();
	sides[0].channel.depth = 1024;
	for (left = row->in_flight; left > MIB(1); left -= MIB(1))
		start(0, MIB(1), 0);
	if (left)
		start(0, left, 0);
	/* Bytes in flight must not cost the client its turn. */
	sides[0].channel.queue.deficit_bytes = sides[0].client.flows[SCHED_NORMAL].deficit_bytes =
		0;
	for (int i = 0; i < row->n_clients; i++) {
		sides[i].head = row->heads[i];
		open_op(i, SEC);
	}
	admit_begin_turn(&admit, SEC);
	answer = next(SEC, &channel);
	ck_assert_msg(answer == row->what, "%s: %d", row->name, answer);
	if (row->side < 0)
		ck_assert_msg(!channel, "%s", row->name);
	else
		ck_assert_msg(channel == &sides[row->side].channel, "%s", row->name);
	ck_assert_uint_eq(admit.until_nsec, 0);

	for (left = row->in_flight; left > MIB(1); left -= MIB(1))
		end(0, MIB(1), SEC);
	if (left)
		end(0, left, SEC);
	for (int i = 0; i < row->n_clients; i++)
		close_op(i);
	teardown();
}

TEST(a_channel_has_its_depth)
{
	setup();
	open_op(0, 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_START);
		start(0, 4096, 0);
	}
	ck_assert_int_eq(next_is(0, 0), ADMIT_FULL);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING); /* it left the scheduler */
	admit_set_ready(&admit, &sides[0].channel, true);
	sides[0].head.is_counted = true; /* it is one of those in flight */
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	sides[0].head.is_counted = false;
	ck_assert_int_eq(next_is(0, 0), ADMIT_FULL);
	end(0, 4096, 0);
	admit_set_ready(&admit, &sides[0].channel, true);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	for (int i = 0; i < 15; i++)
		end(0, 4096, 0);
	close_op(0);
	teardown();
}

TEST(without_overlap_all_of_a_full_queue_is_awaited)
{
	setup();
	sides[0].channel.overlap = false;
	open_op(0, 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_START);
		start(0, 4096, 0);
	}
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_FULL);
		end(0, 4096, 0);
		admit_set_ready(&admit, &sides[0].channel, true);
	}
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	close_op(0);
	teardown();
}

TEST(half_of_the_pages_are_for_one_client_and_waiters_keep_their_order)
{
	setup();
	for (int i = 0; i < 2; i++) {
		sides[i].head.needs_page = true;
		open_op(i, 0);
	}
	for (int i = 0; i < 2; i++) {
		/* The other side is not ready, or it would have its turn. */
		admit_set_ready(&admit, &sides[!i].channel, false);
		admit_set_ready(&admit, &sides[i].channel, true);
		for (uint32_t n = i ? 2 : 4; n; n--) {
			ck_assert_int_eq(next_is(i, 0), ADMIT_START);
			admit_take_page(&admit, &sides[i].channel);
		}
		ck_assert_int_eq(next_is(i, 0), ADMIT_NOTHING); /* waits */
		ck_assert(sides[i].channel.page_wait.is_waiting);
		if (i == 0)
			admit_set_ready(&admit, &sides[0].channel, false);
		ck_assert(i == 1 || !sides[0].channel.page_wait.is_waiting);
	}
	admit_set_ready(&admit, &sides[0].channel, true);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	admit_set_ready(&admit, &sides[1].channel, true); /* another op: it tries again */
	ck_assert_int_eq(next_is(1, 0), ADMIT_NOTHING);
	ck_assert_ptr_eq(admit.page_waiters.list.first, &sides[1].channel.page_wait.node);
	ck_assert_ptr_eq(admit.page_waiters.list.last, &sides[0].channel.page_wait.node);

	admit_release_page(&admit, &sides[0].channel);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	admit_take_page(&admit, &sides[1].channel);
	depth_start(&admit, &sides[1].channel, 4096, 0);
	ck_assert(!sides[1].channel.page_wait.is_waiting);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	admit_depth_discharge(&admit, &sides[1].channel, 0);
	for (int i = 0; i < 3; i++) {
		admit_release_page(&admit, &sides[0].channel);
		admit_release_page(&admit, &sides[1].channel);
	}
	close_op(0);
	close_op(1);
	teardown();
}

TEST(a_channel_that_waits_for_a_page_is_not_looked_at_again_before_one_is_back)
{
	struct sched_queue *queue = &sides[0].channel.queue;

	setup();
	sides[0].head.needs_page = true;
	for (uint32_t n = 0; n < N_PAGES; n++)
		admit_take_page(&admit, &sides[2].channel);
	open_op(0, MSEC);
	for (int turn = 0; turn < 2; turn++) { /* no page is back: it is not looked at again */
		ck_assert_int_eq(next_is(0, 2 * MSEC), ADMIT_NOTHING);
		admit_begin_turn(&admit, 2 * MSEC);
		ck_assert(sides[0].channel.page_wait.is_waiting && !queue->is_active);
		admit_release_page(&admit, &sides[2].channel);
		admit_take_page(&admit, &sides[2].channel); /* it is gone before the turn */
	}
	admit_release_page(&admit, &sides[2].channel);
	ck_assert_int_eq(next_is(0, 3 * MSEC), ADMIT_START);
	ck_assert(sides[0].channel.page_wait.is_waiting);
	admit_start_again(&admit, &sides[0].channel, 4 * MSEC);
	ck_assert(!sides[0].channel.page_wait.is_waiting);
	while (admit.n_free_pages < N_PAGES)
		admit_release_page(&admit, &sides[2].channel);
	close_op(0);
	teardown();
}

TEST(clients_share_while_both_are_active)
{
	setup();
	open_op(0, 0);
	admit_begin_turn(&admit, 0);
	ck_assert(!admit.is_shared);
	open_op(1, 0); /* both have an op open */
	admit_begin_turn(&admit, 0);
	ck_assert(admit.is_shared);
	close_op(0);
	close_op(1);
	admit_begin_turn(&admit, ADMIT_ACTIVE_NSEC - 1);
	ck_assert(admit.is_shared);
	admit_begin_turn(&admit, ADMIT_ACTIVE_NSEC);
	ck_assert(!admit.is_shared);

	/* One after the other, within the time and beyond it. */
	open_op(0, SEC);
	close_op(0);
	open_op(1, SEC + ADMIT_ACTIVE_NSEC - 1);
	close_op(1);
	admit_begin_turn(&admit, SEC + ADMIT_ACTIVE_NSEC);
	ck_assert(admit.is_shared);
	open_op(0, 2 * SEC);
	close_op(0);
	open_op(1, 2 * SEC + ADMIT_ACTIVE_NSEC);
	close_op(1);
	admit_begin_turn(&admit, 2 * SEC + ADMIT_ACTIVE_NSEC);
	ck_assert(!admit.is_shared);

	/* An op waits for long at the device.  Blocks that end count, too. */
	open_op(0, 3 * SEC);
	open_op(1, 3 * SEC);
	start(1, 4096, 3 * SEC);
	end(1, 4096, 4 * SEC);
	admit_begin_turn(&admit, 4 * SEC);
	ck_assert(admit.is_shared);
	close_op(0);
	close_op(1);
	teardown();
}

/* A new client is no other client of one that has gone, wherever its memory is. */
TEST(a_client_that_has_gone_shares_nothing)
{
	setup();
	open_op(0, 0);
	close_op(0);
	admit_remove_channel(&admit, &sides[0].channel);
	open_op(1, 1);
	admit_begin_turn(&admit, 1);
	ck_assert(!admit.is_shared);
	close_op(1);
	admit_add_channel(&sides[0].channel);
	teardown();
}

TEST(a_block_that_is_given_up_counts_for_its_client_only)
{
	bool is_guarded;

	setup();
	open_op(0, 0);
	open_op(1, 0);
	admit_begin_turn(&admit, 0);
	depth_start(&admit, &sides[1].channel, 4096, 0);
	is_guarded = engine_start(&admit, &sides[1].channel, WINDOW_READ + WINDOW_GPU, 4096, 0);
	ck_assert(is_guarded);
	start(1, MIB(2), 0);
	admit_set_ready(&admit, &sides[1].channel, false);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING); /* the window is full */
	admit_window_discharge(&admit, &sides[1].channel, WINDOW_READ, MIB(2), false);
	admit_window_discharge(&admit, &sides[1].channel, WINDOW_READ + WINDOW_GPU, 4096,
			       is_guarded);
	ck_assert_ptr_null(admit.window.smalls.first);
	ck_assert_uint_eq(admit.bytes_in_flight, 0);
	ck_assert_uint_eq(admit.n_in_flight, 0);
	ck_assert_uint_eq(sides[1].client.blocks_in_flight, 2);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	for (int i = 0; i < 2; i++) {
		admit_client_discharge(&sides[1].channel, MSEC);
		admit_depth_discharge(&admit, &sides[1].channel, MSEC);
	}
	ck_assert_uint_eq(sides[1].client.blocks_in_flight, 0);
	close_op(0);
	close_op(1);
	teardown();
}

/* The first is at the limit, and the second has nothing in flight in an engine. */
TEST(a_small_block_keeps_to_depth_and_pages_beyond_the_limit)
{
	setup();
	open_op(0, 0);
	open_op(1, 0);
	for (int i = 0; i < 2; i++)
		start(0, MIB(1), 0);
	sides[0].channel.queue.deficit_bytes = sides[0].client.flows[SCHED_NORMAL].deficit_bytes =
		1;
	sides[1].head.bytes = 4096;
	for (int i = 0; i < 16; i++) /* pieces of worker threads */
		depth_start(&admit, &sides[1].channel, 0, 0);
	ck_assert_int_eq(next_is(1, 0), ADMIT_NOTHING);
	for (int i = 0; i < 16; i++)
		admit_depth_discharge(&admit, &sides[1].channel, 0);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	for (uint32_t n = 0; n < N_PAGES; n++)
		admit_take_page(&admit, &sides[2].channel);
	sides[1].head.needs_page = true;
	ck_assert_int_eq(next_is(1, 0), ADMIT_NOTHING);
	for (uint32_t n = 0; n < N_PAGES; n++)
		admit_release_page(&admit, &sides[2].channel);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	for (int i = 0; i < 2; i++)
		end(0, MIB(1), 0);
	close_op(0);
	close_op(1);
	teardown();
}

TEST_MAIN
