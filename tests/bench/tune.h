/*
 * The best point of DeepNVMe's default sweep for a point of ours, since a user of it would tune.
 */
#ifndef DSAIO_TESTS_BENCH_TUNE_H
#define DSAIO_TESTS_BENCH_TUNE_H

#include <signal.h>
#include <stdbool.h>

#include "tests/bench/side.h"

#define TUNE_CANDIDATES 64

/*
 * Pure: candidate i of the default space: block_size 1M 8M, queue_depth 32 128, sequential and
 * overlap, single_submit or not, io_parallel 1 2 4 8.  The first four differ in io_parallel alone.
 */
struct dsaio_profile tune_candidate(unsigned i);

/* Pure: would both make the same requests in the same order for such an op? */
bool tune_is_same(const struct dsaio_profile *a, const struct dsaio_profile *b, uint64_t op_bytes);

/*
 * Measures the first n candidates on the side named deepnvme at the point, those that make the
 * same requests once: a slice each, then two more of the best eight.  Gives the best; 0, -EINTR
 * when *is_interrupted became true, or what the side failed with.  why: of 512 bytes.
 */
int tune_deepnvme(const struct point *point, unsigned n,
		  const volatile sig_atomic_t *is_interrupted, struct dsaio_profile *ret_profile,
		  char *why);

#endif
