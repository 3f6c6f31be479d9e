/* latency_record: what DS-AIO-Benchmark prints, and no number that too few transfers give. */
#include "client/ctl/bench/latency_record.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <json-c/json.h>
#include <string.h>

#define MSEC UINT64_C(1000000)
#define SIZE 1000000u /* 1 MB: 1 ms is 1000 MB/s */

static struct latency_record record; /* too large for a stack */

static void begin(void)
{
	memset(&record, 0, sizeof(record));
}

static void add(uint32_t n, uint64_t nsec)
{
	for (uint32_t i = 0; i < n; i++)
		latency_record_add(&record, SIZE, 100, i * MSEC, nsec);
}

TEST(the_mean_of_the_bandwidth_is_of_each_transfer)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(out);
	add(1, MSEC);
	add(1, 2 * MSEC);
	latency_record_print(&record, BENCH_READ, SIZE, 0, out);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_ptr_nonnull(strstr(text, "Reads of 977 KiB, 2 transfers\n"));
	/* 1000 and 500 MB/s */
	ck_assert_ptr_nonnull(
		strstr(text, "  mean                          1.50 ms        715 MiB/s"));
	ck_assert_ptr_nonnull(
		strstr(text, "  max                           2.00 ms        954 MiB/s"));
	ck_assert_ptr_nonnull(strstr(text, "-  (needs 1000 transfers)"));
	ck_assert_ptr_null(strstr(text, "begun a second"));
}

TEST(the_rate_is_of_the_starts)
{
	ck_assert_double_eq(latency_record_rate(&record), 0);
	add(1, MSEC);
	ck_assert_double_eq(latency_record_rate(&record), 0);
	add(10, MSEC);
	record.starting_nsec = 1000 * MSEC;
	ck_assert_double_eq(latency_record_rate(&record), 10);
}

TEST(a_percentile_of_too_few_is_null)
{
	struct json_object *object;

	add(100, MSEC);
	object = latency_record_json(&record, BENCH_WRITE, SIZE, 0);
	ck_assert_str_eq(json_object_get_string(json_object_object_get(object, "op")), "write");
	ck_assert_int_eq(json_object_get_int(json_object_object_get(object, "n")), 100);
	ck_assert_ptr_nonnull(json_object_object_get(object, "p99_nsec"));
	ck_assert_ptr_null(json_object_object_get(object, "p999_nsec"));
	ck_assert_ptr_null(json_object_object_get(object, "rate"));
	ck_assert_uint_eq(json_object_array_length(json_object_object_get(object, "series")), 100);
	(void)json_object_put(object);
}

static uint64_t number_of(struct json_object *step, const char *key)
{
	return json_object_get_uint64(json_object_object_get(step, key));
}

TEST(the_histogram_has_each_step_with_values_and_all_transfers)
{
	struct json_object *object, *steps;
	uint64_t n = 0, last = 0;

	for (uint32_t i = 0; i < 5000; i++)
		latency_record_add(&record, SIZE, 5000, i, i < 3000 ? 1000 : 2 * MSEC + i);
	object = latency_record_json(&record, BENCH_READ, SIZE, 100);
	steps = json_object_object_get(object, "histogram");
	ck_assert_uint_eq(number_of(json_object_array_get_idx(steps, 0), "nsec"), 1000);
	ck_assert_uint_eq(number_of(json_object_array_get_idx(steps, 0), "count"), 3000);
	for (size_t i = 0; i < json_object_array_length(steps); i++) {
		struct json_object *step = json_object_array_get_idx(steps, i);

		ck_assert_uint_gt(number_of(step, "count"), 0);
		ck_assert_uint_gt(number_of(step, "nsec"), last);
		last = number_of(step, "nsec");
		n += number_of(step, "count");
	}
	ck_assert_uint_eq(n, 5000);
	ck_assert_uint_ge(last, record.histogram.max_nsec);
	ck_assert_uint_le(last, record.histogram.max_nsec + record.histogram.max_nsec / 1000);
	ck_assert_uint_eq(json_object_array_length(json_object_object_get(object, "series")),
			  LATENCY_SLICES);
	(void)json_object_put(object);
}

FIXTURE(begin, NULL)
TEST_MAIN
