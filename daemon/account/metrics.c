#include "daemon/account/metrics.h"

#include "proto/util/log_bucket.h"

#include <assert.h>
#include <stddef.h>

#define LAST_BUCKET (STATS_BUCKETS - 1)
/* 2^10: the first place ends there. */
#define FIRST_PLACE_BITS 10u

static_assert(sizeof(struct metrics) % sizeof(uint64_t) == 0,
	      "all fields are counters of one type");

void metrics_add_latency(struct metrics *metrics, uint64_t nsec)
{
	metrics_add(&metrics->latency[log_bucket(STATS_BITS, LAST_BUCKET, nsec)], 1);
	metrics_add(&metrics->places[log_bucket(0, METRICS_PLACES - 1, nsec >> FIRST_PLACE_BITS)],
		    1);
}

/* The index of the count that has the percentile; n_counts: all are 0. */
static unsigned find_percentile(const _Atomic uint64_t *counts, unsigned n_counts, double share)
{
	uint64_t n = 0, want;
	unsigned i;

	for (i = 0; i < n_counts; i++)
		n += metrics_get(&counts[i]);
	if (!n)
		return n_counts;
	want = (uint64_t)((double)n * share);
	if (want >= n)
		want = n - 1;
	n = 0;
	for (i = 0; i < n_counts - 1; i++) { /* the lane goes on counting: only upwards */
		n += metrics_get(&counts[i]);
		if (n > want)
			break;
	}
	return i;
}

uint64_t metrics_percentile(const struct metrics *metrics, double share)
{
	unsigned i = find_percentile(metrics->latency, STATS_BUCKETS, share);

	if (i < STATS_BUCKETS)
		return log_bucket_end(STATS_BITS, i);
	i = find_percentile(metrics->places, METRICS_PLACES, share);
	return i < METRICS_PLACES ? (UINT64_C(1) << (FIRST_PLACE_BITS + i)) - 1 : 0;
}

static void sum_bytes(struct metrics *sum, const struct metrics *one, size_t bytes)
{
	_Atomic uint64_t *to = (_Atomic uint64_t *)sum;
	const _Atomic uint64_t *from = (const _Atomic uint64_t *)one;

	for (size_t i = 0; i < bytes / sizeof(*to); i++)
		metrics_add(&to[i], metrics_get(&from[i]));
}

void metrics_sum(struct metrics *sum, const struct metrics *one)
{
	sum_bytes(sum, one, sizeof(*one));
}

void metrics_sum_coarse(struct metrics *sum, const struct metrics *one)
{
	sum_bytes(sum, one, offsetof(struct metrics, latency));
}
