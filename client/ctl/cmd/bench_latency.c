/*
 * dsaioctl bench latency: how long single transfers take, with the flags of DS-AIO-Benchmark.
 *
 * A forked client does all transfers of a size and direction in one call and records them in
 * memory that this process shares with it; nothing is allocated, printed or asked meanwhile.
 * Closed loop: the next transfer begins when the last has ended.  Open loop (--rate): each has its
 * time; one that comes late counts from that time, so that a stall is seen by all that wait.
 *
 * latency.json has beside the rows (one for each size and direction, without repetitions)
 *     "latency": [{"op", "size", "n", "rate", "rate_achieved", "mean_nsec", "sd_nsec", "mean_low_nsec",
 *         "mean_high_nsec", "min_nsec", "p50_nsec", "p90_nsec", "p99_nsec", "p999_nsec", "max_nsec",
 *         "cdf": [[nsec, share], ...], null: too few transfers; "series": [[seconds, mean nsec of a slice], ...]}]
 */
#include "client/ctl/bench/bench.h"
#include "client/ctl/bench/histogram.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZES_MAX 64u	/* a guess: more nobody reads */
#define SLICES 200u	/* of the series over time */
#define CDF_POINTS 500u /* of the steps that have values at most so many are kept */
#define OPEN_MAX 64u	/* ops under way at a time in the open loop */
/* The file, and the buffer: transfers take places in turn that no other one has, so that they neither
   wait for each other nor find the same bytes again and again. */
#define AREA_BYTES (UINT64_C(64) << 20)
#define PLACES_MIN 4u
#define RATE_SHARE_MIN 0.95 /* of --rate: below it was missed; a guess */
#define NSEC_PER_SEC UINT64_C(1000000000)

static char *default_sizes[] = { (char *)"2M", (char *)"8M", (char *)"32M" };

static struct bench_options options = { .loops = 1 };
static struct {
	const char *path;
	struct flag_list sizes;
	uint32_t iterations, threads, queue_depth, rate;
	uint64_t block_size;
} chosen = { .iterations = 200, .threads = 16, .queue_depth = 64, .block_size = 2u << 20 };

static const struct flag flags[] = {
	{ "nvme_path", FLAG_STRING, &chosen.path, 0, 0 },
	{ "sizes", FLAG_LIST, &chosen.sizes, 0, 0 },
	{ "iterations", FLAG_COUNT, &chosen.iterations, 1, 100000000 },
	{ "threads", FLAG_COUNT, &chosen.threads, 1, PROFILE_PARALLELISM_MAX },
	{ "queue_depth", FLAG_COUNT, &chosen.queue_depth, 1, PROFILE_QUEUE_DEPTH_MAX },
	{ "block_size", FLAG_SIZE, &chosen.block_size, PROFILE_BLOCK_SIZE_MIN,
	  PROFILE_BLOCK_SIZE_MAX },
	{ "rate", FLAG_COUNT, &chosen.rate, 1, 10000000 },
	{ "log_dir", FLAG_STRING, &options.log_dir, 0, 0 },
	{ "exclusive", FLAG_BOOL, &options.exclusive, 0, 0 },
	{ "keep", FLAG_BOOL, &options.keep, 0, 0 },
};

static const char help[] =
	"dsaioctl bench latency - how long single transfers take\n"
	"\n"
	"    dsaioctl bench latency --nvme-path /nvme\n"
	"    dsaioctl bench latency --nvme-path /nvme --sizes 4K 64K 1M --iterations 10000\n"
	"    dsaioctl bench latency --nvme-path /nvme --sizes 4K --rate 5000 --iterations 50000\n"
	"    dsaioctl bench latency --nvme-path . --private --log_dir latency --json\n"
	"\n"
	"    --nvme-path DIR        where the test file lies\n"
	"    --sizes N ...          bytes of a transfer (2M 8M 32M)\n"
	"    --iterations N         transfers of each size, writes and then reads (200)\n"
	"    --threads N            parts of a transfer that run side by side (16)\n"
	"    --queue-depth N        requests in flight (64)\n"
	"    --block-size N         bytes of one request to the device (2M)\n"
	"    --rate N               begin so many a second, whether or not the last one has ended\n"
	"    --log_dir DIR          for latency.json (none)\n"
	"    --exclusive            only while nobody else uses the store or its disk\n"
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
	"exit status: 0 done, 1 failed, 2 wrong usage, 129, 130 and 143 interrupted\n";

/* ---- in the worker ---- */

struct job {
	enum bench_op op;
	struct profile profile;
	uint64_t size, interval_nsec; /* 0: closed loop */
	uint32_t iterations;
};

/* In shared memory: the worker writes, the parent reads when the call is over. */
struct record {
	uint64_t took_nsec, bytes;
	uint64_t starting_nsec; /* open loop: from the first start to the last one */
	struct {
		double sum_nsec;
		uint64_t n, at_nsec;
	} slices[SLICES];
	double speed_sum, speed_squares; /* of each transfer's bandwidth, in MB/s */
	struct bench_histogram histogram;
};

/* A transfer of the open loop. */
struct flight {
	struct dsaio_op *op; /* NULL: none */
	uint64_t due_nsec, place;
};

static void record_one(struct record *record, const struct job *job, uint64_t begun_nsec,
		       uint64_t due_nsec)
{
	const uint64_t now = clock_nsec(), nsec = now - due_nsec;
	const uint32_t n = (uint32_t)record->histogram.n;
	const size_t slice = (size_t)((uint64_t)n * SLICES / job->iterations);
	const double speed = (double)job->size * 1e3 / (double)(nsec ? nsec : 1);

	bench_histogram_record(&record->histogram, nsec);
	record->slices[slice].sum_nsec += (double)nsec;
	if (!record->slices[slice].n++)
		record->slices[slice].at_nsec = due_nsec - begun_nsec;
	record->speed_sum += speed;
	record->speed_squares += speed * speed;
	record->bytes += job->size;
}

/* A place of the area for the next transfer, at random; not one that is taken. */
static uint64_t choose_place(const struct bench_worker *worker, const struct job *job,
			     uint64_t *random, const struct flight *flights, unsigned n)
{
	const uint64_t n_places = worker->buffer_bytes / job->size;

	for (;;) {
		uint64_t place;
		unsigned i = 0;

		/* xorshift64 */
		*random ^= *random << 13;
		*random ^= *random >> 7;
		*random ^= *random << 17;
		place = *random % n_places;
		while (i < n && (!flights[i].op || flights[i].place != place))
			i++;
		if (i == n)
			return place;
	}
}

static int start_one(struct bench_worker *worker, struct dsaio_handle *handle,
		     struct dsaio_file *file, const struct job *job, struct flight *flight)
{
	const uint64_t off = flight->place * job->size;
	const struct dsaio_io io = { .opcode = job->op == BENCH_READ ? DSAIO_READ : DSAIO_WRITE,
				     .file = file,
				     .buf = (char *)worker->buffer + off,
				     .len = job->size,
				     .off = off,
				     .user_data = flight };
	int r = dsaio_submit(handle, &io, 1, 0, &flight->op);

	return r < 0 ? bench_worker_fail(worker, "%s", dsaio_error()) : 0;
}

static int finish_one(struct bench_worker *worker, const struct job *job, struct dsaio_op *op)
{
	int64_t done;
	int r = 0;

	if (dsaio_op_wait(op, -1, &done) < 0)
		r = bench_worker_fail(worker, "%s", dsaio_error());
	else if (done < 0)
		r = bench_worker_fail(worker, "%s", dsaio_op_error(op));
	else if ((uint64_t)done != job->size)
		r = bench_worker_fail(worker,
				      "a transfer of %" PRIu64 " bytes ended after %" PRId64,
				      job->size, done);
	dsaio_op_free(op);
	return r;
}

static int closed_loop(struct bench_worker *worker, struct dsaio_handle *handle,
		       struct dsaio_file *file, const struct job *job, struct record *record)
{
	const uint64_t begun = clock_nsec();
	uint64_t random = begun | 1;

	for (uint32_t i = 0; i < job->iterations; i++) {
		struct flight flight = { .place = choose_place(worker, job, &random, NULL, 0) };
		const uint64_t start = clock_nsec();
		int r = start_one(worker, handle, file, job, &flight);

		if (r == 0)
			r = finish_one(worker, job, flight.op);
		if (r < 0)
			return r;
		record_one(record, job, begun, start);
	}
	return 0;
}

/* Sleeps until something has ended, or until that time: dsaio_reap() has just found nothing. */
static void sleep_until(int fd, uint64_t nsec)
{
	const uint64_t now = clock_nsec(), left = nsec > now ? nsec - now : 0;
	const struct timespec ts = { .tv_sec = (time_t)(left / NSEC_PER_SEC),
				     .tv_nsec = (long)(left % NSEC_PER_SEC) };
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	(void)ppoll(&pollfd, 1, nsec == UINT64_MAX ? NULL : &ts, NULL); /* early: looked again */
}

/* Records who has ended, each when it is seen.  How many, or bench_worker_fail()'s value. */
static int reap(struct bench_worker *worker, struct dsaio_handle *handle, const struct job *job,
		struct record *record, uint64_t begun)
{
	struct dsaio_op *ended[OPEN_MAX];
	const int n = dsaio_reap(handle, ended, OPEN_MAX);

	if (n < 0)
		return bench_worker_fail(worker, "%s", dsaio_error());
	for (int i = 0; i < n; i++) {
		struct flight *flight = dsaio_op_data(ended[i]);

		record_one(record, job, begun, flight->due_nsec);
	}
	for (int i = 0; i < n; i++) {
		struct flight *flight = dsaio_op_data(ended[i]);

		flight->op = NULL;
		if (finish_one(worker, job, ended[i]) < 0)
			return -EIO; /* the handle's end awaits the others */
	}
	return n;
}

/* As many are under way as there are places, or OPEN_MAX: who is due beyond that waits, and its
   waiting counts. */
static int open_loop(struct bench_worker *worker, struct dsaio_handle *handle,
		     struct dsaio_file *file, const struct job *job, struct record *record)
{
	const uint64_t begun = clock_nsec(), n_places = worker->buffer_bytes / job->size;
	const unsigned n_max = n_places < OPEN_MAX ? (unsigned)n_places : OPEN_MAX;
	const int fd = dsaio_handle_fd(handle);
	struct flight flights[OPEN_MAX] = { { NULL, 0, 0 } };
	uint64_t random = begun | 1;
	uint32_t n_begun = 0, n_ended = 0;

	if (fd < 0)
		return bench_worker_fail(worker, "%s", dsaio_error());
	while (n_ended < job->iterations) {
		const bool may_begin = n_begun < job->iterations && n_begun - n_ended < n_max;
		const uint64_t due = may_begin ? begun + n_begun * job->interval_nsec : UINT64_MAX;
		int r;

		if (may_begin && due <= clock_nsec()) {
			struct flight *flight = flights;

			while (flight->op)
				flight++;
			flight->place = choose_place(worker, job, &random, flights, n_max);
			flight->due_nsec = due;
			r = start_one(worker, handle, file, job, flight);
			if (r < 0)
				return r;
			record->starting_nsec = clock_nsec() - begun;
			n_begun++;
		}
		r = reap(worker, handle, job, record, begun);
		if (r < 0)
			return r;
		n_ended += (uint32_t)r;
		if (r == 0)
			sleep_until(fd, due);
	}
	return 0;
}

static int measure(struct bench_worker *worker, const void *arg)
{
	_cleanup_(handle_closep) struct dsaio_handle *handle = NULL;
	_cleanup_(file_closep) struct dsaio_file *file = NULL;
	const struct job *job = arg;
	struct record *record = worker->shared;
	char path[PATH_MAX];
	uint64_t start;
	int r;

	r = bench_open_handle(worker, &job->profile, &handle);
	if (r < 0)
		return r;
	r = bench_open_file(worker, job->op, &file, path);
	if (r < 0)
		return r;
	/* The first opens the channel and starts lanes: it is not measured. */
	r = bench_transfer(worker, handle, file, path, job->op, job->size);
	if (r < 0)
		return r;
	start = clock_nsec();
	r = job->interval_nsec ? open_loop(worker, handle, file, job, record)
			       : closed_loop(worker, handle, file, job, record);
	record->took_nsec = clock_nsec() - start;
	return r;
}

/* ---- numbers ---- */

static double usable_sqrt(double value)
{
	return value > 0 ? sqrt(value) : 0;
}

/* Transfers that began in a second of the open loop; 0: there was only one. */
static double achieved_rate(const struct record *record)
{
	const uint64_t n = record->histogram.n;

	return n > 1 && record->starting_nsec
		       ? (double)(n - 1) * (double)NSEC_PER_SEC / (double)record->starting_nsec
		       : 0;
}

static bool is_rate_missed(const struct record *record)
{
	const double rate = achieved_rate(record);

	return chosen.rate && rate > 0 && rate < RATE_SHARE_MIN * chosen.rate;
}

/* DS-AIO-Benchmark's: seconds, and MB/s.  A transfer's bandwidth falls as its latency grows. */
static void print_record(const struct job *job, const struct record *record)
{
	static const double shares[] = { 0.5, 0.9, 0.99, 0.999 };
	const struct bench_histogram *h = &record->histogram;
	const double n = (double)h->n, mean = record->speed_sum / n;
	const double sd = h->n > 1
				  ? usable_sqrt((record->speed_squares - n * mean * mean) / (n - 1))
				  : 0;
	const double half = h->n > 1 ? bench_histogram_mean_half(h) : 0;
	const double speed_half = bench_histogram_deviation(h) > 0
					  ? half * sd / bench_histogram_deviation(h)
					  : 0;
	char size[UNITS_TEXT_BYTES];

	(void)printf("%s of %s, %" PRIu64 " transfers\n",
		     job->op == BENCH_READ ? "Reads" : "Writes", units_format_size(size, job->size),
		     h->n);
	(void)printf("  %-22s %14s %16s\n", "", "latency (s)", "bandwidth (MB/s)");
	(void)printf("  %-22s %14.6f %16.2f\n", "mean", h->mean_nsec / 1e9, mean);
	(void)printf("  %-22s %14.6f %16.2f\n", "median",
		     (double)bench_histogram_quantile(h, 0.5) / 1e9,
		     (double)job->size * 1e3 / (double)bench_histogram_quantile(h, 0.5));
	(void)printf("  %-22s %14.6f %16.2f\n", "standard deviation",
		     bench_histogram_deviation(h) / 1e9, sd);
	if (h->n > 1) {
		(void)printf("  %-22s %14.6f %16.2f\n", "95% interval, from",
			     bench_histogram_mean_low(h) / 1e9, fmax(mean - speed_half, 0));
		(void)printf("  %-22s %14.6f %16.2f\n", "95% interval, to",
			     (h->mean_nsec + half) / 1e9, mean + speed_half);
	} else {
		(void)printf("  %-22s %14s %16s  (needs 2 transfers)\n", "95% interval", "-", "-");
	}
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		const double share = shares[i];
		char name[UNITS_TEXT_BYTES];

		(void)snprintf(name, sizeof(name), "percentile %g", share * 100);
		if (h->n < bench_histogram_needed(share)) {
			(void)printf("  %-22s %14s %16s  (needs %" PRIu64 " transfers)\n", name,
				     "-", "-", bench_histogram_needed(share));
			continue;
		}
		(void)printf("  %-22s %14.6f %16.2f\n", name,
			     (double)bench_histogram_quantile(h, share) / 1e9,
			     (double)job->size * 1e3 /
				     (double)bench_histogram_quantile(h, 1 - share));
	}
	if (chosen.rate)
		(void)printf("  %-22s %14.1f of %" PRIu32 "\n", "begun a second",
			     achieved_rate(record), chosen.rate);
	(void)printf("  %-22s %14.6f %16.2f\n\n", "max", (double)h->max_nsec / 1e9,
		     (double)job->size * 1e3 / (double)(h->min_nsec ? h->min_nsec : 1));
}

static struct json_object *pair_json(double x, double y)
{
	struct json_object *pair = json_object_new_array();

	(void)json_object_array_add(pair, bench_json_float(x));
	(void)json_object_array_add(pair, bench_json_float(y));
	return pair;
}

/* Where many steps have values, every so many-th, and the last. */
static struct json_object *cdf_json(const struct bench_histogram *h)
{
	struct json_object *points = json_object_new_array();
	size_t at = 0, n_steps = 0, stride, i = 0;
	uint64_t nsec, n, sum = 0;

	while (bench_histogram_next(h, &at, &nsec))
		n_steps++;
	stride = n_steps / CDF_POINTS + 1;
	at = 0;
	while ((n = bench_histogram_next(h, &at, &nsec))) {
		sum += n;
		if (i++ % stride == 0 || sum == h->n)
			(void)json_object_array_add(
				points, pair_json((double)nsec, (double)sum / (double)h->n));
	}
	return points;
}

static struct json_object *series_json(const struct record *record)
{
	struct json_object *points = json_object_new_array();

	for (size_t i = 0; i < SLICES; i++)
		if (record->slices[i].n)
			(void)json_object_array_add(
				points, pair_json((double)record->slices[i].at_nsec / 1e9,
						  record->slices[i].sum_nsec /
							  (double)record->slices[i].n));
	return points;
}

static struct json_object *record_json(const struct job *job, const struct record *record)
{
	static const struct {
		const char *key;
		double share;
	} quantiles[] = { { "p50_nsec", 0.5 },
			  { "p90_nsec", 0.9 },
			  { "p99_nsec", 0.99 },
			  { "p999_nsec", 0.999 } };
	const struct bench_histogram *h = &record->histogram;
	const double half = bench_histogram_mean_half(h);
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "op", json_object_new_string(bench_op_name(job->op)));
	json_object_object_add(o, "size", json_object_new_uint64(job->size));
	json_object_object_add(o, "n", json_object_new_uint64(h->n));
	json_object_object_add(o, "rate", chosen.rate ? json_object_new_uint64(chosen.rate) : NULL);
	json_object_object_add(o, "rate_achieved",
			       chosen.rate && achieved_rate(record) > 0
				       ? bench_json_float(achieved_rate(record))
				       : NULL);
	json_object_object_add(o, "mean_nsec", bench_json_float(h->mean_nsec));
	json_object_object_add(o, "sd_nsec", bench_json_float(bench_histogram_deviation(h)));
	json_object_object_add(o, "mean_low_nsec",
			       h->n > 1 ? bench_json_float(bench_histogram_mean_low(h)) : NULL);
	json_object_object_add(o, "mean_high_nsec",
			       h->n > 1 ? bench_json_float(h->mean_nsec + half) : NULL);
	json_object_object_add(o, "min_nsec", json_object_new_uint64(h->min_nsec));
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
		json_object_object_add(o, quantiles[i].key,
				       h->n < bench_histogram_needed(quantiles[i].share)
					       ? NULL
					       : json_object_new_uint64(bench_histogram_quantile(
							 h, quantiles[i].share)));
	json_object_object_add(o, "max_nsec", json_object_new_uint64(h->max_nsec));
	json_object_object_add(o, "mean_mb_per_sec",
			       bench_json_float(record->speed_sum / (double)h->n));
	json_object_object_add(o, "cdf", cdf_json(h));
	json_object_object_add(o, "series", series_json(record));
	return o;
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
	const struct job job = { .op = op,
				 .profile = { .block_size = (uint32_t)chosen.block_size,
					      .queue_depth = chosen.queue_depth,
					      .overlap_events = true,
					      .intra_op_parallelism = chosen.threads },
				 .size = size,
				 .interval_nsec = chosen.rate ? NSEC_PER_SEC / chosen.rate : 0,
				 .iterations = chosen.iterations };
	const struct bench_task task = { .op = op, .profile = job.profile, .io_size = size };
	char text[BENCH_TEXT_BYTES], size_text[UNITS_TEXT_BYTES], line[BENCH_TEXT_BYTES + 64];
	const struct record *record;
	struct bench_moved moved;
	struct bench_row row;
	int called, r = bench_begin(bench, &task, &row);

	if (r != CTL_OK)
		return r;
	progress_points_begin(&bench->progress, op);
	called = bench_crew_call(bench->crew, measure, &job, sizeof(job), text);
	record = bench_crew_shared(bench->crew, 0);
	moved = (struct bench_moved){ .bytes = record->bytes + size,
				      .ops = record->histogram.n + 1,
				      .nsec = record->took_nsec };
	if (called == 0) {
		const struct measure_part part = { .task_sec = (double)record->took_nsec / 1e9,
						   .e2e_sec = (double)record->took_nsec / 1e9,
						   .bytes = record->bytes };

		measure_sum(&part, 1, &row.total);
	}
	r = bench_end(bench, &row, &moved, called, text);
	if (r == CTL_OK && !row.error[0])
		r = bench_append(bench, "latency", record_json(&job, record));
	if (r == CTL_OK && !row.error[0]) {
		(void)snprintf(line, sizeof(line), "%s %s mean %.6f s", bench_op_name(op),
			       units_format_size(size_text, size),
			       record->histogram.mean_nsec / 1e9);
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
				 chosen.rate, achieved_rate(record));
		}
		if (!latency->ctl->is_json && !row.error[0]) {
			progress_points_clear(&bench->progress);
			print_record(&job, record);
			r = ctl_flush(latency->ctl);
		}
	}
	bench_row_deinit(&row);
	return r;
}

static int measure_all(struct latency *latency)
{
	struct bench *bench = latency->bench;
	const size_t n_left[PROGRESS_KINDS] = { latency->n_sizes, latency->n_sizes };
	int r = bench_prepare(bench);

	if (r != CTL_OK)
		return r;
	if (!chosen.rate)
		ctl_note(latency->ctl,
			 "closed loop: what would have begun during a stall is left out "
			 "(coordinated omission); --rate counts it");
	progress_points_start(&bench->progress, "latency", 0, n_left);
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
					   .shared_bytes = sizeof(struct record) };
	struct latency latency = { .ctl = ctl };
	char text[256];
	const struct profile profile = { .block_size = (uint32_t)chosen.block_size,
					 .queue_depth = chosen.queue_depth,
					 .intra_op_parallelism = chosen.threads };
	int r;

	if (ctl->n_args)
		return ctl_usage(ctl, "%s: not understood: all is said by options", ctl->args[0]);
	if (!chosen.path)
		return ctl_usage(ctl, "--nvme-path: say where the test file may lie");
	if (profile_check(&profile, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "%s", text);
	r = read_sizes(&latency);
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
	if (ctl->is_json && latency.bench && latency.bench->results.root && r != CTL_USAGE) {
		const int printed = ctl_print_json(ctl,
						   json_object_get(latency.bench->results.root));

		r = r == CTL_OK ? printed : r;
	}
	bench_free(latency.bench);
	free(chosen.sizes.items);
	return r;
}

const struct command command_bench_latency = {
	"bench latency",   latency_run, "how long single transfers take", help,
	FLAG_TABLE(flags), NULL
};
