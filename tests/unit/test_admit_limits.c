/*
 * Limits at admission: of the store, and of a channel's user and client.  Blocks end at once, on a clock of the test's.
 */
#include "tests/unit/admit_parts.h"

static struct limiter store, user, client;
static uint64_t bytes_of[N_ROWS(sides)];

static struct rate_limit mib_per_sec(uint64_t n)
{
	return (struct rate_limit){ .bytes_per_sec = MIB(n) };
}

/* Sides 0 and 1 are clients of the limited user, side 0 is the limited client. */
static void limited_setup(void)
{
	memset(&store, 0, sizeof(store));
	memset(&user, 0, sizeof(user));
	memset(&client, 0, sizeof(client));
	memset(bytes_of, 0, sizeof(bytes_of));
	setup();
	admit.limiter = &store;
	sides[0].channel.limiters[0] = sides[1].channel.limiters[0] = &user;
	sides[0].channel.limiters[1] = &client;
	for (int i = 0; i < N_ROWS(sides); i++)
		open_op(i, SEC);
}

static void limited_teardown(void)
{
	for (int i = 0; i < N_ROWS(sides); i++)
		close_op(i);
	teardown();
	ck_assert_ptr_null(admit.limit_waiters.list.first);
}
FIXTURE(limited_setup, limited_teardown)

/* A block that ends at once. */
static void run(int i, uint64_t now)
{
	struct admit_channel *channel = &sides[i].channel;
	const uint32_t bytes = sides[i].head.bytes;
	bool is_guarded;

	depth_start(&admit, channel, bytes, now);
	is_guarded = engine_start(&admit, channel, WINDOW_READ, bytes, now);
	engine_end(&admit, channel, WINDOW_READ, bytes, is_guarded, now);
	admit_depth_discharge(&admit, channel, now);
	bytes_of[i] += bytes;
}

/* A turn: so many blocks at most. */
static void turn(uint64_t now, int n_max)
{
	admit_begin_turn(&admit, now);
	for (int n = 0; n < n_max;) {
		struct admit_channel *channel = admit_candidate(&admit, now);
		struct side *side = channel ? container_of(channel, struct side, channel) : NULL;
		enum admit_answer answer;

		if (!channel)
			return;
		answer = admit_ask(&admit, channel, &side->head, now);
		if (answer == ADMIT_NOTHING)
			return;
		if (answer == ADMIT_LIMITED)
			continue;
		ck_assert_int_eq(answer, ADMIT_START);
		run((int)(side - sides), now);
		n++;
	}
}

/* A second of turns, in which the store moves at most 1000 MiB in blocks of 1 MiB. */
static void second(void)
{
	for (uint64_t now = SEC; now < 2 * SEC; now += MSEC)
		turn(now, 1);
}

static void ck_mib(int i, uint64_t least, uint64_t most)
{
	ck_assert_msg(bytes_of[i] >= MIB(least) && bytes_of[i] <= MIB(most), "%d: %lu MiB", i,
		      (unsigned long)(bytes_of[i] >> 20));
}

TEST(others_have_what_a_limited_client_leaves)
{
	const struct rate_limit limit = mib_per_sec(10);

	limiter_set(&client, &limit);
	second();
	ck_mib(0, 9, 12);
	ck_assert_uint_eq(bytes_of[0] + bytes_of[1] + bytes_of[2], MIB(1000));
	ck_mib(1, 480, 500);
}
END_TEST

TEST(clients_of_a_limited_user_share_its_limit)
{
	const struct rate_limit limit = mib_per_sec(100);

	limiter_set(&user, &limit);
	second();
	ck_mib(0, 45, 60);
	ck_mib(1, 45, 60);
	ck_assert_uint_le(bytes_of[0] + bytes_of[1], MIB(108));
	ck_assert_uint_eq(bytes_of[0] + bytes_of[1] + bytes_of[2], MIB(1000));
}
END_TEST

/* Small blocks beside those of 1 MiB get no less than a turn for each. */
TEST(small_blocks_of_a_limited_user_are_not_starved)
{
	const struct rate_limit limit = mib_per_sec(100);

	limiter_set(&user, &limit);
	sides[1].head.bytes = 4096;
	for (uint64_t now = SEC; now < 2 * SEC; now += MSEC / 4)
		turn(now, 4);
	ck_assert_uint_ge(bytes_of[1], MIB(20));
	ck_assert_uint_le(bytes_of[0] + bytes_of[1], MIB(108));
}
END_TEST

/* The scheduler keeps its order while nothing may start. */
TEST(a_limited_store_is_shared_by_weight)
{
	const struct rate_limit limit = mib_per_sec(100);

	limiter_set(&store, &limit);
	sched_set_weight(&sides[2].channel.queue, 8);
	second();
	ck_assert_uint_le(bytes_of[0] + bytes_of[1] + bytes_of[2], MIB(108));
	ck_mib(0, 8, 13);
	ck_mib(1, 8, 13);
	ck_mib(2, 75, 88);
}
END_TEST

/* By bytes, one of 1 MiB would wait for 2048 small ones. */
TEST(a_store_that_is_limited_in_ops_shares_ops)
{
	limiter_set(&store, &(struct rate_limit){ .ops_per_sec = 100 });
	sides[0].head.bytes = 512;
	close_op(2);
	second();
	ck_mib(1, 19, 24); /* four small ones for each */
	ck_assert_uint_ge(bytes_of[0] / 512, 70);
	open_op(2, 2 * SEC);
}
END_TEST

/* The part of the quantum that it has not used. */
TEST(a_channel_that_goes_leaves_no_debt)
{
	struct admit_channel *channel = &sides[2].channel;

	limiter_set(&user, &(struct rate_limit){ .bytes_per_sec = 10000 });
	close_op(2);
	channel->limiters[0] = &user;
	ck_assert_uint_le(limiter_ask(&user, &channel->shares[0], 1, SEC), SEC);
	ck_assert_uint_gt(user.bytes.next_nsec, SEC - LIMITER_BURST_NSEC);
	admit_remove_channel(&admit, channel);
	ck_assert_uint_eq(user.bytes.next_nsec, SEC - LIMITER_BURST_NSEC);
	admit_add_channel(channel);
	channel->limiters[0] = NULL;
	open_op(2, SEC);
}
END_TEST

TEST(ops_count_once)
{
	const struct rate_limit limit = { .ops_per_sec = 10 };
	struct admit_channel *channel = &sides[0].channel;

	limiter_set(&client, &limit);
	admit_begin_turn(&admit, SEC);
	ck_assert_uint_le(limiter_ask(&client, &channel->shares[1], MIB(1), SEC), SEC);
	for (int n = 0; n < 100; n++) {
		admit_depth_charge(channel);
		admit_note_start(&admit, channel, MIB(1), false, SEC);
		admit_depth_discharge(&admit, channel, SEC);
	}
	ck_assert_uint_le(limiter_ask(&client, &channel->shares[1], MIB(1), SEC), SEC);
	run(0, SEC);
	ck_assert_uint_gt(limiter_ask(&client, &channel->shares[1], MIB(1), SEC), SEC);
}
END_TEST

/* Only side 0 has something to start, until its limit is reached. */
static void reach_limit(const struct rate_limit *limit)
{
	limiter_set(&client, limit);
	close_op(1);
	close_op(2);
	turn(SEC, 1);
	turn(SEC, 1);
	ck_assert_uint_eq(bytes_of[0], MIB(1));
}

static void open_others(void)
{
	open_op(1, 2 * SEC);
	open_op(2, 2 * SEC);
}

/* One op in a second was enough to throttle the class background of all clients. */
TEST(ops_that_a_limit_holds_back_keep_nothing_active)
{
	const uint64_t later = SEC + ADMIT_ACTIVE_NSEC;

	reach_limit(&(struct rate_limit){ .bytes_per_sec = 1 });
	ck_assert_uint_eq(admit.n_busy, 0);
	open_op(0, later);
	ck_assert_uint_eq(admit.n_busy, 0);
	ck_assert(!sched_is_throttled(&admit.sched, SCHED_BACKGROUND, later));
	open_op(1, later);
	turn(later, 1);
	ck_assert(!admit.is_shared);
	admit_close_op(&admit, &sides[0].channel);
	ck_assert_uint_eq(admit.n_busy, 1);
	/* Its limit is gone: they count again. */
	limiter_set(&client, &(struct rate_limit){ 0 });
	turn(later + ADMIT_LIMIT_NSEC, 2);
	ck_assert_uint_eq(admit.n_busy, 2);
	ck_assert_uint_eq(admit.sched.n_open[SCHED_NORMAL], 2);
	open_op(2, 2 * SEC);
}
END_TEST

TEST(the_lane_wakes_for_it)
{
	const struct rate_limit limit = mib_per_sec(50);

	/* 1 MiB takes 20 ms at this limit: what is above the burst is waited for. */
	reach_limit(&(struct rate_limit){ .bytes_per_sec = MIB(10) });
	ck_assert_uint_gt(admit.until_nsec, SEC);
	ck_assert_uint_le(admit.until_nsec, SEC + ADMIT_LIMIT_NSEC);
	turn(admit.until_nsec - 1, 1);
	ck_assert_uint_eq(bytes_of[0], MIB(1));
	limiter_set(&client, &limit);
	turn(SEC + ADMIT_LIMIT_NSEC, 1);
	ck_assert_uint_eq(bytes_of[0], MIB(2));
	open_others();
}
END_TEST

TEST(a_limit_that_is_removed_holds_nobody_for_long)
{
	const struct rate_limit none = { 0 };

	reach_limit(&(struct rate_limit){ .bytes_per_sec = 1 });
	ck_assert_uint_le(admit.until_nsec, SEC + ADMIT_LIMIT_NSEC);
	limiter_set(&client, &none);
	turn(SEC + ADMIT_LIMIT_NSEC, 1);
	ck_assert_uint_eq(bytes_of[0], MIB(2));
	open_others();
}
END_TEST

TEST(a_limited_store_wakes_its_lane)
{
	const struct rate_limit limit = { .bytes_per_sec = 1 }, none = { 0 };

	limiter_set(&store, &limit);
	turn(SEC, 100);
	ck_assert_uint_eq(bytes_of[0] + bytes_of[1] + bytes_of[2], MIB(1));
	ck_assert_uint_eq(admit.until_nsec, SEC + ADMIT_LIMIT_NSEC);
	limiter_set(&store, &none);
	turn(SEC + ADMIT_LIMIT_NSEC, 10);
	ck_assert_uint_eq(bytes_of[0] + bytes_of[1] + bytes_of[2], MIB(11));
}
END_TEST

/* The kernel returned it. */
TEST(a_block_that_starts_again_is_charged_once)
{
	reach_limit(&(struct rate_limit){ .bytes_per_sec = 1 });
	sides[0].head.is_counted = true;
	admit_set_ready(&admit, &sides[0].channel, true);
	ck_assert_int_eq(next_is(0, SEC), ADMIT_START);
	admit_start_again(&admit, &sides[0].channel, SEC);
	open_others();
}
END_TEST

/* The kernel returned it, or it has no bytes. */
TEST_LOOP(what_is_not_counted_passes_the_limit_of_a_store, 2)
{
	const struct rate_limit limit = { .bytes_per_sec = 1 };

	limiter_set(&store, &limit);
	turn(SEC, 100);
	close_op(0);
	close_op(1);
	ck_assert_int_eq(next_is(2, SEC), ADMIT_NOTHING);
	sides[2].head.is_counted = _i == 0;
	sides[2].head.bytes = _i == 0 ? MIB(1) : 0;
	ck_assert_int_eq(next_is(2, SEC), ADMIT_START);
	open_op(0, SEC);
	open_op(1, SEC);
}
END_TEST

/* A small block of a client with nothing in flight passes the full window, but not its limit. */
TEST(what_passes_the_window_does_not_pass_a_limit)
{
	const struct rate_limit limit = { .bytes_per_sec = 1 };

	limiter_set(&client, &limit);
	sides[0].head.bytes = 4096;
	turn(SEC, 3);
	ck_assert_uint_eq(bytes_of[0], 4096);
	for (int n = 0; n < 4; n++)
		start(1, MIB(1), SEC);
	start(2, MIB(1), SEC);
	admit_set_ready(&admit, &sides[0].channel, true);
	admit_begin_turn(&admit, SEC);
	list_remove(&admit.sched.flows[SCHED_NORMAL], &sides[1].client.flows[SCHED_NORMAL].node);
	list_push_front(&admit.sched.flows[SCHED_NORMAL],
			&sides[1].client.flows[SCHED_NORMAL].node); /* it is next */
	sides[1].client.flows[SCHED_NORMAL].deficit_bytes = 1;
	for (struct admit_channel *channel; (channel = admit_candidate(&admit, SEC));)
		ck_assert_int_ne(admit_ask(&admit, channel,
					   &container_of(channel, struct side, channel)->head, SEC),
				 ADMIT_START);
	ck_assert(admit.is_over_limit);
	for (int n = 0; n < 4; n++)
		end(1, MIB(1), SEC);
	end(2, MIB(1), SEC);
}
END_TEST

/* The daemon stops: ops that were taken end. */
TEST(a_stop_waits_for_no_limit)
{
	const struct rate_limit limit = { .bytes_per_sec = 1 };

	limiter_set(&store, &limit);
	reach_limit(&limit);
	admit_lift_limits(&admit, &sides[0].channel);
	turn(SEC + ADMIT_LIMIT_NSEC, 5);
	ck_assert_uint_eq(bytes_of[0], MIB(6));
	open_others();
}
END_TEST

TEST_MAIN
