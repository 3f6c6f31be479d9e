/*
 * dsaioctl bench sweep: measures every point of a space of profiles, reads and writes, with the
 * flags, default space, log names and log lines of DeepSpeed's aio_bench_perf_sweep.
 *
 * Points are measured in a shuffled order, so that a disturbance does not fall on one block size; the
 * table has DeepSpeed's order.  Each point is read and then written before the next.  So both directions
 * see the same state of a device that drifts, an interrupted sweep is useful, and the remaining time can
 * be estimated.  A point that fails is a row with its error.
 */
#include "client/ctl/bench/bench.h"
#include "client/ctl/bench/text_logs.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

#define WARMUP_LOOPS 1u /* ds_io's default, which DeepSpeed's sweep leaves alone */

static struct bench_options options = BENCH_OPTIONS_INIT;

static const struct flag flags[] = { BENCH_FLAGS(options) };

static const char help[] =
	"dsaioctl bench sweep - measure every point of a space of profiles\n"
	"\n"
	"    dsaioctl bench sweep --dir /nvme\n"
	"    dsaioctl bench sweep --dir /nvme0 /nvme1 --io_size 1G --loops 3\n"
	"    dsaioctl bench sweep --dir /nvme --sweep_config space.json --log_dir logs\n"
	"    dsaioctl bench sweep --dir /nvme --sweep_config space.json --log_dir logs --resume\n"
	"    dsaioctl bench sweep --dir . --io_size 64M --no_write --private --json\n"
	"\n" BENCH_OPTIONS_HELP
	"    --loops N              measured loops of a point, behind one that warms up (1)\n"
	"    --json                 results.json on standard output\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n" BENCH_SPACE_HELP "\n"
	"Results: LOG_DIR/results.json, and for each point a text log with ds_io's lines, in\n"
	"LOG_DIR/_aio_bench_read_logs/ and LOG_DIR/_aio_bench_write_logs/.  These are links to\n"
	"LOG_DIR/sweep.N/, where run N writes and stays; a run that is complete takes the links over.\n"
	"The test files have no name: they are gone when the command ends, however it ends.\n"
	"\n"
	"exit status: 0 done (a point that failed is a row with its error), 1 failed, also if no\n"
	"point could be measured, 2 wrong usage, 3 no daemon answers, 129, 130 and 143 interrupted\n"
	"(--resume goes on)\n";

/* The table's cells of a row. */
static void add_cells(struct table *table, const struct bench_row *row)
{
	const struct profile *profile = &row->task.profile;
	char text[UNITS_TEXT_BYTES], served[UNITS_TEXT_BYTES];

	table_add(table, "%s", bench_op_name(row->task.op));
	table_add(table, "%s", bench_block_size_name(text, profile->block_size));
	table_add(table, "%" PRIu32, profile->queue_depth);
	table_add(table, "%s", profile->overlap_events ? "overlap" : "sequential");
	table_add(table, "%s", profile->single_submit ? "single" : "block");
	table_add(table, "%" PRIu32, profile->intra_op_parallelism);
	if (row->error[0])
		table_add(table, "-");
	else
		table_add(table, "%.3f", row->total.e2e_speed);
	if (row->served.block_size)
		table_add(table, "%s x %" PRIu32, units_format_size(served, row->served.block_size),
			  row->served.queue_depth);
	else
		table_add(table, "-");
	if (row->served.mean_block > 0)
		table_add(table, "%s x %.1f",
			  units_format_size(served, (uint64_t)row->served.mean_block),
			  row->served.mean_depth);
	else
		table_add(table, "-");
	table_add(table, "%s%s%s", row->error[0] ? "-" : bench_source_name(row->source),
		  row->gpu_path[0] ? ", " : "", row->gpu_path);
	if (row->is_disturbed)
		table_add(table, "disturbed: others on this device moved %s",
			  units_format_size(text, row->others_bytes));
	else
		table_add(table, "%s", row->error);
}

/* Adds the point's row, if there is one.  Returns whether it is without an error. */
static bool add_point(struct table *table, struct bench_results *results, enum bench_op op,
		      const struct profile *profile)
{
	const ssize_t i = bench_results_find(results, op, profile);
	struct bench_row row;

	if (i < 0 || bench_results_row(results, (size_t)i, &row) < 0)
		return false;
	add_cells(table, &row);
	return !row.error[0];
}

/* Sets *ret_n_good to the number of rows without an error. */
static int print_table(struct ctl *ctl, const struct bench_space *space,
		       struct bench_results *results, size_t *ret_n_good)
{
	_cleanup_(table_deinit) struct table table = {
		.columns = "OP|>BLOCK|>DEPTH|EVENTS|SUBMIT|>PARTS|>GB/S|GRANTED|SERVED|FROM|NOTE"
	};
	size_t n_good = 0;

	for (size_t i = 0; i < bench_space_points(space); i++) {
		const struct profile profile = bench_space_point(space, i);

		n_good += add_point(&table, results, BENCH_READ, &profile);
		n_good += add_point(&table, results, BENCH_WRITE, &profile);
	}
	*ret_n_good = n_good;
	if (ctl->is_json)
		return CTL_OK;
	table_print(&table, stdout);
	return ctl_flush(ctl);
}

static int sweep_point(struct bench *bench, enum bench_op op, const struct profile *profile)
{
	struct bench_task task = { .op = op,
				   .profile = *profile,
				   .io_size = options.io_size,
				   .warmup_loops = WARMUP_LOOPS,
				   .loops = options.loops };
	struct bench_row row;
	int r;

	if (bench_results_find(&bench->results, op, profile) >= 0)
		return CTL_OK;
	progress_points_begin(&bench->progress);
	r = bench_measure(bench, &task, &row);
	if (r == CTL_OK) {
		if (!row.error[0])
			text_logs_name(row.log, &task, bench->n_places);
		r = bench_add(bench, &row);
	}
	if (r == CTL_OK)
		bench_end_point(bench, &row, "");
	bench_row_deinit(&row);
	return r;
}

static int sweep_points(struct bench *bench, const struct bench_space *space)
{
	_cleanup_(freep) size_t *order = NEW_ARRAY(size_t, bench_space_points(space));
	size_t n_left = 0;
	int r = CTL_OK;

	bench_space_shuffle(space, order);
	for (size_t i = 0; i < bench_space_points(space); i++) {
		struct profile profile = bench_space_point(space, i);

		n_left += !options.no_read &&
			  bench_results_find(&bench->results, BENCH_READ, &profile) < 0;
		n_left += !options.no_write &&
			  bench_results_find(&bench->results, BENCH_WRITE, &profile) < 0;
	}
	if (n_left == 0) {
		bench_note_complete(bench);
		return CTL_OK;
	}
	r = bench_prepare(bench);
	if (r == CTL_OK)
		progress_points_start(&bench->progress, "sweep",
				      bench_results_n_rows(&bench->results), n_left,
				      options.verbose);
	for (size_t i = 0; r == CTL_OK && i < bench_space_points(space); i++) {
		struct profile profile = bench_space_point(space, order[i]);

		if (!options.no_read)
			r = sweep_point(bench, BENCH_READ, &profile);
		if (r == CTL_OK && !options.no_write)
			r = sweep_point(bench, BENCH_WRITE, &profile);
	}
	return r;
}

/* Prints the sweep's results, complete or not. */
static int show(struct bench *bench, const struct bench_space *space, int status)
{
	struct ctl *ctl = bench->ctl;
	size_t n_good = 0, n_rows;
	int r = CTL_OK;

	if (!bench->results.root)
		return status;
	n_rows = bench_results_n_rows(&bench->results);
	if (status == CTL_OK || status > CTL_NO_DAEMON)
		r = print_table(ctl, space, &bench->results, &n_good);
	if (status != CTL_OK)
		return status;
	if (n_good == 0) {
		ctl_note(ctl, "no point could be measured: each row has its error");
		return CTL_FAILED;
	}
	if (n_good < n_rows)
		ctl_note(ctl, "%zu of %zu points failed: their rows say why", n_rows - n_good,
			 n_rows);
	return r;
}

static int sweep_run(struct ctl *ctl)
{
	struct bench_space space;
	const struct bench_needs needs = { .kind = "sweep", .options = &options, .space = &space };
	struct bench *bench = NULL;
	int r = bench_options_check(ctl, &options, &space);

	if (r != CTL_OK)
		return r;
	r = bench_open(ctl, &needs, &bench);
	if (r == CTL_OK)
		r = sweep_points(bench, &space);
	r = bench_close(bench, r);
	r = bench_finish(bench, show(bench, &space, r));
	free(options.nvme_dir.items);
	return r;
}

const struct command command_bench_sweep = COMMAND("bench sweep", sweep_run,
						   "every point of a space of profiles", help,
						   .flags = FLAG_TABLE(flags));
