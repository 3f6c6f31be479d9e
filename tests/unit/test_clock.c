/* clock: nanoseconds of the monotonic clock. */
#include "proto/util/clock.h"
#include "tests/unit/suite.h"

TEST(it_counts_the_nanoseconds_of_the_monotonic_clock)
{
	struct timespec before, after;
	uint64_t now;

	ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &before), 0);
	now = clock_nsec();
	ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &after), 0);
	ck_assert_uint_ge(now, (uint64_t)before.tv_sec * 1000000000 + (uint64_t)before.tv_nsec);
	ck_assert_uint_le(now, (uint64_t)after.tv_sec * 1000000000 + (uint64_t)after.tv_nsec);
}

TEST_MAIN
