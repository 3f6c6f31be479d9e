/* bench space: DeepSpeed's points in DeepSpeed's order, its log names, and JSON that is none. */
#include "client/ctl/bench/space.h"
#include "client/ctl/ui/units.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <json-c/json.h>
#include <string.h>

/* As bench_space_parse(), of text. */
static int parse(const char *json, struct bench_space *ret_space, char *text, size_t size)
{
	struct json_object *root = json_tokener_parse(json);
	int r = bench_space_parse(root, ret_space, text, size);

	(void)json_object_put(root);
	return r;
}

static const struct {
	size_t i;
	const char *read_log;
} defaults[] = {
	{ 0, "read_block_sequential_ftd1_d32_bs1M_p1" },
	{ 1, "read_block_sequential_ftd1_d32_bs1M_p2" },
	{ 4, "read_single_sequential_ftd1_d32_bs1M_p1" },
	{ 8, "read_block_overlap_ftd1_d32_bs1M_p1" },
	{ 15, "read_single_overlap_ftd1_d32_bs1M_p8" },
	{ 16, "read_block_sequential_ftd1_d128_bs1M_p1" },
	{ 32, "read_block_sequential_ftd1_d32_bs8M_p1" },
	{ 63, "read_single_overlap_ftd1_d128_bs8M_p8" },
};

TEST_TABLE(the_default_space_has_deepspeeds_points_and_names, defaults)
{
	struct bench_space space;
	struct profile profile;
	char name[BENCH_LOG_NAME_BYTES];

	bench_space_default(&space);
	ck_assert_uint_eq(bench_space_points(&space), 64);
	profile = bench_space_point(&space, defaults[_i].i);
	ck_assert_str_eq(bench_log_name(name, BENCH_READ, &profile, 1), defaults[_i].read_log);
}

TEST(block_sizes_have_the_largest_unit_that_divides_them)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(bench_block_size_name(text, 4096), "4K");
	ck_assert_str_eq(bench_block_size_name(text, 1536u << 10), "1536K");
	ck_assert_str_eq(bench_block_size_name(text, 64u << 20), "64M");
}

TEST(missing_lists_have_ds_ios_defaults)
{
	static const char json[] = "{\"block_size\": [\"128K\", 4096]}\n";
	struct bench_space space;
	struct profile profile;
	char text[512];

	ck_assert_int_eq(parse(json, &space, text, sizeof(text)), 0);
	ck_assert_uint_eq(bench_space_points(&space), 2);
	profile = bench_space_point(&space, 1);
	ck_assert_uint_eq(profile.block_size, 4096);
	ck_assert_uint_eq(profile.queue_depth, 32);
	ck_assert_uint_eq(profile.intra_op_parallelism, 1);
	ck_assert(profile.overlap_events && !profile.single_submit);
}

TEST(a_space_read_and_printed_is_the_same)
{
	static const char json[] = "{\"block_size\":[\"128K\",\"1M\"],\"queue_depth\":[32,64],"
				   "\"sequential_requests\":[true,false],"
				   "\"single_submit\":[false],\"io_parallel\":[1,2,4,8]}";
	struct json_object *object;
	struct bench_space space;
	char text[512];

	ck_assert_int_eq(parse(json, &space, text, sizeof(text)), 0);
	ck_assert_uint_eq(bench_space_points(&space), 32);
	object = bench_space_json(&space);
	ck_assert_str_eq(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN), json);
	(void)json_object_put(object);
}

static const struct {
	const char *json, *text;
} bad[] = {
	{ "", "must be an object" },
	{ "[32]", "must be an object" },
	{ "{\"io_paralel\": [1]}", "io_paralel: unknown key: there are block_size, " },
	{ "{\n\"queue_depth\": 32}", "queue_depth: 32: must be a list of 1 to 256 values: write" },
	{ "{\"queue_depth\": []}", "queue_depth: []: must be a list of 1 to 256" },
	{ "{\"queue_depth\": [0]}", "queue_depth: 0: " },
	{ "{\"queue_depth\": [-1]}", "must be positive" },
	{ "{\"queue_depth\": [1e3]}", "must be a whole number" },
	{ "{\"queue_depth\": [\"32\"]}", "must be a whole number" },
	{ "{\"queue_depth\": [99999999999999999999]}", "queue_depth: " },
	{ "{\"queue_depth\": [4097]}", "4096" },
	{ "{\"queue_depth\": [32, 64, 32]}", "queue_depth: 32: is there twice" },
	{ "{\"block_size\": [\"1M\", 1048576]}", "is there twice" },
	{ "{\"block_size\": [\"1X\"]}", "block_size: \"1X\": must be a number of bytes" },
	{ "{\"block_size\": [\"5000\"]}", "block_size: \"5000\": " },
	{ "{\"block_size\": [\"1T\"]}", "block_size: \"1T\": " },
	{ "{\"block_size\": [null]}", "block_size: null: must be" },
	{ "{\"io_parallel\": [65]}", "64" },
	{ "{\"single_submit\": [1]}", "single_submit: 1: must be true or false" },
	{ "{\"single_submit\": [\"true\"]}", "must be true or false" },
	{ "{\"sequential_requests\": [true, true]}", "is there twice" },
	{ "{\"queue_depth\": [[1]]}", "must be a whole number" },
};

TEST_TABLE(what_is_no_space_is_reported, bad)
{
	struct bench_space space;
	char text[512];

	ck_assert_int_eq(parse(bad[_i].json, &space, text, sizeof(text)), -EINVAL);
	ck_assert_msg(strstr(text, bad[_i].text), "%s: \"%s\"", bad[_i].json, text);
}

TEST(a_parallelism_takes_the_place_of_the_list)
{
	struct bench_space space;

	bench_space_default(&space);
	bench_space_set_parallel(&space, 3);
	ck_assert_uint_eq(bench_space_points(&space), 16);
	for (size_t i = 0; i < 16; i++)
		ck_assert_uint_eq(bench_space_point(&space, i).intra_op_parallelism, 3);
}

TEST(too_many_points_are_reported)
{
	char json[4096] = "{\"queue_depth\": [1", text[512];
	struct bench_space space;

	for (unsigned i = 2; i <= 200; i++)
		(void)snprintf(json + strlen(json), sizeof(json) - strlen(json), ", %u", i);
	(void)snprintf(json + strlen(json), sizeof(json) - strlen(json), "], \"io_parallel\": [1");
	for (unsigned i = 2; i <= 64; i++)
		(void)snprintf(json + strlen(json), sizeof(json) - strlen(json), ", %u", i);
	(void)snprintf(json + strlen(json), sizeof(json) - strlen(json), "]}");
	ck_assert_int_eq(parse(json, &space, text, sizeof(text)), -EINVAL);
	ck_assert_msg(strstr(text, "has 12800 points: at most 10000"), "%s", text);
}

TEST(no_values_points_lie_together_in_the_order)
{
	bool is_there[64] = { false };
	size_t order[64], n_changes = 0;
	struct bench_space space;

	bench_space_default(&space);
	ck_assert_uint_eq(bench_space_points(&space), 64);
	bench_space_shuffle(&space, order);
	for (size_t i = 0; i < 64; i++) {
		ck_assert(order[i] < 64 && !is_there[order[i]]);
		is_there[order[i]] = true;
		n_changes += i && bench_space_point(&space, order[i]).block_size !=
					  bench_space_point(&space, order[i - 1]).block_size;
	}
	ck_assert_uint_gt(n_changes, 20);
}

TEST_MAIN
