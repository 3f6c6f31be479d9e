#include "client/ctl/bench/space.h"

#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define JSON_DEPTH_MAX 8 /* more is no space, and need not be looked at */

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

/* The text that is being parsed, for error texts. */
struct source {
	const char *json;
	size_t len;
	const char *name;
	char *text;
	size_t size;
};

void bench_space_default(struct bench_space *ret_space)
{
	*ret_space = (struct bench_space){ { { { 1u << 20, 8u << 20 }, 2 },
					     { { 32, 128 }, 2 },
					     { { true, false }, 2 },
					     { { false, true }, 2 },
					     { { 1, 2, 4, 8 }, 4 } } };
}

/* ---- messages ---- */

/* Writes "FILE:LINE:COLUMN: " of a byte, from 1, and returns how much of text that took. */
static size_t put_position(const struct source *source, size_t offset)
{
	size_t line = 1, column = 1;
	int n;

	for (size_t i = 0; i < offset && i < source->len; i++) {
		column++;
		if (source->json[i] == '\n') {
			line++;
			column = 1;
		}
	}
	n = snprintf(source->text, source->size, "%s:%zu:%zu: ", source->name, line, column);
	return n < 0 || (size_t)n >= source->size ? source->size - 1 : (size_t)n;
}

/* The place of the key.  The JSON was parsed and has the key, so it is there in quotes. */
static size_t find_key(const struct source *source, const char *key)
{
	_cleanup_(freep) char *quoted = NULL;
	const char *found = NULL;

	if (asprintf(&quoted, "\"%s\"", key) >= 0)
		found = memmem(source->json, source->len, quoted, strlen(quoted));
	else
		quoted = NULL;
	return found ? (size_t)(found - source->json) : 0;
}

__attribute__((format(printf, 3, 4))) static int refuse(const struct source *source, size_t offset,
							const char *format, ...)
{
	size_t n = put_position(source, offset);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(source->text + n, source->size - n, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- values ---- */

static int refuse_value(const struct source *source, const struct key *key,
			struct json_object *value, const char *because)
{
	return refuse(source, find_key(source, key->name), "%s: %s: %s: write for example %s",
		      key->name, json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN),
		      because, key->example);
}

/* One value of a list.  Returns 0 or -EINVAL. */
static int parse_value(const struct source *source, const struct key *key,
		       struct json_object *value, uint32_t *ret_number)
{
	struct profile profile = PROFILE_DEFAULT;
	uint64_t number = 0;
	char because[256];

	if (key->kind == BOOLEANS) {
		if (!json_object_is_type(value, json_type_boolean))
			return refuse_value(source, key, value, "must be true or false");
		*ret_number = json_object_get_boolean(value) ? 1 : 0;
		return 0;
	}
	if (json_object_is_type(value, json_type_int)) {
		if (json_object_get_int64(value) < 0)
			return refuse_value(source, key, value, "must be positive");
		number = json_object_get_uint64(value);
	} else if (key->kind == COUNTS) {
		return refuse_value(source, key, value, "must be a whole number");
	} else if (!json_object_is_type(value, json_type_string) ||
		   size_parse(json_object_get_string(value), &number) < 0) {
		return refuse_value(source, key, value,
				    "must be a number of bytes, or a string like \"1M\"");
	}
	*ret_number = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
	if (strcmp(key->name, "block_size") == 0)
		profile.block_size = *ret_number;
	else if (strcmp(key->name, "queue_depth") == 0)
		profile.queue_depth = *ret_number;
	else
		profile.intra_op_parallelism = *ret_number;
	if (profile_check(&profile, because, sizeof(because)) < 0)
		return refuse_value(source, key, value, because);
	return 0;
}

static int parse_list(const struct source *source, const struct key *key, struct json_object *value,
		      struct bench_list *list)
{
	size_t n;

	if (!json_object_is_type(value, json_type_array))
		return refuse_value(source, key, value, "must be a list");
	n = json_object_array_length(value);
	if (n == 0)
		return refuse_value(source, key, value, "is empty, so there is nothing to measure");
	if (n > BENCH_SPACE_VALUES_MAX)
		return refuse(source, find_key(source, key->name),
			      "%s: has %zu values: at most %u are possible", key->name, n,
			      BENCH_SPACE_VALUES_MAX);
	list->n = 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *item = json_object_array_get_idx(value, i);
		int r = parse_value(source, key, item, &list->values[i]);

		if (r < 0)
			return r;
		for (size_t k = 0; k < i; k++)
			if (list->values[k] == list->values[i])
				return refuse_value(source, key, item, "is there twice");
		list->n = i + 1;
	}
	return 0;
}

static int parse_object(const struct source *source, struct json_object *root,
			struct bench_space *space)
{
	struct json_object_iterator at, end;

	if (!json_object_is_type(root, json_type_object))
		return refuse(source, 0, "must be an object with lists of " KEYS_TEXT);
	for (size_t i = 0; i < BENCH_SPACE_KEYS; i++)
		space->lists[i] = (struct bench_list){ { keys[i].missing }, 1 };
	at = json_object_iter_begin(root);
	end = json_object_iter_end(root);
	for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
		const char *name = json_object_iter_peek_name(&at);
		size_t i = 0;
		int r;

		while (i < BENCH_SPACE_KEYS && strcmp(keys[i].name, name) != 0)
			i++;
		if (i == BENCH_SPACE_KEYS)
			return refuse(source, find_key(source, name),
				      "%s: unknown key: there are " KEYS_TEXT, name);
		r = parse_list(source, &keys[i], json_object_iter_peek_value(&at),
			       &space->lists[i]);
		if (r < 0)
			return r;
	}
	if (bench_space_points(space) > BENCH_SPACE_POINTS_MAX)
		return refuse(source, 0, "has %zu points: at most %u are possible",
			      bench_space_points(space), BENCH_SPACE_POINTS_MAX);
	return 0;
}

static void tokener_freep(struct json_tokener **tokener)
{
	if (*tokener)
		json_tokener_free(*tokener);
}

int bench_space_parse(const char *json, size_t len, const char *name, struct bench_space *ret_space,
		      char *text, size_t size)
{
	_cleanup_(tokener_freep) struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
	_cleanup_(json_putp) struct json_object *root = NULL;
	struct source source = { json, len, name, text, size };
	struct bench_space space;
	enum json_tokener_error error;
	int r;

	if (!tokener) {
		(void)snprintf(text, size, "%s: out of memory", name);
		return -ENOMEM;
	}
	if (len > BENCH_SPACE_FILE_MAX)
		return refuse(&source, 0, "has %s: at most %s are possible", SIZE_TEXT(len),
			      SIZE_TEXT(BENCH_SPACE_FILE_MAX));
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = json_tokener_parse_ex(tokener, json, (int)len);
	error = json_tokener_get_error(tokener);
	if (error == json_tokener_continue)
		return refuse(&source, len,
			      "ends in the middle: expected is an object with lists of " KEYS_TEXT);
	if (error != json_tokener_success)
		return refuse(&source, json_tokener_get_parse_end(tokener),
			      "%s: expected is an object with lists of " KEYS_TEXT
			      ", for example {\"block_size\": [\"1M\"], \"queue_depth\": [32]}",
			      json_tokener_error_desc(error));
	r = parse_object(&source, root, &space);
	if (r == 0)
		*ret_space = space;
	return r;
}

int bench_space_read(const char *path, struct bench_space *ret_space, char *text, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_(freep) char *json = malloc(BENCH_SPACE_FILE_MAX + 1);
	size_t len = 0;
	ssize_t n = fd < 0 || !json ? -1 : 1;

	if (!json)
		errno = ENOMEM;
	while (n > 0 && len <= BENCH_SPACE_FILE_MAX) {
		n = read(fd, json + len, BENCH_SPACE_FILE_MAX + 1 - len);
		if (n > 0)
			len += (size_t)n;
	}
	if (n < 0) {
		int r = -errno;

		(void)snprintf(text, size, "%s: %s", path, strerror(-r));
		return r;
	}
	return bench_space_parse(json, len, path, ret_space, text, size);
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
	uint64_t random = 88172645463325252; /* xorshift64's usual seed */

	for (size_t i = 0; i < bench_space_points(space); i++) {
		size_t k;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		k = random % (i + 1);
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
			(void)json_object_array_add(array,
						    value); /* out of memory: NULL is there */
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
