/*
 * dsaioctl bench latency: how long single transfers take, with the flags of DS-AIO-Benchmark.
 *
 * A forked client does all transfers of a size and direction in one call and records them in shared
 * memory.  It allocates and prints nothing meanwhile.  Closed loop: the next transfer begins when the
 * last has ended.  Open loop (--rate): each transfer is due at its own time and its latency counts
 * from then, so a stall shows in all transfers that wait for it.
 *
 * latency.json has beside the rows (one for each size and direction, without repetitions)
 *     "latency": [{"op", "size", "n", "rate", "rate_achieved", "mean_nsec", "sd_nsec", "mean_low_nsec",
 *         "mean_high_nsec", "min_nsec", "p50_nsec", "p90_nsec", "p99_nsec", "p999_nsec", "max_nsec",
 *         (a percentile is null of too few transfers), "histogram": [{"nsec", "count"}, ...],
 *         "series": [[seconds, mean nsec of a slice], ...]}]
 */
#include "client/ctl/bench/bench.h"
#include "client/ctl/bench/latency_record.h"
#include "client/ctl/bench/random.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIZES_MAX 64u /* a guess: more are not readable */
#define OPEN_MAX 64u  /* ops under way at a time in the open loop */
/*
 * Size of the file and of the buffer.  Each transfer uses a place that no other transfer uses, so
 * they neither wait for each other nor move the same bytes again and again.
 */
#define AREA_BYTES (UINT64_C(64) << 20)
#define PLACES_MIN 4u
#define RATE_SHARE_MIN 0.95 /* of --rate: below it was missed; a guess */

static char *default_sizes[] = { (char *)"2M", (char *)"8M", (char *)"32M" };

static struct bench_options options = { .loops = 1 };
static struct {
	const char *path;
	struct flag_list sizes;
	uint32_t iterations, threads, queue_depth, rate;
	uint64_t block_size;
} chosen = { .iterations = 200, .threads = 16, .queue_depth = 64, .block_size = 2u << 20 };

static const struct flag flags[] = {
	FLAG_NAMES("dir", "nvme_path", FLAG_STRING, &chosen.path, 0, 0),
	{ "sizes", FLAG_LIST, &chosen.sizes, 0, 0 },
	{ "iterations", FLAG_COUNT, &chosen.iterations, 1, 100000000 },
	FLAG_NAMES("parallel", "threads", FLAG_COUNT, &chosen.threads, 1, PROFILE_PARALLELISM_MAX),
	{ "queue_depth", FLAG_COUNT, &chosen.queue_depth, 1, PROFILE_QUEUE_DEPTH_MAX },
	{ "block_size", FLAG_SIZE, &chosen.block_size, PROFILE_BLOCK_SIZE_MIN,
	  PROFILE_BLOCK_SIZE_MAX },
	{ "rate", FLAG_COUNT, &chosen.rate, 1, 10000000 },
	{ "log_dir", FLAG_STRING, &options.log_dir, 0, 0 },
	{ "exclusive", FLAG_BOOL, &options.exclusive, 0, 0 },
	{ "keep", FLAG_BOOL, &options.keep, 0, 0 },
	BENCH_GPU_FLAGS(options.gpu),
};

static const char help[] =
	"dsaioctl bench latency - how long single transfers take\n"
	"\n"
	"    dsaioctl bench latency --dir /nvme\n"
	"    dsaioctl bench latency --dir /nvme --sizes 4K 64K 1M --iterations 10000\n"
	"    dsaioctl bench latency --dir /nvme --sizes 4K --rate 5000 --iterations 50000\n"
	"    dsaioctl bench latency --dir . --private --log_dir latency --json\n"
	"\n"
	"    --dir, --nvme-path DIR where the test file lies\n"
	"    --sizes N ...          bytes of a transfer (2M 8M 32M)\n"
	"    --iterations N         transfers of each size, writes and then reads (200)\n"
	"    --parallel, --threads N\n"
	"                           parts of a transfer that run side by side (16)\n"
	"    --queue-depth N        requests in flight (64)\n"
	"    --block-size N         bytes of one request to the device (2M)\n"
	"    --rate N               begin so many a second, whether or not the last one has ended\n"
	"    --log_dir DIR          for latency.json (none)\n"
	"    --exclusive            refuse to begin while others use the store or its disk\n" BENCH_GPU_HELP
	"    --keep                 leave the test file there\n"
	"    --json                 latency.json on standard output\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n"
	"Without --rate each transfer begins when the last has ended, so a stall is one long latency,\n"
	"and those that would have begun meanwhile are left out (coordinated omission).  With it they\n"
	"count, from the time when each should have begun; a rate that was missed is reported.\n"
	"A percentile that needs more transfers than there were is printed as -.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted (what was measured until then is printed)\n";

/* ---- in the process ---- */

struct latency_job {
	enum bench_op op;
	struct profile profile;
	uint64_t size, interval_nsec; /* 0: closed loop */
	uint32_t iterations;
};

/* A transfer of the open loop. */
struct flight {
	struct dsaio_op *op; /* NULL: none */
	uint64_t due_nsec, place;
};

static void record_one(struct latency_record *record, const struct latency_job *job,
		       uint64_t begun_nsec, uint64_t due_nsec)
{
	const uint64_t now = clock_nsec();

	latency_record_add(record, job->size, job->iterations, due_nsec - begun_nsec,
			   now - due_nsec);
	record->took_nsec = now - begun_nsec;
}

/* Chooses a random free place of the area for the next transfer. */
static uint64_t choose_place(const struct bench_process *process, const struct latency_job *job,
			     uint64_t *random, const struct flight *flights, unsigned n)
{
	const uint64_t n_places = process->buffer_bytes / job->size;

	for (;;) {
		const uint64_t place = random_next(random) % n_places;
		unsigned i = 0;

		while (i < n && (!flights[i].op || flights[i].place != place))
			i++;
		if (i == n)
			return place;
	}
}

static int start_one(struct bench_process *process, struct dsaio_handle *handle,
		     struct dsaio_file *file, const struct latency_job *job, struct flight *flight)
{
	const uint64_t off = flight->place * job->size;
	const struct dsaio_io io = { .opcode = job->op == BENCH_READ ? DSAIO_READ : DSAIO_WRITE,
				     .file = file,
				     .buf = (char *)process->buffer + off,
				     .len = job->size,
				     .off = off,
				     .user_data = flight };
	int r = dsaio_submit(handle, &io, sizeof(struct dsaio_io), 1, 0, &flight->op);

	return r < 0 ? bench_process_fail(process, "%s", dsaio_error()) : 0;
}

static int finish_one(struct bench_process *process, const struct latency_job *job,
		      struct dsaio_op *op)
{
	int64_t done;
	int r = 0;

	if (dsaio_op_wait(op, -1, &done) < 0)
		r = bench_process_fail(process, "%s", dsaio_error());
	else if (done < 0)
		r = bench_process_fail(process, "%s", dsaio_op_error(op));
	else if ((uint64_t)done != job->size)
		r = bench_process_fail(process, "a transfer of %s ended after %" PRId64 " bytes",
				       SIZE_TEXT(job->size), done);
	if (r == 0)
		bench_gpu_note(process, op);
	dsaio_op_free(op);
	return r;
}

static int closed_loop(struct bench_process *process, struct dsaio_handle *handle,
		       struct dsaio_file *file, const struct latency_job *job,
		       struct latency_record *record)
{
	const uint64_t begun = clock_nsec();
	uint64_t random = begun;

	for (uint32_t i = 0; i < job->iterations; i++) {
		struct flight flight = { .place = choose_place(process, job, &random, NULL, 0) };
		const uint64_t start = clock_nsec();
		int r = start_one(process, handle, file, job, &flight);

		if (r == 0)
			r = finish_one(process, job, flight.op);
		if (r < 0)
			return r;
		record_one(record, job, begun, start);
	}
	return 0;
}

/* Sleeps until an op has ended, or until that time.  dsaio_handle_reap() has just found none. */
static void sleep_until(int fd, uint64_t nsec)
{
	const uint64_t now = clock_nsec(), left = nsec > now ? nsec - now : 0;
	const struct timespec ts = { .tv_sec = (time_t)(left / NSEC_PER_SEC),
				     .tv_nsec = (long)(left % NSEC_PER_SEC) };
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	(void)ppoll(&pollfd, 1, nsec == UINT64_MAX ? NULL : &ts, NULL); /* the caller looks again */
}

/* Records the ops that have ended.  Returns their number, or bench_process_fail()'s value. */
static int reap(struct bench_process *process, struct dsaio_handle *handle,
		const struct latency_job *job, struct latency_record *record, uint64_t begun)
{
	struct dsaio_completion ended[OPEN_MAX];
	const int n = dsaio_handle_reap(handle, ended, sizeof(ended[0]), 0, OPEN_MAX, 0);

	if (n < 0)
		return bench_process_fail(process, "%s", dsaio_error());
	for (int i = 0; i < n; i++) {
		struct flight *flight = ended[i].user_data;

		record_one(record, job, begun, flight->due_nsec);
	}
	for (int i = 0; i < n; i++) {
		struct flight *flight = ended[i].user_data;

		flight->op = NULL;
		if (finish_one(process, job, ended[i].op) < 0)
			return -EIO; /* closing the handle waits for the others */
	}
	return n;
}

/* At most one op for each place, and at most OPEN_MAX, are in flight.  An op that is due beyond
   that waits, and its wait counts. */
static int open_loop(struct bench_process *process, struct dsaio_handle *handle,
		     struct dsaio_file *file, const struct latency_job *job,
		     struct latency_record *record)
{
	const uint64_t begun = clock_nsec(), n_places = process->buffer_bytes / job->size;
	const unsigned n_max = n_places < OPEN_MAX ? (unsigned)n_places : OPEN_MAX;
	const int fd = dsaio_handle_fd(handle);
	struct flight flights[OPEN_MAX] = { { NULL, 0, 0 } };
	uint64_t random = begun;
	uint32_t n_begun = 0, n_ended = 0;

	if (fd < 0)
		return bench_process_fail(process, "%s", dsaio_error());
	while (n_ended < job->iterations) {
		const bool may_begin = n_begun < job->iterations && n_begun - n_ended < n_max;
		const uint64_t due = may_begin ? begun + n_begun * job->interval_nsec : UINT64_MAX;
		int r;

		if (may_begin && due <= clock_nsec()) {
			struct flight *flight = flights;

			while (flight->op)
				flight++;
			flight->place = choose_place(process, job, &random, flights, n_max);
			flight->due_nsec = due;
			r = start_one(process, handle, file, job, flight);
			if (r < 0)
				return r;
			record->starting_nsec = clock_nsec() - begun;
			n_begun++;
		}
		r = reap(process, handle, job, record, begun);
		if (r < 0)
			return r;
		n_ended += (uint32_t)r;
		if (r == 0)
			sleep_until(fd, due);
	}
	return 0;
}

static int measure(struct bench_process *process, const void *arg)
{
	_cleanup_(handle_closep) struct dsaio_handle *handle = NULL;
	_cleanup_(file_closep) struct dsaio_file *file = NULL;
	const struct latency_job *job = arg;
	struct latency_record *record = process->shared;
	char path[PATH_MAX];
	int r;

	r = bench_open_channel(process, &job->profile, job->op, job->size, &handle, &file, path);
	if (r < 0)
		return r;
	return job->interval_nsec ? open_loop(process, handle, file, job, record)
				  : closed_loop(process, handle, file, job, record);
}

/* ---- the run ---- */

static bool is_rate_missed(const struct latency_record *record)
{
	const double rate = latency_record_rate(record);

	return chosen.rate && rate > 0 && rate < RATE_SHARE_MIN * chosen.rate;
}

struct latency {
	struct ctl *ctl;
	struct bench *bench;
	uint64_t sizes[SIZES_MAX];
	size_t n_sizes;
};

static int measure_size(struct latency *latency, enum bench_op op, uint64_t size)
{
	struct bench *bench = latency->bench;
	const struct latency_job job = { .op = op,
					 .profile = { .block_size = (uint32_t)chosen.block_size,
						      .queue_depth = chosen.queue_depth,
						      .overlap_events = true,
						      .intra_op_parallelism = chosen.threads },
					 .size = size,
					 .interval_nsec = chosen.rate ? NSEC_PER_SEC / chosen.rate
								      : 0,
					 .iterations = chosen.iterations };
	const struct bench_task task = { .op = op, .profile = job.profile, .io_size = size };
	char text[BENCH_TEXT_BYTES], line[BENCH_TEXT_BYTES + 64];
	char size_text[UNITS_TEXT_BYTES], mean_text[UNITS_TEXT_BYTES];
	const struct latency_record *record;
	struct bench_moved moved;
	struct bench_row row;
	bool is_cut;
	int called, r = bench_begin(bench, &task, &row);

	if (r != CTL_OK)
		return r;
	progress_points_begin(&bench->progress);
	called = bench_crew_call(bench->crew, measure, &job, sizeof(job), text);
	record = bench_crew_shared(bench->crew, 0);
	/* A signal: what was measured until then is a point, too.  Its sums may lack a transfer that was
	   just being recorded. */
	is_cut = called == -EINTR && record->histogram.n > 0;
	if (is_cut)
		bench_crew_kill(bench->crew);
	moved = (struct bench_moved){ .bytes = record->bytes + size,
				      .ops = record->histogram.n + 1,
				      .nsec = record->took_nsec };
	if (called == 0 || is_cut) {
		const struct measure_part part = { .task_sec = (double)record->took_nsec / 1e9,
						   .e2e_sec = (double)record->took_nsec / 1e9,
						   .bytes = record->bytes };

		measure_sum(&part, 1, &row.total);
	}
	bench->n_measured += is_cut;
	r = is_cut ? CTL_OK : bench_end(bench, &row, &moved, called, text);
	if (r == CTL_OK && !row.error[0])
		r = bench_append(bench, "latency",
				 latency_record_json(record, op, size, chosen.rate));
	if (r == CTL_OK && !row.error[0]) {
		(void)snprintf(line, sizeof(line), "%s %s mean %s", bench_op_name(op),
			       units_format_size(size_text, size),
			       units_format_nsec(mean_text, (uint64_t)record->histogram.mean_nsec));
	} else if (r == CTL_OK) {
		(void)snprintf(line, sizeof(line), "%s %s failed: %s", bench_op_name(op),
			       units_format_size(size_text, size), row.error);
	}
	if (r == CTL_OK)
		r = bench_add(bench, &row);
	if (r == CTL_OK) {
		progress_points_end(&bench->progress, line);
		if (!row.error[0] && is_rate_missed(record)) {
			progress_points_clear(&bench->progress);
			ctl_note(latency->ctl,
				 "--rate %" PRIu32 ": only %.1f transfers a second began: the "
				 "store or this machine is too slow; give a smaller --rate",
				 chosen.rate, latency_record_rate(record));
		}
		if (!latency->ctl->is_json && !row.error[0]) {
			progress_points_clear(&bench->progress);
			latency_record_print(record, op, size, chosen.rate, stdout);
			r = ctl_flush(latency->ctl);
		}
	}
	bench_row_deinit(&row);
	return r == CTL_OK && is_cut ? stop_status() : r;
}

static int measure_all(struct latency *latency)
{
	struct bench *bench = latency->bench;
	int r = bench_prepare(bench);

	if (r != CTL_OK)
		return r;
	if (!chosen.rate)
		ctl_note(latency->ctl,
			 "closed loop: what would have begun during a stall is left out "
			 "(coordinated omission); --rate counts it");
	progress_points_start(&bench->progress, "latency", 0, 2 * latency->n_sizes, false);
	for (size_t i = 0; r == CTL_OK && i < latency->n_sizes; i++)
		r = measure_size(latency, BENCH_WRITE, latency->sizes[i]);
	for (size_t i = 0; r == CTL_OK && i < latency->n_sizes; i++)
		r = measure_size(latency, BENCH_READ, latency->sizes[i]);
	return r;
}

static int read_sizes(struct latency *latency)
{
	const struct flag_list *list = &chosen.sizes;
	char *const *items = list->n_items ? list->items : default_sizes;
	const size_t n = list->n_items ? list->n_items
				       : sizeof(default_sizes) / sizeof(default_sizes[0]);

	if (n > SIZES_MAX)
		return ctl_usage(latency->ctl, "--sizes: %zu of them: at most %u", n, SIZES_MAX);
	for (size_t i = 0; i < n; i++) {
		uint64_t size;

		if (size_parse(items[i], &size) < 0 || !size ||
		    size > BENCH_IO_SIZE_MAX / PLACES_MIN)
			return ctl_usage(latency->ctl,
					 "--sizes %s: is no size: write for example 4096, 64K or "
					 "2M",
					 items[i]);
		latency->sizes[latency->n_sizes++] = size;
		if (size * PLACES_MIN > options.io_size)
			options.io_size = size * PLACES_MIN;
	}
	if (options.io_size < AREA_BYTES)
		options.io_size = AREA_BYTES;
	return CTL_OK;
}

static int latency_run(struct ctl *ctl)
{
	static char *dirs[1];
	const struct bench_needs needs = { .kind = "latency",
					   .options = &options,
					   .shared_bytes = sizeof(struct latency_record) };
	struct latency latency = { .ctl = ctl };
	char text[256];
	const struct profile profile = { .block_size = (uint32_t)chosen.block_size,
					 .queue_depth = chosen.queue_depth,
					 .intra_op_parallelism = chosen.threads };
	int r;

	if (bench_gpu_check_args(ctl, &options.gpu) != CTL_OK)
		return CTL_USAGE;
	if (!chosen.path)
		return ctl_usage(ctl, "where to? give --dir DIR");
	if (profile_check(&profile, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "%s", text);
	r = read_sizes(&latency);
	if (r == CTL_OK)
		r = bench_gpu_check(ctl, &options.gpu, "gds");
	if (r != CTL_OK)
		return r;
	dirs[0] = (char *)(uintptr_t)chosen.path;
	options.nvme_dir = (struct flag_list){ dirs, 1 };
	r = bench_open(ctl, &needs, &latency.bench);
	if (r == CTL_OK)
		r = measure_all(&latency);
	r = bench_close(latency.bench, r);
	if (r == CTL_OK && latency.bench->n_failed)
		r = ctl_fail(ctl, "%u of %u measurements failed: they say why",
			     latency.bench->n_failed, latency.bench->n_measured);
	r = bench_finish(latency.bench, r);
	free(chosen.sizes.items);
	return r;
}

const struct command command_bench_latency = COMMAND("bench latency", latency_run,
						     "how long single transfers take", help,
						     .flags = FLAG_TABLE(flags));
