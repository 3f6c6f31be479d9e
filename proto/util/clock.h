/*
 * The monotonic clock, by which waits are measured, and the processor time of the calling thread.
 */
#ifndef DSAIO_PROTO_UTIL_CLOCK_H
#define DSAIO_PROTO_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NSEC_PER_SEC UINT64_C(1000000000)

static inline uint64_t clock_nsec_of(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts); /* Linux always has these clocks */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_nsec(void)
{
	return clock_nsec_of(CLOCK_MONOTONIC);
}

/* The first of two times; 0 is none. */
static inline uint64_t clock_first(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* When another thread takes the processor, this one stands still. */
static inline uint64_t clock_thread_nsec(void)
{
	return clock_nsec_of(CLOCK_THREAD_CPUTIME_ID);
}

#endif
