/*
 * The results of a bench: JSON in memory, and a file of it for each kind of bench.
 *
 * While a run measures, the file has what was known at its beginning, and each row is appended to a
 * second file, rows.jsonl, as a line {"ARRAY": ROW}: a row costs few calls, and a process that is
 * killed loses none.  The file says so by "rows_file".  At the end it is written whole, as a new file that
 * then replaces the old one, and names no rows file any more.  Loading reads both.
 *
 * {
 *   "format": "dsaioctl bench 1",
 *   "kind": "sweep" | "tune" | "latency",
 *   "run": 3,				its number in its log directory
 *   "is_complete": false until the end,
 *   "began": "2026-01-31T12:00:00Z", "command": ["dsaioctl", ...],
 *   "machine": {...}, "daemon": {"version", "is_private"},
 *   "buffers": [{"bytes", "huge_page_bytes": n | null, "gpus": ["GPU 0 (...)"]}],
 *				one for each time that it was begun; gpus: whose memory they are, [] for
 *				the host's
 *   "folders": [{"folder", "device", "model", "fs_type", "store", "profile", ...}],
 *   "parameters": {...},		what a resumed run must have in common
 *   "gpu_paths": ["copied: ..."],	of all ops, at the end; a run that was resumed may have several
 *   "points": [{
 *     "op": "read", "block_size": 1048576, "queue_depth": 32, "single_submit": false,
 *     "sequential_requests": true, "io_parallel": 1, "processes": 1, "io_size": 419430400,
 *     "served": {"block_size", "queue_depth", "mean_block", "mean_depth"},
 *     "repetitions": [{"at_sec", "task_sec", "e2e_sec", "bytes"}],
 *     "task_sec", "task_speed_gb_per_sec", "e2e_sec", "e2e_speed_gb_per_sec", "bytes",
 *     "device_bytes": 419430400 | null,
 *     "source": "device" | "cache" | "partly cache" | "memory" | "unknown",
 *     "gpu_path": "direct" | "copied" | "both" | null,	of memory of GPUs
 *     "others_bytes": 0 | null, "is_disturbed": false,		of the devices (place.h)
 *     "error": null | "message", "log": "_aio_bench_read_logs/....txt" | null
 *   }],
 *   and what the kind adds: "best", "tune", "latency", ...
 * }
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_RESULTS_H
#define DSAIO_CLIENT_CTL_BENCH_RESULTS_H

#include "client/ctl/bench/row.h"

#include <sys/types.h>

struct json_object;

#define BENCH_FORMAT "dsaioctl bench 1"
#define BENCH_ROWS_NAME "rows.jsonl"
#define BENCH_RESULTS_KINDS 3u

/* Each kind has a name of its own, so that they can lie in one directory. */
struct bench_results_file {
	const char *kind, *name;
};
extern const struct bench_results_file bench_results_files[BENCH_RESULTS_KINDS];
const char *bench_results_name(const char *kind); /* NULL: no such kind */

struct bench_results {
	struct json_object *root;
};

void bench_results_init(struct bench_results *results, const char *kind);
/* Appends to the root's array of that name, which is made if it is not there.  Takes object. */
void bench_results_append(struct bench_results *results, const char *key,
			  struct json_object *object);
void bench_results_deinit(struct bench_results *results);

/*
 * Reads the file of that name in the directory, and the rows file that it names.
 * Returns 0, -ENOENT, -EINVAL (not ours, or broken), -ELOOP (a link: none is followed) or another
 * error of the kernel, with a message that begins with the name.
 */
int bench_results_load(int dir_fd, const char *name, struct bench_results *ret_results, char *text,
		       size_t size);

/*
 * Writes the file of the kind's name, on the device when it returns.  has_rows_file: what follows
 * is appended with bench_rows_write().  Returns 0, or a negative errno and the message.
 */
int bench_results_save(struct bench_results *results, int dir_fd, bool has_rows_file, char *text,
		       size_t size);

/* Appends a line.  Returns 0 or a negative errno.  object: borrowed. */
int bench_rows_write(int fd, const char *key, struct json_object *object);

/* "sweep" */
const char *bench_results_kind(const struct bench_results *results);

/* A member of the root, and back: takes value; get: borrowed, NULL if it is not there. */
void bench_results_set(struct bench_results *results, const char *key, struct json_object *value);
struct json_object *bench_results_get(const struct bench_results *results, const char *key);

/* Rows, in the order in which they were measured. */
size_t bench_results_n_rows(const struct bench_results *results);

/* All but its repetitions.  Returns 0, or -EINVAL (it is no row). */
int bench_results_row(const struct bench_results *results, size_t i, struct bench_row *ret_row);

size_t bench_results_n_good(const struct bench_results *results); /* rows without an error */

/* The last element of the root's array of that name, which has one; borrowed. */
struct json_object *bench_results_last(const struct bench_results *results, const char *key);

/* Takes rows with an error out, so that they are measured again.  Returns how many. */
size_t bench_results_drop_failed(struct bench_results *results);

/* The number of the last row for that op and profile; -1: there is none. */
ssize_t bench_results_find(const struct bench_results *results, enum bench_op op,
			   const struct profile *profile);

#endif
