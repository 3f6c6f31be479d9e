/* bench grid: ratios of rounds, files that got cold; and what it is made of: device, histogram. */
#include "tests/bench/device.h"
#include "tests/bench/grid.h"
#include "tests/bench/histogram.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

/* Two sides, ours and one at half its speed; in the last round both fall to that share. */
static void fill(struct grid_row *row, double last)
{
	*row = (struct grid_row){ .place = "disk", .n_cells = 2 };
	row->cells[0].kind = side_kind_find("ours");
	row->cells[1].kind = side_kind_find("fio-uring");
	for (unsigned i = 0; i < 2; i++) {
		struct cell *cell = &row->cells[i];

		cell->n_rounds = 5;
		for (unsigned j = 0; j < 5; j++)
			cell->results[j] = (struct result){
				.bytes = 2000000000,
				.ops = 1000,
				.seconds = i + 1.0,
				.cpu_seconds = 0.5,
			};
		cell->results[4].seconds /= last;
	}
}

TEST(ratios_are_those_of_a_round_and_their_median_counts)
{
	struct grid_row row;
	struct figures f;

	fill(&row, 1);
	row.cells[0].results[2].seconds = 100; /* one round was slow for ours alone */
	cell_figures(&row, 1, &f);
	ck_assert_double_eq_tol(f.ratio, 2, 1e-9);
	ck_assert_double_eq_tol(f.bytes_per_sec, 1e9, 1);
	ck_assert_double_eq_tol(f.ops_per_sec, 500, 1e-9);
	ck_assert_double_eq_tol(f.cpu_sec_per_gb, 0.25, 1e-9);
	ck_assert_double_eq_tol(f.cpu_sec_per_mops, 500, 1e-9);
	ck_assert_double_eq_tol(row_ratio(&row, "fio-uring", "ours"), 0.5, 1e-9);
	ck_assert_double_eq(row_ratio(&row, "fio-libaio", "ours"), 0);
}

TEST(a_side_without_rounds_has_no_figures)
{
	struct grid_row row;
	struct figures f;

	fill(&row, 1);
	row.cells[1].n_rounds = 0;
	cell_figures(&row, 1, &f);
	ck_assert_double_eq(f.ratio, 0);
	ck_assert_double_eq(f.bytes_per_sec, 0);
}

TEST(files_that_got_cold_or_hot_are_noticed)
{
	struct grid_row row;

	fill(&row, 1);
	ck_assert(!row_got_cold(&row));
	fill(&row, 0.6);
	ck_assert(!row_got_cold(&row));
	fill(&row, 0.05);
	ck_assert(row_got_cold(&row));
	fill(&row, 3);
	ck_assert(row_got_cold(&row));
	/* One side alone may have had bad luck. */
	fill(&row, 1);
	row.cells[0].results[4].seconds *= 10;
	ck_assert(!row_got_cold(&row));
}

TEST(quantiles_of_a_histogram_are_within_a_hundredth)
{
	static struct histogram h, other;

	ck_assert_double_eq(histogram_quantile(&h, 0.5), 0);
	ck_assert_double_eq(histogram_mean(&h), 0);
	for (int64_t i = 1; i <= 100000; i++)
		histogram_add(i % 2 ? &h : &other, i * 1000);
	histogram_merge(&h, &other);
	ck_assert_double_eq_tol(histogram_mean(&h), 50000500, 1e-3); /* exact */
	for (unsigned i = 1; i < 100; i++) {
		const double exact = i * 1e6, got = histogram_quantile(&h, i / 100.0);

		ck_assert_msg(got >= exact * 0.999 && got <= exact * 1.01, "%u: %f", i, got);
	}
	histogram_add(&h, INT64_MAX);
	ck_assert_double_gt(histogram_quantile(&h, 1), 1e12);
}

TEST(small_values_of_a_histogram_are_exact)
{
	for (int64_t i = 0; i < 256; i++) {
		static struct histogram h;

		memset(&h, 0, sizeof(h));
		histogram_add(&h, i);
		ck_assert_double_ge(histogram_quantile(&h, 0.5), (double)i);
		ck_assert_double_le(histogram_quantile(&h, 0.5), (double)i + 1);
	}
}

TEST(the_devices_line_is_read)
{
	struct device_counters c;

	ck_assert_int_eq(device_parse("  100 7 800 50  20 3 160 9  2 40 61 0 0 0 0 5 5\n", &c), 0);
	ck_assert_uint_eq(c.requests, 120);
	ck_assert_uint_eq(c.bytes, 960 * 512);
	ck_assert_uint_eq(c.waited_msec, 61);
	ck_assert_int_eq(device_parse("1 2 3\n", &c), -EBADMSG);
}

TEST_MAIN
