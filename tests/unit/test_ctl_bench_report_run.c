/* report_run: rows of a profile are merged, its reads and writes are paired. */
#include "client/ctl/bench/report_run.h"
#include "tests/unit/suite.h"

#include <json-c/json.h>
#include <string.h>

static struct bench_results results;
static struct report_run run;

static void add_row(enum bench_op op, uint32_t depth, double seconds, const char *error)
{
	struct bench_repetition repetition = { .at_sec = 1, .e2e_sec = seconds, .bytes = 1u << 30 };
	struct bench_row row = { .task = { .op = op,
					   .profile = { .block_size = 1u << 20,
							.queue_depth = depth,
							.overlap_events = true,
							.intra_op_parallelism = 1 } },
				 .repetitions = &repetition,
				 .n_repetitions = error[0] ? 0 : 1 };

	if (!error[0])
		row.total = (struct measure){ .e2e_sec = seconds, .bytes = 1u << 30 };
	(void)snprintf(row.error, sizeof(row.error), "%s", error);
	ck_assert_int_eq(bench_results_add(&results, &row), 0);
}

static void begin(void)
{
	ck_assert_int_eq(bench_results_init(&results, "tune"), 0);
}

static void end(void)
{
	report_run_deinit(&run);
	bench_results_deinit(&results);
}

static void read_run(void)
{
	static struct bench_report_run from; /* the run borrows its results */

	from = (struct bench_report_run){ .name = "logs", .results = results };
	ck_assert_int_eq(report_run_init(&run, &from), 0);
}

START_TEST(steps_of_a_point_become_one_row)
{
	add_row(BENCH_READ, 8, 1, "");
	add_row(BENCH_WRITE, 8, 1, "");
	add_row(BENCH_READ, 8, 3, "");
	read_run();
	ck_assert_uint_eq(run.n_rows, 2);
	ck_assert_uint_eq(run.rows[0].n_repetitions, 2);
	ck_assert_double_eq(run.rows[0].total.e2e_sec, 4);
	ck_assert_double_eq(run.rows[0].total.e2e_speed, 0.5);
	ck_assert_uint_eq(run.rows[1].n_repetitions, 1);
}
END_TEST

START_TEST(pairs_with_both_ops_come_before_faster_ones_with_one)
{
	struct report_pair *pairs;
	size_t n = 0;

	add_row(BENCH_READ, 1, 0.1, ""); /* the fastest, but its write failed */
	add_row(BENCH_WRITE, 1, 0, "no space");
	add_row(BENCH_READ, 2, 2, "");
	add_row(BENCH_WRITE, 2, 2, "");
	add_row(BENCH_READ, 4, 1, "");
	add_row(BENCH_WRITE, 4, 1, "");
	read_run();
	pairs = report_pairs(&run, &n);
	ck_assert_ptr_nonnull(pairs);
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(pairs[0].rows[BENCH_READ]->task.profile.queue_depth, 4);
	ck_assert_uint_eq(pairs[1].rows[BENCH_WRITE]->task.profile.queue_depth, 2);
	ck_assert_uint_eq(pairs[2].rows[BENCH_READ]->task.profile.queue_depth, 1);
	ck_assert_ptr_null(pairs[2].rows[BENCH_WRITE]);
	free(pairs);
}
END_TEST

static const struct {
	struct profile profile;
	const char *name;
} names[] = {
	{ { 1u << 20, 32, false, true, 8 }, "1M d32 p8 overlap" },
	{ { 128u << 10, 1, true, false, 1 }, "128K d1 p1 seq single" },
};

START_TEST(a_profile_has_a_short_name) /* _i: the row */
{
	char text[REPORT_NAME_BYTES];

	ck_assert_str_eq(report_profile_name(text, sizeof(text), &names[_i].profile),
			 names[_i].name);
}
END_TEST

START_TEST(the_sum_is_the_main_goal_and_empty_goals_are_none)
{
	const char *name = NULL;
	struct json_object *goal;
	struct report_rank rank;

	bench_results_set(
		&results, "tune",
		json_tokener_parse(
			"{\"read\": {\"ranks\": []}, \"sum\": {\"recommended\": 1, \"ranks\": ["
			"{\"speed\": 2.5, \"speed_low\": 2, \"speed_high\": 3, \"is_tied\": true,"
			" \"profile\": {\"block_size\": 4096, \"queue_depth\": 9}},"
			"{\"speed\": 1e999, \"profile\": {\"queue_depth\": 99999999999}}]}}"));
	read_run();
	ck_assert_ptr_null(report_goal(&run, "read"));
	ck_assert_ptr_null(report_goal(&run, "write"));
	goal = report_main_goal(&run, &name);
	ck_assert_str_eq(name, "sum");
	ck_assert_uint_eq(report_n_ranks(goal), 2);
	ck_assert_uint_eq(report_recommended(goal), 1);
	rank = report_rank(goal, 0);
	ck_assert(rank.is_tied && !rank.is_recommended);
	ck_assert_double_eq(rank.speed, 2.5);
	ck_assert_uint_eq(rank.profile.queue_depth, 9);
	rank = report_rank(goal, 1); /* values that no bench wrote */
	ck_assert(rank.is_recommended && !rank.is_tied);
	ck_assert_double_eq(rank.speed, 0);
	ck_assert_uint_eq(rank.profile.queue_depth, UINT32_MAX);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, steps_of_a_point_become_one_row);
	tcase_add_test(tcase, pairs_with_both_ops_come_before_faster_ones_with_one);
	tcase_add_loop_test(tcase, a_profile_has_a_short_name, 0, N_ROWS(names));
	tcase_add_test(tcase, the_sum_is_the_main_goal_and_empty_goals_are_none);
}

SUITE("report_run", add_tests)
