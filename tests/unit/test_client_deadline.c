#include "client/lib/base/deadline.h"

#include "tests/unit/suite.h"

TEST(no_limit_is_never_over)
{
	ck_assert_uint_eq(deadline_in_usec(-1), DEADLINE_NEVER);
	ck_assert_uint_eq(deadline_in_usec(INT64_MAX),
			  DEADLINE_NEVER); /* its nanoseconds overflow */
	ck_assert_uint_eq(deadline_in_msec(0), DEADLINE_NEVER);
	ck_assert(!deadline_is_over(DEADLINE_NEVER));
	ck_assert_uint_eq(deadline_left_msec(DEADLINE_NEVER), 0);
}

TEST(what_is_left_is_rounded_up_and_never_nothing)
{
	ck_assert(deadline_is_over(deadline_in_usec(0)));
	ck_assert_uint_eq(deadline_left_msec(1), 1);
	ck_assert_uint_gt(deadline_left_msec(deadline_in_msec(100000)), 90000);
	ck_assert_uint_le(deadline_left_msec(deadline_in_msec(100000)), 100001);
	ck_assert_int_eq(timespec_of(3000000007).tv_sec, 3);
	ck_assert_int_eq(timespec_of(3000000007).tv_nsec, 7);
}

TEST_MAIN
