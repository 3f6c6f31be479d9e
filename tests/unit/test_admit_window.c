/*
 * Admission and the window: when it limits, of what bytes, and for which client it keeps room.
 */
#include "tests/unit/admit_parts.h"

/* Once when they begin to share, the window measures the latency of an almost empty device. */
TEST(the_window_opens_when_clients_begin_to_share)
{
	setup();
	admit_note_done(&admit, false, 4096, 1000, 0); /* alone: the window forgets it */
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
	{ "a higher class", MIB(1), false, SCHED_DEMAND, true, ADMIT_CUT_BYTES },
	{ "a lower class", MIB(1), false, SCHED_BACKGROUND, true, UINT32_MAX },
	{ "small ops of a lower class", 4096, false, SCHED_BACKGROUND, true, UINT32_MAX },
	{ "nobody else", 4096, false, SCHED_NORMAL, false, UINT32_MAX },
};

TEST_TABLE(blocks_are_cut_where_that_spares_a_wait, cut_rows)
{
	setup();
	sides[1].channel.queue.io_class = cut_rows[_i].io_class;
	open_op(1, SEC);
	admit_open_op(&admit, &sides[1].channel);
	if (cut_rows[_i].is_shared)
		open_op(0, SEC);
	admit_note_op(&admit, &sides[1].channel, cut_rows[_i].op_bytes, cut_rows[_i].is_sync, SEC);
	admit_begin_turn(&admit, SEC);
	ck_assert_msg(admit_block_bytes(&admit, &sides[0].channel) == cut_rows[_i].block_bytes,
		      "%s", cut_rows[_i].name);
	/* That is forgotten, also while clients go on to share. */
	if (cut_rows[_i].is_shared)
		admit_note_op(&admit, &sides[0].channel, MIB(1), false, SEC + ADMIT_ACTIVE_NSEC);
	admit_begin_turn(&admit, SEC + ADMIT_ACTIVE_NSEC);
	ck_assert(admit.is_shared == cut_rows[_i].is_shared);
	ck_assert_uint_eq(admit_block_bytes(&admit, &sides[0].channel), UINT32_MAX);
	if (cut_rows[_i].is_shared)
		close_op(0);
	admit_close_op(&admit, &sides[1].channel);
	close_op(1);
	teardown();
}

TEST(larger_blocks_wait_while_a_small_one_is_late)
{
	struct admit_channel *channel;
	bool is_guarded;

	setup();
	open_op(0, 0);
	open_op(1, 0);
	admit_begin_turn(&admit, 0);
	is_guarded = engine_start(&admit, &sides[1].channel, false, 4096, 0);
	ck_assert(is_guarded);
	start(1, 4096, 0); /* one of each client's is guarded */
	end(1, 4096, 0);
	ck_assert_uint_eq(admit.n_in_flight, 1);
	admit_set_ready(&admit, &sides[1].channel, false);
	ck_assert_int_eq(next_is(0, 2 * MSEC), ADMIT_START);

	admit_begin_turn(&admit, 2 * MSEC + 1);
	ck_assert_int_eq(next(2 * MSEC + 1, &channel), ADMIT_NOTHING);
	ck_assert_uint_eq(admit.until_nsec, 22 * MSEC + 1);
	ck_assert(!admit.window.was_full); /* the controller's value stays */
	start(0, KIB(128), 0);
	sides[0].head.bytes = 4096; /* small ones start, as long as they fit */
	ck_assert_int_eq(next_is(0, 2 * MSEC + 1), ADMIT_START);
	start(0, KIB(512), 0);
	admit_begin_turn(&admit, 2 * MSEC + 1);
	ck_assert_int_eq(next(2 * MSEC + 1, &channel), ADMIT_NOTHING);
	ck_assert_uint_eq(admit.until_nsec, 0);
	ck_assert(admit.window.was_full);
	end(0, KIB(512), 0);
	end(0, KIB(128), 0);
	sides[0].head.bytes = MIB(1);
	ck_assert_int_eq(next_is(0, 22 * MSEC), ADMIT_NOTHING);
	ck_assert_int_eq(next_is(0, 22 * MSEC + 1), ADMIT_START); /* it rests as long */
	ck_assert_int_eq(next_is(0, 42 * MSEC), ADMIT_START);
	ck_assert_int_eq(next_is(0, 42 * MSEC + 1), ADMIT_NOTHING);
	engine_end(&admit, &sides[1].channel, WINDOW_READ, 4096, is_guarded, 42 * MSEC + 1);
	ck_assert_int_eq(next_is(0, 42 * MSEC + 1), ADMIT_START);
	close_op(0);
	close_op(1);
	teardown();
}

/* The window is of 2 MiB.  The first client's blocks are of GPU memory, and its turns come first. */
static void gpu_start(uint64_t now)
{
	depth_start(&admit, &sides[0].channel, KIB(512), now);
	(void)engine_start(&admit, &sides[0].channel, WINDOW_READ + WINDOW_GPU, KIB(512), now);
}

static void setup_gpu(int n_blocks, uint64_t now)
{
	setup();
	sides[0].head.is_gpu = true;
	sides[0].head.bytes = sides[1].head.bytes = KIB(512);
	open_op(0, now);
	open_op(1, now);
	start(1, MIB(32), now);
	end(1, MIB(32), now);
	for (int i = 0; i < n_blocks; i++)
		gpu_start(now);
	admit.window.is_closed = false;
	ck_assert_uint_eq(window_bytes(&admit.window), MIB(2));
}

static void gpu_end(int n_blocks, uint64_t now)
{
	for (int i = 0; i < n_blocks; i++) {
		engine_end(&admit, &sides[0].channel, WINDOW_READ + WINDOW_GPU, KIB(512), false,
			   now);
		admit_depth_discharge(&admit, &sides[0].channel, now);
	}
}

static void teardown_gpu(void)
{
	ck_assert_uint_eq(admit.gpu_bytes, 0);
	close_op(0);
	close_op(1);
	ck_assert_ptr_null(admit.gpu_waiters.list.first);
	teardown();
}

TEST(beside_host_memory_gpu_memory_has_half_of_the_window)
{
	const uint64_t now = 10 * SEC;

	setup_gpu(8, now); /* twice the window, from a time when the client was alone */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(next_is(1, now), ADMIT_START);
		start(1, KIB(512), now);
	}
	ck_assert_int_eq(next_is(1, now), ADMIT_NOTHING); /* its half is full */
	sides[2].head = (struct admit_head){ HEAD(.bytes = 4096, .is_gpu = true) };
	open_op(2, now);
	ck_assert_int_eq(next_is(2, now), ADMIT_START);
	close_op(2);
	end(1, KIB(512), now);
	gpu_end(6, now);
	ck_assert_int_eq(next_is(1, now), ADMIT_START); /* the other half still is */
	start(1, KIB(512), now);
	ck_assert_int_eq(next_is(1, now), ADMIT_NOTHING);
	end(1, KIB(512), now);
	end(1, KIB(512), now);
	admit_set_ready(&admit, &sides[1].channel, false);
	ck_assert_int_eq(next_is(0, now + 2 * MSEC), ADMIT_NOTHING);
	gpu_end(1, now + 2 * MSEC);
	ck_assert_int_eq(next_is(0, now + 2 * MSEC), ADMIT_START);
	gpu_end(1, now + 2 * MSEC);
	teardown_gpu();
}

TEST(without_host_memory_gpu_memory_has_all_of_the_window)
{
	const uint64_t now = 10 * SEC;

	setup_gpu(2, now);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(next_is(0, now), ADMIT_START);
		gpu_start(now);
	}
	ck_assert_int_eq(next_is(1, now), ADMIT_START); /* from now on there is host memory */
	admit_set_ready(&admit, &sides[1].channel, false);
	gpu_end(2, now + 2 * MSEC);
	ck_assert_int_eq(next_is(0, now + 2 * MSEC), ADMIT_NOTHING);
	gpu_end(1, now + ADMIT_ACTIVE_NSEC);
	ck_assert_int_eq(next_is(0, now + ADMIT_ACTIVE_NSEC), ADMIT_START);
	gpu_start(now + ADMIT_ACTIVE_NSEC);
	ck_assert_int_eq(next_is(0, now + ADMIT_ACTIVE_NSEC), ADMIT_START);
	gpu_end(2, now + ADMIT_ACTIVE_NSEC);
	teardown_gpu();
}

TEST(the_window_keeps_to_the_administrators_limit)
{
	admit_init(&admit, MIB(1), N_PAGES);
	ck_assert_uint_eq(admit.window.most_bytes, MIB(1));
	admit_init(&admit, 0, N_PAGES);
	ck_assert_uint_eq(admit.window.most_bytes, UINT64_MAX);
}

/* A block of the class background is small while a higher class is active, and nobody waits for one that is late. */
TEST(background_has_small_blocks_and_is_not_guarded_beside_a_higher_class)
{
	struct admit_channel *channel = &sides[1].channel;
	bool is_guarded;

	setup();
	channel->queue.io_class = SCHED_BACKGROUND;
	open_op(1, SEC);
	admit_begin_turn(&admit, SEC);
	ck_assert_uint_eq(admit_block_bytes(&admit, channel), UINT32_MAX);
	open_op(0, SEC);
	admit_begin_turn(&admit, SEC);
	ck_assert_uint_eq(admit_block_bytes(&admit, channel), SCHED_SHARE_BYTES);
	ck_assert_uint_eq(admit_block_bytes(&admit, &sides[0].channel), UINT32_MAX);
	is_guarded = engine_start(&admit, channel, WINDOW_READ, 4096, SEC);
	ck_assert(!is_guarded);
	engine_end(&admit, channel, WINDOW_READ, 4096, is_guarded, SEC);
	close_op(0);
	admit_begin_turn(&admit, SEC + SCHED_ACTIVE_NSEC - 1);
	ck_assert_uint_eq(admit_block_bytes(&admit, channel), SCHED_SHARE_BYTES);
	admit_begin_turn(&admit, SEC + SCHED_ACTIVE_NSEC);
	ck_assert_uint_eq(admit_block_bytes(&admit, channel), UINT32_MAX);
	ck_assert(!admit.is_shared);
	close_op(1);
	teardown();
}

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
	start(0, KIB(256), 0);
	ck_assert_int_eq(next_is(1, 0), ADMIT_START);
	start(1, KIB(512), 0);
	admit_set_ready(&admit, &sides[1].channel, false);
	for (int i = 0; i < 3; i++)
		start(0, KIB(256), 0);
}

static void teardown_away(int n_blocks)
{
	while (n_blocks--)
		end(0, KIB(256), 0);
	close_op(0);
	admit_close_op(&admit, &sides[1].channel);
	teardown();
}

/* The first starts a block instead of another, so that the second has its turn. */
static enum admit_answer next_after_another(uint64_t now)
{
	end(0, KIB(256), now);
	ck_assert_int_eq(next_is(0, now), ADMIT_START);
	start(0, KIB(256), now);
	return next_is(0, now);
}

TEST(room_is_reserved_for_a_client_that_is_away_and_lent_when_it_stays_away)
{
	setup_away(MIB(3));
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING); /* 1.5 MiB: over 3 MiB less 4 * 512 KiB */
	end(1, KIB(512), MSEC);
	ck_assert_int_eq(next_after_another(MSEC + SCHED_AWAY_NSEC - 1), ADMIT_NOTHING);
	ck_assert_int_eq(next_after_another(MSEC + SCHED_AWAY_NSEC), ADMIT_START);
	teardown_away(4);
}

TEST(a_client_is_away_while_workers_do_its_blocks)
{
	setup_away(MIB(3));
	admit_client_charge(&sides[1].channel);
	end(1, KIB(512), 0);
	ck_assert_int_eq(next_after_another(5 * MSEC), ADMIT_NOTHING);
	admit_client_discharge(&sides[1].channel, 5 * MSEC);
	ck_assert_int_eq(next_after_another(5 * MSEC + SCHED_AWAY_NSEC - 1), ADMIT_NOTHING);
	ck_assert_int_eq(next_after_another(5 * MSEC + SCHED_AWAY_NSEC), ADMIT_START);
	teardown_away(4);
}

TEST(the_lowest_limit_is_not_reserved)
{
	setup_away(MIB(2));
	end(1, KIB(512), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
		end(0, KIB(256), 0);
	}
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	end(0, KIB(256), 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START); /* its half is in 512 KiB beside another */
	teardown_away(1);
}

TEST(a_client_that_goes_is_owed_nothing)
{
	setup_away(MIB(3));
	end(1, KIB(512), 0);
	ck_assert_int_eq(next_is(0, 0), ADMIT_NOTHING);
	admit_close_op(&admit, &sides[1].channel);
	admit_remove_channel(&admit, &sides[1].channel);
	ck_assert_int_eq(next_is(0, 0), ADMIT_START);
	admit_add_channel(&sides[1].channel);
	admit_open_op(&admit, &sides[1].channel);
	teardown_away(4);
}

TEST_MAIN
