/*
 * For the files of the harness (harness*.c): what they share and tests do not use.
 */
#ifndef DSAIO_TESTS_HARNESS_PARTS_H
#define DSAIO_TESTS_HARNESS_PARTS_H

#include "tests/harness.h"

#define DAEMONS_MAX 64
/* For what takes no time unless something is wrong.  A disk that others load stalls for 20 s (seen). */
#define ANSWER_USEC 120000000

/* The text, which is freed when the program ends. */
char *text_keep(char *text);

/* The test has ended: so do its daemons. */
void daemons_end(void);

static inline int64_t deadline_after(int64_t timeout_usec)
{
	return now_usec() + (int64_t)((double)timeout_usec * test_time_factor());
}

static inline int msec_until(int64_t deadline)
{
	int64_t left = deadline - now_usec();

	if (left <= 0)
		return 0;
	return left > 3600000000 ? 3600000 : (int)(left / 1000) + 1;
}

static inline uint64_t mix(uint64_t x) /* splitmix64 */
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

#endif
