/* bench row: what any program may have written to the file is cut to what fits. */
#include "client/ctl/bench/row.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <json-c/json.h>

static const struct {
	const char *what, *json;
	int r;
	uint32_t depth;
	uint64_t device_bytes;
	enum bench_source source;
} rows[] = {
	{ "all defaults", "{\"repetitions\": []}", 0, 0, UINT64_MAX, BENCH_FROM_UNKNOWN },
	{ "a depth beyond 32 bits", "{\"queue_depth\": 4294967296, \"repetitions\": []}", 0,
	  UINT32_MAX, UINT64_MAX, BENCH_FROM_UNKNOWN },
	{ "known bytes and source",
	  "{\"device_bytes\": 7, \"source\": \"partly cache\", \"repetitions\": []}", 0, 0, 7,
	  BENCH_FROM_BOTH },
	{ "an unknown source", "{\"source\": \"tape\", \"repetitions\": [{}]}", 0, 0, UINT64_MAX,
	  BENCH_FROM_UNKNOWN },
	{ "no object", "[1]", -EINVAL, 0, 0, BENCH_FROM_UNKNOWN },
};

TEST_TABLE(a_row_has_what_the_object_has, rows) /* _i: the row */
{
	struct json_object *object = json_tokener_parse(rows[_i].json);
	struct bench_row row;

	ck_assert_ptr_nonnull(object);
	ck_assert_int_eq(bench_row_read(object, &row), rows[_i].r);
	if (rows[_i].r == 0)
		ck_assert_msg(row.task.profile.queue_depth == rows[_i].depth &&
				      row.device_bytes == rows[_i].device_bytes &&
				      row.source == rows[_i].source,
			      "%s", rows[_i].what);
	(void)json_object_put(object);
}

TEST(each_source_has_a_name_that_reads_back)
{
	for (int i = BENCH_FROM_UNKNOWN; i <= BENCH_FROM_MEMORY; i++) {
		struct bench_row row = { .source = (enum bench_source)i }, back;
		struct json_object *object = bench_row_json(&row);

		ck_assert_ptr_nonnull(object);
		ck_assert_int_eq(bench_row_read(object, &back), 0);
		ck_assert_int_eq(back.source, i);
		(void)json_object_put(object);
	}
}

TEST(bytes_that_are_not_known_are_null)
{
	struct json_object *object = bench_bytes_json(5);

	ck_assert_ptr_null(bench_bytes_json(UINT64_MAX));
	ck_assert_uint_eq(json_object_get_uint64(object), 5);
	(void)json_object_put(object);
}

TEST_MAIN
