/*
 * The window beside a device that is only numbers: a rate and the time that it takes for a block
 * that nothing stands before.
 */
#include "daemon/lane/window.h"

#include "tests/unit/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define MSEC UINT64_C(1000000)

static struct window window;

/*
 * Keeps the window full of blocks for so long.  Each takes what stands before it, and never less
 * than the device's own time.
 */
static uint64_t run(uint64_t now, uint64_t nsec, double bytes_per_nsec, uint64_t own_nsec,
		    uint32_t block_bytes)
{
	for (uint64_t end = now + nsec; now < end;) {
		uint64_t in_flight = window_bytes(&window);
		uint64_t latency;

		if (in_flight < block_bytes)
			in_flight = block_bytes;
		latency = (uint64_t)((double)in_flight / bytes_per_nsec);
		if (latency < own_nsec)
			latency = own_nsec;
		/* By Little's law: one is back each latency / (in_flight / block_bytes). */
		now += latency * block_bytes / in_flight;
		window_note_full(&window);
		window_note_done(&window, false, block_bytes, latency, true, now);
	}
	return now;
}

static void setup(void)
{
	window_init(&window);
}

static const struct {
	const char *what;
	double bytes_per_nsec;
	uint64_t own_nsec;
	uint32_t block_bytes;
	uint64_t at_least, at_most; /* where the window comes to */
} devices[] = {
	{ "an SSD: what it needs, and 2 to 4 MiB that wait", 3, 100000, KIB(256), KIB(2300),
	  KIB(4400) },
	{ "a fast one needs more", 14, 300000, KIB(256), MIB(6), MIB(9) },
	{ "large blocks", 3, 400000, MIB(1), KIB(3000), KIB(5400) },
	{ "small blocks: the least takes 1 ms", 0.5, 100000, KIB(4), KIB(512), KIB(2600) },
	{ "a hard disk: no more than in 4 ms beside its own", 0.1, 5 * MSEC, KIB(256), KIB(512),
	  KIB(1000) },
	{ "far away: what is under way does not wait", 1, 20 * MSEC, KIB(64), MIB(18), MIB(22) },
};

TEST_TABLE(it_comes_to_what_the_device_needs_and_a_little, devices)
{
	uint64_t now = 0;

	setup();
	window_open(&window, now);
	for (int i = 0; i < 40; i++) { /* over several eras */
		now = run(now, 500 * MSEC, devices[_i].bytes_per_nsec, devices[_i].own_nsec,
			  devices[_i].block_bytes);
		if (i >= 4)
			ck_assert_msg(window.bytes >= devices[_i].at_least &&
					      window.bytes <= devices[_i].at_most,
				      "%s: %ju", devices[_i].what, (uintmax_t)window.bytes);
	}
}

TEST(it_follows_a_device_that_changes)
{
	uint64_t now;

	setup();
	now = run(0, 2000 * MSEC, 14, 300000, KIB(256));
	ck_assert_uint_gt(window.bytes, MIB(5));
	now = run(now, 2000 * MSEC, 1, 300000, KIB(256));
	ck_assert_uint_lt(window.bytes, MIB(4));
	(void)run(now, 12000 * MSEC, 14, 300000, KIB(256));
	ck_assert_uint_gt(window.bytes, MIB(5));
}

TEST(it_keeps_its_bounds)
{
	setup();
	window_set_most(&window, MIB(1));
	ck_assert_uint_eq(window_bytes(&window), MIB(1));
	(void)run(0, 1000 * MSEC, 14, 300000, KIB(256));
	ck_assert_uint_eq(window_bytes(&window), MIB(1));
	window_set_most(&window, KIB(64)); /* an administrator may want less than the least */
	ck_assert_uint_eq(window_bytes(&window), KIB(64));
}

TEST(it_grows_only_where_it_was_full)
{
	setup();
	for (uint64_t i = 1; i <= 1000; i++) /* each as fast as can be */
		window_note_done(&window, false, KIB(256), 100000, true, i * 100000);
	ck_assert_uint_eq(window_bytes(&window), WINDOW_START_BYTES);
	window_note_full(&window);
	for (uint64_t i = 1001; i <= 1100; i++)
		window_note_done(&window, false, KIB(256), 100000, true, i * 100000);
	ck_assert_uint_eq(window_bytes(&window), WINDOW_START_BYTES / 8 * 9);
}

TEST(an_interval_has_some_blocks)
{
	setup();
	window.bytes = MIB(8); /* of which enough can wait */
	/* One in 10 ms is late by far: that alone says nothing. */
	window_note_done(&window, false, KIB(256), 100000, true, MSEC);
	for (uint64_t i = 1; i < 15; i++)
		window_note_done(&window, false, KIB(256), 9 * MSEC, true, i * 10 * MSEC);
	ck_assert_uint_eq(window_bytes(&window), MIB(8));
	window_note_done(&window, false, KIB(256), 9 * MSEC, true, 160 * MSEC);
	ck_assert_uint_eq(window_bytes(&window), MIB(7));
}

TEST(latencies_are_compared_within_a_kind)
{
	setup();
	for (unsigned kind = 0; kind < WINDOW_KINDS; kind++)
		window_note_done(&window, kind, 4096, 50000 + kind, false, MSEC);
	for (unsigned kind = 0; kind < WINDOW_KINDS; kind++)
		ck_assert_uint_eq(window_lowest_nsec(&window, kind, 4096), 50000 + kind);
}

TEST(the_lowest_latency_is_one_of_the_last_seconds)
{
	setup();
	ck_assert_uint_eq(window_lowest_nsec(&window, false, 4096), 0);
	window_note_done(&window, false, 4096, 50000, false, MSEC);
	window_note_done(&window, false, 4096, 70000, false, 2 * MSEC);
	ck_assert_uint_eq(window_lowest_nsec(&window, false, 5000), 50000);
	ck_assert_uint_eq(window_lowest_nsec(&window, true, 4096), 0);
	ck_assert_uint_eq(window_lowest_nsec(&window, false, 8192), 0);
	for (uint64_t i = 1; i < 25; i++)
		window_note_done(&window, false, 4096, 70000, false, i * 500 * MSEC);
	ck_assert_uint_eq(window_lowest_nsec(&window, false, 4096), 70000);
}

TEST(an_era_begins_with_the_least)
{
	uint64_t now;

	setup();
	now = run(0, WINDOW_ERA_NSEC - MSEC, 3, 100000, KIB(256));
	ck_assert_uint_gt(window_bytes(&window), WINDOW_LEAST_BYTES);
	now = run(now, 2 * MSEC, 3, 100000, KIB(256));
	ck_assert_uint_eq(window_bytes(&window), WINDOW_LEAST_BYTES);
	(void)run(now, 2 * WINDOW_INTERVAL_NSEC, 3, 100000, KIB(256));
	ck_assert_uint_gt(window_bytes(&window), WINDOW_LEAST_BYTES);
}

/* ---- the guard ---- */

TEST(a_late_small_block_is_guarded_for_a_while)
{
	struct window_small one, other;

	setup();
	ck_assert_uint_eq(window_guard(&window, MSEC), 0);
	window_small_start(&window, &one, false, 4096, 10 * MSEC);
	window_small_start(&window, &other, false, 4096, 11 * MSEC);
	ck_assert_uint_eq(window_guard(&window, 12 * MSEC), 0);
	ck_assert_uint_eq(window_guard(&window, 12 * MSEC + 1), 32 * MSEC + 1);
	ck_assert_uint_eq(window_guard(&window, 30 * MSEC), 32 * MSEC + 1);
	window_small_end(&window, &one);
	ck_assert_uint_ne(window_guard(&window, 31 * MSEC), 0); /* the other is late, too */
	ck_assert_uint_eq(window_guard(&window, 32 * MSEC + 1), 0);
	/* It rests before it tries again, but not for what is new. */
	ck_assert_uint_eq(window_guard(&window, 52 * MSEC), 0);
	ck_assert_uint_ne(window_guard(&window, 53 * MSEC), 0);
	window_small_end(&window, &other);
	ck_assert_uint_eq(window_guard(&window, 54 * MSEC), 0);
	window_small_start(&window, &one, false, 4096, 54 * MSEC);
	ck_assert_uint_ne(window_guard(&window, 57 * MSEC), 0);
	window_small_end(&window, &one);
}

TEST(late_is_beside_what_such_blocks_take)
{
	struct window_small small;

	setup();
	window_note_done(&window, true, 65536, 3 * MSEC, true, MSEC);
	window_small_start(&window, &small, true, 65536, 10 * MSEC);
	ck_assert_uint_eq(window_guard(&window, 22 * MSEC), 0);
	ck_assert_uint_ne(window_guard(&window, 22 * MSEC + 1), 0);
	window_small_end(&window, &small);
}

TEST(a_hung_block_is_guarded_no_more)
{
	struct window_small hung, small;

	setup();
	window_small_start(&window, &hung, false, 4096, MSEC);
	ck_assert_uint_ne(window_guard(&window, 1000 * MSEC), 0);
	ck_assert_uint_eq(window_guard(&window, 1002 * MSEC), 0);
	window_small_start(&window, &small, false, 4096, 1002 * MSEC);
	ck_assert_uint_eq(window_guard(&window, 1003 * MSEC), 0);
	ck_assert_uint_ne(window_guard(&window, 1005 * MSEC), 0);
	window_small_end(&window, &hung);
	ck_assert_uint_ne(window_guard(&window, 1006 * MSEC), 0);
	window_small_end(&window, &small);
}

TEST_MAIN
