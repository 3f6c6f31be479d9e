/*
 * Latencies, counted without allocation: 128 steps an octave, so that what is read from it is at
 * most 0.8% above what was recorded.  Pure.
 */
#ifndef DSAIO_TESTS_BENCH_HISTOGRAM_H
#define DSAIO_TESTS_BENCH_HISTOGRAM_H

#include "proto/util/log_bucket.h"

#include <stdint.h>

#define HISTOGRAM_STEP_BITS 7u
#define HISTOGRAM_OCTAVES 34u /* up to 2^40 ns, 18 minutes; what is longer counts as that */
#define HISTOGRAM_STEPS ((HISTOGRAM_OCTAVES + 1) << HISTOGRAM_STEP_BITS)

struct histogram {
	uint64_t sum_nsec; /* exact */
	uint32_t n[HISTOGRAM_STEPS];
};

static inline void histogram_add(struct histogram *h, int64_t nsec)
{
	const uint64_t value = nsec > 0 ? (uint64_t)nsec : 0;

	h->sum_nsec += value;
	h->n[log_bucket(HISTOGRAM_STEP_BITS, HISTOGRAM_STEPS - 1, value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value, in nanoseconds, that the share q (0 to 1) of those recorded do not pass; 0: none. */
double histogram_quantile(const struct histogram *h, double q);
/* Nanoseconds; 0: none. */
double histogram_mean(const struct histogram *h);

#endif
