#include "tests/bench/histogram.h"

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	into->sum_nsec += from->sum_nsec;
	for (unsigned i = 0; i < HISTOGRAM_STEPS; i++)
		into->n[i] += from->n[i];
}

static uint64_t count(const struct histogram *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < HISTOGRAM_STEPS; i++)
		n += h->n[i];
	return n;
}

double histogram_mean(const struct histogram *h)
{
	const uint64_t n = count(h);

	return n > 0 ? (double)h->sum_nsec / (double)n : 0;
}

double histogram_quantile(const struct histogram *h, double q)
{
	const uint64_t n = count(h);
	uint64_t seen = 0;
	double rank;

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
