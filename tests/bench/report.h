/*
 * Results: rows of rounds, their medians, the table and the JSON file.
 *
 * A row compares ours with a reference round by round, so that a device that is slow for a
 * while is slow for both; its ratio is the median of the rounds' ratios.  A row without a
 * reference (is_absolute) has 1 there: its ratio is the value itself, in the row's unit, and one
 * rule says for all rows whether the bar holds.
 */
#ifndef DSAIO_TESTS_BENCH_REPORT_H
#define DSAIO_TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>

/* At least 9 are asked for; as many more as fit into a measure's time, up to this. */
#define ROUNDS_MIN 9
#define ROUNDS_MAX 31

struct round {
	double ours, reference;
};

struct row {
	const char *name;
	const char *unit;
	const char *beside; /* the reference, where a run chooses it; else NULL */
	bool is_higher_better;
	bool is_absolute;
	bool has_no_bar; /* for information only */
	double bar;	 /* for the ratio */
	int decimals;	 /* of ours and reference in the table */
	unsigned n_rounds;
	struct round rounds[ROUNDS_MAX];
};

void row_add(struct row *row, double ours, double reference);

/* The table of all rows that have rounds, and how many of their bars hold. */
void report_print(FILE *f, const struct row *rows, unsigned n);

/* The same as JSON.  0 or -errno; says on stderr why. */
int report_write_json(const char *path, const struct row *rows, unsigned n);

#endif
