/*
 * A bench from its options to its results: what sweep, tune and latency have in common.
 *
 *     r = bench_open(ctl, &needs, &bench);
 *     for each point, while r == CTL_OK:
 *             r = bench_measure(bench, &task, &row);      row.error: this point failed
 *             r = bench_add(bench, &row);                 results.json has it
 *     return bench_close(bench, r);
 *
 * Every function returns an exit status: CTL_OK, CTL_FAILED (told) or 128 + the signal that came.
 * After anything but CTL_OK only bench_close() makes sense.
 */
#ifndef DSAIO_CTL_BENCH_H
#define DSAIO_CTL_BENCH_H

#include "client/ctl/bench_crew.h"
#include "client/ctl/bench_files.h"
#include "client/ctl/bench_guest.h"
#include "client/ctl/bench_options.h"
#include "client/ctl/bench_place.h"
#include "client/ctl/bench_point.h"
#include "client/ctl/bench_results.h"
#include "client/ctl/bench_space.h"
#include "client/ctl/bench_stop.h"
#include "client/ctl/progress.h"

struct bench_needs {
	const char *kind;		     /* "sweep" */
	const struct bench_options *options; /* borrowed */
	uint32_t loops;			     /* that one bench_measure() may have at most */
	size_t shared_bytes;		     /* of each worker, if more than that needs */
	struct json_object *parameters; /* taken: what a resumed run must have in common, beside
					   what the options say */
};

struct bench {
	struct ctl *ctl;
	const struct bench_options *options;
	struct bench_place *places;
	unsigned n_places;
	struct bench_guest *guest;
	struct bench_files *files;
	struct bench_crew *crew; /* a worker for each place */
	struct bench_results results;
	bool is_resumed; /* results has rows of an earlier run */
	struct progress progress;

	/* over all points */
	struct bench_others others; /* names: of the last point that had some */
	uint64_t own_bytes;
	unsigned n_disturbed, n_failed, n_cached;
	uint64_t began_nsec, measured_nsec; /* the whole, and of it the transfers */
};

int bench_open(struct ctl *ctl, const struct bench_needs *needs, struct bench **ret_bench);

/*
 * Measures, looks at the store and the device, fills in the row (of bench_row_deinit()).  A point
 * that fails is a row with an error, and CTL_OK.
 */
int bench_measure(struct bench *bench, const struct bench_task *task, struct bench_row *ret_row);

/* The same with a function of the caller's in place of bench_point_run(): see bench_crew.h. */
int bench_call(struct bench *bench, bench_crew_fn *fn, const void *arg, size_t arg_bytes,
	       struct bench_row *row);

/* Adds the row to results.json, and writes that. */
int bench_add(struct bench *bench, const struct bench_row *row);

/*
 * Ends processes, removes files, writes results.json a last time (complete, if status is CTL_OK)
 * and says what there is to say of the run: how busy the store was with others, what came from
 * a cache.  NULL is fine.  Returns status, or, if that was CTL_OK and the end failed, CTL_FAILED.
 */
int bench_close(struct bench *bench, int status);

#endif
