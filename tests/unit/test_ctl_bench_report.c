/* bench_report: a page that is well-formed, needs nothing else, and has all points. */
#include "client/ctl/bench/report.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"

#include <check.h>
#include <ctype.h>
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

#define N_REPETITIONS 3u
#define HOSTILE "<b>&\"' evil"

/* ---- what is reported ---- */

static void add_row(struct bench_results *results, enum bench_op op, uint32_t block_size,
		    uint32_t queue_depth, uint32_t parallel, const char *error)
{
	struct bench_repetition repetitions[N_REPETITIONS];
	struct bench_row row = {
		.task = { .op = op,
			  .profile = { .block_size = block_size,
				       .queue_depth = queue_depth,
				       .overlap_events = true,
				       .intra_op_parallelism = parallel },
			  .io_size = 400u << 20,
			  .loops = N_REPETITIONS },
		.n_processes = 1,
		.repetitions = repetitions,
		.n_repetitions = error[0] ? 0 : N_REPETITIONS,
	};

	for (unsigned i = 0; i < N_REPETITIONS; i++)
		repetitions[i] = (struct bench_repetition){ .at_sec = 1e9 + i,
							    .task_sec = 0.2,
							    .e2e_sec = 0.2 + 0.01 * i,
							    .bytes = 400u << 20 };
	if (!error[0])
		row.total = (struct measure){ .e2e_sec = 0.63,
					      .bytes = N_REPETITIONS * (400u << 20) };
	(void)snprintf(row.error, sizeof(row.error), "%s", error);
	ck_assert_int_eq(bench_results_add(results, &row), 0);
}

static struct json_object *object_of(const char *key, const char *text)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, key, json_object_new_string(text));
	return object;
}

/* 2 block sizes x 2 depths x 3 parallelisms, reads and writes; one write failed. */
static void sweep(struct bench_results *results)
{
	struct json_object *folders = json_object_new_array();
	struct json_object *command = json_object_new_array();

	ck_assert_int_eq(bench_results_init(results, "sweep"), 0);
	for (uint32_t block = 1u << 20; block <= 2u << 20; block *= 2)
		for (uint32_t depth = 8; depth <= 32; depth *= 4)
			for (uint32_t parallel = 1; parallel <= 4; parallel *= 2) {
				add_row(results, BENCH_READ, block, depth, parallel, "");
				add_row(results, BENCH_WRITE, block, depth, parallel,
					block + depth + parallel == (1u << 20) + 8 + 1 ? HOSTILE
										       : "");
			}
	json_object_array_add(folders, object_of("model", HOSTILE));
	json_object_array_add(command, json_object_new_string(HOSTILE));
	bench_results_set(results, "folders", folders);
	bench_results_set(results, "command", command);
	bench_results_set(results, "machine", object_of("host", HOSTILE));
	bench_results_set(results, "best", object_of("aio", HOSTILE));
}

static void latency(struct bench_results *results)
{
	struct json_object *one = json_object_new_object(), *all = json_object_new_array();
	struct json_object *points = json_object_new_array();

	ck_assert_int_eq(bench_results_init(results, "latency"), 0);
	for (int i = 1; i <= 7; i++) {
		struct json_object *pair = json_object_new_array();

		json_object_array_add(pair, json_object_new_int(i * 1000));
		json_object_array_add(pair, json_object_new_double(i / 7.0));
		json_object_array_add(points, pair);
	}
	json_object_object_add(one, "op", json_object_new_string(HOSTILE));
	json_object_object_add(one, "cdf", points);
	json_object_object_add(one, "series", json_object_get(points));
	json_object_array_add(all, one);
	bench_results_set(results, "latency", all);
}

static char *report(const struct bench_report_run *runs, size_t n)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ck_assert_int_eq(bench_report_write(out, runs, n), 0);
	ck_assert_int_eq(fclose(out), 0);
	return text;
}

static char *report_both(void)
{
	struct bench_report_run runs[2] = { { .name = HOSTILE }, { .name = "second" } };
	char *page;

	sweep(&runs[0].results);
	latency(&runs[1].results);
	page = report(runs, 2);
	bench_results_deinit(&runs[0].results);
	bench_results_deinit(&runs[1].results);
	return page;
}

/* bench tune recommends the 16th of 20 profiles, fastest first: it is tied, and cheaper. */
#define N_RANKS 20
#define RECOMMENDED 15
static void tune(struct bench_results *results)
{
	struct json_object *goals = json_object_new_object();

	ck_assert_int_eq(bench_results_init(results, "tune"), 0);
	for (int g = 0; g < 3; g++) {
		static const char *const names[] = { "read", "write", "sum" };
		struct json_object *goal = json_object_new_object();
		struct json_object *ranks = json_object_new_array();

		for (uint32_t i = 0; i < N_RANKS; i++) {
			const struct profile profile = { 1u << 20, 100 + i, false, true, 1 };
			struct json_object *rank = object_of("x", "y");

			json_object_object_add(rank, "profile", json_profile(&profile));
			json_object_object_add(rank, "speed", json_object_new_double(2.5));
			json_object_object_add(rank, "speed_low", json_object_new_double(2.25));
			json_object_object_add(rank, "speed_high", json_object_new_double(2.75));
			json_object_object_add(rank, "is_tied",
					       json_object_new_boolean(i <= RECOMMENDED));
			json_object_array_add(ranks, rank);
		}
		json_object_object_add(goal, "ranks", ranks);
		json_object_object_add(goal, "recommended", json_object_new_int(RECOMMENDED));
		json_object_object_add(goals, names[g], goal);
	}
	for (uint32_t i = 0; i < N_RANKS; i++)
		for (int op = BENCH_READ; op <= BENCH_WRITE; op++)
			add_row(results, (enum bench_op)op, 1u << 20, 100 + i, 1, "");
	bench_results_set(results, "tune", goals);
}

/* ---- what is looked at ---- */

/* Every tag is closed, attributes are quoted, "<" and "&" only begin tags and known entities. */
static void check_well_formed(const char *page)
{
	char stack[32][24];
	unsigned depth = 0;
	const char *at = strstr(page, "<html");

	ck_assert_ptr_nonnull(at);
	for (; *at; at++) {
		if (*at == '&')
			ck_assert_msg(!strncmp(at, "&lt;", 4) || !strncmp(at, "&gt;", 4) ||
					      !strncmp(at, "&amp;", 5) || !strncmp(at, "&quot;", 6),
				      "%.40s", at);
		if (*at != '<')
			continue;
		if (at[1] == '/') {
			ck_assert_msg(depth > 0, "closed once too often: %.40s", at);
			depth--;
			ck_assert_msg(!strncmp(at + 2, stack[depth], strlen(stack[depth])) &&
					      at[2 + strlen(stack[depth])] == '>',
				      "<%s> ends with %.40s", stack[depth], at);
		} else {
			const size_t len = strcspn(at + 1, " />\n");
			bool is_quoted = false;
			const char *start = at;

			ck_assert_msg(isalpha((unsigned char)at[1]) && len < sizeof(stack[0]),
				      "%.40s", at);
			ck_assert_uint_lt(depth, 32);
			memcpy(stack[depth], at + 1, len);
			stack[depth++][len] = '\0';
			for (at++; *at && (*at != '>' || is_quoted); at++) {
				if (*at == '"')
					is_quoted = !is_quoted;
				else if (*at == '=' && !is_quoted)
					ck_assert_msg(at[1] == '"', "%.60s", start);
				ck_assert_msg(*at != '<', "%.60s", start);
			}
			depth -= at[-1] == '/';
		}
	}
	ck_assert_uint_eq(depth, 0);
}

static size_t count(const char *text, const char *end, const char *what)
{
	size_t n = 0;

	for (text = strstr(text, what); text && text < end; text = strstr(text + 1, what))
		n++;
	return n;
}

START_TEST(the_page_is_well_formed_whatever_is_in_it)
{
	_cleanup_(freep) char *page = report_both();

	check_well_formed(page);
	ck_assert_ptr_null(strstr(page, "<b>"));
}
END_TEST

START_TEST(a_tunes_recommendation_is_named_and_shown_with_its_ties)
{
	struct bench_report_run run = { .name = "tuned" };
	char *page;
	const char *best, *bars, *end;

	tune(&run.results);
	page = report(&run, 1);
	bench_results_deinit(&run.results);
	check_well_formed(page);
	best = strstr(page, "Best profiles");
	bars = strstr(page, "<figure class=\"bars\">");
	ck_assert_ptr_nonnull(best);
	ck_assert_ptr_nonnull(bars);
	end = strstr(best, "</table>");
	/* For reads and for writes, with its interval. */
	ck_assert_uint_eq(count(best, end, "1M d115 p1 overlap<br/>recommended, 16 tied"), 2);
	ck_assert_uint_eq(count(best, end, "2.50 (2.25-2.75)"), 2);
	end = strstr(bars, "</figure>");
	ck_assert_uint_eq(count(bars, end, ">* 1M d115 p1 overlap<"), 1);
	ck_assert_uint_eq(count(bars, end, ">= 1M d100 p1 overlap<"), 1);
	ck_assert_uint_eq(count(bars, end, ">* "), 1);
	free(page);
}
END_TEST

START_TEST(the_page_needs_nothing_else)
{
	static const char *const outside[] = { "http",	  "src=",    "href=", "url(",
					       "@import", "<script", "<link", "<img" };
	_cleanup_(freep) char *page = report_both();

	for (int i = 0; i < N_ROWS(outside); i++)
		ck_assert_msg(!strstr(page, outside[i]), "%s", outside[i]);
}
END_TEST

/* As many marks, or points of its line, as the series says. */
START_TEST(every_series_has_all_its_points)
{
	static const char mark[] = "<g class=\"series\" data-points=\"";
	_cleanup_(freep) char *page = report_both();
	unsigned n_series = 0;

	for (const char *at = strstr(page, mark); at; at = strstr(at + 1, mark)) {
		const size_t wanted = strtoul(at + strlen(mark), NULL, 10);
		const char *line = strstr(at, "<polyline"), *end = at;
		unsigned depth = 0;

		do {
			depth += !strncmp(end, "<g", 2) && !isalpha((unsigned char)end[2]);
			depth -= !strncmp(end, "</g>", 4);
			end++;
		} while (depth);
		if (line && line < end) {
			const char *points = strstr(line, " points=\"") + 9;

			ck_assert_uint_eq(count(points, strchr(points, '"'), ","), wanted);
		} else {
			ck_assert_uint_eq(count(at, end, "class=\"pt\""), wanted);
		}
		n_series++;
	}
	/* Two ops with three heat maps, bars and times each; a CDF and a series over time. */
	ck_assert_uint_eq(n_series, 2 * (3 + 1 + 1) + 2);
}
END_TEST

/* 12 points, reads and writes, one of which failed: nothing is left out of the pictures. */
START_TEST(all_that_was_measured_is_shown)
{
	_cleanup_(freep) char *page = report_both();
	const char *const end = page + strlen(page);
	size_t n_behind = 0;

	for (const char *at = strstr(page, "data-behind=\""); at;
	     at = strstr(at + 1, "data-behind=\""))
		n_behind += strtoul(at + 13, NULL, 10);
	ck_assert_uint_eq(n_behind, 23);
	ck_assert_uint_eq(count(page, end, "data-points=\"36\""), 1); /* 12 x 3 reads over time */
	ck_assert_uint_eq(count(page, end, "data-points=\"33\""), 1);
	ck_assert_uint_eq(count(page, end, "data-points=\"7\""), 2);
	ck_assert_uint_eq(count(page, end, "class=\"whisker\""), 23);
	ck_assert_ptr_nonnull(strstr(page, "Failed</h3>"));
}
END_TEST

/* A tuner measures a point in steps, each a row of its own. */
START_TEST(steps_of_a_point_are_one_row)
{
	struct bench_report_run run = { .name = "tune" };
	_cleanup_(freep) char *page = NULL;

	ck_assert_int_eq(bench_results_init(&run.results, "tune"), 0);
	for (unsigned i = 0; i < 4; i++)
		add_row(&run.results, BENCH_READ, 1u << 20, 8, 1, "");
	page = report(&run, 1);
	bench_results_deinit(&run.results);
	ck_assert_uint_eq(count(page, page + strlen(page), "data-behind=\"1\""), 1);
	ck_assert_uint_eq(count(page, page + strlen(page), "data-points=\"12\""),
			  1); /* over time */
}
END_TEST

START_TEST(a_run_without_anything_is_a_page_too)
{
	struct bench_report_run run = { .name = "empty" };
	_cleanup_(freep) char *page = NULL;

	ck_assert_int_eq(bench_results_init(&run.results, "sweep"), 0);
	page = report(&run, 1);
	bench_results_deinit(&run.results);
	check_well_formed(page);
	ck_assert_ptr_nonnull(strstr(page, "not complete"));
}
END_TEST

/* 1e999 in a file is infinite: its axis would have no end. */
START_TEST(numbers_that_are_none_do_no_harm)
{
	struct bench_report_run run = { .name = "strange" };
	struct json_object *pair = json_object_new_array(), *row;
	_cleanup_(freep) char *page = NULL;

	latency(&run.results);
	json_object_array_add(pair, json_object_new_double(INFINITY));
	json_object_array_add(pair, json_object_new_double(NAN));
	row = json_object_array_get_idx(bench_results_get(&run.results, "latency"), 0);
	json_object_array_add(json_object_object_get(row, "cdf"), pair);
	json_object_object_add(row, "p99_nsec", json_object_new_double(INFINITY));
	add_row(&run.results, BENCH_READ, 1u << 20, 8, 1, "");
	row = json_object_array_get_idx(bench_results_get(&run.results, "points"), 0);
	json_object_object_add(row, "e2e_speed_gb_per_sec", json_object_new_double(1));
	row = json_object_array_get_idx(json_object_object_get(row, "repetitions"), 0);
	json_object_object_add(row, "e2e_sec", json_object_new_double(0));
	page = report(&run, 1);
	bench_results_deinit(&run.results);
	check_well_formed(page);
	ck_assert_ptr_null(strstr(page, "nan"));
	ck_assert_ptr_null(strstr(page, "inf\""));
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, a_tunes_recommendation_is_named_and_shown_with_its_ties);
	tcase_add_test(tcase, the_page_is_well_formed_whatever_is_in_it);
	tcase_add_test(tcase, the_page_needs_nothing_else);
	tcase_add_test(tcase, every_series_has_all_its_points);
	tcase_add_test(tcase, all_that_was_measured_is_shown);
	tcase_add_test(tcase, steps_of_a_point_are_one_row);
	tcase_add_test(tcase, a_run_without_anything_is_a_page_too);
	tcase_add_test(tcase, numbers_that_are_none_do_no_harm);
}

SUITE("ctl/bench_report", add_tests)
