#include "client/ctl/bench/histogram.h"

#include "client/ctl/bench/student.h"

#include <math.h>

#define STEPS (UINT64_C(1) << BENCH_HISTOGRAM_LOG2)

/* Below 2 * STEPS each value has its own; above, the eleven highest bits count. */
static size_t bucket_of(uint64_t nsec)
{
	unsigned shift;
	size_t bucket;

	if (nsec < 2 * STEPS)
		return nsec;
	shift = 63 - BENCH_HISTOGRAM_LOG2 - (unsigned)__builtin_clzll(nsec);
	bucket = ((size_t)shift << BENCH_HISTOGRAM_LOG2) + (nsec >> shift);
	return bucket < BENCH_HISTOGRAM_BUCKETS ? bucket : BENCH_HISTOGRAM_BUCKETS - 1;
}

/* The largest value of a bucket. */
static uint64_t bucket_end(size_t bucket)
{
	size_t shift;

	if (bucket < 2 * STEPS)
		return bucket;
	shift = (bucket >> BENCH_HISTOGRAM_LOG2) - 1;
	return ((STEPS + bucket % STEPS + 1) << shift) - 1;
}

void bench_histogram_record(struct bench_histogram *histogram, uint64_t nsec)
{
	const double off = (double)nsec - histogram->mean_nsec;

	histogram->counts[bucket_of(nsec)]++;
	if (!histogram->n || nsec < histogram->min_nsec)
		histogram->min_nsec = nsec;
	if (nsec > histogram->max_nsec)
		histogram->max_nsec = nsec;
	histogram->n++;
	histogram->mean_nsec += off / (double)histogram->n;
	histogram->squares += off * ((double)nsec - histogram->mean_nsec);
}

double bench_histogram_deviation(const struct bench_histogram *histogram)
{
	return histogram->n < 2 ? 0 : sqrt(histogram->squares / (double)(histogram->n - 1));
}

double bench_histogram_mean_half(const struct bench_histogram *histogram)
{
	if (histogram->n < 2)
		return 0;
	return student_95(histogram->n - 1) * bench_histogram_deviation(histogram) /
	       sqrt((double)histogram->n);
}

double bench_histogram_mean_low(const struct bench_histogram *histogram)
{
	const double low = histogram->mean_nsec - bench_histogram_mean_half(histogram);

	return low > 0 ? low : 0;
}

uint64_t bench_histogram_needed(double share)
{
	return (uint64_t)llround(1 / (1 - share));
}

uint64_t bench_histogram_quantile(const struct bench_histogram *histogram, double share)
{
	uint64_t rank = (uint64_t)ceil(share * (double)histogram->n), n = 0, nsec;
	size_t at = 0;

	if (!histogram->n)
		return 0;
	if (rank < 1)
		rank = 1;
	while (n < rank) {
		const uint64_t more = bench_histogram_next(histogram, &at, &nsec);

		if (!more) /* share is over 1 */
			return histogram->max_nsec;
		n += more;
	}
	return nsec < histogram->max_nsec ? nsec : histogram->max_nsec;
}

uint64_t bench_histogram_next(const struct bench_histogram *histogram, size_t *at,
			      uint64_t *ret_nsec)
{
	for (; *at < BENCH_HISTOGRAM_BUCKETS; ++*at)
		if (histogram->counts[*at]) {
			*ret_nsec = bucket_end(*at);
			return histogram->counts[(*at)++];
		}
	return 0;
}
