/*
 * The watchdog's look at a lane that works, one that runs in circles, and one whose call hangs.
 */
#include "daemon/control/watchdog.h"

#include "tests/unit/lane_parts.h"

#include "daemon/store/registry.h"

#define SECOND UINT64_C(1000000000)

static struct registry registry;
static struct watchdog watchdog;

static void start(void)
{
	setup_engine((struct profile){ 65536, 8, false, true, 1 }, 0, true, true);
	registry = (struct registry){ 0 };
	list_push(&registry.stores, &t.store->node);
	watchdog = (struct watchdog){ .registry = &registry, .limit_nsec = 60 * SECOND };
}

/* The lane answers within a moment.  Each look asks again, at a time that begins then. */
static void answers(uint64_t now_nsec)
{
	for (unsigned i = 0; i < 20000 && lane_ping(t.store->lane, now_nsec); i++)
		(void)usleep(1000);
	ck_assert_uint_eq(lane_ping(t.store->lane, now_nsec), 0);
}

static void hold(bool is_call)
{
	wanted.is_call = is_call;
	atomic_store(&wanted.holds_lane, true);
	put(1, RING_OP_READ, 0, 65536, 0);
	submit();
	while (!atomic_load(&wanted.is_held))
		(void)usleep(1000);
}

static void release(void)
{
	atomic_store(&wanted.holds_lane, false);
	ck_assert_int_eq(get().result, 65536);
}

TEST(a_lane_that_works_is_fine)
{
	start();
	for (unsigned i = 1; i < 10; i++) {
		answers(i * 100 * SECOND);
		ck_assert_ptr_null(watchdog_look(&watchdog, i * 100 * SECOND));
		ck_assert_int_eq(do_op(RING_OP_READ, 0, 65536, 0), 65536);
	}
	answers(1000 * SECOND);
	teardown(true);
}

TEST(a_lane_that_does_not_answer_is_named)
{
	start();
	answers(1 * SECOND);
	hold(false);
	(void)watchdog_look(&watchdog, 10 * SECOND); /* asks, if it had answered before */
	ck_assert_ptr_null(watchdog_look(&watchdog, 30 * SECOND));
	ck_assert_str_eq(watchdog_look(&watchdog, 50 * SECOND), "test");
	release();
	answers(60 * SECOND);
	ck_assert_ptr_null(watchdog_look(&watchdog, 60 * SECOND));
	answers(60 * SECOND);
	teardown(true);
}

TEST(a_call_that_hangs_is_no_reason)
{
	start();
	answers(1 * SECOND);
	hold(true);
	for (unsigned i = 10; i < 1000; i += 10)
		ck_assert_ptr_null(watchdog_look(&watchdog, i * SECOND));
	release();
	answers(1000 * SECOND);
	teardown(true);
}

TEST(without_a_manager_that_asks_there_is_none)
{
	(void)unsetenv("WATCHDOG_USEC");
	ck_assert_int_eq(watchdog_start(&watchdog, NULL, &registry), 0);
	ck_assert_ptr_null(watchdog.event);
	watchdog_stop(&watchdog);
}

TEST_MAIN
