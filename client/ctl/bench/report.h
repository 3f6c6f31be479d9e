/*
 * The report of one or more benches: a single HTML page with inline SVG, no script and nothing
 * from elsewhere, for light and dark screens and for paper.  It is well-formed XML, too.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_REPORT_H
#define DSAIO_CLIENT_CTL_BENCH_REPORT_H

#include "client/ctl/bench/results.h"

#include <stdio.h>

struct bench_report_run {
	const char *name; /* the folder that it came from */
	struct bench_results results;
};

/* Returns 0 or -ENOMEM; whether the stream took it all is for the caller to ask. */
int bench_report_write(FILE *out, const struct bench_report_run *runs, size_t n_runs);

#endif
