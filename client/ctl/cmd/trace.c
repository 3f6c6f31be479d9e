/*
 * dsaioctl trace: the last ops, or their events, as the flight recorder of each lane has them: of the daemon that
 * serves, or of one that crashed.  It reads the files beside the socket, and asks no daemon.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/cmd/trace_files.h"
#include "client/ctl/cmd/trace_ops.h"
#include "client/ctl/cmd/trace_show.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROWS_SHOWN 100u

static const char help[] =
	"dsaioctl trace - the last ops: who, what, and how long each stage took\n"
	"\n"
	"    dsaioctl trace                          of the daemon that serves\n"
	"    dsaioctl trace --user anna --slower 10ms\n"
	"    dsaioctl trace --store nvme0 --op write --errors\n"
	"    dsaioctl trace --last-crash             of the last one that crashed or was killed\n"
	"    dsaioctl trace --last-crash --events --store nvme0 -n 1000\n"
	"    dsaioctl trace --json | jq '.ops[] | select(.error)'\n"
	"    dsaioctl trace record job.ops -- python3 train.py\n"
	"                                            for dsaioctl bench replay, see\n"
	"                                            dsaioctl trace record --help\n"
	"\n"
	"A row is one op, the newest last.  TIME is when the store's thread took it: before now, before\n"
	"the crash, or, where no signal handler could note that (kill -9), before the last event.\n"
	"FILE is the file's number in that client, RESULT the bytes, or an errno; open: it has not\n"
	"ended.  TOTAL is QUEUE, until its first block started; DEVICE, until its last one was done;\n"
	"and DELIVERY, until its result was written.  An op that needed no block has only TOTAL.\n"
	"With --events a row is one event: of an op (taken, ended), or of a block, which is one\n"
	"request to the device: started, done; at worker, for a thread that may wait; returned, as it\n"
	"would have had to wait in the kernel; hung.  OP is the client's number for the op.\n"
	"Each lane keeps its last 16384 events in memory, beside the socket.  Only root and the\n"
	"daemon's user may read them.\n"
	"\n"
	"    --last-crash   of the last daemon that did not stop in order\n"
	"    --store NAME   only this store's\n"
	"    --pid N        only this process's\n"
	"    --user USER    only this user's: a name or a number\n"
	"    --op KIND      only read, write or fsync\n"
	"    --slower TIME  only ops that took at least so long, as 10ms, 500us or 2s\n"
	"    --errors       only ops that failed\n"
	"    --events       events in place of ops; only with --store\n"
	"    -n N           only the last N rows (100; with --json all)\n"
	"    --json         all numbers, in bytes and nanoseconds\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 done, 1 failed, or there is no trace, 2 wrong usage\n";

static bool is_last_crash, is_events;
static const char *store_name;
static uint32_t n_wanted;
static struct trace_filter filter;

static const struct flag flags[] = {
	{ "last-crash", FLAG_BOOL, &is_last_crash, 0, 0 },
	{ "store", FLAG_STRING, &store_name, 0, 0 },
	{ "op", FLAG_STRING, &filter.opcode, 0, 0 },
	{ "slower", FLAG_STRING, &filter.slower, 0, 0 },
	{ "errors", FLAG_BOOL, &filter.errors, 0, 0 },
	{ "events", FLAG_BOOL, &is_events, 0, 0 },
	{ "n", FLAG_COUNT, &n_wanted, 1, UINT32_MAX },
	TRACE_FILTER_FLAGS(filter),
};

struct row {
	const struct trace_file *file;
	const struct recording_event *event;
};

struct trace {
	char socket_path[SOCKET_PATH_BYTES];
	struct trace_file files[RECORDING_FILES_MAX];
	size_t n_files;
	bool is_live;
	uint64_t end_nsec; /* TIME is before it */
	struct row *rows;  /* of events, oldest first */
	size_t n_rows;	   /* or of ops */
	struct trace_ops ops;
};

static void files_deinit(struct trace *trace)
{
	for (size_t i = 0; i < trace->n_files; i++)
		trace_file_deinit(&trace->files[i]);
	trace->n_files = 0;
}

static void trace_deinit(struct trace *trace)
{
	files_deinit(trace);
	free(trace->rows);
	trace_ops_deinit(&trace->ops);
}

/* ---- the files ---- */

static int read_file(const struct ctl *ctl, struct trace *trace, const char *path)
{
	_cleanup_(closep) int fd = -1;
	char text[256];
	int r = trace_open(ctl, path, &fd);

	if (fd < 0)
		return r;
	r = trace_file_read(fd, &trace->files[trace->n_files], text, sizeof(text));
	if (r == 0)
		trace->n_files++;
	else if (r == -EINVAL) /* a daemon may be making it */
		ctl_note(ctl, "%s %s: left out", path, text);
	else
		return ctl_fail(ctl, "%s: %s", path, text);
	return CTL_OK;
}

static int read_files(const struct ctl *ctl, struct trace *trace, const char *kind)
{
	char path[SOCKET_PATH_BYTES + RECORDING_SUFFIX_BYTES];
	int r = CTL_OK;

	for (unsigned i = 0; r == CTL_OK && i < RECORDING_FILES_MAX; i++) {
		(void)snprintf(path, sizeof(path), "%s.%s.%u", trace->socket_path, kind, i);
		r = read_file(ctl, trace, path);
	}
	for (size_t i = 0; i < trace->n_files; i++)
		trace->is_live |= trace_file_is_live(&trace->files[i]);
	return r;
}

/* A crash after which no daemon has started is in the files of the present one. */
static int find_files(const struct ctl *ctl, struct trace *trace)
{
	int r = read_files(ctl, trace, RECORDING_NOW);

	if (r != CTL_OK)
		return r;
	if (is_last_crash && (trace->is_live || !trace->n_files)) {
		files_deinit(trace);
		trace->is_live = false;
		r = read_files(ctl, trace, RECORDING_CRASH);
	}
	if (r != CTL_OK || trace->n_files)
		return r;
	if (is_last_crash)
		return ctl_fail(ctl,
				"%s: no crash is recorded there: no daemon has crashed since the "
				"host's start, or it had no flight recorder (its log says so)",
				trace->socket_path);
	return ctl_fail(ctl,
			"%s: nothing is recorded there: no daemon serves there, no op has come, or "
			"it has no flight recorder (its log says so); a crash is shown by: "
			"dsaioctl trace --last-crash",
			trace->socket_path);
}

/* ---- the events ---- */

static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->event->nsec != y->event->nsec)
		return x->event->nsec < y->event->nsec ? -1 : 1;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->event < y->event ? -1 : x->event > y->event;
}

static void find_end(struct trace *trace)
{
	uint64_t crash_nsec = 0, last_nsec = 0;

	for (size_t i = 0; i < trace->n_files; i++) {
		const struct trace_file *file = &trace->files[i];

		if (file->crash_signal && file->crash_nsec > crash_nsec)
			crash_nsec = file->crash_nsec;
		if (file->n_events && file->events[file->n_events - 1].nsec > last_nsec)
			last_nsec = file->events[file->n_events - 1].nsec;
	}
	trace->end_nsec = trace->is_live ? clock_nsec() : crash_nsec ? crash_nsec : last_nsec;
}

static int collect_rows(const struct ctl *ctl, struct trace *trace)
{
	bool has_store = !store_name;
	size_t n = 0;

	for (size_t i = 0; i < trace->n_files; i++)
		n += trace->files[i].n_events;
	trace->rows = calloc(n + 1, sizeof(*trace->rows));
	if (!trace->rows)
		return ctl_fail(ctl, "out of memory");
	for (size_t i = 0; i < trace->n_files; i++) {
		const struct trace_file *file = &trace->files[i];

		if (store_name && strcmp(file->store, store_name) != 0)
			continue;
		has_store = true;
		for (size_t k = 0; is_events && k < file->n_events; k++)
			trace->rows[trace->n_rows++] = (struct row){ .file = file,
								     .event = &file->events[k] };
		for (size_t k = 0; !is_events && k < file->n_events; k++)
			if (trace_ops_add(&trace->ops, (unsigned)i, &file->events[k]) < 0)
				return ctl_fail(ctl, "out of memory");
	}
	if (!has_store)
		return ctl_fail(ctl,
				"store %s: it has no events there: the others are shown without "
				"--store",
				store_name);
	qsort(trace->rows, trace->n_rows, sizeof(*trace->rows), compare_rows);
	if (trace_ops_end(&trace->ops) < 0)
		return ctl_fail(ctl, "out of memory");
	for (size_t i = 0; i < trace->ops.n; i++)
		if (trace_filter_has(&filter, &trace->ops.ops[i], trace->end_nsec))
			trace->ops.ops[trace->n_rows++] = trace->ops.ops[i];
	return CTL_OK;
}

/* ---- output ---- */

/* "2026-11-21 14:03:22.123 +0000" */
static const char *format_time(char text[64], uint64_t real_nsec)
{
	const time_t seconds = (time_t)(real_nsec / 1000000000u);
	char date[32] = "?", zone[8] = "";
	struct tm tm;

	if (localtime_r(&seconds, &tm)) {
		(void)strftime(date, sizeof(date), "%F %T", &tm);
		(void)strftime(zone, sizeof(zone), "%z", &tm);
	}
	(void)snprintf(text, 64, "%s.%03u %s", date, (unsigned)(real_nsec / 1000000u % 1000u),
		       zone);
	return text;
}

static void print_headline(const struct ctl *ctl, const struct trace *trace)
{
	const struct trace_file *file = &trace->files[0];
	const char *name = sigabbrev_np((int)(file->crash_signal & INT_MAX));
	char text[64];

	(void)format_time(text, trace_file_real_nsec(file, trace->end_nsec));
	if (trace->is_live)
		(void)ctl_print_line(ctl, "dsaiod %s with pid %u: TIME is before now",
				     file->program, file->pid);
	else if (file->crash_signal)
		(void)ctl_print_line(ctl,
				     "dsaiod %s with pid %u crashed (SIG%s) at %s: TIME is before "
				     "that",
				     file->program, file->pid, name ? name : "?", text);
	else
		(void)ctl_print_line(ctl,
				     "dsaiod %s with pid %u was killed after its last event at %s: "
				     "TIME is before that",
				     file->program, file->pid, text);
}

static void add_row(struct table *table, const struct trace *trace, const struct row *row)
{
	const struct recording_event *event = row->event;
	char number[TRACE_NUMBER_BYTES], size[UNITS_TEXT_BYTES];

	/* One of a lane that wrote after this looked at the clock is behind the end. */
	table_add(table, "%.6f s", (double)(int64_t)(event->nsec - trace->end_nsec) / 1e9);
	table_add(table, "%s", row->file->store);
	table_add(table, "%" PRIu32, event->client);
	table_add(table, "%" PRIu32, event->pid);
	table_add(table, "%" PRIu64, event->id);
	table_add(table, "%s", trace_opcode_text(event, number));
	table_add(table, "%s", trace_event_text(event, number));
	table_add(table, "%" PRIu32, event->file);
	table_add(table, "%" PRIu64, event->off);
	table_add(table, "%s", units_format_size(size, event->len));
	if (trace_has_result(event))
		trace_add_result(table, event->result);
	else
		table_add(table, "-");
}

static int print_events(const struct trace *trace, const struct row *rows, size_t n)
{
	static const struct table_column columns[] = {
		{ "TIME", true },   { "STORE", false }, { "CLIENT", true },  { "PID", true },
		{ "OP", true },	    { "WHAT", false },	{ "EVENT", false },  { "FILE", true },
		{ "OFFSET", true }, { "LENGTH", true }, { "RESULT", false },
	};
	_cleanup_(table_deinit) struct table table;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < n; i++)
		add_row(&table, trace, &rows[i]);
	return table_print(&table, stdout);
}

static int print_table(const struct ctl *ctl, const struct trace *trace, size_t first)
{
	const size_t n = trace->n_rows - first;
	const char *what = is_events ? "events" : "ops";
	int r = 0;

	print_headline(ctl, trace);
	if (!n)
		(void)printf("no %s\n", what);
	else if (is_events)
		r = print_events(trace, trace->rows + first, n);
	else
		r = trace_ops_print(trace->ops.ops + first, n, trace->files, trace->end_nsec);
	if (first)
		(void)printf("showing the last %zu of %zu %s; -n N shows more\n", n, trace->n_rows,
			     what);
	return r == -ENOMEM ? ctl_fail(ctl, "out of memory") : ctl_flush(ctl);
}

static struct json_object *event_json(const struct trace *trace, const struct row *row)
{
	const struct recording_event *event = row->event;
	const int error = trace_has_result(event) ? ring_result_errno(event->result) : 0;
	const char *name = error ? strerrorname_np(error) : "";
	struct json_object *object = json_object_new_object();
	char number[TRACE_NUMBER_BYTES];

	json_object_object_add(object, "before_nsec",
			       json_object_new_int64((int64_t)(trace->end_nsec - event->nsec)));
	json_add_number(object, "time_nsec", trace_file_real_nsec(row->file, event->nsec));
	json_add_text(object, "store", row->file->store);
	json_add_number(object, "client", event->client);
	json_add_number(object, "pid", event->pid);
	json_add_number(object, "uid", event->uid);
	json_add_number(object, "channel", event->channel);
	json_add_number(object, "op", event->id);
	json_add_text(object, "what", trace_opcode_text(event, number));
	json_add_text(object, "event", trace_event_text(event, number));
	json_add_number(object, "file", event->file);
	json_add_number(object, "offset", event->off);
	json_add_number(object, "length", event->len);
	if (trace_has_result(event))
		json_add_number(object, "bytes", ring_result_done(event->result));
	else
		json_object_object_add(object, "bytes", NULL);
	json_add_text(object, "error", name ? name : "?");
	return object;
}

static int print_json(const struct ctl *ctl, const struct trace *trace, size_t first)
{
	struct json_object *object = json_object_new_object();
	struct json_object *lanes = json_object_new_array(), *rows;

	json_add_bool(object, "is_crash", !trace->is_live);
	json_add_number(object, "end_nsec",
			trace_file_real_nsec(&trace->files[0], trace->end_nsec));
	for (size_t i = 0; i < trace->n_files; i++) {
		struct json_object *lane = json_object_new_object();

		json_add_text(lane, "store", trace->files[i].store);
		json_add_number(lane, "pid", trace->files[i].pid);
		json_add_text(lane, "version", trace->files[i].program);
		json_add_number(lane, "signal", trace->files[i].crash_signal);
		json_add_number(lane, "events", trace->files[i].n_events);
		(void)json_object_array_add(lanes, lane);
	}
	if (!is_events)
		rows = trace_ops_json(trace->ops.ops + first, trace->n_rows - first, trace->files,
				      trace->end_nsec);
	else
		rows = json_object_new_array();
	for (size_t i = first; is_events && i < trace->n_rows; i++)
		(void)json_object_array_add(rows, event_json(trace, &trace->rows[i]));
	json_object_object_add(object, "lanes", lanes);
	json_object_object_add(object, is_events ? "events" : "ops", rows);
	json_add_number(object, is_events ? "events_shown" : "ops_shown", trace->n_rows - first);
	json_add_number(object, is_events ? "events_total" : "ops_total", trace->n_rows);
	return ctl_print_json(ctl, object);
}

static int trace_run(struct ctl *ctl)
{
	_cleanup_(trace_deinit) struct trace trace = { 0 };
	size_t n;
	int r;

	if (ctl->n_args)
		return ctl_usage(ctl, "%s: it takes no argument; a store is chosen by --store NAME",
				 ctl->args[0]);
	if (ctl->is_private)
		return ctl_usage(ctl, "--private: a daemon for this command alone has no ops of "
				      "others: leave it out");
	if (is_events &&
	    (filter.pid || filter.user || filter.opcode || filter.slower || filter.errors))
		return ctl_usage(ctl, "--events: of the choices only --store goes with it");
	r = trace_filter_check(ctl, &filter);
	if (r == CTL_OK)
		r = trace_find_socket(ctl, trace.socket_path);
	if (r == CTL_OK)
		r = find_files(ctl, &trace);
	if (r != CTL_OK)
		return r;
	find_end(&trace);
	r = collect_rows(ctl, &trace);
	if (r != CTL_OK)
		return r;
	n = n_wanted ? n_wanted : ctl->is_json ? trace.n_rows : ROWS_SHOWN;
	n = n < trace.n_rows ? trace.n_rows - n : 0;
	return (ctl->is_json ? print_json : print_table)(ctl, &trace, n);
}

static const struct command *const parts[] = { &command_trace_record, NULL };

const struct command command_trace = {
	"trace", trace_run,	    "the last ops and their times, also of a crash",
	help,	 FLAG_TABLE(flags), parts
};
