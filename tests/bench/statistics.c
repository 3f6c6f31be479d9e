#include "tests/bench/statistics.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_values(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
}

double quantile(const double *sorted, size_t n, double q)
{
	const double at = q * (double)(n - 1);
	const size_t i = (size_t)at;

	if (i + 1 >= n)
		return sorted[n - 1];
	return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

double ops_by(const int64_t *ends, size_t n, int64_t start, int64_t time)
{
	int64_t before = start;
	size_t i = 0;

	if (time <= start)
		return 0;
	for (; i < n && ends[i] <= time; i++)
		before = ends[i];
	if (i == n)
		return (double)n;
	return (double)i + (double)(time - before) / (double)(ends[i] - before);
}
