/* bench_tuner: who wins on devices that swing, drift and fail, simulated. */
#include "client/ctl/bench/tuner.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit/suite.h"

#define N_POINTS 64u
#define IO_SIZE (UINT64_C(400) << 20)
#define NEED (IO_SIZE / 2)
#define GROUP_POINTS 16u
/* A fifth of five repetitions of reads and writes of all points. */
#define BUDGET (IO_SIZE * N_POINTS * 5 * 2 / 5)

static struct device {
	double speeds[N_POINTS]; /* of reads; writes have half */
	double swing, drift;
	bool fails[N_POINTS];
	uint64_t random;
	double drifted;
	uint64_t n_bytes;
	unsigned n_steps[N_POINTS];
	uint64_t reached_by[N_POINTS]; /* shorter transfers miss the depth */
	bool needs_more[N_POINTS];     /* than a whole transfer */
} device;

static double uniform(void)
{
	device.random = device.random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (double)(device.random >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform() + 1e-12)) * cos(6.283185307179586 * uniform());
}

static double measure(const struct tuner_step *step)
{
	device.n_bytes += step->bytes;
	device.n_steps[step->point]++;
	if (device.fails[step->point])
		return 0;
	device.drifted = 0.98 * device.drifted + 0.2 * device.drift * normal();
	return device.speeds[step->point] * (step->op == BENCH_READ ? 1 : 0.5) *
	       exp(device.drifted + device.swing * normal());
}

static void device_init(uint64_t seed, double swing, double drift)
{
	device = (struct device){ .swing = swing, .drift = drift, .random = seed };
	for (unsigned i = 0; i < N_POINTS; i++)
		device.speeds[i] = 1;
}

/* Points cost as much as their number says, so 0 is the cheapest. */
static struct tuner *run(size_t n_points, bool reads, bool writes, uint64_t seed)
{
	uint64_t costs[N_POINTS], needs[N_POINTS];
	uint32_t groups[N_POINTS];
	const struct tuner_options options = { .n_points = n_points,
					       .costs = costs,
					       .needs = needs,
					       .groups = groups,
					       .reads = reads,
					       .writes = writes,
					       .io_size = IO_SIZE,
					       .align = 4096,
					       .budget_bytes = BUDGET * n_points / N_POINTS,
					       .seed = seed };
	struct tuner *tuner;
	struct tuner_step step;

	for (unsigned i = 0; i < N_POINTS; i++) {
		costs[i] = i;
		needs[i] = device.needs_more[i] ? IO_SIZE + 1 : NEED;
		groups[i] = i / GROUP_POINTS;
	}
	ck_assert_int_eq(tuner_new(&options, &tuner), 0);
	while (tuner_next(tuner, &step)) {
		ck_assert(step.op == BENCH_READ ? reads : writes);
		ck_assert_uint_lt(step.point, n_points);
		ck_assert_uint_gt(step.bytes, 0);
		ck_assert_uint_le(step.bytes, IO_SIZE);
		ck_assert_uint_ge(step.bytes, NEED);
		tuner_add(tuner, measure(&step), step.bytes >= device.reached_by[step.point]);
	}
	return tuner;
}

static struct tuner_verdict judge(struct tuner *tuner, enum tuner_goal goal)
{
	struct tuner_verdict v;

	ck_assert_int_eq(tuner_judge(tuner, goal, &v), 0);
	tuner_free(tuner);
	return v;
}

START_TEST(a_point_that_is_faster_wins_whatever_the_device_does_meanwhile)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.02, 0.02);
		device.speeds[63] = 1.25; /* the dearest one */
		v = judge(run(N_POINTS, true, true, seed), TUNER_SUM);
		ck_assert_uint_eq(v.ranks[0].point, 63);
		free(v.ranks);
	}
}
END_TEST

/* A deeper queue is faster, and nothing else matters: all runs recommend the same. */
START_TEST(runs_that_swing_recommend_the_same_point)
{
	unsigned n_same = 0;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.04, 0.02);
		for (unsigned i = 2 * GROUP_POINTS; i < N_POINTS; i++)
			device.speeds[i] = 1.4;
		v = judge(run(N_POINTS, true, true, seed), TUNER_SUM);
		n_same += v.ranks[v.recommended].point == (size_t)2 * GROUP_POINTS;
		free(v.ranks);
	}
	ck_assert_uint_ge(n_same, 45);
}
END_TEST

/* With more swing, means of points that are alike differ: then any of the fast ones may win. */
START_TEST(runs_that_swing_more_recommend_a_fast_point)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.08, 0.02);
		for (unsigned i = 2 * GROUP_POINTS; i < N_POINTS; i++)
			device.speeds[i] = 1.4;
		v = judge(run(N_POINTS, true, true, seed), TUNER_SUM);
		ck_assert_uint_ge(v.ranks[v.recommended].point, (size_t)2 * GROUP_POINTS);
		free(v.ranks);
	}
}
END_TEST

/* A run with wide intervals once recommended a profile that was 46% slower. */
START_TEST(a_wide_interval_recommends_no_point_that_is_slower_by_more_than_5_percent)
{
	unsigned n_wide = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.5, 0.2);
		device.speeds[0] = 0.54; /* the cheapest */
		v = judge(run(3, true, false, seed), TUNER_READ);
		for (size_t i = 0; i < v.n_ranks; i++)
			n_wide += v.ranks[i].point == 0 && v.ranks[i].is_tied &&
				  v.ranks[i].loss > 0.3;
		ck_assert_double_le(v.ranks[v.recommended].loss, 0.05);
		free(v.ranks);
	}
	ck_assert_uint_gt(n_wide, 50); /* else this tests nothing */
}
END_TEST

START_TEST(a_cheaper_point_is_recommended_if_intervals_overlap_and_it_loses_little)
{
	unsigned n_overlaps = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.03, 0.2);
		device.speeds[1] = 1.02; /* and costs more */
		v = judge(run(2, true, false, seed), TUNER_READ);
		if (v.n_ranks == 2 && v.ranks[1].speed_high >= v.ranks[0].speed_low &&
		    (v.ranks[1].loss <= 0.05 || v.ranks[0].point == 0)) {
			n_overlaps++;
			ck_assert_uint_eq(v.ranks[v.recommended].point, 0);
		}
		free(v.ranks);
	}
	ck_assert_uint_gt(n_overlaps, 50);
}
END_TEST

START_TEST(a_step_that_misses_its_depth_is_repeated_longer)
{
	struct tuner_verdict v;

	device_init(12, 0.01, 0);
	device.reached_by[0] = IO_SIZE;
	device.speeds[0] = 3;
	v = judge(run(3, true, false, 12), TUNER_READ);
	ck_assert_uint_eq(v.n_not_reached, 0);
	ck_assert_uint_eq(v.ranks[0].point, 0);
	ck_assert_uint_eq(device.n_steps[0], device.n_steps[1] + 1);
	free(v.ranks);
}
END_TEST

START_TEST(a_point_that_no_transfer_brings_to_its_depth_is_not_ranked)
{
	struct tuner_verdict v;

	device_init(13, 0.01, 0);
	device.reached_by[0] = IO_SIZE + 1;
	device.needs_more[1] = true;
	device.speeds[0] = device.speeds[1] = 3;
	v = judge(run(4, true, true, 13), TUNER_SUM);
	ck_assert_uint_eq(v.n_not_reached, 2);
	ck_assert_uint_eq(v.n_ranks, 2);
	for (size_t i = 0; i < v.n_ranks; i++)
		ck_assert_uint_ge(v.ranks[i].point, 2);
	ck_assert_uint_eq(device.n_steps[1], 0); /* known before */
	free(v.ranks);
}
END_TEST

/* As a sweep measures it: whole transfers. */
START_TEST(ranks_rest_on_whole_transfers)
{
	uint64_t costs[2] = { 0, 1 }, needs[2] = { 4096, 4096 };
	uint32_t groups[2] = { 0, 1 };
	const struct tuner_options options = { .n_points = 2,
					       .costs = costs,
					       .needs = needs,
					       .groups = groups,
					       .reads = true,
					       .io_size = IO_SIZE,
					       .align = 4096,
					       .seed = 1 };
	struct tuner_verdict v;
	struct tuner_step step;
	struct tuner *tuner;

	ck_assert_int_eq(tuner_new(&options, &tuner), 0);
	while (tuner_next(tuner, &step)) /* short ones look twice as fast */
		tuner_add(tuner, step.bytes == IO_SIZE ? 1 : 2, true);
	v = judge(tuner, TUNER_READ);
	ck_assert_uint_eq(v.n_ranks, 2);
	ck_assert_double_eq_tol(v.ranks[0].speed, 1, 1e-6);
	ck_assert_double_eq_tol(v.ranks[0].speed_high, 1, 1e-6);
	ck_assert_uint_ge(v.n_rounds, 5);
	free(v.ranks);
}
END_TEST

START_TEST(the_budget_is_kept)
{
	device_init(1, 0.1, 0.1);
	tuner_free(run(N_POINTS, true, true, 1));
	/* But for the last rounds, of which there are five at least. */
	ck_assert_uint_le(device.n_bytes, BUDGET / 10 * 12);
	ck_assert_uint_gt(device.n_bytes, BUDGET / 10 * 8);
}
END_TEST

/* After a tenth of the time, with a step costing 3 ms and 1.5 GB/s: within a fifth. */
START_TEST(what_is_left_is_known_early)
{
	uint64_t costs[N_POINTS] = { 0 }, needs[N_POINTS] = { 0 };
	uint32_t groups[N_POINTS] = { 0 };
	const struct tuner_options options = { .n_points = N_POINTS,
					       .costs = costs,
					       .needs = needs,
					       .groups = groups,
					       .reads = true,
					       .writes = true,
					       .io_size = IO_SIZE,
					       .align = 4096,
					       .budget_bytes = BUDGET,
					       .seed = 11 };
	double seconds = 0, guesses[4096], at[4096];
	struct tuner *tuner;
	struct tuner_step step;
	unsigned n = 0;

	device_init(11, 0.1, 0.1);
	ck_assert_int_eq(tuner_new(&options, &tuner), 0);
	while (tuner_next(tuner, &step)) {
		size_t n_left;
		uint64_t bytes_left;

		tuner_add(tuner, measure(&step), true);
		seconds += 0.003 + (double)step.bytes / 1.5e9;
		tuner_left(tuner, &n_left, &bytes_left);
		ck_assert_uint_lt(n, 4096);
		at[n] = seconds;
		guesses[n++] = 0.003 * (double)n_left + (double)bytes_left / 1.5e9;
	}
	for (unsigned i = 0; i < n; i++)
		if (at[i] > seconds / 10 && at[i] < seconds * 0.9)
			ck_assert_msg(fabs(at[i] + guesses[i] - seconds) <
					      0.2 * (seconds - at[i]) + 0.05 * seconds,
				      "after %.1f s of %.1f s: %.1f s left", at[i], seconds,
				      guesses[i]);
	tuner_free(tuner);
}
END_TEST

START_TEST(points_that_are_alike_are_tied_and_a_cheap_one_is_recommended)
{
	unsigned n_tied = 0, n_ranks = 0, n_cheap = 0;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.01, 0.02);
		v = judge(run(N_POINTS, true, true, seed), TUNER_SUM);
		n_tied += (unsigned)v.n_tied;
		n_ranks += (unsigned)v.n_ranks;
		n_cheap += v.ranks[v.recommended].point == 0;
		free(v.ranks);
	}
	ck_assert_uint_gt(n_tied, n_ranks * 8 / 10);
	ck_assert_uint_ge(n_cheap, 40); /* it is measured to the end unless it seems clearly slow */
}
END_TEST

START_TEST(clear_losers_are_let_go_of_early)
{
	struct tuner_verdict v;

	device_init(3, 0.05, 0.1);
	for (unsigned i = 0; i < N_POINTS; i++)
		device.speeds[i] = i < N_POINTS / 2 ? 0.5 : 1;
	v = judge(run(N_POINTS, true, true, 3), TUNER_SUM);
	ck_assert_uint_eq(v.n_slower, N_POINTS / 2);
	for (unsigned i = 0; i < N_POINTS / 2; i++)
		ck_assert_uint_eq(device.n_steps[i], 2); /* read and write */
	free(v.ranks);
}
END_TEST

START_TEST(intervals_hold_what_they_promise)
{
	unsigned n = 0, n_in = 0;

	/* The second of two points is slower by 5%: 95 of 100 intervals should contain that. */
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct tuner_verdict v;

		device_init(seed, 0.05, 0.2);
		device.speeds[1] = 0.95;
		v = judge(run(2, true, false, seed), TUNER_READ);
		ck_assert_uint_eq(v.n_ranks, 2);
		if (v.ranks[0].point == 0) {
			n++;
			n_in += v.ranks[1].loss_low <= 0.05 && v.ranks[1].loss_high >= 0.05;
		}
		free(v.ranks);
	}
	ck_assert_uint_gt(n, 200);
	ck_assert_double_gt((double)n_in / n, 0.90);
	ck_assert_double_lt((double)n_in / n, 0.99);
}
END_TEST

START_TEST(a_point_that_fails_is_out)
{
	struct tuner_verdict v;

	device_init(5, 0.05, 0);
	device.speeds[7] = 2;
	device.fails[7] = true;
	v = judge(run(N_POINTS, true, true, 5), TUNER_SUM);
	for (size_t i = 0; i < v.n_ranks; i++)
		ck_assert_uint_ne(v.ranks[i].point, 7);
	ck_assert_uint_eq(device.n_steps[7], 1);
	ck_assert_uint_eq(v.n_ranks + v.n_slower + v.n_not_followed, N_POINTS - 1);
	free(v.ranks);
}
END_TEST

START_TEST(nothing_is_left_when_all_fail)
{
	struct tuner_verdict v;

	device_init(6, 0.05, 0);
	for (unsigned i = 0; i < 3; i++)
		device.fails[i] = true;
	v = judge(run(3, true, true, 6), TUNER_SUM);
	ck_assert_uint_eq(v.n_ranks, 0);
	free(v.ranks);
}
END_TEST

START_TEST(one_point_is_measured_too)
{
	struct tuner_verdict v;

	device_init(7, 0.05, 0);
	v = judge(run(1, true, true, 7), TUNER_SUM);
	ck_assert_uint_eq(v.n_ranks, 1);
	ck_assert_uint_eq(v.n_tied, 1);
	ck_assert_double_eq(v.ranks[0].loss, 0);
	ck_assert_double_lt(v.ranks[0].speed_low, v.ranks[0].speed);
	ck_assert_double_gt(v.ranks[0].speed_high, v.ranks[0].speed);
	free(v.ranks);
}
END_TEST

START_TEST(with_reads_alone_there_is_no_sum)
{
	struct tuner *tuner;

	device_init(8, 0.05, 0);
	tuner = run(4, true, false, 8);
	ck_assert(tuner_has_goal(tuner, TUNER_READ));
	ck_assert(!tuner_has_goal(tuner, TUNER_WRITE));
	ck_assert(!tuner_has_goal(tuner, TUNER_SUM));
	tuner_free(tuner);
}
END_TEST

START_TEST(a_point_has_a_speed_of_its_own_in_each_direction)
{
	double speed, low, high;
	struct tuner *tuner;

	device_init(9, 0.02, 0);
	device.speeds[1] = 0.5;
	device.fails[2] = true;
	tuner = run(3, true, true, 9);
	ck_assert(tuner_speed(tuner, 1, BENCH_WRITE, &speed, &low, &high));
	ck_assert_double_eq_tol(speed, 0.25, 0.01);
	ck_assert(low < speed && speed < high);
	ck_assert(tuner_speed(tuner, 0, BENCH_READ, &speed, &low, &high));
	ck_assert_double_eq_tol(speed, 1, 0.03);
	ck_assert(!tuner_speed(tuner, 2, BENCH_READ, &speed, &low, &high));
	tuner_free(tuner);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, a_point_that_is_faster_wins_whatever_the_device_does_meanwhile);
	tcase_add_test(tcase, runs_that_swing_recommend_the_same_point);
	tcase_add_test(tcase, runs_that_swing_more_recommend_a_fast_point);
	tcase_add_test(tcase,
		       a_wide_interval_recommends_no_point_that_is_slower_by_more_than_5_percent);
	tcase_add_test(tcase,
		       a_cheaper_point_is_recommended_if_intervals_overlap_and_it_loses_little);
	tcase_add_test(tcase, a_step_that_misses_its_depth_is_repeated_longer);
	tcase_add_test(tcase, a_point_that_no_transfer_brings_to_its_depth_is_not_ranked);
	tcase_add_test(tcase, ranks_rest_on_whole_transfers);
	tcase_add_test(tcase, the_budget_is_kept);
	tcase_add_test(tcase, what_is_left_is_known_early);
	tcase_add_test(tcase, points_that_are_alike_are_tied_and_a_cheap_one_is_recommended);
	tcase_add_test(tcase, clear_losers_are_let_go_of_early);
	tcase_add_test(tcase, intervals_hold_what_they_promise);
	tcase_add_test(tcase, a_point_that_fails_is_out);
	tcase_add_test(tcase, nothing_is_left_when_all_fail);
	tcase_add_test(tcase, one_point_is_measured_too);
	tcase_add_test(tcase, with_reads_alone_there_is_no_sum);
	tcase_add_test(tcase, a_point_has_a_speed_of_its_own_in_each_direction);
}

SUITE("ctl/bench_tuner", add_tests)
