#include "client/ctl/bench/histogram.h"

#include "client/ctl/bench/student.h"
#include "proto/util/log_bucket.h"

#include <math.h>

void bench_histogram_record(struct bench_histogram *histogram, uint64_t nsec)
{
	const double off = (double)nsec - histogram->mean_nsec;

	histogram->counts[log_bucket(BENCH_HISTOGRAM_LOG2, BENCH_HISTOGRAM_BUCKETS - 1, nsec)]++;
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

uint64_t bench_histogram_known(const struct bench_histogram *histogram, double share)
{
	return histogram->n < bench_histogram_needed(share)
		       ? 0
		       : bench_histogram_quantile(histogram, share);
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
			*ret_nsec = log_bucket_end(BENCH_HISTOGRAM_LOG2, *at);
			return histogram->counts[(*at)++];
		}
	return 0;
}
