/*
 * The text logs of a bench, as DeepSpeed's parse_nvme_stats reads them: a file for each point with
 * ds_io's lines, in LOG_DIR/_aio_bench_read_logs and LOG_DIR/_aio_bench_write_logs.
 *
 * What is there and stands in no results.json of ours was made by somebody else: then the bench
 * is refused, since neither may such a file be overwritten nor may it be among ours, where the
 * parser would take it for one.
 */
#ifndef DSAIO_CTL_BENCH_LOGS_H
#define DSAIO_CTL_BENCH_LOGS_H

#include "client/ctl/bench_results.h"
#include "client/ctl/ctl.h"

/* Makes log_dir and those above it.  Returns CTL_OK or CTL_FAILED (told). */
int bench_logs_make_dir(struct ctl *ctl, const char *log_dir);

/*
 * One bench at a time: two would put each other's results aside.  It ends with bench_logs_unlock(),
 * or the process, but not with one that it forked.  fd: -1 is fine.
 * Returns CTL_OK or CTL_FAILED (told: who has it).
 */
int bench_logs_lock(struct ctl *ctl, const char *log_dir, int *ret_fd);
void bench_logs_unlock(const char *log_dir, int fd);

/*
 * old: the results that lie there, NULL: none.  keeps: they are resumed, so their logs are written
 * anew (a crash may have left one out, or cut it short); else these are removed.
 * Returns CTL_OK or CTL_FAILED (told).
 */
int bench_logs_prepare(struct ctl *ctl, const char *log_dir, const struct bench_results *old,
		       bool keeps);

/* The log's name for a row, relative to log_dir.  log: BENCH_TEXT_BYTES. */
void bench_logs_name(char *log, const struct bench_task *task, unsigned n_folders);

/* Writes row->log.  Returns CTL_OK or CTL_FAILED (told). */
int bench_logs_write(struct ctl *ctl, const char *log_dir, const struct bench_row *row);

#endif
