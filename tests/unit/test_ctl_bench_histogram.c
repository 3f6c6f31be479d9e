/* bench_histogram: values within 0.1%, exact means. */
#include "client/ctl/bench/histogram.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

static struct bench_histogram histogram;

TEST(an_empty_one_says_nothing)
{
	size_t at = 0;
	uint64_t nsec;

	memset(&histogram, 0, sizeof(histogram));
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 0.5), 0);
	ck_assert_double_eq(bench_histogram_deviation(&histogram), 0);
	ck_assert_double_eq(bench_histogram_mean_half(&histogram), 0);
	ck_assert_uint_eq(bench_histogram_next(&histogram, &at, &nsec), 0);
}

/* Each value alone: the largest of its step is no less, and at most 0.1% more. */
TEST(any_value_is_known_within_a_thousandth)
{
	for (unsigned power = 0; power < 41; power++)
		for (int off = -1; off <= 1; off++) {
			const uint64_t nsec = (UINT64_C(1) << power) * 3 / 2 + (uint64_t)off;
			size_t at = 0;
			uint64_t found;

			memset(&histogram, 0, sizeof(histogram));
			bench_histogram_record(&histogram, nsec);
			ck_assert_uint_eq(bench_histogram_next(&histogram, &at, &found), 1);
			ck_assert_uint_ge(found, nsec);
			ck_assert_uint_le(found - nsec, nsec / 1000);
			ck_assert_uint_eq(bench_histogram_quantile(&histogram, 0.99), nsec);
			ck_assert_uint_eq(bench_histogram_next(&histogram, &at, &found), 0);
		}
}

TEST(quantiles_are_those_of_the_values)
{
	memset(&histogram, 0, sizeof(histogram));
	for (uint64_t i = 1; i <= 1000; i++)
		bench_histogram_record(&histogram, i);
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 0), 1);
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 0.5), 500);
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 0.9), 900);
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 0.999), 999);
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 1), 1000);
}

TEST(mean_and_deviation_are_exact)
{
	static const uint64_t values[] = { 2000000, 4000000, 4000000, 4000000,
					   5000000, 5000000, 7000000, 9000000 };

	memset(&histogram, 0, sizeof(histogram));
	for (int i = 0; i < N_ROWS(values); i++)
		bench_histogram_record(&histogram, values[i]);
	ck_assert_double_eq_tol(histogram.mean_nsec, 5e6, 1e-3);
	ck_assert_double_eq_tol(bench_histogram_deviation(&histogram), sqrt(32e12 / 7), 1e-3);
	/* Student's quantile of 7 degrees of freedom is 2.365. */
	ck_assert_double_eq_tol(bench_histogram_mean_half(&histogram),
				2.365 * sqrt(32e12 / 7) / sqrt(8), 1);
	ck_assert_uint_eq(histogram.min_nsec, 2000000);
	ck_assert_uint_eq(histogram.max_nsec, 9000000);
}

TEST(what_takes_hours_counts_as_the_longest)
{
	memset(&histogram, 0, sizeof(histogram));
	bench_histogram_record(&histogram, UINT64_MAX);
	bench_histogram_record(&histogram, 1);
	ck_assert_uint_eq(bench_histogram_quantile(&histogram, 1), (UINT64_C(1) << 41) - 1);
	ck_assert_uint_eq(histogram.max_nsec, UINT64_MAX);
}

TEST(an_interval_of_latencies_does_not_begin_below_zero)
{
	struct bench_histogram *h = calloc(1, sizeof(*h));

	ck_assert_ptr_nonnull(h);
	for (unsigned i = 0; i < 4; i++)
		bench_histogram_record(h, 1000);
	bench_histogram_record(h, 1000000);
	ck_assert_double_lt(h->mean_nsec - bench_histogram_mean_half(h), 0);
	ck_assert_double_eq(bench_histogram_mean_low(h), 0);
	ck_assert_uint_eq(bench_histogram_needed(0.5), 2);
	ck_assert_uint_eq(bench_histogram_needed(0.9), 10);
	ck_assert_uint_eq(bench_histogram_needed(0.999), 1000);
	free(h);
}

TEST_MAIN
