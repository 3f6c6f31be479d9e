#include "proto/util/log_bucket.h"

#include "tests/unit/suite.h"

static const unsigned bits[] = { 1, 3, 7, 10 };

TEST_TABLE(buckets_stand_side_by_side, bits)
{
	const unsigned n = bits[_i];
	const size_t last = (size_t)(64 - n) << n;

	for (size_t bucket = 0; bucket + 1 < last; bucket++) {
		const uint64_t end = log_bucket_end(n, bucket);

		ck_assert_uint_eq(log_bucket(n, SIZE_MAX, end), bucket);
		ck_assert_uint_eq(log_bucket(n, SIZE_MAX, end + 1), bucket + 1);
	}
}

TEST_TABLE(the_end_of_a_bucket_is_near_its_values, bits)
{
	const unsigned n = bits[_i];

	for (uint64_t value = 1; value < UINT64_C(1) << 62; value += value / 3 + 1) {
		const uint64_t end = log_bucket_end(n, log_bucket(n, SIZE_MAX, value));

		ck_assert_uint_ge(end, value);
		ck_assert_uint_le(end - value, value >> n);
	}
}

TEST(a_value_beyond_the_table_is_in_the_last_bucket)
{
	ck_assert_uint_eq(log_bucket(3, 319, UINT64_MAX), 319);
	ck_assert_uint_eq(log_bucket(3, 5, 6), 5);
	ck_assert_uint_eq(log_bucket(3, 5, 4), 4);
}

TEST_MAIN
