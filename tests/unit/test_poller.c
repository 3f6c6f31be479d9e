/*
 * Waiting: doorbells, sleeping, and the decision to spin.
 */
#include "daemon/lane/poller.h"

#include "daemon/lane/channel.h"
#include "proto/util/clock.h"
#include "tests/unit/suite.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SPIN_NSEC 50000u

static struct {
	struct poller poller;
	struct lane_turn turn;
	struct log_limit log_limit;
	struct channel channel;
	int n_doorbells;
	uint64_t state_at_look; /* of the board */
	bool has_work;
} t;

static void on_doorbell(struct intake *intake, struct channel *channel)
{
	ck_assert_ptr_null(intake);
	ck_assert_ptr_eq(channel, &t.channel);
	t.n_doorbells++;
}

static bool has_work(void *arg)
{
	ck_assert_ptr_null(arg);
	t.state_at_look = atomic_load(&t.poller.board->lane_state);
	return t.has_work;
}

static void setup(void)
{
	const struct poller_config config = { .store_name = "test",
					      .turn = &t.turn,
					      .log_limit = &t.log_limit,
					      .spin_nsec = SPIN_NSEC,
					      .idle_doorbells_max = 3,
					      .on_doorbell = on_doorbell,
					      .has_work = has_work };
	static struct ring_shared *map;
	struct error error;

	memset(&t, 0, sizeof(t));
	ck_assert_int_eq(poller_init(&t.poller, &config, &error), 0);
	map = aligned_alloc(4096, (ring_bytes(64) + 4095) / 4096 * 4096);
	memset(map, 0, ring_bytes(64));
	ring_lane_init(&t.channel.ring, map, 64);
	t.channel.doorbell_fd = eventfd(0, EFD_NONBLOCK);
	ck_assert_int_eq(poller_add(&t.poller, t.channel.doorbell_fd, &t.channel), 0);
	t.turn.now_nsec = clock_nsec();
}

static void teardown(void)
{
	poller_deinit(&t.poller);
	(void)close(t.channel.doorbell_fd);
	free(t.channel.ring.shared);
}

static void ring(void)
{
	ck_assert_int_eq(eventfd_write(t.channel.doorbell_fd, 1), 0);
}

TEST(a_doorbell_is_heard_once_for_each_write)
{
	setup();
	poller_poll(&t.poller);
	ck_assert_int_eq(t.n_doorbells, 0);
	for (int i = 1; i <= 3; i++) {
		ring();
		poller_poll(&t.poller);
		poller_poll(&t.poller);
		ck_assert_int_eq(t.n_doorbells, i);
	}
	teardown();
}

TEST(a_doorbell_of_a_channel_that_is_awake_tells_nothing_new)
{
	setup();
	t.channel.is_awake = true;
	ring();
	poller_poll(&t.poller);
	ck_assert_int_eq(t.n_doorbells, 0);
	teardown();
}

TEST(a_sleep_is_announced_before_the_look)
{
	setup();
	t.has_work = true; /* so it does not sleep */
	poller_sleep(&t.poller, 0);
	ck_assert_uint_eq(t.state_at_look, 1);
	ck_assert_uint_eq(atomic_load(&t.poller.board->lane_state), 2);
	t.has_work = false;
	ring();
	poller_sleep(&t.poller, 0);
	ck_assert_int_eq(t.n_doorbells, 1);
	poller_sleep(&t.poller, t.turn.now_nsec + 1000000); /* nothing but the time wakes it */
	ck_assert_int_eq(t.n_doorbells, 1);
	ck_assert_uint_eq(atomic_load(&t.poller.board->lane_state), 6);
	teardown();
}

TEST(a_channel_that_rings_without_entries_leaves_epoll)
{
	setup();
	for (int i = 0; i < 4; i++) {
		ck_assert(!t.channel.has_left_epoll);
		ring();
		poller_poll(&t.poller);
	}
	ck_assert(t.channel.has_left_epoll);
	ring();
	poller_poll(&t.poller);
	ck_assert_int_eq(t.n_doorbells, 4);
	teardown();
}

static bool turn(uint64_t pause_nsec, struct poller_activity did)
{
	t.turn.now_nsec += pause_nsec;
	return poller_may_spin(&t.poller, &did);
}

TEST(it_spins_while_waits_are_short)
{
	const struct poller_activity worked = { .did = true, .has_published = true };
	const struct poller_activity idle = { 0 };

	setup();
	ck_assert(turn(0, worked));
	for (int i = 0; i < 20; i++) { /* a new op comes 10 us after each completion */
		ck_assert(turn(5000, idle));
		ck_assert(turn(5000, worked));
	}
	ck_assert(turn(SPIN_NSEC - 1, idle));
	ck_assert(!turn(1, idle)); /* for so long only */
	for (int i = 0; i < 20; i++) {
		(void)turn(5000, idle);
		ck_assert(turn(200000, worked));
	}
	ck_assert(!turn(5000, idle)); /* waits have become long */
	teardown();
}

TEST(doorbells_of_parked_channels_are_polled_now_and_then)
{
	setup();
	poller_poll(&t.poller);
	ck_assert(!poller_must_poll(&t.poller, true) && !poller_must_poll(&t.poller, false));
	t.turn.now_nsec += 5000;
	ck_assert(!poller_must_poll(&t.poller, true) && poller_must_poll(&t.poller, false));
	t.turn.now_nsec += 45000;
	ck_assert(poller_must_poll(&t.poller, true));
	teardown();
}

TEST_MAIN
