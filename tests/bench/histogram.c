#include "tests/bench/histogram.h"

/* The largest value that falls into the step. */
static double step_value(unsigned step)
{
	const unsigned n = 1u << HISTOGRAM_STEP_BITS;
	unsigned octave;

	if (step < n)
		return step;
	octave = (step >> HISTOGRAM_STEP_BITS) - 1;
	return (double)(((uint64_t)(step % n + n + 1) << octave) - 1);
}

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
			return step_value(i);
	}
	return step_value(HISTOGRAM_STEPS - 1);
}
