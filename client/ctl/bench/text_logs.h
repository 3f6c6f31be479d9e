/*
 * The text logs of a sweep, in the form that DeepSpeed's parse_nvme_stats reads: a directory for
 * reads and one for writes, and in it a file for each point with the lines of ds_io.
 *
 * The parser reads all files of a directory.  A sweep is therefore refused where files lie that no
 * results name: another program made them, and the parser would count them as points of the sweep.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_TEXT_LOGS_H
#define DSAIO_CLIENT_CTL_BENCH_TEXT_LOGS_H

#include "client/ctl/bench/results.h"
#include "client/ctl/ui/ctl.h"

#define TEXT_LOGS_DIRS 2u

extern const char *const text_logs_dirs[TEXT_LOGS_DIRS]; /* by op */

/* The log's name for a row, relative to the results.  log: BENCH_TEXT_BYTES. */
void text_logs_name(char *log, const struct bench_task *task, unsigned n_folders);

/*
 * Refuses directories of text logs in dir_fd that have files beside the known ones.
 * path: of dir_fd, for messages.  known: its keys are names of logs; NULL: there are none.
 * Returns CTL_OK, or CTL_FAILED (reported).
 */
int text_logs_check_foreign(const struct ctl *ctl, int dir_fd, const char *path,
			    struct json_object *known);

/*
 * Writes the logs that the rows name into directories in run_fd.
 * Returns 0, or a negative errno and in ret_name (of BENCH_TEXT_BYTES) the log that failed.
 */
int text_logs_write(int run_fd, const struct bench_results *results, char *ret_name);

#endif
