/* report_facts, report_maps, report_latency: each part shows what a run has, and nothing else. */
#include "client/ctl/bench/report_parts.h"
#include "tests/unit/suite.h"

#include <json-c/json.h>
#include <string.h>

static struct bench_results results;
static struct bench_row rows[8];
static struct report_run run = { .name = "logs", .results = &results, .rows = rows };

/* The page, whole after fclose(out). */
static FILE *out;
static char *text;
static size_t len;

static void begin(void)
{
	out = open_memstream(&text, &len);
	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(bench_results_init(&results, "sweep"), 0);
	run.n_rows = 0;
}

static void end(void)
{
	bench_results_deinit(&results);
	free(text);
}

static void add_row(uint32_t block_size, uint32_t depth, uint32_t n_parts, double speed)
{
	rows[run.n_rows++] = (struct bench_row){ .task = { .op = BENCH_READ,
							   .profile = { block_size, depth, false,
									true, n_parts } },
						 .total = { .e2e_speed = speed } };
}

static unsigned count(const char *part)
{
	const char *at = text;
	unsigned n = 0;

	while ((at = strstr(at, part))) {
		at += strlen(part);
		n++;
	}
	return n;
}

START_TEST(facts_are_escaped_and_missing_ones_are_dashes)
{
	bench_results_set(&results, "machine",
			  json_tokener_parse("{\"host\": \"<a&b>\", \"cpus\": 2}"));
	bench_results_set(&results, "command",
			  json_tokener_parse("[\"dsaioctl\", \"with space\"]"));
	bench_results_set(&results, "buffers",
			  json_tokener_parse("[{\"bytes\": 4096, \"huge_page_bytes\": 0},"
					     "{\"bytes\": 8192, \"huge_page_bytes\": null}]"));
	report_write_facts(out, &run, 1);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_ptr_nonnull(strstr(text, "<td>&lt;a&amp;b&gt;</td>"));
	ck_assert_ptr_nonnull(strstr(text, "<th>kernel</th><td>-</td>"));
	ck_assert_ptr_nonnull(strstr(text, "<code>dsaioctl 'with space'</code>"));
	ck_assert_ptr_nonnull(strstr(text, "none of 4 KiB<br/>not known of 8 KiB"));
	ck_assert_ptr_nonnull(strstr(text, "not complete"));
}
END_TEST

START_TEST(a_map_for_each_number_of_parts)
{
	add_row(1u << 20, 8, 1, 1);
	add_row(1u << 20, 32, 1, 2);
	add_row(4u << 20, 8, 4, 4);
	add_row(4u << 20, 64, 8, 0); /* not measured: no map of 8 parts */
	ck_assert_int_eq(report_write_maps(out, &run, BENCH_READ), 0);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_uint_eq(count("<svg"), 2);
	ck_assert_ptr_nonnull(strstr(text, "the slowest is 75% below the fastest"));
	ck_assert_ptr_null(strstr(text, "8 parts"));
}
END_TEST

START_TEST(a_run_without_writes_has_no_maps_of_writes)
{
	add_row(1u << 20, 8, 1, 1);
	ck_assert_int_eq(report_write_maps(out, &run, BENCH_WRITE), 0);
	ck_assert_int_eq(report_write_latencies(out, &run), 0);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_uint_eq(len, 0);
}
END_TEST

START_TEST(latencies_have_a_row_each_and_two_plots)
{
	bench_results_set(&results, "latency",
			  json_tokener_parse("[{\"op\": \"read\", \"size\": 4096, \"n\": 10,"
					     " \"mean_nsec\": 1500, \"p999_nsec\": null,"
					     " \"cdf\": [[1000, 0.5], [2000, 1]],"
					     " \"series\": [[0, 1500]]}]"));
	ck_assert_int_eq(report_write_latencies(out, &run), 0);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_ptr_nonnull(strstr(text, "<td>read</td><td>4 KiB</td><td>10</td>"));
	ck_assert_ptr_nonnull(strstr(text, "<td class=\"n\">1.50 us</td>"));
	ck_assert_ptr_nonnull(strstr(text, "<td class=\"n\">-</td>")); /* too few for a p99.9 */
	ck_assert_uint_eq(count("<svg"), 2);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, facts_are_escaped_and_missing_ones_are_dashes);
	tcase_add_test(tcase, a_map_for_each_number_of_parts);
	tcase_add_test(tcase, a_run_without_writes_has_no_maps_of_writes);
	tcase_add_test(tcase, latencies_have_a_row_each_and_two_plots);
}

SUITE("report_parts", add_tests)
