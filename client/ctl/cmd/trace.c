/*
 * dsaioctl trace: the last ops, as the flight recorder of each lane has them: of the daemon that serves, or of one
 * that crashed.  It reads the files beside the socket, and asks no daemon.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS_SHOWN 100u

static const char help[] =
	"dsaioctl trace - the last ops: who, what, and how long each stage took\n"
	"\n"
	"    dsaioctl trace --store nvme0 --user anna --slower 10ms\n"
	"    dsaioctl trace --last-crash             of a daemon that crashed or was killed\n"
	"    dsaioctl trace --json | jq '.ops[] | select(.error)'\n"
	"    dsaioctl trace record --help            into a file for dsaioctl bench replay\n"
	"\n"
	"A row is one op, the newest last.  TIME is when the store's thread took it: before now, or\n"
	"before the crash.  FILE is the file's number in that client, RESULT the bytes, or an errno.\n"
	"TOTAL is QUEUE, until its first block started; DEVICE, until its last one was done; and\n"
	"DELIVERY, until its result was written.  Only root and the daemon's user may see them.\n"
	"\n"
	"    --last-crash   of the last daemon that did not stop in order\n"
	"    --store NAME   only this store's\n"
	"    --pid N        only this process's\n"
	"    --user USER    only this user's: a name or a number\n"
	"    --slower TIME  only ops that took at least so long, as 10ms, 500us or 2s\n"
	"    --errors       only ops that failed\n"
	"    -n N           only the last N rows (100; with --json all)\n"
	"    --json         all numbers, in bytes and nanoseconds\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 done, 1 failed, or there is no trace, 2 wrong usage\n";

static bool is_last_crash;
static uint32_t n_wanted;
static struct trace_filter filter;

static const struct flag flags[] = {
	{ "last-crash", FLAG_BOOL, &is_last_crash, 0, 0 },
	{ "slower", FLAG_STRING, &filter.slower, 0, 0 },
	{ "errors", FLAG_BOOL, &filter.errors, 0, 0 },
	{ "n", FLAG_COUNT, &n_wanted, 1, UINT32_MAX },
	TRACE_FILTER_FLAGS(filter),
};

struct trace {
	struct trace_files files;
	struct trace_ops ops;
	const struct recording *first; /* of one of the files; NULL: there is none */
	bool is_live;
	uint64_t end_nsec; /* TIME is before it */
};

static void trace_deinit(struct trace *trace)
{
	trace_files_deinit(&trace->files);
	trace_ops_deinit(&trace->ops);
}

static int read_files(const struct ctl *ctl, struct trace *trace, const char *kind)
{
	uint64_t crash_nsec = 0, last_nsec = 0;
	int r = trace_files_read(ctl, &trace->files, kind);

	for (unsigned i = 0; r == CTL_OK && i < RECORDING_FILES_MAX; i++) {
		const struct trace_file *file = &trace->files.files[i];
		const struct recording *recording = file->recording;

		if (!recording)
			continue;
		trace->first = recording;
		trace->is_live |= trace_file_is_live(recording, trace->files.socket_path);
		if (recording->crash_signal && recording->crash_nsec > crash_nsec)
			crash_nsec = recording->crash_nsec;
		if (file->first < file->n_written &&
		    trace_file_event(file, file->n_written - 1)->nsec > last_nsec)
			last_nsec = trace_file_event(file, file->n_written - 1)->nsec;
	}
	trace->end_nsec = trace->is_live ? clock_nsec() : crash_nsec ? crash_nsec : last_nsec;
	return r;
}

/* A crash after which no daemon has started is in the files of the present one. */
static int read_trace(const struct ctl *ctl, struct trace *trace)
{
	int r = read_files(ctl, trace, RECORDING_NOW);

	if (r == CTL_OK && is_last_crash && (trace->is_live || !trace->first)) {
		trace_deinit(trace);
		*trace = (struct trace){ 0 };
		r = read_files(ctl, trace, RECORDING_CRASH);
	}
	if (r != CTL_OK || trace->first)
		return r;
	return ctl_fail(ctl,
			"%s: nothing is recorded there: %s, or it had no flight recorder "
			"(its log says so)%s",
			trace->files.socket_path,
			is_last_crash ? "no daemon has crashed since the host's start"
				      : "no daemon serves there, no op has come",
			is_last_crash ? "" : "; a crash is shown by: dsaioctl trace --last-crash");
}

static int compare_starts(const void *a, const void *b)
{
	return trace_compare(&((const struct trace_op *)a)->taken_nsec,
			     &((const struct trace_op *)b)->taken_nsec, 1);
}

static void collect(struct trace *trace)
{
	struct trace_ops *ops = &trace->ops;
	size_t n = 0;

	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++)
		if (trace->files.files[i].recording)
			trace_ops_add(ops, i, &trace->files.files[i], &filter);
	for (size_t i = 0; i < ops->n; i++)
		if (trace_filter_has(&filter, &ops->ops[i], trace->end_nsec))
			ops->ops[n++] = ops->ops[i];
	ops->n = n;
	qsort(ops->ops, n, sizeof(*ops->ops), compare_starts);
}

/* ---- output ---- */

static int print_headline(const struct ctl *ctl, const struct trace *trace)
{
	const struct recording *recording = trace->first;
	const char *name = sigabbrev_np((int)(recording->crash_signal & INT_MAX));
	const time_t seconds = (time_t)(trace_file_real_nsec(recording, trace->end_nsec) /
					1000000000u);
	char date[64] = "?", end[128] = ": TIME is before now";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		(void)strftime(date, sizeof(date), "%F %T %z", &tm);
	if (!trace->is_live && recording->crash_signal)
		(void)snprintf(end, sizeof(end), " crashed (SIG%s) at %s: TIME is before that",
			       name ? name : "?", date);
	else if (!trace->is_live)
		(void)snprintf(end, sizeof(end),
			       " was killed after its last event at %s: TIME is before that", date);
	return ctl_print_line(ctl, "dsaiod %s with pid %u%s", recording->program, recording->pid,
			      end);
}

static const char *error_name(const struct trace_op *op)
{
	const int error = ring_result_errno(op->result);
	const char *name = error ? strerrorname_np(error) : "";

	return name ? name : "?";
}

/* UINT64_MAX: it has not come to the stage's end, or skipped it, as where it was refused. */
static uint64_t between(uint64_t from_nsec, uint64_t to_nsec)
{
	return from_nsec && to_nsec >= from_nsec ? to_nsec - from_nsec : UINT64_MAX;
}

enum { QUEUE, DEVICE, DELIVERY, TOTAL, N_STAGES };

/* An open op takes until the end of the trace. */
static void find_stages(const struct trace_op *op, uint64_t end_nsec, uint64_t stages[N_STAGES])
{
	stages[QUEUE] = between(op->taken_nsec, op->started_nsec);
	stages[DEVICE] = between(op->started_nsec, op->ended_nsec ? op->done_nsec : 0);
	stages[DELIVERY] = between(op->done_nsec, op->ended_nsec);
	stages[TOTAL] = between(op->taken_nsec, op->ended_nsec ? op->ended_nsec : end_nsec);
}

static void add_row(struct table *table, const struct trace *trace, const struct trace_op *op)
{
	char text[UNITS_TEXT_BYTES], user[SHOW_USER_BYTES];
	uint64_t stages[N_STAGES];

	/* One of a lane that wrote after this looked at the clock is behind the end. */
	table_add(table, "%.6f s", (double)(int64_t)(op->taken_nsec - trace->end_nsec) / 1e9);
	table_add(table, "%" PRIu32, op->pid);
	table_add(table, "%s", show_uid(user, op->uid));
	table_add(table, "%s", trace->files.files[op->lane].recording->store);
	table_add(table, "%" PRIu32, op->file);
	table_add(table, "%s", trace_op_kind(op));
	table_add(table, "%" PRIu64, op->off);
	table_add(table, "%s", units_format_size(text, op->len));
	find_stages(op, trace->end_nsec, stages);
	for (unsigned i = 0; i < N_STAGES; i++)
		table_add(table, "%s",
			  stages[i] == UINT64_MAX ? "-" : units_format_nsec(text, stages[i]));
	table_add(table, "%s",
		  !op->ended_nsec   ? "open"
		  : *error_name(op) ? error_name(op)
				    : units_format_size(text, ring_result_done(op->result)));
}

static int print_table(const struct ctl *ctl, const struct trace *trace, size_t first)
{
	_cleanup_(table_deinit) struct table table = {
		.columns = ">TIME|>PID|USER|STORE|>FILE|OP|>OFFSET|>LENGTH|"
			   ">QUEUE|>DEVICE|>DELIVERY|>TOTAL|RESULT"
	};
	int r = print_headline(ctl, trace);

	for (size_t i = first; i < trace->ops.n; i++)
		add_row(&table, trace, &trace->ops.ops[i]);
	if (r == CTL_OK && !trace->ops.n)
		(void)printf("no ops\n");
	else if (r == CTL_OK)
		table_print(&table, stdout);
	if (first)
		(void)printf("showing the last %zu of %zu ops; -n N shows more\n",
			     trace->ops.n - first, trace->ops.n);
	return r == CTL_OK ? ctl_flush(ctl) : r;
}

static struct json_object *op_json(const struct trace *trace, const struct trace_op *op)
{
	static const char *const keys[N_STAGES] = { "queue_nsec", "device_nsec", "delivery_nsec",
						    "total_nsec" };
	const struct recording *recording = trace->files.files[op->lane].recording;
	struct json_object *object = json_object_new_object();
	uint64_t stages[N_STAGES];

	json_add_number(object, "time_nsec", trace_file_real_nsec(recording, op->taken_nsec));
	json_add_text(object, "store", recording->store);
	json_add_number(object, "client", op->client);
	json_add_number(object, "pid", op->pid);
	json_add_number(object, "uid", op->uid);
	json_add_text(object, "what", trace_op_kind(op));
	json_add_number(object, "file", op->file);
	json_add_number(object, "offset", op->off);
	json_add_number(object, "length", op->len);
	find_stages(op, trace->end_nsec, stages);
	for (unsigned i = 0; i < N_STAGES; i++)
		json_object_object_add(object, keys[i],
				       stages[i] == UINT64_MAX ? NULL
							       : json_object_new_uint64(stages[i]));
	json_add_bool(object, "is_open", !op->ended_nsec);
	json_add_number(object, "bytes", ring_result_done(op->result));
	json_add_text(object, "error", error_name(op));
	return object;
}

static int print_json(const struct ctl *ctl, const struct trace *trace, size_t first)
{
	struct json_object *object = json_object_new_object(), *ops = json_object_new_array();

	for (size_t i = first; i < trace->ops.n; i++)
		(void)json_object_array_add(ops, op_json(trace, &trace->ops.ops[i]));
	json_add_bool(object, "is_crash", !trace->is_live);
	json_add_number(object, "pid", trace->first->pid);
	json_add_number(object, "signal", trace->first->crash_signal);
	json_add_number(object, "end_nsec", trace_file_real_nsec(trace->first, trace->end_nsec));
	json_object_object_add(object, "ops", ops);
	return ctl_print_json(ctl, object);
}

static int trace_run(struct ctl *ctl)
{
	_cleanup_(trace_deinit) struct trace trace = { 0 };
	size_t n;
	int r;

	r = trace_filter_check(ctl, &filter);
	if (r == CTL_OK)
		r = read_trace(ctl, &trace);
	if (r != CTL_OK)
		return r;
	collect(&trace);
	n = n_wanted ? n_wanted : ctl->is_json ? trace.ops.n : ROWS_SHOWN;
	n = n < trace.ops.n ? trace.ops.n - n : 0;
	return (ctl->is_json ? print_json : print_table)(ctl, &trace, n);
}

static const struct command *const parts[] = { &command_trace_record, NULL };

const struct command command_trace = COMMAND(
	"trace", trace_run, "the last ops and their times, also of a crash", help,
	.flags = FLAG_TABLE(flags), .parts = parts, .no_arguments = true, .of_all = true);
