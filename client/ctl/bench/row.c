#include "client/ctl/bench/row.h"

#include "client/ctl/ui/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const source_names[] = {
	[BENCH_FROM_UNKNOWN] = "unknown", [BENCH_FROM_DEVICE] = "device",
	[BENCH_FROM_CACHE] = "cache",	  [BENCH_FROM_BOTH] = "partly cache",
	[BENCH_FROM_MEMORY] = "memory",
};
#define N_SOURCES (sizeof(source_names) / sizeof(source_names[0]))

const char *bench_source_name(enum bench_source source)
{
	return source_names[source];
}

void bench_row_deinit(struct bench_row *row)
{
	free(row->repetitions);
	row->repetitions = NULL;
}

/* ---- writing ---- */

static struct json_object *repetitions_json(const struct bench_row *row)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < row->n_repetitions; i++) {
		const struct bench_repetition *repetition = &row->repetitions[i];
		struct json_object *object = json_object_new_object();

		json_add_float(object, "at_sec", repetition->at_sec);
		json_add_float(object, "task_sec", repetition->task_sec);
		json_add_float(object, "e2e_sec", repetition->e2e_sec);
		json_add_number(object, "bytes", repetition->bytes);
		(void)json_object_array_add(array, object);
	}
	return array;
}

struct json_object *bench_bytes_json(uint64_t bytes)
{
	return bytes == UINT64_MAX ? NULL : json_object_new_uint64(bytes);
}

struct json_object *bench_row_json(const struct bench_row *row)
{
	struct json_object *object = json_object_new_object(), *served = NULL;
	const struct profile *profile = &row->task.profile;

	json_add_text(object, "op", bench_op_name(row->task.op));
	json_add_number(object, "block_size", profile->block_size);
	json_add_number(object, "queue_depth", profile->queue_depth);
	json_add_bool(object, "sequential_requests", !profile->overlap_events);
	json_add_bool(object, "single_submit", profile->single_submit);
	json_add_number(object, "io_parallel", profile->intra_op_parallelism);
	json_add_number(object, "processes", row->n_processes);
	json_add_number(object, "io_size", row->task.io_size);
	json_add_number(object, "loops", row->task.loops);
	json_add_number(object, "warmup_loops", row->task.warmup_loops);
	if (row->served.block_size) {
		served = json_object_new_object();
		json_add_number(served, "block_size", row->served.block_size);
		json_add_number(served, "queue_depth", row->served.queue_depth);
		json_add_float(served, "mean_block", row->served.mean_block);
		json_add_float(served, "mean_depth", row->served.mean_depth);
	}
	json_object_object_add(object, "served", served);
	json_object_object_add(object, "repetitions", repetitions_json(row));
	json_add_number(object, "bytes", row->total.bytes);
	json_add_float(object, "task_sec", row->total.task_sec);
	json_add_float(object, "task_speed_gb_per_sec", row->total.task_speed);
	json_add_float(object, "e2e_sec", row->total.e2e_sec);
	json_add_float(object, "e2e_speed_gb_per_sec", row->total.e2e_speed);
	json_object_object_add(object, "device_bytes", bench_bytes_json(row->device_bytes));
	json_add_text(object, "source", bench_source_name(row->source));
	json_add_text(object, "gpu_path", row->gpu_path);
	json_object_object_add(object, "others_bytes", bench_bytes_json(row->others_bytes));
	json_add_bool(object, "is_disturbed", row->is_disturbed);
	json_add_text(object, "error", row->error);
	json_add_text(object, "log", row->log);
	return object;
}

/* ---- reading ---- */

static uint64_t int_of(struct json_object *object, const char *key)
{
	return json_object_get_uint64(json_object_object_get(object, key));
}

static double float_of(struct json_object *object, const char *key)
{
	return json_finite(json_object_object_get(object, key));
}

static bool bool_of(struct json_object *object, const char *key)
{
	return json_object_get_boolean(json_object_object_get(object, key));
}

/* Any program may have written the file: values that are too large are cut. */
static uint32_t u32_of(struct json_object *object, const char *key)
{
	uint64_t value = int_of(object, key);

	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static uint64_t bytes_of(struct json_object *object, const char *key)
{
	return json_object_object_get(object, key) ? int_of(object, key) : UINT64_MAX;
}

struct bench_task bench_row_read_task(struct json_object *object)
{
	return (struct bench_task){
		.op = strcmp(json_text(object, "op"), "write") == 0 ? BENCH_WRITE : BENCH_READ,
		.profile = { .block_size = u32_of(object, "block_size"),
			     .queue_depth = u32_of(object, "queue_depth"),
			     .single_submit = bool_of(object, "single_submit"),
			     .overlap_events = !bool_of(object, "sequential_requests"),
			     .intra_op_parallelism = u32_of(object, "io_parallel") },
		.io_size = int_of(object, "io_size"),
		.loops = u32_of(object, "loops"),
		.warmup_loops = u32_of(object, "warmup_loops"),
	};
}

static enum bench_source read_source(struct json_object *object)
{
	for (size_t i = 0; i < N_SOURCES; i++)
		if (strcmp(source_names[i], json_text(object, "source")) == 0)
			return (enum bench_source)i;
	return BENCH_FROM_UNKNOWN;
}

int bench_row_read(struct json_object *object, struct bench_row *ret_row)
{
	struct json_object *served = json_object_object_get(object, "served");
	struct bench_row row = { 0 };

	if (!json_object_is_type(object, json_type_object))
		return -EINVAL;
	row.task = bench_row_read_task(object);
	row.n_processes = u32_of(object, "processes");
	row.served = (struct bench_served){ u32_of(served, "block_size"),
					    u32_of(served, "queue_depth"),
					    float_of(served, "mean_block"),
					    float_of(served, "mean_depth") };
	row.total = (struct measure){ .task_sec = float_of(object, "task_sec"),
				      .task_speed = float_of(object, "task_speed_gb_per_sec"),
				      .e2e_sec = float_of(object, "e2e_sec"),
				      .e2e_speed = float_of(object, "e2e_speed_gb_per_sec"),
				      .bytes = int_of(object, "bytes") };
	row.device_bytes = bytes_of(object, "device_bytes");
	row.source = read_source(object);
	row.others_bytes = bytes_of(object, "others_bytes");
	row.is_disturbed = bool_of(object, "is_disturbed");
	(void)snprintf(row.error, sizeof(row.error), "%s", json_text(object, "error"));
	(void)snprintf(row.gpu_path, sizeof(row.gpu_path), "%s", json_text(object, "gpu_path"));
	(void)snprintf(row.log, sizeof(row.log), "%s", json_text(object, "log"));
	*ret_row = row;
	return 0;
}
