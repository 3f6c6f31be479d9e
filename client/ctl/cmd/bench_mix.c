/*
 * dsaioctl bench mix: what clients of different kinds get, each alone and all together.
 *
 * Each client of the job file is a process of the crew, with its own connection, handle, buffer and test file.  It
 * is measured alone, while the others are connected and idle; then all are, from one barrier on.  A client starts
 * ops for its runtime, up to its depth and at its rate, and then awaits those under way; its times are from the
 * start to the last op's end.  The latency of an op with a rate counts from when it was due, so a stall shows in
 * all ops that wait for it.
 */
#include "client/ctl/bench/buffer.h"
#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/files.h"
#include "client/ctl/bench/histogram.h"
#include "client/ctl/bench/mix_job.h"
#include "client/ctl/bench/results.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/progress.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_MAX 64

static const char *dir;

static const struct flag flags[] = { { "dir", FLAG_STRING, &dir, 0, 0 } };

static const char help[] =
	"dsaioctl bench mix - clients of different kinds, each alone and all together\n"
	"\n"
	"    dsaioctl bench mix job.fio --dir /nvme\n"
	"    dsaioctl bench mix job.fio --dir /nvme --json > mix.json\n"
	"    dsaioctl bench report mix.json -o mix.html           the same as a picture\n"
	"\n"
	"The job file has a section for each client, and [global] of those behind it, in fio's words.\n"
	"dsaiod's documentation has a longer one, mix.fio.\n"
	"    [checkpoint]\n"
	"    rw=write\n"
	"    bs=4M\n"
	"    [inference]\n"
	"    rate_iops=2000\n"
	"\n"
	"    rw=read|write|randread|randwrite|rw|randrw (read)    rwmixread=PERCENT of rw, randrw (50)\n"
	"    bs=SIZE of an op (4K)        iodepth=N ops under way (1)   size=SIZE of its file (64M)\n"
	"    rate=SIZE a second           rate_iops=N ops a second      runtime=SECONDS (5)\n"
	"    class=normal|demand|background                             numjobs=N such clients (1)\n"
	"\n"
	"With a rate, a latency counts from when the op was due.  A percentile of too few ops is\n"
	"printed as -.\n"
	"\n"
	"    --dir DIR      where the test files lie: they have no names, and are gone at the end\n"
	"    --json         all numbers, in bytes and nanoseconds, for bench report, too\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted\n";

static struct mix {
	struct mix_job job;
	struct bench_files *files;
	struct progress_points progress;
	struct mix_result {
		uint64_t ops, bytes, nsec, percentiles[3]; /* of too few ops: 0 */
	} results[MIX_CLIENTS_MAX][2];			   /* alone, together */
} mix;

static const struct {
	double share;
	const char *key;
} percentiles[] = { { 0.5, "p50_nsec" }, { 0.99, "p99_nsec" }, { 0.999, "p999_nsec" } };
#define N_PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

/* ---- in a process ---- */

/* Its results, in its shared memory. */
struct mix_record {
	uint64_t nsec;
	struct bench_histogram histogram;
};

struct mix_call {
	unsigned first, n; /* the clients that are measured */
};

struct mix_run {
	struct bench_process *process;
	const struct mix_client *client;
	struct mix_record *record;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	unsigned short random[3];	  /* of nrand48() */
	uint64_t next;			  /* the next op's place in order */
	uint64_t due_nsec[MIX_DEPTH_MAX]; /* of the op of each place in the buffer; 0: free */
	unsigned n_open;
};

static int start_one(struct mix_run *run, uint64_t due_nsec)
{
	const struct mix_client *client = run->client;
	const uint64_t n_places = client->size / client->block_size;
	const uint64_t place = mix_is_random(client) ? (uint64_t)nrand48(run->random) : run->next++;
	struct dsaio_io io = { .opcode = DSAIO_WRITE, .file = run->file };
	unsigned i = 0;

	while (run->due_nsec[i])
		i++;
	run->due_nsec[i] = due_nsec;
	run->n_open++;
	if (nrand48(run->random) % 100 < client->read_percent)
		io.opcode = DSAIO_READ;
	io.buf = (char *)run->process->buffer + i * client->block_size;
	io.len = client->block_size;
	io.off = place % n_places * client->block_size;
	io.user_data = &run->due_nsec[i];
	if (dsaio_submit(run->handle, &io, sizeof(io), 1, 0, NULL) < 0)
		return bench_process_fail(run->process, "%s: %s", client->name, dsaio_error());
	return 0;
}

/* Records ops that have ended, and waits for one, at most until that time; UINT64_MAX: without end. */
static int reap(struct mix_run *run, uint64_t until_nsec)
{
	const uint64_t began_nsec = clock_nsec();
	const uint64_t left = until_nsec > began_nsec ? (until_nsec - began_nsec) / 1000 : 0;
	struct dsaio_completion ended[ENDED_MAX];
	const int n = dsaio_handle_reap(run->handle, ended, sizeof(ended[0]), 1, ENDED_MAX,
					until_nsec == UINT64_MAX ? -1 : (int64_t)left);
	const uint64_t now = clock_nsec();

	if (n < 0 && n != -ETIMEDOUT)
		return bench_process_fail(run->process, "%s", dsaio_error());
	for (int i = 0; i < n; i++) {
		uint64_t *due_nsec = ended[i].user_data;

		if (ended[i].result != (int64_t)run->client->block_size) {
			(void)bench_process_fail(run->process, "%s: %s", run->client->name,
						 ended[i].op ? dsaio_op_error(ended[i].op)
							     : "an op was short");
			dsaio_op_free(ended[i].op);
			return -EIO; /* closing the handle waits for the others */
		}
		bench_histogram_record(&run->record->histogram, now - *due_nsec);
		*due_nsec = 0;
		run->n_open--;
	}
	return 0;
}

static int measure(struct mix_run *run)
{
	const uint64_t began = clock_nsec(), end = began + run->client->runtime_nsec;
	const uint64_t interval = mix_interval_nsec(run->client);
	uint64_t due = began, now = began;
	int r = 0;

	while (r == 0 && (run->n_open || now < end)) {
		const bool may_begin = now < end && run->n_open < run->client->depth;
		const uint64_t until = due < end ? due : end;

		if (may_begin && due <= now) {
			r = start_one(run, interval ? due : now);
			due += interval;
		} else if (run->n_open) {
			r = reap(run, may_begin ? until : UINT64_MAX);
		} else {
			const struct timespec ts = { .tv_sec = (time_t)(until / 1000000000),
						     .tv_nsec = (long)(until % 1000000000) };

			(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		}
		now = clock_nsec();
	}
	run->record->nsec = now - began;
	return r;
}

static int prepare(struct mix_run *run, int fd)
{
	struct bench_process *process = run->process;
	const struct mix_client *client = run->client;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	const bool is_new = !process->buffer;

	options.io_class = client->io_class;
	process->buffer_bytes = client->block_size * client->depth;
	if ((is_new &&
	     dsaio_alloc(process->client, process->buffer_bytes, NULL, &process->buffer) < 0) ||
	    dsaio_handle_open(process->client, &options, &run->handle) < 0 ||
	    dsaio_file_from_fd(process->client, fd, &run->file) < 0)
		return bench_process_fail(process, "%s: %s", client->name, dsaio_error());
	if (is_new && bench_process_fill(process, process->buffer_bytes) < 0)
		return -EIO;
	/* The first op opens the channel and starts the lane, so it is not measured. */
	if (dsaio_pread(run->handle, run->file, process->buffer, client->block_size, 0) < 0)
		return bench_process_fail(process, "%s: %s", client->name, dsaio_error());
	return 0;
}

static int mix_in_process(struct bench_process *process, const void *arg)
{
	const struct mix_call *call = arg;
	struct mix_run run = { .process = process,
			       .client = &mix.job.clients[process->id],
			       .record = process->shared,
			       .random = { (unsigned short)process->id } };
	int r;

	if (process->id - call->first >= call->n)
		return 0;
	r = prepare(&run, bench_files_fd(mix.files, process->id, BENCH_WRITE));
	if (r == 0 && call->n > 1)
		r = bench_process_barrier(process);
	if (r == 0)
		r = measure(&run);
	handle_closep(&run.handle);
	dsaio_file_close(run.file);
	return r;
}

/* ---- the run ---- */

static void tick(void *data)
{
	progress_points_tick(data);
}

/* Measures these clients at the same time. */
static int measure_once(struct bench_crew *crew, struct mix_call call, bool is_together, char *text)
{
	int r;

	progress_points_begin(&mix.progress);
	r = bench_crew_call(crew, mix_in_process, &call, sizeof(call), text);
	for (unsigned i = call.first; r == 0 && i < call.first + call.n; i++) {
		const struct mix_record *record = bench_crew_shared(crew, i);
		const struct bench_histogram *histogram = &record->histogram;
		struct mix_result *result = &mix.results[i][is_together];

		result->ops = histogram->n;
		result->bytes = histogram->n * mix.job.clients[i].block_size;
		result->nsec = record->nsec;
		for (size_t k = 0; k < N_PERCENTILES; k++)
			if (histogram->n >= bench_histogram_needed(percentiles[k].share))
				result->percentiles[k] = bench_histogram_quantile(
					histogram, percentiles[k].share);
	}
	progress_points_end(&mix.progress, mix.job.clients[call.first].name);
	return r;
}

static int measure_all(struct ctl *ctl, const char *folder)
{
	const char *folders[MIX_CLIENTS_MAX];
	const struct bench_crew_options options = { .socket_path = ctl->socket_path,
						    .folders = folders,
						    .n_processes = mix.job.n,
						    .shared_bytes = sizeof(struct mix_record),
						    .tick = tick,
						    .tick_data = &mix.progress };
	struct bench_crew *crew = NULL;
	char text[BENCH_TEXT_BYTES];
	int r;

	for (unsigned i = 0; i < mix.job.n; i++)
		folders[i] = folder;
	progress_points_start(&mix.progress, "mix", 0, mix.job.n + 1, false);
	r = bench_crew_start(&options, &crew, text);
	for (unsigned i = 0; r == 0 && i < mix.job.n; i++)
		r = measure_once(crew, (struct mix_call){ i, 1 }, false, text);
	if (r == 0)
		r = measure_once(crew, (struct mix_call){ 0, mix.job.n }, true, text);
	progress_points_stop(&mix.progress);
	bench_crew_free(crew);
	return bench_crew_status(ctl, r, text);
}

/* ---- the report ---- */

static double per_sec(uint64_t n, const struct mix_result *result)
{
	return result->nsec ? (double)n * 1e9 / (double)result->nsec : 0;
}

static int print_table(struct ctl *ctl)
{
	static const struct table_column columns[] = {
		{ "CLIENT", false }, { "RUN", false }, { "BANDWIDTH", true }, { "IOPS", true },
		{ "P50", true },     { "P99", true },  { "P99.9", true },
	};
	_cleanup_(table_deinit) struct table table;
	char text[UNITS_TEXT_BYTES];
	int r;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (unsigned i = 0; i < 2 * mix.job.n; i++) {
		const struct mix_result *result = &mix.results[i / 2][i % 2];

		table_add(&table, "%s", i % 2 ? "" : mix.job.clients[i / 2].name);
		table_add(&table, "%s", i % 2 ? "together" : "alone");
		table_add(&table, "%s", units_format_rate(text, result->bytes, result->nsec));
		table_add(&table, "%s",
			  units_format_count(text, (uint64_t)per_sec(result->ops, result)));
		for (size_t k = 0; k < N_PERCENTILES; k++)
			table_add(&table, "%s",
				  result->percentiles[k]
					  ? units_format_nsec(text, result->percentiles[k])
					  : "-");
	}
	r = table_print(&table, stdout);
	return r == -ENOMEM ? ctl_fail(ctl, "out of memory") : ctl_flush(ctl);
}

static struct json_object *result_json(const struct mix_result *result)
{
	struct json_object *object = json_object_new_object();

	json_add_number(object, "ops", result->ops);
	json_add_number(object, "bytes", result->bytes);
	json_add_number(object, "took_nsec", result->nsec);
	json_add_float(object, "bytes_per_sec", per_sec(result->bytes, result));
	json_add_float(object, "iops", per_sec(result->ops, result));
	for (size_t k = 0; k < N_PERCENTILES; k++)
		json_object_object_add(object, percentiles[k].key,
				       result->percentiles[k]
					       ? json_object_new_uint64(result->percentiles[k])
					       : NULL);
	return object;
}

static struct json_object *mix_json(void)
{
	struct json_object *object = json_object_new_object(), *array = json_object_new_array();

	for (unsigned i = 0; i < mix.job.n; i++) {
		const struct mix_client *client = &mix.job.clients[i];
		struct json_object *one = json_object_new_object();

		json_add_text(one, "name", client->name);
		json_add_text(one, "rw", mix_rw_names[client->rw]);
		json_add_text(one, "class", mix_class_names[client->io_class]);
		json_add_number(one, "bs", client->block_size);
		json_add_number(one, "iodepth", client->depth);
		json_object_object_add(one, "alone", result_json(&mix.results[i][0]));
		json_object_object_add(one, "together", result_json(&mix.results[i][1]));
		json_object_array_add(array, one);
	}
	json_add_text(object, "format", BENCH_FORMAT);
	json_add_text(object, "kind", "mix");
	json_object_object_add(object, "clients", array);
	return object;
}

/* ---- the command ---- */

static int read_job(struct ctl *ctl)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char text[1200];

	if (ctl->n_args != 1 || !dir)
		return ctl_usage(ctl, "name one job file and a directory: dsaioctl bench mix JOB "
				      "--dir DIR: see dsaioctl bench mix --help");
	file = fopen(ctl->args[0], "re");
	if (!file)
		return ctl_fail(ctl, "%s: %s", ctl->args[0], strerror(errno));
	if (mix_job_read(file, &mix.job, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "%s: %s: see dsaioctl bench mix --help", ctl->args[0], text);
	return CTL_OK;
}

static int make_files(struct ctl *ctl, const struct bench_place *place)
{
	/* Asks for a daemon first: else the files are made in vain. */
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(freep) struct bench_place *places = NULL;
	const int r = ctl_connect(ctl, &dir, 1, &client);

	if (r != CTL_OK)
		return r;
	if (stop_catch(SA_RESTART) < 0)
		return ctl_fail(ctl, "signals: %s", strerror(errno));
	places = calloc(mix.job.n, sizeof(*places));
	if (!places)
		return ctl_fail(ctl, "out of memory");
	for (unsigned i = 0; i < mix.job.n; i++) {
		places[i] = *place;
		places[i].file_bytes = mix.job.clients[i].size;
	}
	return bench_files_make(ctl, places, mix.job.n, false, true, 0,
				&mix.files); /* closed at the process's end */
}

static int mix_run(struct ctl *ctl)
{
	struct bench_place place;
	char text[512];
	int r = read_job(ctl);

	if (r != CTL_OK)
		return r;
	if (bench_place_find(dir, &place, text, sizeof(text)) < 0)
		return ctl_fail(ctl, "%s", text);
	r = make_files(ctl, &place);
	if (r == CTL_OK)
		r = measure_all(ctl, place.folder);
	if (r != CTL_OK)
		return r;
	return ctl->is_json ? ctl_print_json(ctl, mix_json()) : print_table(ctl);
}

const struct command command_bench_mix = {
	"bench mix", mix_run,		"clients of different kinds, alone and together",
	help,	     FLAG_TABLE(flags), NULL
};
