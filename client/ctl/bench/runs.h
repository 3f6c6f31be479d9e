/*
 * Streams (stream.h) that run beside each other on test files in one folder, as bench mix and bench replay have them,
 * and two such runs compared: a table, or JSON.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_RUNS_H
#define DSAIO_CLIENT_CTL_BENCH_RUNS_H

#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/files.h"
#include "client/ctl/bench/stream.h"

struct bench_runs {
	struct ctl *ctl; /* set by the caller */
	struct bench_files *files;
	struct bench_crew *crew;
};

/*
 * Looks for a store of dir, makes n test files of these sizes, and starts a process for each, with room for a
 * struct bench_totals.
 * Returns CTL_OK, CTL_FAILED, CTL_NO_DAEMON (reported), or 128 + the signal that came; bench_runs_deinit() is due.
 */
int bench_runs_start(struct bench_runs *runs, const char *dir, const uint64_t *file_bytes,
		     unsigned n);

/* Calls fn in all processes.  Returns likewise. */
int bench_runs_call(struct bench_runs *runs, bench_crew_fn *fn, const void *arg, size_t arg_bytes);
void bench_runs_deinit(struct bench_runs *runs);

/* Adds what another stream has done beside these; values as the histogram knows them. */
void bench_totals_add(struct bench_totals *totals, const struct bench_totals *other);

/* A job, or a client, in two runs. */
struct bench_pair {
	const char *name;
	struct bench_totals runs[2];
};

/* names: of the two runs.  Prints a table.  Returns CTL_OK or CTL_FAILED (reported). */
int bench_pairs_print(const struct ctl *ctl, const struct bench_pair *pairs, unsigned n,
		      const char *const names[2]);

/* Adds both runs to an object, by their names. */
void bench_pair_json(struct json_object *object, const struct bench_pair *pair,
		     const char *const names[2]);

#endif
