/*
 * The log directory: the place of the benches' results.
 *
 *     LOG_DIR/results.json, _aio_bench_read_logs/, _aio_bench_write_logs/   the last complete sweep
 *     LOG_DIR/tune.json, LOG_DIR/latency.json     the last complete bench tune, bench latency
 *     LOG_DIR/KIND.N/        run N of that kind, with the same names in it: running, interrupted,
 *                            or complete and replaced by a later run
 *     LOG_DIR/results.lock   while a bench runs there
 *
 * A run writes to a directory of its own and changes nothing else until all points are measured.
 * Then it is published: the results at the top move to the directory of their run, and the results
 * of this run move to the top, the results file last.  A crash between these renames loses nothing;
 * the next bench completes them.  A bench removes only files that it made.
 *
 * The directory may belong to another user even if root runs the bench.  Every name is looked up
 * relative to an open directory, no link is followed, files are made with O_EXCL, and a run's
 * directory is used only if it belongs to this user.
 *
 * text_logs.h describes the directories of text logs.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_LOGS_H
#define DSAIO_CLIENT_CTL_BENCH_LOGS_H

#include "client/ctl/bench/results.h"
#include "client/ctl/ui/ctl.h"

struct bench_logs;

/*
 * Makes log_dir and those above it, and locks it: one bench at a time works there.  The lock ends
 * with bench_logs_close() or the process, but not with one that it forked.  log_dir: borrowed.
 * Returns CTL_OK, or CTL_FAILED (reported); nothing that was there has changed then.
 */
int bench_logs_open(struct ctl *ctl, const char *log_dir, const char *kind,
		    struct bench_logs **ret_logs);

/*
 * Loads the run that --resume continues: the last interrupted run, else the last complete run.  Its
 * root is NULL if there is none.  The caller deinits ret_old.  Returns CTL_OK or CTL_FAILED.
 */
int bench_logs_resume(struct bench_logs *logs, struct bench_results *ret_old);

/* Makes the run's directory, if it does not continue one, and writes what is known so far. */
int bench_logs_begin(struct bench_logs *logs, struct bench_results *results);

/*
 * Appends the last element of the root's array of that name.  When it returns, a process that is
 * killed loses none; the device has it within a second, or, where syncing takes longer than a
 * hundredth of that, within a hundred times what it takes.
 */
int bench_logs_add(struct bench_logs *logs, const struct bench_results *results, const char *key);

/*
 * Ends the run: writes all results, and the text logs that rows name.  A run without rows leaves
 * nothing.  publishes: the run is complete and takes the place of the one before.
 */
int bench_logs_end(struct bench_logs *logs, struct bench_results *results, bool publishes);

/*
 * The place of this run's rows, for messages: the results file, or, until the run is published, its
 * directory, where some rows may be in the rows file alone.  path: of PATH_MAX.  NULL: there is none.
 */
const char *bench_logs_path(const struct bench_logs *logs, char *path);

void bench_logs_close(struct bench_logs *logs); /* NULL is fine */

#endif
