#include "client/ctl/bench/space.h"

#include "client/ctl/bench/random.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum kind { SIZES, COUNTS, BOOLEANS };

/* With ds_io's defaults. */
static const struct key {
	const char *name;
	enum kind kind;
	uint32_t missing;
	const char *example;
} keys[BENCH_SPACE_KEYS] = {
	{ "block_size", SIZES, 1u << 20, "[\"128K\", \"1M\"]" },
	{ "queue_depth", COUNTS, 32, "[32, 128]" },
	{ "sequential_requests", BOOLEANS, 0, "[true, false]" },
	{ "single_submit", BOOLEANS, 0, "[false, true]" },
	{ "io_parallel", COUNTS, 1, "[1, 2, 4, 8]" },
};
#define KEYS_TEXT "block_size, queue_depth, sequential_requests, single_submit, io_parallel"

void bench_space_default(struct bench_space *ret_space)
{
	*ret_space = (struct bench_space){ { { { 1u << 20, 8u << 20 }, 2 },
					     { { 32, 128 }, 2 },
					     { { true, false }, 2 },
					     { { false, true }, 2 },
					     { { 1, 2, 4, 8 }, 4 } } };
}

/* ---- reading ---- */

static int refuse_value(const struct key *key, struct json_object *value, const char *because,
			char *text, size_t size)
{
	(void)snprintf(text, size, "%s: %s: %s: write for example %s", key->name,
		       json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN), because,
		       key->example);
	return -EINVAL;
}

/* One value of a list.  Returns 0, or -EINVAL and the message. */
static int parse_value(const struct key *key, struct json_object *value, uint32_t *ret_number,
		       char *text, size_t size)
{
	struct profile profile = PROFILE_DEFAULT;
	uint64_t number = 0;
	char because[256];

	if (key->kind == BOOLEANS) {
		if (!json_object_is_type(value, json_type_boolean))
			return refuse_value(key, value, "must be true or false", text, size);
		*ret_number = json_object_get_boolean(value) ? 1 : 0;
		return 0;
	}
	if (json_object_is_type(value, json_type_int)) {
		if (json_object_get_int64(value) < 0)
			return refuse_value(key, value, "must be positive", text, size);
		number = json_object_get_uint64(value);
	} else if (key->kind == COUNTS) {
		return refuse_value(key, value, "must be a whole number", text, size);
	} else if (!json_object_is_type(value, json_type_string) ||
		   size_parse(json_object_get_string(value), &number) < 0) {
		return refuse_value(key, value,
				    "must be a number of bytes, or a string like \"1M\"", text,
				    size);
	}
	*ret_number = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
	if (strcmp(key->name, "block_size") == 0)
		profile.block_size = *ret_number;
	else if (strcmp(key->name, "queue_depth") == 0)
		profile.queue_depth = *ret_number;
	else
		profile.intra_op_parallelism = *ret_number;
	if (profile_check(&profile, because, sizeof(because)) < 0)
		return refuse_value(key, value, because, text, size);
	return 0;
}

static int parse_list(const struct key *key, struct json_object *value, struct bench_list *list,
		      char *text, size_t size)
{
	const size_t n = json_object_is_type(value, json_type_array)
				 ? json_object_array_length(value)
				 : 0;

	if (n == 0 || n > BENCH_SPACE_VALUES_MAX)
		return refuse_value(key, value, "must be a list of 1 to 256 values", text, size);
	for (list->n = 0; list->n < n; list->n++) {
		struct json_object *item = json_object_array_get_idx(value, list->n);
		int r = parse_value(key, item, &list->values[list->n], text, size);

		if (r < 0)
			return r;
		for (size_t k = 0; k < list->n; k++)
			if (list->values[k] == list->values[list->n])
				return refuse_value(key, item, "is there twice", text, size);
	}
	return 0;
}

int bench_space_parse(struct json_object *root, struct bench_space *ret_space, char *text,
		      size_t size)
{
	struct json_object_iter at;
	struct bench_space space;

	if (!json_object_is_type(root, json_type_object)) {
		(void)snprintf(text, size, "must be an object with lists of " KEYS_TEXT);
		return -EINVAL;
	}
	for (size_t i = 0; i < BENCH_SPACE_KEYS; i++)
		space.lists[i] = (struct bench_list){ { keys[i].missing }, 1 };
	json_object_object_foreachC(root, at)
	{
		size_t i = 0;
		int r;

		while (i < BENCH_SPACE_KEYS && strcmp(keys[i].name, at.key) != 0)
			i++;
		if (i == BENCH_SPACE_KEYS) {
			(void)snprintf(text, size, "%s: unknown key: there are " KEYS_TEXT, at.key);
			return -EINVAL;
		}
		r = parse_list(&keys[i], at.val, &space.lists[i], text, size);
		if (r < 0)
			return r;
	}
	if (bench_space_points(&space) > BENCH_SPACE_POINTS_MAX) {
		(void)snprintf(text, size, "has %zu points: at most %u are possible",
			       bench_space_points(&space), BENCH_SPACE_POINTS_MAX);
		return -EINVAL;
	}
	*ret_space = space;
	return 0;
}

int bench_space_read(const char *path, struct bench_space *ret_space, char *text, size_t size)
{
	_cleanup_(json_putp) struct json_object *root = NULL;

	errno = 0;
	root = json_object_from_file(path);
	if (root)
		return bench_space_parse(root, ret_space, text, size);
	(void)snprintf(text, size, "%s",
		       errno ? strerror(errno)
			     : "is no JSON (python3 -m json.tool shows where): write for example "
			       "{\"block_size\": [\"1M\"], \"queue_depth\": [32]}");
	return -EINVAL;
}

/* ---- points ---- */

void bench_space_set_parallel(struct bench_space *space, uint32_t io_parallel)
{
	space->lists[BENCH_SPACE_KEYS - 1] = (struct bench_list){ { io_parallel }, 1 };
}

size_t bench_space_points(const struct bench_space *space)
{
	size_t n = 1;

	/* At most BENCH_SPACE_VALUES_MAX to the power of 3, and 2 to that of 2. */
	for (size_t i = 0; i < BENCH_SPACE_KEYS; i++)
		n *= space->lists[i].n;
	return n;
}

struct profile bench_space_point(const struct bench_space *space, size_t i)
{
	uint32_t values[BENCH_SPACE_KEYS];

	for (size_t k = BENCH_SPACE_KEYS; k-- > 0;) {
		const struct bench_list *list = &space->lists[k];

		values[k] = list->values[i % list->n];
		i /= list->n;
	}
	return (struct profile){ .block_size = values[0],
				 .queue_depth = values[1],
				 .overlap_events = !values[2],
				 .single_submit = values[3],
				 .intra_op_parallelism = values[4] };
}

void bench_space_shuffle(const struct bench_space *space, size_t *ret_order)
{
	uint64_t random = 0;

	for (size_t i = 0; i < bench_space_points(space); i++) {
		const size_t k = random_next(&random) % (i + 1);

		ret_order[i] = ret_order[k];
		ret_order[k] = i;
	}
}

struct json_object *bench_space_json(const struct bench_space *space)
{
	struct json_object *object = json_object_new_object();
	char text[UNITS_TEXT_BYTES];

	for (size_t k = 0; k < BENCH_SPACE_KEYS; k++) {
		const struct bench_list *list = &space->lists[k];
		struct json_object *array = json_object_new_array();

		for (size_t i = 0; i < list->n; i++) {
			struct json_object *value;

			if (keys[k].kind == SIZES)
				value = json_object_new_string(
					bench_block_size_name(text, list->values[i]));
			else if (keys[k].kind == BOOLEANS)
				value = json_object_new_boolean((json_bool)list->values[i]);
			else
				value = json_object_new_int64(list->values[i]);
			(void)json_object_array_add(array, value);
		}
		json_object_object_add(object, keys[k].name, array);
	}
	return object;
}

const char *bench_block_size_name(char *text, uint32_t block_size)
{
	bool is_mega = block_size % (1u << 20) == 0;

	(void)snprintf(text, UNITS_TEXT_BYTES, "%" PRIu32 "%c",
		       is_mega ? block_size >> 20 : block_size >> 10, is_mega ? 'M' : 'K');
	return text;
}

const char *bench_log_name(char *text, enum bench_op op, const struct profile *profile,
			   unsigned n_folders)
{
	char block_size[UNITS_TEXT_BYTES];

	(void)snprintf(text, BENCH_LOG_NAME_BYTES, "%s_%s_%s_ftd%u_d%" PRIu32 "_bs%s_p%" PRIu32,
		       bench_op_name(op), profile->single_submit ? "single" : "block",
		       profile->overlap_events ? "overlap" : "sequential", n_folders,
		       profile->queue_depth, bench_block_size_name(block_size, profile->block_size),
		       profile->intra_op_parallelism);
	return text;
}
