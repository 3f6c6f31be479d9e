/*
 * Which clients are costly to wake.
 */
#include "daemon/base/wakes.h"

#include "proto/util/clock.h"
#include "tests/unit/suite.h"

/* A wake-up that takes long, on the processor or not. */
static bool wake(struct wakes *wakes, bool sleeps)
{
	const struct timespec long_time = { .tv_nsec = 2 * WAKE_NSEC };
	const uint64_t since_nsec = wakes_begin();
	uint64_t cpu_nsec;

	if (sleeps)
		(void)nanosleep(&long_time, NULL);
	cpu_nsec = clock_thread_nsec();
	while (!sleeps && clock_thread_nsec() - cpu_nsec < 2 * WAKE_NSEC)
		;
	return wakes_end(wakes, since_nsec);
}

TEST(a_client_is_costly_after_long_wake_ups_within_a_second_and_this_is_reported_once)
{
	struct wakes wakes = { 0 };
	unsigned n = 0, n_reports = 0;

	/* On a busy machine more time may pass between two of them. */
	while (!wakes_is_costly(&wakes)) {
		n_reports += wake(&wakes, false);
		n++;
	}
	ck_assert_uint_gt(n, WAKES_MAX); /* the first one is not measured */
	ck_assert_uint_eq(n_reports, 1);
	for (unsigned i = 0; i < 2 * WAKES_MAX; i++)
		ck_assert(!wake(&wakes, false));
	ck_assert(wakes_is_costly(&wakes));
}

TEST(wake_ups_in_which_the_thread_did_not_run_do_not_count)
{
	struct wakes wakes = { 0 };

	for (unsigned i = 0; i < 3 * WAKES_MAX; i++)
		ck_assert(!wake(&wakes, true));
	ck_assert_uint_eq(wakes.n, 0);
}

TEST(long_wake_ups_with_more_than_a_second_between_them_do_not_add_up)
{
	struct wakes wakes = { 0 };

	while (wakes.n < WAKES_MAX - 1)
		ck_assert(!wake(&wakes, false));
	wakes.since_nsec -= 2 * WAKES_WITHIN_NSEC;
	(void)wake(&wakes, false);
	ck_assert(!wakes_is_costly(&wakes));
}

TEST_MAIN
