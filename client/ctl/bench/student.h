/*
 * Student's distribution: for intervals of means of few values.  Pure.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_STUDENT_H
#define DSAIO_CLIENT_CTL_BENCH_STUDENT_H

#include <stddef.h>

/* Its quantile for an interval of 95% with so many degrees of freedom; infinite for none. */
double student_95(size_t degrees);

#endif
