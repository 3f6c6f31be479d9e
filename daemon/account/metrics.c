#include "daemon/account/metrics.h"

#include "proto/util/log_bucket.h"

#define LAST_BUCKET (STATS_BUCKETS - 1)

void metrics_add_latency(struct metrics *metrics, uint64_t nsec)
{
	_Atomic uint32_t *count = &metrics->latency[log_bucket(STATS_BITS, LAST_BUCKET, nsec)];

	/* relaxed: one writer, and a reader may be a moment behind */
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

uint64_t metrics_percentile(const struct metrics *metrics, double share)
{
	uint64_t n = 0, want;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		n += atomic_load_explicit(&metrics->latency[i], memory_order_relaxed);
	if (!n)
		return 0;
	want = (uint64_t)((double)n * share);
	if (want >= n)
		want = n - 1;
	n = 0;
	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		n += atomic_load_explicit(&metrics->latency[i], memory_order_relaxed);
		if (n > want)
			return log_bucket_end(STATS_BITS, i);
	}
	return log_bucket_end(STATS_BITS, LAST_BUCKET);
}
