#include "tests/bench/histogram.h"

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_STEPS; i++)
		into->n[i] += from->n[i];
}

double histogram_quantile(const struct histogram *h, double q)
{
	uint64_t n = 0, seen = 0;
	double rank;

	for (unsigned i = 0; i < HISTOGRAM_STEPS; i++)
		n += h->n[i];
	if (n == 0)
		return 0;
	rank = q * (double)n;
	for (unsigned i = 0; i < HISTOGRAM_STEPS; i++) {
		seen += h->n[i];
		if (seen > 0 && (double)seen >= rank)
			return (double)log_bucket_end(HISTOGRAM_STEP_BITS, i);
	}
	return (double)log_bucket_end(HISTOGRAM_STEP_BITS, HISTOGRAM_STEPS - 1);
}
