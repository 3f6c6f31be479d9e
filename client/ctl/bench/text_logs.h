/*
 * The text logs of a sweep, in the form that DeepSpeed's parse_nvme_stats reads: a directory for
 * reads and one for writes, and in it a file for each point with the lines of ds_io.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_TEXT_LOGS_H
#define DSAIO_CLIENT_CTL_BENCH_TEXT_LOGS_H

#include "client/ctl/bench/results.h"

#define TEXT_LOGS_DIRS 2u

extern const char *const text_logs_dirs[TEXT_LOGS_DIRS]; /* by op */

/* The log's name for a row, relative to the results.  log: BENCH_TEXT_BYTES. */
void text_logs_name(char *log, const struct bench_task *task, unsigned n_folders);

/*
 * Makes both directories in run_fd, and in them the logs that the rows name.
 * Returns 0, or a negative errno and in ret_name (of BENCH_TEXT_BYTES) what failed.
 */
int text_logs_write(int run_fd, const struct bench_results *results, char *ret_name);

#endif
