/* The clock and the random numbers that both sides of a comparison use. */
#ifndef DSAIO_TESTS_BENCH_CLOCK_H
#define DSAIO_TESTS_BENCH_CLOCK_H

#include "proto/util/clock.h"

/* Signed, so that differences may be negative. */
static inline int64_t now_nsec(void)
{
	return (int64_t)clock_nsec();
}

/* xorshift64*: cheaper than any read; the state must not be 0. */
static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545F4914F6CDD1D);
}

/* Each slice has its own offsets: nobody reads what the other has just made warm. */
static inline uint64_t random_seed(void)
{
	uint64_t seed = clock_nsec() | 1;

	(void)random_next(&seed);
	return seed;
}

#endif
