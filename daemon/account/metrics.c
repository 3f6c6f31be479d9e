#include "daemon/account/metrics.h"

#include "proto/util/log_bucket.h"

#include <assert.h>
#include <string.h>

#define LAST_BUCKET (STATS_BUCKETS - 1)
/* 2^10: the first place of the coarse histogram ends there. */
#define FIRST_PLACE_BITS 10u

static_assert(sizeof(struct metrics) % sizeof(uint64_t) == 0,
	      "all fields are counters of one type");

void metrics_add_latency(struct metrics *metrics, uint64_t nsec)
{
	metrics_add(&metrics->latency[log_bucket(STATS_BITS, LAST_BUCKET, nsec)], 1);
}

uint64_t metrics_percentile(const struct metrics *metrics, double share)
{
	uint64_t n = 0, want;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		n += metrics_get(&metrics->latency[i]);
	if (!n)
		return 0;
	want = (uint64_t)((double)n * share);
	if (want >= n)
		want = n - 1;
	n = 0;
	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		n += metrics_get(&metrics->latency[i]);
		if (n > want)
			return log_bucket_end(STATS_BITS, i);
	}
	return log_bucket_end(STATS_BITS, LAST_BUCKET);
}

void metrics_sum(struct metrics *sum, const struct metrics *one)
{
	_Atomic uint64_t *to = (_Atomic uint64_t *)sum;
	const _Atomic uint64_t *from = (const _Atomic uint64_t *)one;

	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		metrics_add(&to[i], metrics_get(&from[i]));
}

/* A fine bucket never reaches beyond a power of two. */
void metrics_latencies(const struct metrics *metrics, uint64_t ret_counts[METRICS_PLACES])
{
	unsigned place = 0;

	memset(ret_counts, 0, METRICS_PLACES * sizeof(*ret_counts));
	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		while (place < METRICS_PLACES - 1 &&
		       log_bucket_end(STATS_BITS, i) >> (FIRST_PLACE_BITS + place))
			place++;
		ret_counts[place] += metrics_get(&metrics->latency[i]);
	}
}
