/*
 * The matrix of the measure small: its points, the ways to do their ops, and the rows with their
 * bars.  Pure.
 *
 * All clients use the same file, which fits into a host's cache, and each op is anywhere in it.
 */
#ifndef DSAIO_TESTS_BENCH_SMALL_ROWS_H
#define DSAIO_TESTS_BENCH_SMALL_ROWS_H

#include <stdbool.h>

#include "tests/bench/report.h"
#include "tests/bench/side.h"

#define HOT_FILE_BYTES (UINT64_C(1) << 30)

/* 7 of 4 KiB and 2 of 64 KiB, each for reads and for writes. */
#define SMALL_POINTS 18u

/* A way to do a point's ops whose figures make rows; ours are the first. */
enum small_way {
	SMALL_OURS,
	SMALL_NOT_SPINNING, /* the client's waits sleep at once; at 1 x 1 only */
	SMALL_SPINNING,	    /* with an explicit spin_usec; at 1 x 1 only */
	SMALL_URING,	    /* for information: beside libaio, the other one in this process */
	SMALL_WAYS
};

enum small_figure {
	SMALL_IOPS,
	SMALL_MEAN,
	SMALL_P99,
	SMALL_CPU,	     /* of both sides */
	SMALL_CPU_DAEMON,    /* the daemon's share of that; without a reference */
	SMALL_SLEEPS,	     /* of both sides: what they wake up from costs them and each other */
	SMALL_SLEEPS_DAEMON, /* the daemon's share of that; without a reference */
	SMALL_FIGURES
};

/* Ours and two of io_uring at each point, and two more ways at 1 x 1. */
#define SMALL_ROWS (SMALL_POINTS * (SMALL_FIGURES + 2) + 2 * 2 * SMALL_FIGURES)
#define SMALL_NAME_BYTES 64

/* Point i of SMALL_POINTS, without the time of a slice; dir is borrowed. */
void small_rows_point(unsigned i, const char *dir, struct point *ret_point);
/* Is this way measured at the point? */
bool small_has_way(const struct point *point, enum small_way way);
/* The name of its side. */
const char *small_side(enum small_way way);

/* Does the way have a row of this figure? */
bool small_has_row(enum small_way way, enum small_figure figure);
/* The row without rounds; name: SMALL_NAME_BYTES, borrowed by the row. */
void small_row(const struct point *point, enum small_way way, enum small_figure figure, char *name,
	       struct row *ret_row);
double small_value(const struct result *result, enum small_figure figure);

#endif
