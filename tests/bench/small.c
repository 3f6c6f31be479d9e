/*
 * The measure of small ops: what one costs in time and CPU time, beside libaio and io_uring in a
 * program's own process, over numbers of clients and depths.
 *
 * At each point all ways run in the same rounds.  The reference of IOPS and latency is the engine
 * in process that had more IOPS at the point, and that of CPU time is libaio.  The choice is made by the
 * same rounds: if luck decides between two that are alike, it is on the reference's side.
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/contest.h"
#include "tests/bench/files.h"
#include "tests/bench/small_rows.h"

static char names[SMALL_ROWS][SMALL_NAME_BYTES];

/* The sides of a point by their index in the contest; -1: not there. */
struct small {
	struct contest contest;
	struct point point;
	int ways[SMALL_WAYS], libaio;
};

static int small_open(struct small *s, bool *has_uring)
{
	for (enum small_way i = 0; i < SMALL_WAYS; i++) {
		const bool is_uring = i == SMALL_URING;

		s->ways[i] = -1;
		if (!small_has_way(&s->point, i) || (is_uring && !*has_uring))
			continue;
		s->ways[i] = contest_add(&s->contest, small_side(i), &s->point);
		if (s->ways[i] == -EOPNOTSUPP && is_uring) {
			fprintf(stderr, "bench: libaio is the only reference\n");
			*has_uring = false;
		} else if (s->ways[i] < 0)
			return s->ways[i];
	}
	s->libaio = contest_add(&s->contest, "libaio", &s->point);
	return s->libaio < 0 ? s->libaio : 0;
}

static void small_fill(struct small *s, unsigned *n_rows)
{
	/* libaio was added last, after io_uring */
	const unsigned n = s->ways[SMALL_URING] >= 0 ? 2 : 1;
	const unsigned libaio = (unsigned)s->libaio;
	const unsigned best = contest_best(&s->contest, libaio + 1 - n, n);

	for (enum small_way i = 0; i < SMALL_WAYS; i++) {
		for (enum small_figure f = 0; s->ways[i] >= 0 && f < SMALL_FIGURES; f++) {
			const unsigned reference = i == SMALL_URING || f == SMALL_CPU ||
								   f == SMALL_SLEEPS
							   ? libaio
							   : best;
			struct row *row = &rows[ROW_SMALL + *n_rows];

			if (!small_has_row(i, f))
				continue;
			small_row(&s->point, i, f, names[*n_rows], row);
			++*n_rows;
			row->beside = row->is_absolute ? NULL
						       : s->contest.sides[reference].kind->name;
			for (unsigned j = 0; j < s->contest.n_rounds; j++) {
				const struct result *results = s->contest.results[j];

				row_add(row, small_value(&results[s->ways[i]], f),
					row->is_absolute ? 1 : small_value(&results[reference], f));
			}
		}
	}
}

/* BENCH_SMALL: a pattern for the names of rows. */
static bool is_asked_for(const char *name)
{
	const char *pattern = getenv("BENCH_SMALL");

	return !pattern || !*pattern || fnmatch(pattern, name, 0) == 0;
}

int measure_small_matrix(struct bench *b)
{
	unsigned n_rows = 0;
	bool has_uring = true;
	int r = files_make(b->dir, 1, HOT_FILE_BYTES);

	for (unsigned i = 0; r == 0 && i < SMALL_POINTS; i++) {
		struct small s = { 0 };
		char name[SMALL_NAME_BYTES];
		struct row row;

		small_rows_point(i, b->dir, &s.point);
		s.point.slice_usec = SLICE_USEC;
		small_row(&s.point, SMALL_OURS, SMALL_IOPS, name, &row);
		if (!is_asked_for(name))
			continue;
		r = small_open(&s, &has_uring);
		if (r == 0)
			r = contest_run(&s.contest, &row, 1);
		contest_forget(&s.contest);
		if (r == 0)
			r = contest_run(&s.contest, &row, ROUNDS_MIN);
		if (r == 0)
			small_fill(&s, &n_rows);
		contest_close(&s.contest);
	}
	return r;
}
