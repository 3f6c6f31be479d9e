/*
 * dsaioctl bench latency: how long single transfers take, with the flags of DS-AIO-Benchmark.
 *
 * A forked client does all transfers of a size and direction in one call and records them in shared
 * memory.  It allocates and prints nothing meanwhile.  The next transfer begins when the last has
 * ended: a stall is one latency.  bench mix has transfers that are due at their own times.
 *
 * latency.json has beside the rows (one for each size and direction, without repetitions)
 *     "latency": [{"op", "size", "n", "mean_nsec", "sd_nsec", "mean_low_nsec",
 *         "mean_high_nsec", "min_nsec", "p50_nsec", "p90_nsec", "p99_nsec", "p999_nsec", "max_nsec",
 *         (a percentile is null of too few transfers), "histogram": [{"nsec", "count"}, ...],
 *         "series": [[seconds, mean nsec of a slice], ...]}]
 */
#include "client/ctl/bench/bench.h"
#include "client/ctl/bench/latency_record.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZES_MAX 64u /* a guess: more are not readable */
/* Size of the file and of the buffer.  Transfers do not move the same bytes again and again. */
#define AREA_BYTES (UINT64_C(64) << 20)
#define PLACES_MIN 4u

static char *default_sizes[] = { (char *)"2M", (char *)"8M", (char *)"32M" };

static struct bench_options options = { .loops = 1 };
static struct {
	const char *path;
	struct flag_list sizes;
	uint32_t iterations, threads, queue_depth;
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
	{ "log_dir", FLAG_STRING, &options.log_dir, 0, 0 },
	{ "exclusive", FLAG_BOOL, &options.exclusive, 0, 0 },
	BENCH_GPU_FLAGS(options.gpu),
};

static const char help[] =
	"dsaioctl bench latency - how long single transfers take\n"
	"\n"
	"    dsaioctl bench latency --dir /nvme\n"
	"    dsaioctl bench latency --dir /nvme --sizes 4K 64K 1M --iterations 10000\n"
	"    dsaioctl bench latency --dir . --private --log_dir latency --json\n"
	"\n"
	"    --dir, --nvme-path DIR where the test file lies\n"
	"    --sizes N ...          bytes of a transfer (2M 8M 32M)\n"
	"    --iterations N         transfers of each size, writes and then reads (200)\n"
	"    --parallel, --threads N\n"
	"                           parts of a transfer that run side by side (16)\n"
	"    --queue-depth N        requests in flight (64)\n"
	"    --block-size N         bytes of one request to the device (2M)\n"
	"    --log_dir DIR          for latency.json (none)\n"
	"    --exclusive            refuse to begin while others use the store or its disk\n" BENCH_GPU_HELP
	"    --json                 latency.json on standard output\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n"
	"Each transfer begins when the last has ended, so a stall is one long latency, and those that\n"
	"would have begun meanwhile are left out (coordinated omission).  dsaioctl bench mix counts\n"
	"them, with rate_iops.\n"
	"A percentile that needs more transfers than there were is printed as -.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted (what was measured until then is printed)\n";

/* ---- in the process ---- */

struct latency_job {
	enum bench_op op;
	struct profile profile;
	uint64_t size;
	uint32_t iterations;
};

static int do_transfers(struct bench_process *process, struct dsaio_handle *handle,
			struct dsaio_file *file, const char *path, const struct latency_job *job,
			struct latency_record *record)
{
	const uint64_t n_places = process->buffer_bytes / job->size, begun = clock_nsec();
	uint64_t random = begun | 1;

	for (uint32_t i = 0; i < job->iterations; i++) {
		uint64_t start, end;
		int r;

		/* xorshift64 */
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		start = clock_nsec();
		r = bench_transfer(process, handle, file, path, job->op,
				   random % n_places * job->size, job->size);
		end = clock_nsec();
		if (r < 0)
			return r;
		latency_record_add(record, job->size, job->iterations, start - begun, end - start);
		record->took_nsec = end - begun;
	}
	return 0;
}

static int measure(struct bench_process *process, const void *arg)
{
	_cleanup_(handle_closep) struct dsaio_handle *handle = NULL;
	_cleanup_(file_closep) struct dsaio_file *file = NULL;
	const struct latency_job *job = arg;
	struct latency_record *record = process->shared;
	struct bench_gpu_paths before = { 0 };
	char path[PATH_MAX];
	int r;

	r = bench_open_handle(process, &job->profile, &handle);
	if (r < 0)
		return r;
	r = bench_open_file(process, job->op, &file, path);
	if (r < 0)
		return r;
	/* The first transfer opens the channel and starts the lane, so it is not measured. */
	r = bench_transfer(process, handle, file, path, job->op, 0, job->size);
	if (r < 0)
		return r;
	if (process->gpu)
		before = *bench_gpu_paths(process->gpu);
	r = do_transfers(process, handle, file, path, job, record);
	if (process->gpu) {
		record->n_direct = bench_gpu_paths(process->gpu)->n_direct - before.n_direct;
		record->n_copied = bench_gpu_paths(process->gpu)->n_copied - before.n_copied;
	}
	return r;
}

/* ---- the run ---- */

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
				      .nsec = record->took_nsec,
				      .n_direct = record->n_direct,
				      .n_copied = record->n_copied };
	if (called == 0 || is_cut) {
		const struct measure_part part = { .task_sec = (double)record->took_nsec / 1e9,
						   .e2e_sec = (double)record->took_nsec / 1e9,
						   .bytes = record->bytes };

		measure_sum(&part, 1, &row.total);
	}
	bench->n_measured += is_cut;
	r = is_cut ? CTL_OK : bench_end(bench, &row, &moved, called, text);
	if (r == CTL_OK && !row.error[0])
		r = bench_append(bench, "latency", latency_record_json(record, op, size));
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
		if (!latency->ctl->is_json && !row.error[0]) {
			progress_points_clear(&bench->progress);
			latency_record_print(record, op, size, stdout);
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
	ctl_note(latency->ctl,
		 "closed loop: what would have begun during a stall is left out "
		 "(coordinated omission); dsaioctl bench mix counts it, with rate_iops");
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
					   .reads = true,
					   .writes = true,
					   .loops = 1,
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
	bench_report_unfinished(latency.bench, r);
	if (r == CTL_OK && latency.bench->n_failed)
		r = ctl_fail(ctl, "%u of %u measurements failed: they say why",
			     latency.bench->n_failed, latency.bench->n_measured);
	r = bench_print_json(latency.bench, r);
	bench_free(latency.bench);
	free(chosen.sizes.items);
	return r;
}

const struct command command_bench_latency = {
	"bench latency",   latency_run, "how long single transfers take", help,
	FLAG_TABLE(flags), NULL
};
