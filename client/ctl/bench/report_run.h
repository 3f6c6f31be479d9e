/*
 * A run as the report shows it: rows of the same op and profile are merged, reads and writes of a
 * profile are paired, and the ranks of bench tune are read.  Pure functions.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_REPORT_RUN_H
#define DSAIO_CLIENT_CTL_BENCH_REPORT_RUN_H

#include "client/ctl/bench/report.h"

#define REPORT_GB (1024.0 * 1024 * 1024)
#define REPORT_NAME_BYTES 64u /* of a profile's name */

struct report_run {
	const char *name; /* borrowed, as the results are */
	const struct bench_results *results;
	struct bench_row *rows; /* each op and profile once */
	size_t n_rows;
};

/* A profile with its reads and writes. */
struct report_pair {
	const struct bench_row *rows[2]; /* by op; NULL: not measured, or failed */
};

/* A profile in the ranks of a goal. */
struct report_rank {
	struct profile profile;
	double speed, low, high;
	bool is_tied, is_recommended;
};

/* Returns 0 or -ENOMEM.  Call report_run_deinit() in both cases. */
int report_run_init(struct report_run *run, const struct bench_report_run *from);
void report_run_deinit(struct report_run *run);

/* False for latencies: they are of several sizes, and their profile is no point of a space. */
bool report_is_of_points(const struct report_run *run);

bool report_is_measured(const struct bench_row *row);

/* All pairs, the fastest first.  Returns an array for free(), or NULL without memory. */
struct report_pair *report_pairs(const struct report_run *run, size_t *ret_n);

/* "1M d32 p8 overlap single".  Returns text. */
const char *report_profile_name(char *text, size_t size, const struct profile *profile);

/* ---- the results of bench tune ---- */

/* The goal of that name ("read", "write" or "sum"), borrowed; NULL: it has no ranks. */
struct json_object *report_goal(const struct report_run *run, const char *name);

/* The goal that the recommendation comes from. */
struct json_object *report_main_goal(const struct report_run *run, const char **ret_name);

size_t report_n_ranks(struct json_object *goal);
size_t report_recommended(struct json_object *goal); /* an index; the file may have a wrong one */
struct report_rank report_rank(struct json_object *goal, size_t i); /* 0: the fastest */

#endif
