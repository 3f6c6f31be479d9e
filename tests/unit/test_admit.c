/*
 * Admission alone: decisions about heads that a table describes.
 */
#include "daemon/lane/admit.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

/* ---- decisions ---- */

#define N_PAGES 8u

static struct admit admit;
static struct side {
	struct sched_client client;
	struct admit_channel channel;
	struct admit_head head;
} sides[3];

static struct admit_head look(struct admit_channel *channel, void *arg)
{
	ck_assert_ptr_null(arg);
	return container_of(channel, struct side, channel)->head;
}

/* Admission with channels of depth 16 blocks of 1 MiB, each of a client of its own. */
static void setup(void)
{
	admit_init(&admit, 0, N_PAGES, look, NULL);
	for (int i = 0; i < N_ROWS(sides); i++) {
		struct side *side = &sides[i];

		sched_client_init(&side->client);
		ck_assert_int_eq(admit_channel_init(&side->channel,
						    &(struct admit_channel_config){
							    .client = &side->client,
							    .io_class = SCHED_NORMAL,
							    .weight = 1,
							    .depth = 16,
							    .n_lanes = 2,
							    .overlap = true,
						    }),
				 0);
		admit_add_channel(&admit, &side->channel, MIB(16));
		side->head = (struct admit_head){ .bytes = MIB(1), .has_room = true };
	}
}

static void teardown(void)
{
	for (int i = 0; i < N_ROWS(sides); i++) {
		admit_set_ready(&admit, &sides[i].channel, false, 0);
		admit_remove_channel(&admit, &sides[i].channel);
		admit_channel_deinit(&sides[i].channel);
	}
	ck_assert_uint_eq(admit.n_free_pages, N_PAGES);
	ck_assert_uint_eq(admit.n_busy, 0);
	ck_assert_uint_eq(admit.bytes_in_flight, 0);
}

/* An op of the side is open, and has blocks to start. */
static void open_op(int i, uint64_t now)
{
	admit_open_op(&admit, &sides[i].channel);
	admit_note_op(&admit, &sides[i].channel, MIB(1), false, now);
	admit_set_ready(&admit, &sides[i].channel, true, now);
}

static void close_op(int i)
{
	admit_set_ready(&admit, &sides[i].channel, false, 0);
	admit_close_op(&admit, &sides[i].channel);
}

static void start(int i, uint32_t lane, uint64_t bytes, uint64_t now)
{
	bool is_guarded;

	admit_start(&admit, &sides[i].channel, lane, (uint32_t)bytes, now);
	admit_engine_start(&admit, &sides[i].channel, false, (uint32_t)bytes, now, &is_guarded);
	ck_assert(!is_guarded);
}

static void end(int i, uint32_t lane, uint64_t bytes, uint64_t now)
{
	admit_engine_end(&admit, &sides[i].channel, WINDOW_READ, (uint32_t)bytes, false, now);
	admit_end(&admit, &sides[i].channel, lane, now);
}

#define HEAD(...) .has_room = true, __VA_ARGS__

static const struct decision_row {
	const char *name;
	int n_clients;
	uint64_t in_flight; /* of the first client, in blocks of 1 MiB and the rest */
	struct admit_head heads[2];
	enum admit_what what;
	int side; /* -1: none */
} decision_rows[] = {
	/* One client. */
	{ "alone: a block starts", 1, 0, { { HEAD(.bytes = MIB(1)) } }, ADMIT_START, 0 },
	{ "alone: at the limit", 1, MIB(64), { { HEAD(.bytes = 4096) } }, ADMIT_NOTHING, -1 },
	{ "alone: the last that fits",
	  1,
	  MIB(63) + KIB(512),
	  { { HEAD(.bytes = MIB(1)) } },
	  ADMIT_START,
	  0 },
	{ "alone: less than half of it fits",
	  1,
	  MIB(63) + KIB(513),
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
	  MIB(32),
	  { { HEAD(.bytes = MIB(256)) } },
	  ADMIT_START,
	  0 },
	{ "alone: a block larger than the limit, and more in flight",
	  1,
	  MIB(32) + 512,
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

START_TEST(the_decision_is)
{
	const struct decision_row *row = &decision_rows[_i];
	struct admit_decision decision;
	uint64_t left;

	setup();
	for (left = row->in_flight; left > MIB(1); left -= MIB(1))
		start(0, 1, MIB(1), 0);
	if (left)
		start(0, 1, left, 0);
	/* Bytes in flight must not cost the client its turn. */
	sides[0].channel.queue.deficit_bytes = sides[0].client.turns[SCHED_NORMAL].deficit_bytes =
		0;
	for (int i = 0; i < row->n_clients; i++) {
		sides[i].head = row->heads[i];
		open_op(i, SEC);
	}
	admit_begin_turn(&admit, SEC);
	decision = admit_next(&admit, SEC);
	ck_assert_msg(decision.what == row->what, "%s: %d", row->name, decision.what);
	if (row->side < 0)
		ck_assert_msg(!decision.channel, "%s", row->name);
	else
		ck_assert_msg(decision.channel == &sides[row->side].channel, "%s", row->name);
	ck_assert_uint_eq(decision.until_nsec, 0);

	for (left = row->in_flight; left > MIB(1); left -= MIB(1))
		end(0, 1, MIB(1), SEC);
	if (left)
		end(0, 1, left, SEC);
	for (int i = 0; i < row->n_clients; i++)
		close_op(i);
	teardown();
}
END_TEST

static enum admit_what next_is(int i, uint64_t now)
{
	struct admit_decision decision;

	admit_begin_turn(&admit, now);
	decision = admit_next(&admit, now);
	if (decision.what != ADMIT_NOTHING)
		ck_assert_ptr_eq(decision.channel, &sides[i].channel);
	return decision.what;
}

START_TEST(a_channel_has_its_depth_in_each_lane)
{
	setup();
	open_op(0, 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_START);
		start(0, 0, 4096, 0);
	}
	ck_assert_int_eq(next_is(0, 0), ADMIT_FULL);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING); /* it left the scheduler */
	sides[0].head.lane = 1;
	admit_set_ready(&admit, &sides[0].channel, true, 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	sides[0].head.lane = 0;
	sides[0].head.is_counted = true; /* it is one of those in flight */
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	sides[0].head.is_counted = false;
	ck_assert_int_eq(next_is(0, 0), ADMIT_FULL);
	end(0, 0, 4096, 0);
	admit_set_ready(&admit, &sides[0].channel, true, 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	for (int i = 0; i < 15; i++)
		end(0, 0, 4096, 0);
	close_op(0);
	teardown();
}
END_TEST

START_TEST(without_overlap_all_of_a_full_queue_is_awaited)
{
	setup();
	sides[0].channel.overlap = false;
	open_op(0, 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_START);
		start(0, 0, 4096, 0);
	}
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_FULL);
		end(0, 0, 4096, 0);
		admit_set_ready(&admit, &sides[0].channel, true, 0);
	}
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	close_op(0);
	teardown();
}
END_TEST

START_TEST(half_of_the_pages_are_for_one_client_and_waiters_keep_their_order)
{
	setup();
	for (int i = 0; i < 2; i++) {
		sides[i].head.needs_page = true;
		open_op(i, 0);
	}
	for (int i = 0; i < 2; i++) {
		/* The other side is not ready, or it would have its turn. */
		admit_set_ready(&admit, &sides[!i].channel, false, 0);
		admit_set_ready(&admit, &sides[i].channel, true, 0);
		for (uint32_t n = i ? 2 : 4; n; n--) {
			ck_assert_int_eq(next_is(i, 0), ADMIT_START);
			admit_take_page(&admit, &sides[i].channel);
		}
		ck_assert_int_eq(next_is(i, 0), ADMIT_NOTHING); /* waits */
		ck_assert(sides[i].channel.waits_for_page);
		if (i == 0)
			admit_set_ready(&admit, &sides[0].channel, false, 0);
		ck_assert(i == 1 || !sides[0].channel.waits_for_page);
	}
	admit_set_ready(&admit, &sides[0].channel, true, 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	admit_set_ready(&admit, &sides[1].channel, true, 0); /* another op: it tries again */
	ck_assert_int_eq(next_is(1, 0), ADMIT_NOTHING);
	ck_assert_ptr_eq(admit.page_waiters.first, &sides[1].channel.page_node);
	ck_assert_ptr_eq(admit.page_waiters.last, &sides[0].channel.page_node);

	admit_give_page(&admit, &sides[0].channel);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	admit_take_page(&admit, &sides[1].channel);
	admit_start(&admit, &sides[1].channel, 0, 4096, 0);
	ck_assert(!sides[1].channel.waits_for_page);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	admit_end(&admit, &sides[1].channel, 0, 0);
	for (int i = 0; i < 3; i++) {
		admit_give_page(&admit, &sides[0].channel);
		admit_give_page(&admit, &sides[1].channel);
	}
	close_op(0);
	close_op(1);
	teardown();
}
END_TEST

START_TEST(a_channel_that_waits_for_a_page_keeps_the_age_of_its_head_block)
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
		ck_assert(sides[0].channel.waits_for_page && !queue->is_active);
		admit_give_page(&admit, &sides[2].channel);
		admit_take_page(&admit, &sides[2].channel); /* it is gone before the turn */
	}
	admit_give_page(&admit, &sides[2].channel);
	ck_assert_int_eq(next_is(0, 3 * MSEC), ADMIT_START);
	ck_assert_uint_eq(queue->head_since_nsec, MSEC);
	ck_assert(sides[0].channel.waits_for_page);
	admit_start_again(&admit, &sides[0].channel, 4 * MSEC);
	ck_assert(!sides[0].channel.waits_for_page);
	ck_assert_uint_eq(queue->head_since_nsec, 4 * MSEC);
	while (admit.n_free_pages < N_PAGES)
		admit_give_page(&admit, &sides[2].channel);
	close_op(0);
	teardown();
}
END_TEST

START_TEST(clients_share_while_both_are_active)
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
	start(1, 0, 4096, 3 * SEC);
	end(1, 0, 4096, 4 * SEC);
	admit_begin_turn(&admit, 4 * SEC);
	ck_assert(admit.is_shared);
	close_op(0);
	close_op(1);
	teardown();
}
END_TEST

static const struct {
	const char *name;
	uint64_t op_bytes;
	bool is_sync;
	enum sched_class io_class; /* of the other */
	bool is_shared;
	uint32_t block_bytes;
} cut_rows[] = {
	{ "large ops of one class", MIB(1), false, SCHED_NORMAL, true, UINT32_MAX },
	{ "ops just not small", ADMIT_CUT_BYTES, false, SCHED_NORMAL, true, UINT32_MAX },
	{ "a small op", ADMIT_CUT_BYTES - 1, false, SCHED_NORMAL, true, ADMIT_CUT_BYTES },
	{ "a sync is no small op", 0, true, SCHED_NORMAL, true, UINT32_MAX },
	{ "another class", MIB(1), false, SCHED_DEMAND, true, ADMIT_CUT_BYTES },
	{ "nobody else", 4096, false, SCHED_NORMAL, false, UINT32_MAX },
};

/* A new client is no other client of one that has gone, wherever its memory is. */
START_TEST(a_client_that_has_gone_shares_nothing)
{
	setup();
	open_op(0, 0);
	close_op(0);
	admit_remove_channel(&admit, &sides[0].channel);
	open_op(1, 1);
	admit_begin_turn(&admit, 1);
	ck_assert(!admit.is_shared);
	close_op(1);
	admit_add_channel(&admit, &sides[0].channel, MIB(16));
	teardown();
}
END_TEST

/* Once when they begin to share, the window measures the latency of an almost empty device. */
START_TEST(the_window_opens_when_clients_begin_to_share)
{
	setup();
	admit_note_done(&admit, false, 4096, 1000, 0); /* alone: nothing is learnt for the window */
	ck_assert_uint_eq(admit.window.n_done, 0);
	open_op(0, SEC);
	open_op(1, SEC);
	ck_assert(admit.window.is_closed);
	admit_begin_turn(&admit, SEC);
	admit_note_done(&admit, false, 4096, 1000, SEC);
	ck_assert_uint_eq(admit.window.n_done, 1);
	admit_note_op(&admit, &sides[0].channel, MIB(1), false, SEC);
	ck_assert(admit.window.is_closed);
	ck_assert_uint_eq(admit.window.n_done, 1);
	close_op(0);
	close_op(1);
	teardown();
}
END_TEST

START_TEST(blocks_are_cut_where_that_spares_a_wait)
{
	setup();
	sides[1].channel.queue.io_class = cut_rows[_i].io_class;
	open_op(1, SEC);
	admit_open_op(&admit, &sides[1].channel);
	if (cut_rows[_i].is_shared)
		open_op(0, SEC);
	admit_note_op(&admit, &sides[1].channel, cut_rows[_i].op_bytes, cut_rows[_i].is_sync, SEC);
	admit_begin_turn(&admit, SEC);
	ck_assert_msg(admit_block_bytes(&admit) == cut_rows[_i].block_bytes, "%s",
		      cut_rows[_i].name);
	/* That is forgotten, also while clients go on to share. */
	if (cut_rows[_i].is_shared)
		admit_note_op(&admit, &sides[0].channel, MIB(1), false, SEC + ADMIT_ACTIVE_NSEC);
	admit_begin_turn(&admit, SEC + ADMIT_ACTIVE_NSEC);
	ck_assert(admit.is_shared == cut_rows[_i].is_shared);
	ck_assert_uint_eq(admit_block_bytes(&admit), UINT32_MAX);
	if (cut_rows[_i].is_shared)
		close_op(0);
	admit_close_op(&admit, &sides[1].channel);
	close_op(1);
	teardown();
}
END_TEST

START_TEST(larger_blocks_wait_while_a_small_one_is_late)
{
	struct admit_decision decision;
	bool is_guarded;

	setup();
	open_op(0, 0);
	open_op(1, 0);
	admit_begin_turn(&admit, 0);
	admit_engine_start(&admit, &sides[1].channel, false, 4096, 0, &is_guarded);
	ck_assert(is_guarded);
	start(1, 0, 4096, 0); /* one of each client's is guarded */
	end(1, 0, 4096, 0);
	ck_assert_uint_eq(admit.n_in_flight, 1);
	admit_set_ready(&admit, &sides[1].channel, false, 0);
	ck_assert_int_eq(next_is(0, 2 * MSEC), ADMIT_START);

	admit_begin_turn(&admit, 2 * MSEC + 1);
	decision = admit_next(&admit, 2 * MSEC + 1);
	ck_assert_int_eq(decision.what, ADMIT_NOTHING);
	ck_assert_uint_eq(decision.until_nsec, 22 * MSEC + 1);
	ck_assert(!admit.window.was_full); /* the controller's value stays */
	start(0, 0, KIB(128), 0);
	sides[0].head.bytes = 4096; /* small ones start, as long as they fit */
	ck_assert_int_eq(next_is(0, 2 * MSEC + 1), ADMIT_START);
	start(0, 0, KIB(512), 0);
	admit_begin_turn(&admit, 2 * MSEC + 1);
	decision = admit_next(&admit, 2 * MSEC + 1);
	ck_assert_int_eq(decision.what, ADMIT_NOTHING);
	ck_assert_uint_eq(decision.until_nsec, 0);
	ck_assert(admit.window.was_full);
	end(0, 0, KIB(512), 0);
	end(0, 0, KIB(128), 0);
	sides[0].head.bytes = MIB(1);
	ck_assert_int_eq(next_is(0, 22 * MSEC), ADMIT_NOTHING);
	ck_assert_int_eq(next_is(0, 22 * MSEC + 1), ADMIT_START); /* it rests as long */
	ck_assert_int_eq(next_is(0, 42 * MSEC), ADMIT_START);
	ck_assert_int_eq(next_is(0, 42 * MSEC + 1), ADMIT_NOTHING);
	admit_engine_end(&admit, &sides[1].channel, WINDOW_READ, 4096, is_guarded, 42 * MSEC + 1);
	ck_assert_int_eq(next_is(0, 42 * MSEC + 1), ADMIT_START);
	close_op(0);
	close_op(1);
	teardown();
}
END_TEST

/* The window is of 2 MiB.  The first client's blocks are of GPU memory, and its turns come first. */
static void gpu_start(uint64_t now)
{
	bool is_guarded;

	admit_start(&admit, &sides[0].channel, 0, KIB(512), now);
	admit_engine_start(&admit, &sides[0].channel, WINDOW_READ + WINDOW_GPU, KIB(512), now,
			   &is_guarded);
}

static void setup_gpu(int n_blocks, uint64_t now)
{
	setup();
	sides[0].head.is_gpu = true;
	sides[0].head.bytes = sides[1].head.bytes = KIB(512);
	open_op(0, now);
	open_op(1, now);
	start(1, 0, MIB(32), now);
	end(1, 0, MIB(32), now);
	for (int i = 0; i < n_blocks; i++)
		gpu_start(now);
	admit.window.is_closed = false;
	ck_assert_uint_eq(window_bytes(&admit.window), MIB(2));
}

static void gpu_end(int n_blocks, uint64_t now)
{
	for (int i = 0; i < n_blocks; i++) {
		admit_engine_end(&admit, &sides[0].channel, WINDOW_READ + WINDOW_GPU, KIB(512),
				 false, now);
		admit_end(&admit, &sides[0].channel, 0, now);
	}
}

static void teardown_gpu(void)
{
	ck_assert_uint_eq(admit.gpu_bytes, 0);
	close_op(0);
	close_op(1);
	ck_assert_ptr_null(admit.gpu_waiters.first);
	teardown();
}

START_TEST(beside_host_memory_gpu_memory_has_half_of_the_window)
{
	const uint64_t now = 10 * SEC;

	setup_gpu(8, now); /* twice the window, from a time when the client was alone */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(next_is(1, now), ADMIT_START);
		start(1, 0, KIB(512), now);
	}
	ck_assert_int_eq(next_is(1, now), ADMIT_NOTHING); /* its half is full */
	sides[2].head = (struct admit_head){ HEAD(.bytes = 4096, .is_gpu = true) };
	open_op(2, now);
	ck_assert_int_eq(next_is(2, now), ADMIT_START);
	close_op(2);
	end(1, 0, KIB(512), now);
	gpu_end(6, now);
	ck_assert_int_eq(next_is(1, now), ADMIT_START); /* the other half still is */
	start(1, 0, KIB(512), now);
	ck_assert_int_eq(next_is(1, now), ADMIT_NOTHING);
	end(1, 0, KIB(512), now);
	end(1, 0, KIB(512), now);
	admit_set_ready(&admit, &sides[1].channel, false, now);
	ck_assert_int_eq(next_is(0, now + 2 * MSEC), ADMIT_NOTHING);
	gpu_end(1, now + 2 * MSEC);
	ck_assert_int_eq(next_is(0, now + 2 * MSEC), ADMIT_START);
	gpu_end(1, now + 2 * MSEC);
	teardown_gpu();
}
END_TEST

START_TEST(without_host_memory_gpu_memory_has_all_of_the_window)
{
	const uint64_t now = 10 * SEC;

	setup_gpu(2, now);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(next_is(0, now), ADMIT_START);
		gpu_start(now);
	}
	ck_assert_int_eq(next_is(1, now), ADMIT_START); /* from now on there is host memory */
	admit_set_ready(&admit, &sides[1].channel, false, now);
	gpu_end(2, now + 2 * MSEC);
	ck_assert_int_eq(next_is(0, now + 2 * MSEC), ADMIT_NOTHING);
	gpu_end(1, now + ADMIT_ACTIVE_NSEC);
	ck_assert_int_eq(next_is(0, now + ADMIT_ACTIVE_NSEC), ADMIT_START);
	gpu_start(now + ADMIT_ACTIVE_NSEC);
	ck_assert_int_eq(next_is(0, now + ADMIT_ACTIVE_NSEC), ADMIT_START);
	gpu_end(2, now + ADMIT_ACTIVE_NSEC);
	teardown_gpu();
}
END_TEST

START_TEST(a_block_that_is_given_up_counts_for_its_client_only)
{
	bool is_guarded;

	setup();
	open_op(0, 0);
	open_op(1, 0);
	admit_begin_turn(&admit, 0);
	admit_start(&admit, &sides[1].channel, 0, 4096, 0);
	admit_engine_start(&admit, &sides[1].channel, WINDOW_READ + WINDOW_GPU, 4096, 0,
			   &is_guarded);
	ck_assert(is_guarded);
	start(1, 0, MIB(2), 0);
	admit_set_ready(&admit, &sides[1].channel, false, 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING); /* the window is full */
	admit_engine_give_up(&admit, &sides[1].channel, WINDOW_READ, MIB(2), false);
	admit_engine_give_up(&admit, &sides[1].channel, WINDOW_READ + WINDOW_GPU, 4096, is_guarded);
	ck_assert_ptr_null(admit.window.smalls.first);
	ck_assert_uint_eq(admit.bytes_in_flight, 0);
	ck_assert_uint_eq(admit.n_in_flight, 0);
	ck_assert_uint_eq(sides[1].client.blocks_in_flight, 2);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	for (int i = 0; i < 2; i++) {
		admit_worker_end(&sides[1].channel, MSEC);
		admit_end(&admit, &sides[1].channel, 0, MSEC);
	}
	ck_assert_uint_eq(sides[1].client.blocks_in_flight, 0);
	close_op(0);
	close_op(1);
	teardown();
}
END_TEST

START_TEST(the_limit_goes_as_far_as_the_largest_profile)
{
	setup();
	ck_assert_uint_eq(admit.window.most_bytes, MIB(16));
	admit_add_channel(&admit, &sides[0].channel, MIB(256));
	ck_assert_uint_eq(admit.window.most_bytes, MIB(256));
	admit_add_channel(&admit, &sides[0].channel, MIB(16));
	ck_assert_uint_eq(admit.window.most_bytes, MIB(256));
	admit_remove_channel(&admit, &sides[0].channel);
	open_op(0, 0);
	for (int i = 0; i < 4; i++)
		start(0, 1, MIB(64), 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	end(0, 1, MIB(64), 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	for (int i = 0; i < 3; i++)
		end(0, 1, MIB(64), 0);
	close_op(0);
	admit_remove_channel(&admit, &sides[0].channel);
	teardown();

	admit_add_channel(&admit, &sides[0].channel, MIB(8)); /* the first one again */
	ck_assert_uint_eq(admit.window.most_bytes, MIB(8));
	admit_remove_channel(&admit, &sides[0].channel);
	admit_init(&admit, MIB(1), N_PAGES, look, NULL); /* the administrator's limit */
	admit_add_channel(&admit, &sides[0].channel, 4096);
	ck_assert_uint_eq(admit.window.most_bytes, WINDOW_LEAST_BYTES);
	admit_add_channel(&admit, &sides[0].channel, MIB(256));
	ck_assert_uint_eq(admit.window.most_bytes, MIB(1));
	admit_remove_channel(&admit, &sides[0].channel);
	admit_remove_channel(&admit, &sides[0].channel);
	ck_assert_uint_eq(admit.n_channels, 0);
}
END_TEST

/* Two clients share, and a block of 512 KiB of the second is in flight.  The first pays for what that was
   more than its share; then each of its turns is to the credit of the second, which is away. */
static void setup_away(uint64_t window_bytes)
{
	setup();
	open_op(0, 0);
	open_op(1, 0);
	admit.window.bytes = window_bytes; /* as it may be after a while */
	admit.window.is_closed = false;
	sides[0].head.bytes = KIB(256);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	start(0, 0, KIB(256), 0);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	start(1, 0, KIB(512), 0);
	admit_set_ready(&admit, &sides[1].channel, false, 0);
	for (int i = 0; i < 3; i++)
		start(0, 0, KIB(256), 0);
}

static void teardown_away(int n_blocks)
{
	while (n_blocks--)
		end(0, 0, KIB(256), 0);
	close_op(0);
	admit_close_op(&admit, &sides[1].channel);
	teardown();
}

/* The first starts a block instead of another, so that the second has its turn. */
static enum admit_what next_after_another(uint64_t now)
{
	end(0, 0, KIB(256), now);
	ck_assert_int_eq(next_is(0, now), ADMIT_START);
	start(0, 0, KIB(256), now);
	return next_is(0, now);
}

START_TEST(room_is_reserved_for_a_client_that_is_away_and_lent_when_it_stays_away)
{
	setup_away(MIB(3));
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING); /* 1.5 MiB: over 3 MiB less 4 * 512 KiB */
	end(1, 0, KIB(512), MSEC);
	ck_assert_int_eq(next_after_another(MSEC + SCHED_AWAY_NSEC - 1), ADMIT_NOTHING);
	ck_assert_int_eq(next_after_another(MSEC + SCHED_AWAY_NSEC), ADMIT_START);
	teardown_away(4);
}
END_TEST

START_TEST(a_client_is_away_while_workers_do_its_blocks)
{
	setup_away(MIB(3));
	admit_worker_start(&sides[1].channel);
	end(1, 0, KIB(512), 0);
	ck_assert_int_eq(next_after_another(5 * MSEC), ADMIT_NOTHING);
	admit_worker_end(&sides[1].channel, 5 * MSEC);
	ck_assert_int_eq(next_after_another(5 * MSEC + SCHED_AWAY_NSEC - 1), ADMIT_NOTHING);
	ck_assert_int_eq(next_after_another(5 * MSEC + SCHED_AWAY_NSEC), ADMIT_START);
	teardown_away(4);
}
END_TEST

START_TEST(the_lowest_limit_is_not_reserved)
{
	setup_away(MIB(2));
	end(1, 0, KIB(512), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
		end(0, 0, KIB(256), 0);
	}
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	end(0, 0, KIB(256), 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START); /* its half is in 512 KiB beside another */
	teardown_away(1);
}
END_TEST

START_TEST(a_client_that_goes_is_owed_nothing)
{
	setup_away(MIB(3));
	end(1, 0, KIB(512), 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	admit_close_op(&admit, &sides[1].channel);
	admit_remove_channel(&admit, &sides[1].channel);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	admit_add_channel(&admit, &sides[1].channel, MIB(16));
	admit_open_op(&admit, &sides[1].channel);
	teardown_away(4);
}
END_TEST

/* The first is at the limit, and the second has nothing in flight in an engine. */
START_TEST(a_small_block_keeps_to_depth_and_pages_beyond_the_limit)
{
	setup();
	open_op(0, 0);
	open_op(1, 0);
	for (int i = 0; i < 2; i++)
		start(0, 0, MIB(1), 0);
	sides[0].channel.queue.deficit_bytes = sides[0].client.turns[SCHED_NORMAL].deficit_bytes =
		1;
	sides[1].head.bytes = 4096;
	for (int i = 0; i < 16; i++) /* pieces of worker threads */
		admit_start(&admit, &sides[1].channel, 0, 0, 0);
	ck_assert_int_eq(next_is(1, 0), ADMIT_NOTHING);
	for (int i = 0; i < 16; i++)
		admit_end(&admit, &sides[1].channel, 0, 0);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	for (uint32_t n = 0; n < N_PAGES; n++)
		admit_take_page(&admit, &sides[2].channel);
	sides[1].head.needs_page = true;
	ck_assert_int_eq(next_is(1, 0), ADMIT_NOTHING);
	for (uint32_t n = 0; n < N_PAGES; n++)
		admit_give_page(&admit, &sides[2].channel);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	for (int i = 0; i < 2; i++)
		end(0, 0, MIB(1), 0);
	close_op(0);
	close_op(1);
	teardown();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, the_decision_is, 0, N_ROWS(decision_rows));
	tcase_add_test(tcase, a_channel_has_its_depth_in_each_lane);
	tcase_add_test(tcase, without_overlap_all_of_a_full_queue_is_awaited);
	tcase_add_test(tcase, half_of_the_pages_are_for_one_client_and_waiters_keep_their_order);
	tcase_add_test(tcase, a_channel_that_waits_for_a_page_keeps_the_age_of_its_head_block);
	tcase_add_test(tcase, clients_share_while_both_are_active);
	tcase_add_test(tcase, a_client_that_has_gone_shares_nothing);
	tcase_add_test(tcase, the_window_opens_when_clients_begin_to_share);
	tcase_add_loop_test(tcase, blocks_are_cut_where_that_spares_a_wait, 0, N_ROWS(cut_rows));
	tcase_add_test(tcase, larger_blocks_wait_while_a_small_one_is_late);
	tcase_add_test(tcase, a_small_block_keeps_to_depth_and_pages_beyond_the_limit);
	tcase_add_test(tcase,
		       room_is_reserved_for_a_client_that_is_away_and_lent_when_it_stays_away);
	tcase_add_test(tcase, a_client_is_away_while_workers_do_its_blocks);
	tcase_add_test(tcase, the_lowest_limit_is_not_reserved);
	tcase_add_test(tcase, a_client_that_goes_is_owed_nothing);
	tcase_add_test(tcase, beside_host_memory_gpu_memory_has_half_of_the_window);
	tcase_add_test(tcase, without_host_memory_gpu_memory_has_all_of_the_window);
	tcase_add_test(tcase, a_block_that_is_given_up_counts_for_its_client_only);
	tcase_add_test(tcase, the_limit_goes_as_far_as_the_largest_profile);
}

SUITE("admit", add_tests)
