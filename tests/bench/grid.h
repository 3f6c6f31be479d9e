/*
 * Results of bench full: rows, the table, JSON.
 *
 * A row is a point with all sides' slices, round by round.  A side's ratio is the median over the
 * rounds of ours (the first side) to it, in bytes a second, so that a device that is slow for a
 * while is slow for both; a side that could not be measured says why.
 */
#ifndef DSAIO_TESTS_BENCH_GRID_H
#define DSAIO_TESTS_BENCH_GRID_H

#include <stdbool.h>
#include <stdio.h>

#include "tests/bench/side.h"

#define GRID_SIDES_MAX 12
#define GRID_ROUNDS_MAX 31

struct cell {
	const struct side_kind *kind;
	struct dsaio_profile profile; /* that it ran with */
	unsigned n_rounds;
	struct result results[GRID_ROUNDS_MAX]; /* block_bytes and depth: what the device saw */
	char skipped[256];			/* why there are no rounds, or fewer */
};

struct grid_row {
	const char *place;
	struct point point;
	unsigned n_cells;
	struct cell cells[GRID_SIDES_MAX];
	bool is_cold; /* its files got cold */
};

/* Pure: the printed figures of a cell; all 0 without rounds. */
struct figures {
	double bytes_per_sec, ops_per_sec; /* medians */
	double ratio, ratio_q1, ratio_q3;  /* of the row's first cell to this one; 0: none */
	double cpu_sec_per_gb, cpu_sec_per_mops;
	double p50_usec, p99_usec;
	unsigned block_bytes;
	double depth;
};
void cell_figures(const struct grid_row *row, unsigned i, struct figures *ret_figures);

/* Pure: the median over the rounds of one side's bytes a second to another's; 0: not both ran. */
double row_ratio(const struct grid_row *row, const char *of, const char *to);

/* Pure: did all sides' speed fall to less than half (or double) from the first round to the last? */
bool row_got_cold(const struct grid_row *row);

void grid_print_head(FILE *f);
void grid_print_row(FILE *f, const struct grid_row *row);
/* 0 or -errno; says on stderr why. */
int grid_write_json(const char *path, const struct grid_row *rows, unsigned n, bool is_whole);

#endif
