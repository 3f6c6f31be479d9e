/*
 * dsaioctl bench replay: the ops that dsaioctl trace record has recorded, again, on files of its own.
 */
#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/files.h"
#include "client/ctl/bench/guest.h"
#include "client/ctl/bench/histogram.h"
#include "client/ctl/bench/replay.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const char help[] =
	"dsaioctl bench replay - the ops of a recorded job again, on any host\n"
	"\n"
	"    dsaioctl trace record job.ops -- python3 train.py\n"
	"    dsaioctl bench replay job.ops --dir /nvme\n"
	"    dsaioctl bench replay job.ops --dir . --fast --private\n"
	"\n"
	"Each stream (a handle of the job, on one store) becomes a process with a handle.  It does the\n"
	"same ops in the same order: same offsets and lengths, as many in flight, and the same pauses\n"
	"between the end of one and the start of the next.  The report has both runs.  The recorded\n"
	"latencies are the lane's; the replayed ones are those of a program, with its wake-up.  The\n"
	"test files have no name and are gone at the end; they need as much room as those of the job.\n"
	"\n"
	"    --dir DIR      where the test files lie\n"
	"    --fast         without the pauses\n"
	"    --json         the report as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted\n";

static const char *dir;
static bool is_fast;

static const struct flag flags[] = {
	{ "dir", FLAG_STRING, &dir, 0, 0 },
	{ "fast", FLAG_BOOL, &is_fast, 0, 0 },
};

struct run {
	struct ctl *ctl;
	struct ops_file file;
	struct replay replay;
	struct bench_place place;
	struct bench_files *files;
	struct bench_crew *crew;
	size_t map_bytes;
};

static void run_deinit(struct run *run)
{
	bench_crew_free(run->crew);
	bench_files_free(run->files);
	if (run->replay.replayed)
		(void)munmap(run->replay.replayed, run->map_bytes);
	ops_file_deinit(&run->file);
}

/* ---- before the start ---- */

static int make_files(struct run *run)
{
	const uint32_t n = run->file.n_files;
	_cleanup_(freep) struct bench_place *places = calloc(n, sizeof(*places));
	struct rlimit limit;

	if (!places)
		return ctl_fail(run->ctl, "out of memory");
	for (uint32_t i = 0; i < n; i++) {
		places[i] = run->place;
		places[i].file_bytes = run->file.file_bytes[i];
	}
	(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail */
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit); /* up to the hard limit: cannot fail */
	return bench_files_make(run->ctl, places, n, false, true, 0, &run->files);
}

/* ---- the run ---- */

static int replay(struct run *run)
{
	const uint32_t n = run->file.n_streams;
	const char *folders[OPS_FILE_STREAMS_MAX];
	const struct replay *arg = &run->replay;
	struct bench_crew_options options = { .socket_path = run->ctl->socket_path,
					      .folders = folders,
					      .files = run->files,
					      .n_processes = n };
	char text[BENCH_TEXT_BYTES];
	void *map;
	int r;

	run->map_bytes = run->file.header->n_ops * sizeof(struct trace_op);
	map = mmap(NULL, run->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return ctl_fail(run->ctl, "out of memory");
	run->replay = (struct replay){ .file = &run->file, .is_fast = is_fast, .replayed = map };
	for (uint32_t i = 0; i < n; i++)
		folders[i] = run->place.folder;
	for (uint64_t i = 0; i < run->file.header->n_ops; i++)
		if (run->file.ops[i].len + REPLAY_PAGE > options.buffer_bytes)
			options.buffer_bytes = run->file.ops[i].len + REPLAY_PAGE;
	r = bench_crew_start(&options, &run->crew, text);
	if (r == 0)
		r = bench_crew_call(run->crew, bench_replay_stream, &arg, sizeof(arg), text);
	return bench_crew_status(run->ctl, r, text);
}

/* ---- the report ---- */

/* A row, and its object: the ops of one of the runs. */
static void report_run(const struct run *run, const struct trace_op *ops, const char *name,
		       struct table *table, struct json_object *parent)
{
	static struct bench_histogram latencies;
	const uint64_t n = run->file.header->n_ops;
	struct json_object *object = json_object_new_object();
	uint64_t bytes = 0, first_nsec = UINT64_MAX, last_nsec = 0, values[4];
	static const char *const keys[] = { "p50_nsec", "p99_nsec", "max_nsec", "duration_nsec" };
	char text[UNITS_TEXT_BYTES];

	memset(&latencies, 0, sizeof(latencies));
	for (uint64_t i = 0; i < n; i++) {
		bench_histogram_record(&latencies, ops[i].ended_nsec - ops[i].taken_nsec);
		bytes += (uint64_t)ops[i].result;
		if (ops[i].taken_nsec < first_nsec)
			first_nsec = ops[i].taken_nsec;
		if (ops[i].ended_nsec > last_nsec)
			last_nsec = ops[i].ended_nsec;
	}
	values[0] = bench_histogram_quantile(&latencies, 0.5);
	values[1] = bench_histogram_quantile(&latencies, 0.99);
	values[2] = latencies.max_nsec;
	values[3] = last_nsec - first_nsec;
	table_add(table, "%s", name);
	table_add(table, "%" PRIu64, n);
	table_add(table, "%s", units_format_size(text, bytes));
	table_add(table, "%s", units_format_rate(text, bytes, values[3]));
	json_add_number(object, "ops", n);
	json_add_number(object, "bytes", bytes);
	for (unsigned i = 0; i < 4; i++) {
		table_add(table, "%s", units_format_nsec(text, values[i]));
		json_add_number(object, keys[i], values[i]);
	}
	json_object_object_add(parent, name, object);
}

static int report(const struct run *run, const char *path)
{
	static const struct table_column columns[] = {
		{ "RUN", false }, { "OPS", true }, { "BYTES", true }, { "BANDWIDTH", true },
		{ "P50", true },  { "P99", true }, { "MAX", true },   { "DURATION", true },
	};
	const uint64_t n_left_out = run->file.header->n_left_out;
	_cleanup_(table_deinit) struct table table;
	_cleanup_(json_putp) struct json_object *object = json_object_new_object();
	int r;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	json_add_text(object, "file", path);
	json_add_bool(object, "is_fast", is_fast);
	json_add_number(object, "streams", run->file.n_streams);
	json_add_number(object, "files", run->file.n_files);
	json_add_number(object, "ops_left_out", n_left_out);
	report_run(run, run->file.ops, "recorded", &table, object);
	report_run(run, run->replay.replayed, "replayed", &table, object);
	if (run->ctl->is_json)
		return ctl_print_json(run->ctl, json_object_get(object));
	r = table_print(&table, stdout);
	(void)printf("streams: %" PRIu32 ", files: %" PRIu32 ", ops not recorded: %" PRIu64 "\n",
		     run->file.n_streams, run->file.n_files, n_left_out);
	return r == -ENOMEM ? ctl_fail(run->ctl, "out of memory") : ctl_flush(run->ctl);
}

/* ---- the command ---- */

static int replay_run(struct ctl *ctl)
{
	_cleanup_(run_deinit) struct run run = { .ctl = ctl };
	struct bench_guest *guest;
	char text[512];
	int r;

	if (ctl->n_args != 1)
		return ctl_usage(ctl, "which job? name one file of dsaioctl trace record");
	if (!dir)
		return ctl_usage(ctl, "where to? give --dir DIR");
	r = ops_file_read(ctl, ctl->args[0], &run.file);
	if (r != CTL_OK)
		return r;
	if (bench_place_find(dir, &run.place, text, sizeof(text)) < 0)
		return ctl_fail(ctl, "%s", text);
	r = bench_guest_start(ctl, &dir, &run.place, 1, &guest);
	if (r != CTL_OK)
		return r;
	bench_guest_free(guest); /* it has looked whether there is a store */
	if (stop_catch(SA_RESTART) < 0)
		return ctl_fail(ctl, "signals: %s", strerror(errno));
	r = make_files(&run);
	if (r == CTL_OK)
		r = replay(&run);
	return r == CTL_OK ? report(&run, ctl->args[0]) : r;
}

const struct command command_bench_replay = {
	"bench replay", replay_run, "the ops of a recorded job again", help, FLAG_TABLE(flags), NULL
};
