/*
 * A bench from its options to its results: the common part of sweep, tune and latency.
 *
 *     r = bench_open(ctl, &needs, &bench);              what is cheap: options, folders, daemon
 *     if (r == CTL_OK && something is left to do)
 *             r = bench_prepare(bench);                 the run's directory, test files, processes
 *     progress_points_start(&bench->progress, ...);
 *     for each point, while r == CTL_OK:
 *             r = bench_measure(bench, &task, &row);    row.error: this point failed
 *             if (r == CTL_OK)
 *                     r = bench_add(bench, &row);       the results have it
 *             bench_row_deinit(&row);
 *     r = bench_close(bench, r);                         bench->results are still there
 *     r = bench_finish(bench, r);
 *
 * Every function returns an exit status: CTL_OK, CTL_FAILED or CTL_USAGE (reported), or 128 + the
 * signal that came.  After anything but CTL_OK only bench_close() makes sense.
 *
 * bench.c has more than 600 lines: it is the one place that knows the order of the parts (places,
 * logs, files, crew, guest, results), and each of them has a file of its own.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_BENCH_H
#define DSAIO_CLIENT_CTL_BENCH_BENCH_H

#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/files.h"
#include "client/ctl/bench/guest.h"
#include "client/ctl/bench/logs.h"
#include "client/ctl/bench/options.h"
#include "client/ctl/bench/place.h"
#include "client/ctl/bench/point.h"
#include "client/ctl/bench/results.h"
#include "client/ctl/bench/space.h"
#include "client/ctl/ui/progress.h"
#include "client/ctl/ui/stop.h"

struct bench_needs {
	const char *kind;		     /* "sweep" */
	const struct bench_options *options; /* borrowed; log_dir: NULL: there are no results */
	const struct bench_space *space; /* borrowed; NULL: the bench has none, and no --resume */
	bool sets_profiles;		 /* a user without that right is refused first */
	size_t shared_bytes;		 /* of each process, if the kind's calls need more */
};

struct bench {
	struct ctl *ctl;
	struct bench_needs needs;
	const struct bench_options *options;
	struct bench_place *places;
	unsigned n_places;
	struct bench_guest guest;
	struct bench_files *files;
	struct bench_crew *crew; /* a process for each place; NULL: not prepared */
	const char **folders;	 /* of the crew */
	int *gpus;		 /* likewise, with --gpu */
	struct bench_results results;
	bool is_resumed; /* results has rows of an earlier run */
	bool cannot_flush;
	struct progress_points progress;

	/* over all points of this run */
	uint64_t others_bytes; /* of disturbed points */
	unsigned n_measured, n_failed, n_disturbed, n_cached;
	uint64_t began_nsec, moving_nsec;  /* the first point; the transfers' time */
	struct bench_logs *logs;	   /* NULL: no log_dir */
	uint64_t buffer_bytes, huge_bytes; /* of all processes; UINT64_MAX: not known */
	size_t n_kept;			   /* rows that log_dir has */
	struct bench_traffic traffic;	   /* these two: before the point that is under way */
	struct bench_gpu_paths paths;
};

int bench_open(struct ctl *ctl, const struct bench_needs *needs, struct bench **ret_bench);
int bench_prepare(struct bench *bench);
/* Says so, where --resume left nothing to measure. */
void bench_note_complete(const struct bench *bench);

/*
 * Measures, looks at the store and the device, fills in the row (of bench_row_deinit()).  A point
 * that fails is a row with an error, and CTL_OK.
 */
int bench_measure(struct bench *bench, const struct bench_task *task, struct bench_row *ret_row);

/*
 * The two halves of bench_measure(), for commands that call a function other than bench_point_run():
 * before bench_crew_call(), and after it, with its value and text.
 */
int bench_begin(struct bench *bench, const struct bench_task *task, struct bench_row *ret_row);
int bench_end(struct bench *bench, struct bench_row *row, const struct bench_moved *moved, int r,
	      const char *text);

/* Adds the row: when it returns, a process that is killed does not lose it. */
int bench_add(struct bench *bench, const struct bench_row *row);

/* Shows that the row's point is done.  suffix: behind its name. */
void bench_end_point(struct bench *bench, const struct bench_row *row, const char *suffix);

/* The same as bench_add() for an element of another array of the results.  Takes object. */
int bench_append(struct bench *bench, const char *key, struct json_object *object);

/*
 * Ends processes, removes test files, and writes the results file.  If status is CTL_OK and a point
 * has numbers, the run is complete and replaces the last complete run.  Reports disturbed points, and
 * points that came from a cache.  Returns status, or CTL_FAILED if status was CTL_OK and the end failed.
 * bench->results remain until bench_finish().
 */
int bench_close(struct bench *bench, int status);

/*
 * Reports what is saved of a run that ended early with this status, and how to continue it.  With --json prints the
 * results, unless status is CTL_USAGE.  Frees the bench.  Returns as bench_close().
 */
int bench_finish(struct bench *bench, int status);

#endif
