/*
 * results.json: what a bench measured, kept as JSON in memory and written whole, to a new file
 * that is then renamed: a reader, or a run that goes on after a crash, finds the last state that
 * was written, never half of one.
 *
 * {
 *   "format": "dsaioctl bench 1",
 *   "kind": "sweep" | "tune" | "latency",
 *   "is_complete": false until the end,
 *   "began": "2026-01-31T12:00:00Z", "command": ["dsaioctl", ...],
 *   "machine": {...}, "daemon": {"version", "is_private"},
 *   "folders": [{"folder", "device", "model", "fs_type", "store", "profile", ...}],
 *   "parameters": {...},		what a run that goes on must have in common
 *   "points": [{
 *     "op": "read", "block_size": 1048576, "queue_depth": 32, "single_submit": false,
 *     "sequential_requests": true, "io_parallel": 1, "processes": 1, "io_size": 419430400,
 *     "served": {"block_size", "queue_depth", "lanes", "mean_block", "mean_depth"},
 *     "repetitions": [{"at_sec", "task_sec", "e2e_sec", "bytes"}],
 *     "task_sec", "task_speed_gb_per_sec", "e2e_sec", "e2e_speed_gb_per_sec", "bytes",
 *     "device_bytes": 419430400 | null,
 *     "source": "device" | "cache" | "partly cache" | "memory" | "unknown",
 *     "others": {"bytes", "ops", "share", "names", "is_device_shared": false,
 *       "device_excess": {"read_bytes", "write_bytes"} | null}, "is_disturbed": false,
 *     "error": null | "sentence", "log": "_aio_bench_read_logs/....txt" | null
 *   }],
 *   and what the kind adds: "best", "tune", "latency", ...
 * }
 */
#ifndef DSAIO_CTL_BENCH_RESULTS_H
#define DSAIO_CTL_BENCH_RESULTS_H

#include "client/ctl/bench_guest.h"
#include "client/ctl/bench_point.h"

struct json_object;

#define BENCH_RESULTS_NAME "results.json"

/* Where the bytes that were read came from, and those written went to. */
enum bench_source {
	BENCH_FROM_UNKNOWN, /* the device tells nothing */
	BENCH_FROM_DEVICE,
	BENCH_FROM_CACHE,
	BENCH_FROM_BOTH,
	BENCH_FROM_MEMORY, /* there is no device */
};

const char *bench_source_name(enum bench_source source); /* "device" */

/* A row: what is known of a point.  Strings "" or NULL: none. */
struct bench_row {
	struct bench_task task;
	unsigned n_processes;
	struct bench_served served;
	struct bench_repetition *repetitions;
	size_t n_repetitions;
	struct measure total;
	uint64_t device_bytes; /* UINT64_MAX: not known */
	enum bench_source source;
	struct bench_others others;
	bool is_disturbed; /* --exclusive, and somebody came */
	char error[BENCH_TEXT_BYTES];
	char log[BENCH_TEXT_BYTES]; /* relative to results.json */
};
void bench_row_deinit(struct bench_row *row);

struct bench_results {
	struct json_object *root;
	struct json_object *keys; /* bench_results_has(): NULL until it is asked */
};

/* Both fail with -ENOMEM only. */
int bench_results_init(struct bench_results *results, const char *kind);
int bench_results_add(struct bench_results *results, const struct bench_row *row);
void bench_results_deinit(struct bench_results *results);

/*
 * Reads DIR/results.json, or, if dir names a file, that.
 * Returns 0, -ENOENT, -EINVAL (not ours, or broken), or what the kernel says, with a sentence.
 */
int bench_results_load(const char *dir, struct bench_results *ret_results, char *text, size_t size);

/* Writes DIR/results.json.  Returns 0, or a negative errno and the sentence. */
int bench_results_save(const struct bench_results *results, const char *dir, char *text,
		       size_t size);

/* "sweep" */
const char *bench_results_kind(const struct bench_results *results);
bool bench_results_is_complete(const struct bench_results *results);

/* A member of the root, and back: takes value; get: borrowed, NULL if it is not there. */
void bench_results_set(struct bench_results *results, const char *key, struct json_object *value);
struct json_object *bench_results_get(const struct bench_results *results, const char *key);

/* Rows, in the order in which they were measured. */
size_t bench_results_n_rows(const struct bench_results *results);

/* Of bench_row_deinit().  Returns 0, -ENOMEM, or -EINVAL (what is there is no row). */
int bench_results_row(const struct bench_results *results, size_t i, struct bench_row *ret_row);

/* Takes rows with an error out, so that they are measured again.  Returns how many. */
size_t bench_results_drop_failed(struct bench_results *results);

/* What the disks moved beyond what the daemon did; NULL: not known. */
struct json_object *bench_excess_json(const struct bench_others *others);

/* A number with no more digits than it has, for whoever adds to the root. */
struct json_object *bench_json_float(double value);

/* A row for that op and profile?  The first call looks at all rows, later ones at none. */
bool bench_results_has(struct bench_results *results, enum bench_op op,
		       const struct profile *profile);

/* An object whose keys are the rows' logs; the caller's. */
struct json_object *bench_results_logs(const struct bench_results *results);

#endif
