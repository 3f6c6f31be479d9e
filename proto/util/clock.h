/*
 * The monotonic clock, by which waits are measured.
 */
#ifndef DSAIO_PROTO_UTIL_CLOCK_H
#define DSAIO_PROTO_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_nsec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* Linux always has this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
