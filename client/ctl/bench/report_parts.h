/*
 * The parts of the report page that have files of their own: facts, heat maps, latencies.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_REPORT_PARTS_H
#define DSAIO_CLIENT_CTL_BENCH_REPORT_PARTS_H

#include "client/ctl/bench/report_run.h"

/* A cell of a table with that text, escaped; "": a dash. */
void report_cell(FILE *out, const char *text);

/* The table of machines, devices and commands: a column for each run. */
void report_write_facts(FILE *out, const struct report_run *runs, size_t n_runs);

/* A heat map of block size and queue depth for each number of parts.  Returns 0 or -ENOMEM. */
int report_write_maps(FILE *out, const struct report_run *run, enum bench_op op);

/* The table and plots of bench latency; nothing if the run has none.  Returns 0 or -ENOMEM. */
int report_write_latencies(FILE *out, const struct report_run *run);

#endif
