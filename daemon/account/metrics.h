/*
 * Counters and latencies of a channel, or of a class of a store.  One thread (a lane) writes them, and
 * the main thread reads them for status.  All accesses are relaxed atomics: a reader may see values
 * that are slightly old.
 *
 * Latency buckets are 1/8 of a power of two wide, and a percentile is its bucket's end:
 * up to 12.5% above the true one.  In a coarse sum it is a place's end: up to twice the true one.
 */
#ifndef DSAIO_DAEMON_ACCOUNT_METRICS_H
#define DSAIO_DAEMON_ACCOUNT_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#define STATS_BITS 3u	   /* of log_bucket() */
#define STATS_BUCKETS 320u /* up to 2^42 nsec: 73 minutes */
#define METRICS_PLACES 26u

struct metrics {
	_Atomic uint64_t reads, writes, fsyncs, errors, read_bytes, write_bytes;
	_Atomic uint64_t open_ops, blocks_in_flight, bytes_in_flight;
	/* A store's: blocks started, and the integral of their number in flight over time. */
	_Atomic uint64_t blocks, blocks_nsec;
	/* Sums over ops: time open, the part of it with a block in flight, and the time open of
	   the ops that have ended. */
	_Atomic uint64_t open_nsec, device_nsec, ended_nsec;
	/* The ops by latency.  Place i counts those below 1024 << i nsec, the last one the rest. */
	_Atomic uint64_t places[METRICS_PLACES];
	/* The same, for percentiles: the last field, and no part of a coarse sum. */
	_Atomic uint64_t latency[STATS_BUCKETS];
};

/* Adds to a counter that only this thread writes. */
static inline void metrics_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}
static inline uint64_t metrics_get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void metrics_add_latency(struct metrics *metrics, uint64_t nsec);

/* The percentile: the latency in nsec that the given share of ops (0 to 1) does not exceed.  0 without
   ops. */
uint64_t metrics_percentile(const struct metrics *metrics, double share);

/* Adds all of one to sum, which only this thread uses. */
void metrics_sum(struct metrics *sum, const struct metrics *one);
/* The same without the buckets, which are most of it: users have thousands of channels. */
void metrics_sum_coarse(struct metrics *sum, const struct metrics *one);

#endif
