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

#define TOGETHER (-1) /* in the place of the client that is measured alone */
#define ENDED_MAX 64

static const char *dir;

static const struct flag flags[] = { { "dir", FLAG_STRING, &dir, 0, 0 } };

static const char help[] =
	"dsaioctl bench mix - clients of different kinds, each alone and all together\n"
	"\n"
	"    dsaioctl bench mix job.fio --dir /nvme\n"
	"    dsaioctl bench mix job.fio --dir . --private --json | jq .fairness\n"
	"    dsaioctl bench mix job.fio --dir /nvme --json > mix.json\n"
	"    dsaioctl bench report mix.json -o mix.html           the same as a picture\n"
	"\n"
	"The job file has a section for each client, in fio's words:\n"
	"    [global]        of the sections behind it\n"
	"    runtime=10\n"
	"    [checkpoint]    a client that writes as fast as it can\n"
	"    rw=write\n"
	"    bs=4M\n"
	"    iodepth=8\n"
	"    class=background\n"
	"    [inference]     three that read 4 KiB, 2000 times a second each\n"
	"    rw=randread\n"
	"    rate_iops=2000\n"
	"    numjobs=3\n"
	"\n"
	"    rw=read|write|randread|randwrite|rw|randrw (read)    rwmixread=PERCENT of rw, randrw (50)\n"
	"    bs=SIZE of an op (4K)        iodepth=N ops under way (1)   size=SIZE of its file (64M)\n"
	"    rate=SIZE a second           rate_iops=N ops a second      runtime=TIME: 5s, 300ms (5s)\n"
	"    class=normal|demand|background                             weight=1..16 (1)\n"
	"    numjobs=N such clients (1)\n"
	"\n"
	"KEPT is a client's bandwidth together, as a share of that alone.  The fairness is Jain's\n"
	"index of these shares: 1 if all keep the same, 1/N if one of N keeps all.  With a rate, a\n"
	"latency counts from when the op was due.  A percentile that needs more ops than there were\n"
	"is printed as -.\n"
	"\n"
	"    --dir DIR      where the test files lie: they have no names, and are gone at the end\n"
	"    --json         all numbers, in bytes and nanoseconds, for bench report, too\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted\n";

/* ---- in a process ---- */

/* Its results, in its shared memory. */
struct mix_record {
	uint64_t bytes, nsec;
	struct bench_histogram histogram;
};

struct mix_call {
	const struct mix_client *clients; /* as before the fork */
	int alone;			  /* the client that is measured, or TOGETHER */
};

struct flight {
	uint64_t due_nsec;
	bool is_open;
};

struct mix_run {
	struct bench_process *process;
	const struct mix_client *client;
	struct mix_record *record;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint64_t random, next; /* the next op's place in order */
	struct flight flights[MIX_DEPTH_MAX];
	unsigned n_open;
};

static uint64_t random_next(struct mix_run *run)
{
	run->random ^= run->random << 13; /* xorshift64 */
	run->random ^= run->random >> 7;
	run->random ^= run->random << 17;
	return run->random;
}

static int start_one(struct mix_run *run, uint64_t due_nsec)
{
	const struct mix_client *client = run->client;
	const uint64_t n_places = client->size / client->block_size;
	const uint64_t place = mix_is_random(client) ? random_next(run) : run->next++;
	const bool is_read = random_next(run) % 100 < mix_read_percent(client);
	struct flight *flight = run->flights;
	struct dsaio_io io = { .opcode = is_read ? DSAIO_READ : DSAIO_WRITE, .file = run->file };

	while (flight->is_open)
		flight++;
	*flight = (struct flight){ due_nsec, true };
	io.buf = (char *)run->process->buffer +
		 (size_t)(flight - run->flights) * client->block_size;
	io.len = client->block_size;
	io.off = place % n_places * client->block_size;
	io.user_data = flight;
	run->n_open++;
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
		struct flight *flight = ended[i].user_data;

		if (ended[i].result != (int64_t)run->client->block_size) {
			(void)bench_process_fail(run->process, "%s: %s", run->client->name,
						 ended[i].op ? dsaio_op_error(ended[i].op)
							     : "an op was short");
			dsaio_op_free(ended[i].op);
			return -EIO; /* closing the handle waits for the others */
		}
		flight->is_open = false;
		run->n_open--;
		run->record->bytes += run->client->block_size;
		bench_histogram_record(&run->record->histogram, now - flight->due_nsec);
	}
	return 0;
}

/* The first op opens the channel and starts the lane, so it is not measured. */
static int warm_up(struct mix_run *run)
{
	int r = start_one(run, clock_nsec());

	while (r == 0 && run->n_open)
		r = reap(run, UINT64_MAX);
	memset(run->record, 0, sizeof(*run->record));
	return r;
}

static int measure(struct mix_run *run)
{
	const uint64_t began = clock_nsec(), end = began + run->client->runtime_nsec;
	const uint64_t interval = mix_interval_nsec(run->client);
	uint64_t due = began, now = began;
	int r = 0;

	while (r == 0 && (run->n_open || now < end)) {
		const bool may_begin = now < end && run->n_open < run->client->depth;

		if (may_begin && due <= now) {
			r = start_one(run, interval ? due : now);
			due += interval;
		} else if (run->n_open) {
			r = reap(run, !may_begin ? UINT64_MAX : due < end ? due : end);
		} else {
			const uint64_t until = due < end ? due : end;
			const struct timespec ts = { .tv_sec = (time_t)(until / 1000000000),
						     .tv_nsec = (long)(until % 1000000000) };

			(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		}
		now = clock_nsec();
	}
	run->record->nsec = now - began;
	return r;
}

static int prepare(struct mix_run *run)
{
	struct bench_process *process = run->process;
	const struct mix_client *client = run->client;
	const size_t bytes = client->block_size * client->depth;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	int r = 0;

	options.io_class = (uint32_t)client->io_class;
	options.weight = (uint32_t)client->weight;
	if (!process->buffer) {
		if (dsaio_alloc(process->client, bytes, NULL, &process->buffer) < 0)
			return bench_process_fail(process, "%s: %s", client->name, dsaio_error());
		process->buffer_bytes = bytes;
		r = bench_process_fill(process, bytes);
	}
	if (r == 0 && (dsaio_handle_open(process->client, &options, &run->handle) < 0 ||
		       dsaio_file_from_fd(process->client,
					  bench_files_fd(process->files, process->id, BENCH_READ),
					  &run->file) < 0))
		r = bench_process_fail(process, "%s: %s", client->name, dsaio_error());
	return r == 0 ? warm_up(run) : r;
}

static int mix_in_process(struct bench_process *process, const void *arg)
{
	const struct mix_call *call = arg;
	struct mix_run run = { .process = process,
			       .client = &call->clients[process->id],
			       .record = process->shared,
			       .random = (process->id + 1) * UINT64_C(0x9e3779b97f4a7c15) };
	int r;

	if (call->alone != TOGETHER && call->alone != (int)process->id)
		return 0;
	r = prepare(&run);
	if (r == 0 && call->alone == TOGETHER)
		r = bench_process_barrier(process);
	if (r == 0)
		r = measure(&run);
	handle_closep(&run.handle);
	dsaio_file_close(run.file);
	return r;
}

/* ---- the run ---- */

struct mix_result {
	uint64_t ops, bytes, nsec, p50, p99, p999; /* a percentile of too few ops: 0 */
};

struct mix {
	struct ctl *ctl;
	struct mix_job job;
	struct bench_crew *crew;
	struct progress_points progress;
	struct mix_result alone[MIX_CLIENTS_MAX], together[MIX_CLIENTS_MAX];
};

static double per_sec(uint64_t n, const struct mix_result *result)
{
	return result->nsec ? (double)n * 1e9 / (double)result->nsec : 0;
}

static double kept(const struct mix *mix, unsigned i)
{
	const double alone = per_sec(mix->alone[i].bytes, &mix->alone[i]);

	return alone > 0 ? per_sec(mix->together[i].bytes, &mix->together[i]) / alone : 0;
}

/* Jain's index of the shares. */
static double fairness(const struct mix *mix)
{
	double sum = 0, squares = 0;

	for (unsigned i = 0; i < mix->job.n; i++) {
		sum += kept(mix, i);
		squares += kept(mix, i) * kept(mix, i);
	}
	return squares > 0 ? sum * sum / (mix->job.n * squares) : 0;
}

static uint64_t percentile(const struct bench_histogram *histogram, double share)
{
	return histogram->n < bench_histogram_needed(share)
		       ? 0
		       : bench_histogram_quantile(histogram, share);
}

static struct mix_result result_of(const struct mix_record *record)
{
	return (struct mix_result){ .ops = record->histogram.n,
				    .bytes = record->bytes,
				    .nsec = record->nsec,
				    .p50 = percentile(&record->histogram, 0.5),
				    .p99 = percentile(&record->histogram, 0.99),
				    .p999 = percentile(&record->histogram, 0.999) };
}

static void tick(void *data)
{
	struct mix *mix = data;

	progress_points_tick(&mix->progress);
}

static void on_file_bytes(void *data, uint64_t done_bytes)
{
	progress_update(data, done_bytes);
}

/* Measures that client, or all of them. */
static int measure_once(struct mix *mix, int alone)
{
	const struct mix_call call = { mix->job.clients, alone };
	const unsigned first = alone == TOGETHER ? 0 : (unsigned)alone;
	const unsigned end = alone == TOGETHER ? mix->job.n : first + 1;
	struct mix_result *results = alone == TOGETHER ? mix->together : mix->alone;
	char text[BENCH_TEXT_BYTES], speed[UNITS_TEXT_BYTES];
	uint64_t left = 0, longest = 0;
	int r;

	for (unsigned i = 0; i < mix->job.n; i++) {
		const uint64_t nsec = mix->job.clients[i].runtime_nsec;

		left += alone != TOGETHER && i >= first ? nsec : 0;
		longest = nsec > longest ? nsec : longest;
	}
	progress_points_begin(&mix->progress, 0);
	progress_points_estimate(&mix->progress, alone == TOGETHER ? 1 : mix->job.n - first + 1,
				 left + longest);
	r = bench_crew_status(mix->ctl,
			      bench_crew_call(mix->crew, mix_in_process, &call, sizeof(call), text),
			      text);
	for (unsigned i = first; r == CTL_OK && i < end; i++)
		results[i] = result_of(bench_crew_shared(mix->crew, i));
	if (r != CTL_OK)
		return r;
	(void)snprintf(text, sizeof(text), "%s %s",
		       alone == TOGETHER ? "together" : mix->job.clients[first].name,
		       units_format_rate(speed, results[first].bytes, results[first].nsec));
	progress_points_end(&mix->progress, text);
	return CTL_OK;
}

static int measure_all(struct mix *mix)
{
	const size_t n_left[PROGRESS_KINDS] = { mix->job.n + 1, 0 };
	int r = CTL_OK;

	progress_points_start(&mix->progress, "mix", 0, n_left);
	for (int i = 0; r == CTL_OK && i < (int)mix->job.n; i++)
		r = measure_once(mix, i);
	if (r == CTL_OK)
		r = measure_once(mix, TOGETHER);
	progress_points_stop(&mix->progress);
	return r;
}

/* ---- the report ---- */

static void add_time(struct table *table, uint64_t nsec)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", nsec ? units_format_nsec(text, nsec) : "-");
}

static int print_table(const struct mix *mix)
{
	static const struct table_column columns[] = {
		{ "CLIENT", false }, { "RUN", false }, { "BANDWIDTH", true }, { "IOPS", true },
		{ "P50", true },     { "P99", true },  { "P99.9", true },     { "KEPT", true },
	};
	_cleanup_(table_deinit) struct table table;
	char text[UNITS_TEXT_BYTES];
	int r;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (unsigned i = 0; i < 2 * mix->job.n; i++) {
		const struct mix_result *result = i % 2 ? &mix->together[i / 2]
							: &mix->alone[i / 2];

		table_add(&table, "%s", i % 2 ? "" : mix->job.clients[i / 2].name);
		table_add(&table, "%s", i % 2 ? "together" : "alone");
		table_add(&table, "%s", units_format_rate(text, result->bytes, result->nsec));
		table_add(&table, "%s",
			  units_format_count(text, (uint64_t)per_sec(result->ops, result)));
		add_time(&table, result->p50);
		add_time(&table, result->p99);
		add_time(&table, result->p999);
		table_add(&table, "%.2f", i % 2 ? kept(mix, i / 2) : 1.0);
	}
	r = table_print(&table, stdout);
	(void)printf("fairness (Jain's index of KEPT): %.3f\n", fairness(mix));
	return r == -ENOMEM ? ctl_fail(mix->ctl, "out of memory") : ctl_flush(mix->ctl);
}

static struct json_object *result_json(const struct mix_result *result)
{
	struct json_object *object = json_object_new_object();

	json_add_number(object, "ops", result->ops);
	json_add_number(object, "bytes", result->bytes);
	json_add_number(object, "took_nsec", result->nsec);
	json_add_float(object, "bytes_per_sec", per_sec(result->bytes, result));
	json_add_float(object, "iops", per_sec(result->ops, result));
	json_object_object_add(object, "p50_nsec",
			       result->p50 ? json_object_new_uint64(result->p50) : NULL);
	json_object_object_add(object, "p99_nsec",
			       result->p99 ? json_object_new_uint64(result->p99) : NULL);
	json_object_object_add(object, "p999_nsec",
			       result->p999 ? json_object_new_uint64(result->p999) : NULL);
	return object;
}

static struct json_object *mix_json(const struct mix *mix)
{
	struct json_object *object = json_object_new_object(), *array = json_object_new_array();

	for (unsigned i = 0; i < mix->job.n; i++) {
		const struct mix_client *client = &mix->job.clients[i];
		struct json_object *one = json_object_new_object();

		json_add_text(one, "name", client->name);
		json_add_text(one, "rw", mix_rw_names[client->rw]);
		json_add_text(one, "class", mix_class_names[client->io_class]);
		json_add_number(one, "weight", client->weight);
		json_add_number(one, "bs", client->block_size);
		json_add_number(one, "iodepth", client->depth);
		json_object_object_add(one, "alone", result_json(&mix->alone[i]));
		json_object_object_add(one, "together", result_json(&mix->together[i]));
		json_add_float(one, "kept", kept(mix, i));
		json_object_array_add(array, one);
	}
	json_add_text(object, "format", BENCH_FORMAT);
	json_add_text(object, "kind", "mix");
	json_object_object_add(object, "clients", array);
	json_add_float(object, "fairness", fairness(mix));
	return object;
}

/* ---- the command ---- */

static int read_job(struct ctl *ctl, struct mix_job *job)
{
	char text[1024];
	FILE *file;
	int r;

	if (ctl->n_args != 1)
		return ctl_usage(ctl, "name one job file: dsaioctl bench mix JOB --dir DIR: see "
				      "dsaioctl bench mix --help");
	if (!dir)
		return ctl_usage(ctl, "where to? give --dir DIR");
	file = fopen(ctl->args[0], "re");
	if (!file)
		return ctl_fail(ctl, "%s: %s", ctl->args[0], strerror(errno));
	r = mix_job_read(file, job, text, sizeof(text));
	(void)fclose(file); /* it was only read */
	return r < 0 ? ctl_usage(ctl, "%s: %s", ctl->args[0], text) : CTL_OK;
}

/* A place for each client, in the directory. */
static int find_places(const struct mix *mix, struct bench_place *places)
{
	char text[512];

	if (bench_place_find(dir, &places[0], text, sizeof(text)) < 0)
		return ctl_fail(mix->ctl, "%s", text);
	for (unsigned i = 0; i < mix->job.n; i++) {
		places[i] = places[0];
		places[i].file_bytes = mix->job.clients[i].size;
	}
	return CTL_OK;
}

/* Asks for a daemon first: else the files are made in vain. */
static int look_for_daemon(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;

	return ctl_connect(ctl, &dir, 1, &client);
}

static int mix_start(struct mix *mix, const struct bench_place *places, const char **folders,
		     struct bench_files **ret_files)
{
	struct bench_crew_options options = { .folders = folders,
					      .n_processes = mix->job.n,
					      .shared_bytes = sizeof(struct mix_record),
					      .tick = tick,
					      .tick_data = mix };
	char text[BENCH_TEXT_BYTES];
	struct progress progress;
	uint64_t total = 0;
	int r;

	for (unsigned i = 0; i < mix->job.n; i++) {
		folders[i] = places[i].folder;
		total += places[i].file_bytes;
	}
	progress_start(&progress, "writing the test files", total);
	r = bench_files_make(mix->ctl, places, mix->job.n, true, false, 0, false, on_file_bytes,
			     &progress, ret_files);
	progress_stop(&progress);
	if (r != CTL_OK)
		return r;
	options.files = *ret_files;
	options.socket_path = mix->ctl->socket_path;
	return bench_crew_status(mix->ctl, bench_crew_start(&options, &mix->crew, text), text);
}

static int mix_run(struct ctl *ctl)
{
	_cleanup_(freep) struct mix *mix = calloc(1, sizeof(*mix));
	_cleanup_(freep) struct bench_place *places = NULL;
	_cleanup_(freep) const char **folders = NULL;
	struct bench_files *files = NULL;
	int r;

	if (!mix)
		return ctl_fail(ctl, "out of memory");
	mix->ctl = ctl;
	r = read_job(ctl, &mix->job);
	if (r != CTL_OK)
		return r;
	places = calloc(MIX_CLIENTS_MAX, sizeof(*places));
	folders = calloc(MIX_CLIENTS_MAX, sizeof(*folders));
	r = places && folders ? find_places(mix, places) : ctl_fail(ctl, "out of memory");
	if (r == CTL_OK)
		r = look_for_daemon(ctl);
	if (r == CTL_OK && stop_catch(SA_RESTART) < 0)
		r = ctl_fail(ctl, "signals: %s", strerror(errno));
	if (r == CTL_OK)
		r = mix_start(mix, places, folders, &files);
	if (r == CTL_OK)
		r = measure_all(mix);
	bench_crew_free(mix->crew);
	bench_files_free(files);
	if (r != CTL_OK)
		return r;
	return ctl->is_json ? ctl_print_json(ctl, mix_json(mix)) : print_table(mix);
}

const struct command command_bench_mix = {
	"bench mix", mix_run,		"clients of different kinds, alone and together",
	help,	     FLAG_TABLE(flags), NULL
};
