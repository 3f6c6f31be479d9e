/*
 * The space of a sweep: the Cartesian product of five lists, in DeepSpeed's order: block_size
 * changes slowest, io_parallel fastest.  Pure functions, except bench_space_read().
 *
 * As JSON: {"block_size": ["128K", 1048576], "queue_depth": [32, 128], "sequential_requests":
 * [true, false], "single_submit": [false], "io_parallel": [1, 8]}.  A key that is missing has
 * ds_io's default as its only value: 1M, 32, false, false, 1.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_SPACE_H
#define DSAIO_CLIENT_CTL_BENCH_SPACE_H

#include "client/ctl/bench/point.h"

#include <stddef.h>
#include <stdint.h>

struct json_object;

#define BENCH_SPACE_KEYS 5u
#define BENCH_SPACE_VALUES_MAX 256u   /* of a list: a guess */
#define BENCH_SPACE_POINTS_MAX 10000u /* of the product: weeks, so a mistake */
#define BENCH_LOG_NAME_BYTES 96u

struct bench_list {
	uint32_t values[BENCH_SPACE_VALUES_MAX]; /* true is 1 */
	size_t n;
};

struct bench_space {
	struct bench_list lists[BENCH_SPACE_KEYS]; /* in DeepSpeed's order */
};

/* DeepSpeed's 64 points. */
void bench_space_default(struct bench_space *ret_space);

/*
 * root: borrowed.  Each returns 0, or -EINVAL and in text (of size bytes) the message: key, value, and
 * what is allowed.
 */
int bench_space_parse(struct json_object *root, struct bench_space *ret_space, char *text,
		      size_t size);
int bench_space_read(const char *path, struct bench_space *ret_space, char *text, size_t size);

/* All points have this io_parallel. */
void bench_space_set_parallel(struct bench_space *space, uint32_t io_parallel);

size_t bench_space_points(const struct bench_space *space);
struct profile bench_space_point(const struct bench_space *space, size_t i);

/*
 * Writes the numbers of all points in an order in which no value's points lie together, so that what
 * disturbs some points in a row falls on many values.  A space of that size always has the same order.
 */
void bench_space_shuffle(const struct bench_space *space, size_t *ret_order);

/* As it was given; the caller's. */
struct json_object *bench_space_json(const struct bench_space *space);

/* "128K", "1M": a block size as DeepSpeed's log names have it.  text: UNITS_TEXT_BYTES. */
const char *bench_block_size_name(char *text, uint32_t block_size);

/* "read_single_overlap_ftd1_d32_bs1M_p8": what DeepSpeed calls the point's log, without ".txt". */
const char *bench_log_name(char *text, enum bench_op op, const struct profile *profile,
			   unsigned n_folders);

#endif
