/*
 * A row of the results: one measured point, in memory and as JSON (results.h has the format).
 * Pure functions.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_ROW_H
#define DSAIO_CLIENT_CTL_BENCH_ROW_H

#include "client/ctl/bench/guest.h"
#include "client/ctl/bench/point.h"

struct json_object;

/* The source of the bytes that were read, or the destination of those written. */
enum bench_source {
	BENCH_FROM_UNKNOWN, /* the device has no counters */
	BENCH_FROM_DEVICE,
	BENCH_FROM_CACHE,
	BENCH_FROM_BOTH,
	BENCH_FROM_MEMORY, /* there is no device */
};

const char *bench_source_name(enum bench_source source); /* "device" */

/* Strings: "" if there is none. */
struct bench_row {
	struct bench_task task;
	unsigned n_processes;
	struct bench_served served;
	struct bench_repetition *repetitions;
	size_t n_repetitions;
	struct measure total;
	uint64_t device_bytes; /* UINT64_MAX: not known */
	enum bench_source source;
	char gpu_path[8]; /* of memory of GPUs: "direct", "copied", "both" */
	uint64_t
		others_bytes; /* that others on the devices moved (place.h); UINT64_MAX: not known */
	bool is_disturbed;
	char error[BENCH_TEXT_BYTES];
	char log[BENCH_TEXT_BYTES]; /* relative to results.json */
};
void bench_row_deinit(struct bench_row *row);

/* The row as JSON; the caller's. */
struct json_object *bench_row_json(const struct bench_row *row);

/* All but the repetitions.  Returns 0, or -EINVAL (the object is no row). */
int bench_row_read(struct json_object *object, struct bench_row *ret_row);

/* The point of a row, without its measurements. */
struct bench_task bench_row_read_task(struct json_object *object);

/* A number of bytes, or null for UINT64_MAX: not known. */
struct json_object *bench_bytes_json(uint64_t bytes);

#endif
