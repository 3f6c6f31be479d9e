/*
 * Statistics over measured values.  Pure functions.
 */
#ifndef DSAIO_TESTS_BENCH_STATISTICS_H
#define DSAIO_TESTS_BENCH_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Sorts the n values. */
void sort_values(double *values, size_t n);
/* The value below which the share q of the n sorted values lies, interpolated; n is not 0. */
double quantile(const double *sorted, size_t n, double q);

/*
 * How many ops of a program with one op after the other had ended by time: n ops, the one with
 * index i at ends[i], in order, and the first began at start.  An op in flight counts by the
 * elapsed share of its time, so a few large ops give a rate as well as many small ones.
 */
double ops_by(const int64_t *ends, size_t n, int64_t start, int64_t time);

#endif
