/*
 * The log directory: the place of the benches' results.
 *
 *     LOG_DIR/KIND.N/        run N of that kind: results.json, tune.json or latency.json, and of a sweep the
 *                            text logs (text_logs.h)
 *     LOG_DIR/KIND           a link to the directory of the last complete run
 *     LOG_DIR/results.json, _aio_bench_read_logs, _aio_bench_write_logs, tune.json, latency.json
 *                            links through LOG_DIR/KIND, with the names that DeepSpeed's tools use
 *
 * A run makes a directory of its own and writes nowhere else.  When it is complete, one rename(2) of the
 * link KIND publishes all of it.  A run that --resume continues is copied to a new directory.  Nothing is
 * ever removed, except the directory of a run that measured nothing.
 *
 * The rows file of a run is locked while its bench lives, so a second bench of the kind is refused.
 *
 * The directory may belong to another user even if root runs the bench.  Every name is looked up
 * relative to an open directory, no link is followed, files are made with O_EXCL, and the run's new
 * directory is used only if it belongs to this user.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_LOGS_H
#define DSAIO_CLIENT_CTL_BENCH_LOGS_H

#include "client/ctl/bench/results.h"
#include "client/ctl/ui/ctl.h"

struct bench_logs;

/*
 * Makes log_dir and those above it.  Refuses a directory in which a bench of the kind is at work, or where
 * another program made what would be our links.  log_dir: borrowed.
 * Returns CTL_OK, or CTL_FAILED (reported); nothing that was there has changed then.
 */
int bench_logs_open(struct ctl *ctl, const char *log_dir, const char *kind,
		    struct bench_logs **ret_logs);

/*
 * Loads the run that --resume continues: the last one that has rows.  Its root is NULL if there is none.
 * The caller deinits ret_old.  Returns CTL_OK or CTL_FAILED.
 */
int bench_logs_resume(struct bench_logs *logs, struct bench_results *ret_old);

/* Makes the run's directory, and writes what is known so far. */
int bench_logs_begin(struct bench_logs *logs, struct bench_results *results);

/*
 * Appends the last element of the root's array of that name.  When it returns, a process that is
 * killed loses none.
 */
int bench_logs_add(struct bench_logs *logs, const struct bench_results *results, const char *key);

/*
 * Ends the run: writes all results, and the text logs that rows name.  A run without rows leaves
 * nothing.  publishes: the run is complete and takes the place of the one before.
 */
int bench_logs_end(struct bench_logs *logs, struct bench_results *results, bool publishes);

/* The run's directory, for messages.  path: of PATH_MAX.  NULL: there is none, or it was removed. */
const char *bench_logs_path(const struct bench_logs *logs, char *path);

void bench_logs_close(struct bench_logs *logs); /* NULL is fine */

#endif
