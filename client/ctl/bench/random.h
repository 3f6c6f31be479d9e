/*
 * Random numbers (splitmix64) for orders, places and bytes.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_RANDOM_H
#define DSAIO_CLIENT_CTL_BENCH_RANDOM_H

#include <stdint.h>

/* The next number of the sequence that began with any value of *state. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t word = *state += UINT64_C(0x9e3779b97f4a7c15);

	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

#endif
