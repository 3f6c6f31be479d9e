/*
 * A comparison of sides (side.h): rounds in which each runs a slice, another one first each time,
 * since a device's speed changes by the minute.  One round before the first is thrown away.
 *
 * Some rounds before choose the best of several ways to do the same (fio's engines, points of
 * DeepNVMe).  The rows consist only of later rounds, so luck in the choice helps no side.
 */
#ifndef DSAIO_TESTS_BENCH_CONTEST_H
#define DSAIO_TESTS_BENCH_CONTEST_H

#include <stdbool.h>

#include "tests/bench/bench.h"
#include "tests/bench/side.h"

#define CONTEST_SIDES_MAX 12
#define CHOICE_ROUNDS 2
/*
 * The corners of what DeepNVMe's users try: blocks of 1 and 8 MiB, 1 and 8 threads; depth 32,
 * overlapping.
 */
#define DEEPNVME_POINTS 4
struct dsaio_profile deepnvme_point(unsigned i);
/* Says which is the best; whose: "our" or "its". */
void point_print(const struct row *row, const char *whose, const struct dsaio_profile *profile);

struct contest {
	unsigned n_sides, n_rounds;
	struct side sides[CONTEST_SIDES_MAX];
	bool is_out[CONTEST_SIDES_MAX];
	struct result results[ROUNDS_MAX][CONTEST_SIDES_MAX];
};

/*
 * Opens one more side; its index or a negative errno; says on stderr why.  A program's command
 * line is printed.
 */
int contest_add(struct contest *contest, const char *kind, const struct point *point);
/* Fine at any time. */
void contest_close(struct contest *contest);

/* Runs n rounds after those that count so far; row: what it is for, as progress tells it. */
int contest_run(struct contest *contest, const struct row *row, unsigned n);
/* The rounds until now count no more. */
void contest_forget(struct contest *contest);
/* Which of the n sides from first on moved most bytes a second; the others are out. */
unsigned contest_best(struct contest *contest, unsigned first, unsigned n);

/* Fills the row with the rounds. */
void contest_row(const struct contest *contest, struct row *row, unsigned ours, unsigned reference,
		 double (*value)(const struct result *));

double result_megabytes_per_sec(const struct result *result);
double result_cpu_msec_per_gigabyte(const struct result *result);

#endif
