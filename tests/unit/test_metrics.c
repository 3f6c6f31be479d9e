#include "daemon/account/metrics.h"

#include "tests/unit/suite.h"

TEST(no_op_has_no_percentile)
{
	struct metrics metrics = { 0 };

	ck_assert_uint_eq(metrics_percentile(&metrics, 0.5), 0);
}

static const uint64_t latencies[] = { 1, 15, 16, 17, 1000, 57000, 123456789, UINT64_C(1) << 39 };

TEST_TABLE(a_percentile_is_within_an_eighth_of_the_latency, latencies)
{
	struct metrics metrics = { 0 };
	uint64_t got;

	metrics_add_latency(&metrics, latencies[_i]);
	got = metrics_percentile(&metrics, 0.99);
	ck_assert_uint_ge(got, latencies[_i]);
	ck_assert_uint_le(got, latencies[_i] + latencies[_i] / 8 + 1);
}

TEST(percentiles_split_the_ops)
{
	struct metrics metrics = { 0 };

	for (int i = 0; i < 90; i++)
		metrics_add_latency(&metrics, 1000);
	for (int i = 0; i < 10; i++)
		metrics_add_latency(&metrics, 1000000);
	ck_assert_uint_lt(metrics_percentile(&metrics, 0.5), 1200);
	ck_assert_uint_lt(metrics_percentile(&metrics, 0.89), 1200);
	ck_assert_uint_ge(metrics_percentile(&metrics, 0.99), 1000000);
	ck_assert_uint_ge(metrics_percentile(&metrics, 1.0), 1000000);
}

TEST(a_latency_beyond_the_table_is_in_the_last_bucket)
{
	struct metrics metrics = { 0 };

	metrics_add_latency(&metrics, UINT64_MAX);
	ck_assert_uint_gt(metrics_percentile(&metrics, 0.5), UINT64_C(1) << 39);
}

TEST_MAIN
