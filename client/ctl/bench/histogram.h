/*
 * Latencies of very many ops in a fixed piece of memory, in the manner of HdrHistogram: a count
 * for each of 1024 steps of each power of two, so that any value is known within 0.1%.  Recording
 * is a few instructions and never allocates; mean, deviation, least and largest are exact.
 *
 * Plain data: it may lie in memory shared with another process, which reads when all is recorded.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_HISTOGRAM_H
#define DSAIO_CLIENT_CTL_BENCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_HISTOGRAM_LOG2 10u
/* Up to 2^41 nsec, 36 minutes; what takes longer counts there. */
#define BENCH_HISTOGRAM_POWERS 31u
#define BENCH_HISTOGRAM_BUCKETS ((BENCH_HISTOGRAM_POWERS + 1u) << BENCH_HISTOGRAM_LOG2)

struct bench_histogram {
	uint64_t n, min_nsec, max_nsec;
	double mean_nsec, squares; /* Welford's: of the differences to the mean */
	uint32_t counts[BENCH_HISTOGRAM_BUCKETS];
};

/* Memory of zeros is an empty histogram. */
void bench_histogram_record(struct bench_histogram *histogram, uint64_t nsec);

/* The standard deviation, and half of the 95% interval of the mean; 0 of less than two values. */
double bench_histogram_deviation(const struct bench_histogram *histogram);
double bench_histogram_mean_half(const struct bench_histogram *histogram);

/* The lower end of that interval: no latency is below 0. */
double bench_histogram_mean_low(const struct bench_histogram *histogram);

/* Values that a quantile needs, so that at least one lies above it: 1000 for 0.999. */
uint64_t bench_histogram_needed(double share);

/* That quantile; 0: there are too few values for it. */
uint64_t bench_histogram_known(const struct bench_histogram *histogram, double share);

/*
 * The value that the given share of all (0 to 1) does not pass: the largest of its step, but no
 * larger than the largest recorded.  0 of none.
 */
uint64_t bench_histogram_quantile(const struct bench_histogram *histogram, double share);

/*
 * The values that are there, from *at on, by ascending: one step's largest and how many they are.
 * *at is 0 at first.  Returns 0 when there are no more.
 */
uint64_t bench_histogram_next(const struct bench_histogram *histogram, size_t *at,
			      uint64_t *ret_nsec);

#endif
