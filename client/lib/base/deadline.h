/*
 * Deadlines: points in time of the monotonic clock, in nanoseconds.  DEADLINE_NEVER is none.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_DEADLINE_H
#define DSAIO_CLIENT_LIB_BASE_DEADLINE_H

#include "proto/util/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define DEADLINE_NEVER UINT64_MAX
#define NSEC_PER_MSEC UINT64_C(1000000)

/* From now; negative, or too long to count: never. */
static inline uint64_t deadline_in_usec(int64_t usec)
{
	if (usec < 0 || usec > INT64_MAX / 2000)
		return DEADLINE_NEVER;
	return clock_nsec() + (uint64_t)usec * 1000;
}

/* From now; 0: never, as in struct ring_entry. */
static inline uint64_t deadline_in_msec(uint32_t msec)
{
	return msec ? clock_nsec() + msec * NSEC_PER_MSEC : DEADLINE_NEVER;
}

static inline bool deadline_is_over(uint64_t deadline_nsec)
{
	return deadline_nsec != DEADLINE_NEVER && clock_nsec() >= deadline_nsec;
}

/* The remaining time, rounded up, at least 1; 0: no deadline. */
static inline uint32_t deadline_left_msec(uint64_t deadline_nsec)
{
	uint64_t now;

	if (deadline_nsec == DEADLINE_NEVER)
		return 0;
	now = clock_nsec();
	return now >= deadline_nsec ? 1 : (uint32_t)((deadline_nsec - now) / NSEC_PER_MSEC + 1);
}

static inline struct timespec timespec_of(uint64_t nsec)
{
	return (struct timespec){ .tv_sec = (time_t)(nsec / NSEC_PER_SEC),
				  .tv_nsec = (long)(nsec % NSEC_PER_SEC) };
}

#endif
