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

static const struct {
	uint64_t nsec;
	unsigned place;
} places[] = {
	{ 0, 0 },
	{ 1023, 0 },
	{ 1024, 1 },
	{ 2047, 1 },
	{ 2048, 2 },
	{ 1000000, 10 },
	{ (UINT64_C(1024) << 24) - 1, 24 },
	{ UINT64_C(1024) << 24, 25 },
	{ UINT64_MAX, 25 },
};

TEST_TABLE(a_place_of_the_coarse_histogram_ends_at_a_power_of_two, places)
{
	struct metrics metrics = { 0 };

	metrics_add_latency(&metrics, places[_i].nsec);
	for (unsigned i = 0; i < METRICS_PLACES; i++)
		ck_assert_uint_eq(metrics_get(&metrics.places[i]), i == places[_i].place);
}

TEST(a_sum_has_all_counters_of_both)
{
	struct metrics sum = { 0 }, one = { .reads = 1, .ended_nsec = 2 };

	metrics_add_latency(&one, UINT64_MAX);
	metrics_sum(&sum, &one);
	metrics_sum(&sum, &one);
	ck_assert_uint_eq(metrics_get(&sum.reads), 2);
	ck_assert_uint_eq(metrics_get(&sum.ended_nsec), 4);
	ck_assert_uint_eq(metrics_get(&sum.latency[STATS_BUCKETS - 1]), 2);
}

/* Status of a user with 1024 channels took 0.8 ms of the main thread: others' connects waited for it. */
TEST(a_coarse_sum_has_no_buckets_and_its_percentiles_are_those_of_its_places)
{
	struct metrics sum = { 0 }, one = { .reads = 1 };

	metrics_add_latency(&one, 3000);
	metrics_sum_coarse(&sum, &one);
	metrics_sum_coarse(&sum, &one);
	ck_assert_uint_eq(metrics_get(&sum.reads), 2);
	ck_assert_uint_eq(metrics_get(&sum.places[2]), 2);
	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		ck_assert_uint_eq(metrics_get(&sum.latency[i]), 0);
	ck_assert_uint_eq(metrics_percentile(&sum, 0.99), 4095);
}

TEST_MAIN
