/* progress: the time that is left of points, from what they took so far. */
#include "client/ctl/ui/progress.h"
#include "tests/unit/suite.h"

#include <string.h>

#define SEC 1000000000ull

TEST(each_point_takes_the_mean)
{
	struct progress_points points = {
		.n_left = 108, .n_done = 20, .nsec = 40 * SEC, .n_all = 128
	};

	ck_assert_uint_eq(progress_points_left_nsec(&points, 1), 108 * 2 * SEC);
}

TEST(the_point_under_way_counts_at_most_its_mean)
{
	struct progress_points points = {
		.n_left = 2, .n_done = 1, .nsec = 4 * SEC, .n_all = 3, .begun_nsec = 100 * SEC
	};

	ck_assert_uint_eq(progress_points_left_nsec(&points, 101 * SEC), 7 * SEC);
	ck_assert_uint_eq(progress_points_left_nsec(&points, 900 * SEC), 4 * SEC);
}

TEST(nobody_knows_before_the_first_point)
{
	struct progress_points points = { .n_left = 2, .n_all = 2 };

	ck_assert_uint_eq(progress_points_left_nsec(&points, 1), UINT64_MAX);
}

/* Points that differ by half, in the order of a sweep, on a device that becomes a tenth slower. */
TEST(after_the_first_tenth_it_is_right_within_a_fifth)
{
	struct progress_points points = { .n_left = 128, .n_all = 128 };
	uint64_t took[128], all = 0, gone = 0;

	for (unsigned i = 0; i < 128; i++) {
		double parallel = (double[]){ 1.2, 1.0, 0.9, 0.85 }[i / 2 % 4];
		double drift = 1 + 0.1 * i / 128;

		took[i] = (uint64_t)((i % 2 ? 0.6 : 1.0) * parallel * drift * (double)SEC);
		all += took[i];
	}
	for (unsigned i = 0; i < 127; i++) {
		uint64_t left, real;

		points.n_left--;
		points.n_done++;
		points.nsec += took[i];
		gone += took[i];
		left = progress_points_left_nsec(&points, 1);
		real = all - gone;
		if (i >= 12 && i < 120)
			ck_assert_msg(left > real * 4 / 5 && left < real * 6 / 5,
				      "after %u points: %.1f s shown, %.1f s left", i + 1,
				      (double)left / 1e9, (double)real / 1e9);
	}
}

TEST(the_line_has_the_point_the_last_numbers_and_the_time_left)
{
	struct progress_points points = {
		.label = "sweep",
		.n_left = 30,
		.n_done = 2,
		.nsec = 6 * SEC,
		.n_all = 32,
		.begun_nsec = SEC,
		.text = "1.85 GB/s read",
	};
	char text[256];

	progress_points_format(text, sizeof(text), &points, SEC);
	ck_assert_str_eq(text, "sweep: point 3 of 32  ETA 90.0 s  1.85 GB/s read");
}

/* bench tune knows after its first step how many there will be. */
TEST(a_number_of_points_that_nobody_knows_is_not_shown)
{
	struct progress_points points = { .label = "tune", .begun_nsec = SEC };
	char text[256];

	progress_points_format(text, sizeof(text), &points, SEC);
	ck_assert_str_eq(text, "tune: point 1  ETA ?  ");
}

/* 64 points, and 550 steps of a tuner. */
TEST(plain_lines_are_few)
{
	struct progress_points points = { .n_left = 64, .n_all = 64 };
	unsigned n = 0;

	for (unsigned i = 0; i < 64; i++) {
		points.n_left--;
		n += progress_points_is_due(&points);
	}
	ck_assert_uint_eq(n, 11); /* the first, and the tenths */

	points = (struct progress_points){ .label = "tune" };
	n = 0;
	for (unsigned i = 1; i <= 550; i++) {
		points.n_left = 550 - i;
		points.n_all = 550;
		n += progress_points_is_due(&points);
	}
	ck_assert_uint_le(n, 11);

	points.prints_all = true;
	ck_assert(progress_points_is_due(&points) && progress_points_is_due(&points));
}

/* ---- bytes ---- */

TEST(a_bar_tells_share_rate_and_time_left)
{
	char text[256];

	progress_format(text, sizeof(text), "copying", 50 << 20, 200 << 20, 1000000000, 80);
	ck_assert_str_eq(text,
			 "copying [#####..................]  25%  50 MiB of 200 MiB  50 MiB/s  ETA "
			 "3.00 s");
	ck_assert_uint_lt(strlen(text), 80);
}

TEST(a_narrow_terminal_gets_no_bar)
{
	char text[256];

	progress_format(text, sizeof(text), "copying", 0, 200 << 20, 1000000000, 30);
	ck_assert_str_eq(text, "copying   0%  0 B of 200 MiB  0 B/s  ETA ?");
}

TEST(without_a_known_total_there_is_no_bar)
{
	char text[256];

	progress_format(text, sizeof(text), "writing", 50 << 20, UINT64_MAX, 2000000000, 80);
	ck_assert_str_eq(text, "writing  50 MiB  25 MiB/s  2.00 s");
}

TEST(a_file_that_grew_is_all_of_itself)
{
	char text[256];

	progress_format(text, sizeof(text), "reading", 50 << 20, 40 << 20, 1000000000, 80);
	ck_assert_str_eq(text, "reading [#####################] 100%  50 MiB of 50 MiB  50 MiB/s"
			       "  ETA under 1 s");
}

TEST(only_commands_of_over_two_seconds_get_a_bar)
{
	ck_assert(!progress_is_long(0, 100, 0));
	ck_assert(!progress_is_long(50, 100, 900000000)); /* 1.8 s in all */
	ck_assert(progress_is_long(20, 100, 600000000));  /* 3 s in all */
	ck_assert(!progress_is_long(1, 100, 100000000));  /* too early to tell */
	ck_assert(!progress_is_long(0, 100, 1900000000));
	ck_assert(progress_is_long(0, 100, 2000000000));
	ck_assert(!progress_is_long(1, UINT64_MAX, 1900000000)); /* no total, no estimate */
	ck_assert(!progress_is_long(200, 100, 1900000000));
}

TEST_MAIN
