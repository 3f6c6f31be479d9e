#include "daemon/account/metrics.h"

/* 8 buckets for each power of two: exact below 16, then the three bits below the highest. */
static unsigned bucket_of(uint64_t nsec)
{
	unsigned log2, bucket;

	if (nsec < 16)
		return (unsigned)nsec;
	log2 = 63u - (unsigned)__builtin_clzll(nsec);
	bucket = (log2 - 2) * 8 + (unsigned)(nsec >> (log2 - 3) & 7);
	return bucket < STATS_BUCKETS ? bucket : STATS_BUCKETS - 1;
}

/* The largest value of a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
	unsigned log2 = bucket / 8 + 2;

	if (bucket < 16)
		return bucket;
	return ((UINT64_C(8) + bucket % 8 + 1) << (log2 - 3)) - 1;
}

void metrics_add_latency(struct metrics *metrics, uint64_t nsec)
{
	_Atomic uint32_t *count = &metrics->latency[bucket_of(nsec)];

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
			return bucket_end(i);
	}
	return bucket_end(STATS_BUCKETS - 1);
}
