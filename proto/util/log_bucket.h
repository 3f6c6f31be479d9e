/*
 * The buckets of a histogram of latencies: 2^bits of them for each power of two.  So the end of a value's
 * bucket is above the value by at most one part in 2^bits.  Values below 2^(bits + 1) have a bucket each.
 */
#ifndef DSAIO_PROTO_UTIL_LOG_BUCKET_H
#define DSAIO_PROTO_UTIL_LOG_BUCKET_H

#include <stddef.h>
#include <stdint.h>

/* The bucket of a value, at most last. */
static inline size_t log_bucket(unsigned bits, size_t last, uint64_t value)
{
	size_t bucket = value;

	if (value >> (bits + 1)) {
		unsigned shift = 63 - bits - (unsigned)__builtin_clzll(value);

		bucket = ((size_t)shift << bits) + (value >> shift);
	}
	return bucket < last ? bucket : last;
}

/* The largest value of a bucket. */
static inline uint64_t log_bucket_end(unsigned bits, size_t bucket)
{
	const uint64_t n = UINT64_C(1) << bits;

	if (bucket < 2 * n)
		return bucket;
	return ((n + bucket % n + 1) << ((bucket >> bits) - 1)) - 1;
}

#endif
