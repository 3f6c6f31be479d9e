/* statistics of the bench: quantiles, and the progress of few large ops. */
#include "tests/bench/statistics.h"

#include "tests/unit/suite.h"

static const struct {
	const char *what;
	size_t n;
	double values[5];
	double q, result;
} quantiles[] = {
	{ "one value is each of its quantiles", 1, { 7 }, 0.99, 7 },
	{ "the middle of an odd number", 3, { 9, 1, 5 }, 0.5, 5 },
	{ "between the two in the middle", 4, { 4, 1, 2, 3 }, 0.5, 2.5 },
	{ "a quarter", 5, { 5, 4, 3, 2, 1 }, 0.25, 2 },
	{ "the least", 3, { 9, 1, 5 }, 0, 1 },
	{ "the greatest", 3, { 9, 1, 5 }, 1, 9 },
	{ "close to the greatest", 2, { 0, 100 }, 0.99, 99 },
};

TEST_TABLE(quantiles_are_interpolated, quantiles)
{
	double values[5];

	for (size_t i = 0; i < quantiles[_i].n; i++)
		values[i] = quantiles[_i].values[i];
	sort_values(values, quantiles[_i].n);
	ck_assert_msg(quantile(values, quantiles[_i].n, quantiles[_i].q) == quantiles[_i].result,
		      "%s", quantiles[_i].what);
}

static const struct {
	const char *what;
	size_t n;
	int64_t ends[3];
	int64_t start, time;
	double result;
} progresses[] = {
	{ "before it began", 2, { 200, 300 }, 100, 50, 0 },
	{ "when it began", 2, { 200, 300 }, 100, 100, 0 },
	{ "half of the first", 2, { 200, 300 }, 100, 150, 0.5 },
	{ "the first has ended", 2, { 200, 300 }, 100, 200, 1 },
	{ "a quarter of the second", 2, { 200, 300 }, 100, 225, 1.25 },
	{ "all of them", 2, { 200, 300 }, 100, 300, 2 },
	{ "after the last", 2, { 200, 300 }, 100, 900, 2 },
	{ "two that ended together", 3, { 200, 200, 400 }, 100, 300, 2.5 },
	{ "nothing was done", 0, { 0 }, 100, 300, 0 },
};

TEST_TABLE(an_op_under_way_counts_by_its_time, progresses)
{
	ck_assert_msg(ops_by(progresses[_i].ends, progresses[_i].n, progresses[_i].start,
			     progresses[_i].time) == progresses[_i].result,
		      "%s", progresses[_i].what);
}

TEST_MAIN
