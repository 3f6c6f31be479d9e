/*
 * make bench: what dsaiod costs, beside fio, libaio in the same process and what DeepNVMe does.
 *
 * Each comparison alternates short slices of ours and of the reference, swapping the order each
 * round, since a device's speed changes by the minute; one round before the first is thrown
 * away.  All of it happens on files that were written just before, over a daemon of our own for
 * each measure.  report.h says how rounds become a row.
 *
 * A bar that does not hold is a result, not a failure: the exit status is 0 when everything was
 * measured, 1 when it could not be, 2 for a mistake on the command line.
 *
 * It is over 600 lines because it has the measures and bars of all rows.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/files.h"
#include "tests/bench/replay.h"
#include "tests/bench/side.h"

#define REST_SECONDS 10
#define FURTHER_CLIENTS 64
#define HANDLES 8
#define HANDLE_ENTRIES 4096u

struct row rows[N_ROWS] = {
	[ROW_READ] = { .name = "400 MiB read, beside fio",
		       .unit = "MB/s",
		       .is_higher_better = true,
		       .bar = 0.99 },
	[ROW_READ_DEEPNVME] = { .name = "400 MiB read, beside DeepNVMe's algorithm",
				.unit = "MB/s",
				.is_higher_better = true,
				.bar = 1.0 },
	[ROW_READ_CPU] = { .name = "CPU time of reads of 1 MiB blocks, both sides",
			   .unit = "ms/GB",
			   .bar = 1.1,
			   .decimals = 1 },
	[ROW_WRITE] = { .name = "400 MiB write, beside fio",
			.unit = "MB/s",
			.is_higher_better = true,
			.bar = 0.99 },
	[ROW_WRITE_DEEPNVME] = { .name = "400 MiB write, beside DeepNVMe's algorithm",
				 .unit = "MB/s",
				 .is_higher_better = true,
				 .bar = 1.0 },
	[ROW_WRITE_CPU] = { .name = "CPU time of writes of 1 MiB blocks, both sides",
			    .unit = "ms/GB",
			    .bar = 1.1,
			    .decimals = 1 },
	[ROW_READ_HUGE] = { .name = "400 MiB read, beside fio on huge pages",
			    .unit = "MB/s",
			    .is_higher_better = true,
			    .bar = 0.98 },
	[ROW_WRITE_HUGE] = { .name = "400 MiB write, beside fio on huge pages",
			     .unit = "MB/s",
			     .is_higher_better = true,
			     .bar = 0.98 },
	[ROW_READ_MANY] = { .name = "8 clients read 100 MiB each, summed",
			    .unit = "MB/s",
			    .is_higher_better = true,
			    .bar = 0.98 },
	[ROW_WRITE_MANY] = { .name = "8 clients write 100 MiB each, summed",
			     .unit = "MB/s",
			     .is_higher_better = true,
			     .bar = 0.98 },
	[ROW_LATENCY] = { .name = "4 KiB random read, depth 1, spinning",
			  .unit = "us",
			  .bar = 0.85,
			  .decimals = 1 },
	[ROW_LATENCY_SLEEPING] = { .name = "4 KiB random read, depth 1, not spinning",
				   .unit = "us",
				   .bar = 1.4,
				   .decimals = 1 },
	[ROW_IOPS] = { .name = "4 KiB random read, depth 32, beside fio",
		       .unit = "IOPS",
		       .is_higher_better = true,
		       .bar = 0.97 },
	[ROW_IOPS_LOCAL] = { .name = "4 KiB random read, depth 32, beside libaio",
			     .unit = "IOPS",
			     .is_higher_better = true,
			     .bar = 0.90 },
	[ROW_IOPS_SOME] = { .name = "4 KiB, depth 32, 4 clients beside 4 fio jobs",
			    .unit = "IOPS",
			    .is_higher_better = true,
			    .bar = 0.97 },
	[ROW_IOPS_MEMORY] = { .name = "4 KiB, depth 32, in /dev/shm, beside libaio",
			      .unit = "IOPS",
			      .is_higher_better = true,
			      .bar = 0.9 },
	[ROW_IOPS_MEMORY_WRITE] = { .name = "4 KiB writes, depth 32, in /dev/shm, --user",
				    .unit = "IOPS",
				    .is_higher_better = true,
				    .bar = 0.9 },
	[ROW_PATH] = { .name = "4 KiB read by path, beside DeepNVMe's algorithm",
		       .unit = "us",
		       .bar = 0.9,
		       .decimals = 1 },
	[ROW_FILES] = { .name = "1,000 files of 64 KiB by path, then one wait",
			.unit = "us/op",
			.bar = 1.4,
			.decimals = 1 },
	[ROW_FILES_DEEPNVME] = { .name = "1,000 files of 64 KiB, DeepNVMe's algorithm",
				 .unit = "op/s",
				 .is_higher_better = true,
				 .bar = 2.0 },
	[ROW_PRIVATE] = { .name = "400 MiB read, private beside pinned memory",
			  .unit = "MB/s",
			  .is_higher_better = true,
			  .bar = 0.95 },
	[ROW_PRIVATE_COPY] = { .name = "the same private read, beside a plain memcpy",
			       .unit = "MB/s",
			       .is_higher_better = true,
			       .has_no_bar = true },
	[ROW_PRIVATE_WRITE] = { .name = "400 MiB write, private beside pinned memory",
				.unit = "MB/s",
				.is_higher_better = true,
				.bar = 0.95 },
	[ROW_PRIVATE_WRITE_COPY] = { .name = "the same private write, beside a plain memcpy",
				     .unit = "MB/s",
				     .is_higher_better = true,
				     .has_no_bar = true },
	[ROW_ODD] = { .name = "400 MiB + 77 B at offset 13, beside aligned",
		      .unit = "MB/s",
		      .is_higher_better = true,
		      .bar = 0.9 },
	[ROW_ODD_ALIKE] = { .name = "the same read, into an address as odd",
			    .unit = "MB/s",
			    .is_higher_better = true,
			    .bar = 0.9 },
	[ROW_AUTOSTART] = { .name = "autostart, first op done",
			    .unit = "ms",
			    .is_absolute = true,
			    .bar = 150,
			    .decimals = 1 },
	[ROW_REST_TICKS] = { .name = "daemon at rest, 10 s: CPU time",
			     .unit = "ticks",
			     .is_absolute = true,
			     .bar = 0 },
	[ROW_REST_SWITCHES] = { .name = "daemon at rest, 10 s: context switches",
				.unit = "",
				.is_absolute = true,
				.bar = 10 },
	[ROW_MEMORY_ONE] = { .name = "memory with one client",
			     .unit = "MiB",
			     .is_absolute = true,
			     .bar = 16,
			     .decimals = 1 },
	[ROW_MEMORY_FURTHER] = { .name = "memory, each further client",
				 .unit = "KiB",
				 .is_absolute = true,
				 .bar = 64,
				 .decimals = 1 },
	[ROW_MEMORY_HANDLE] = { .name = "memory of a handle, each entry",
				.unit = "bytes",
				.is_absolute = true,
				.bar = 256 },
	[ROW_FRESH] = { .name = "1 GiB pinned in a new process, beside memfd and mlock",
			.unit = "ms",
			.bar = 1.3,
			.decimals = 1 },
	[ROW_FRESH_WRITTEN] = { .name = "the same, until each page was written to",
				.unit = "ms",
				.bar = 1.3,
				.decimals = 1 },
	[ROW_SMALL_BESIDE] = { .name = "4 KiB read beside 400 MiB reads: p99, by arrival",
			       .unit = "us",
			       .bar = 0.02,
			       .decimals = 1 },
	[ROW_BIG_BESIDE] = { .name = "the 400 MiB reads meanwhile, beside alone",
			     .unit = "MB/s",
			     .is_higher_better = true,
			     .bar = 0.9 },
	[ROW_SHARES] = { .name = "1 and 16 reads queued: larger share, smaller",
			 .unit = "MB/s",
			 .bar = 1.03 },
	[ROW_SHARES_WEIGHTED] = { .name = "weights 1 and 4, reads: share by weight",
				  .unit = "MB/s",
				  .bar = 1.05 },
	[ROW_SMALL_BESIDE_WRITES] = { .name = "4 KiB read beside 400 MiB writes: p99, by arrival",
				      .unit = "us",
				      .bar = 0.02,
				      .decimals = 1 },
	[ROW_WRITES_BESIDE] = { .name = "the 400 MiB writes meanwhile, beside alone",
				.unit = "MB/s",
				.is_higher_better = true,
				.bar = 0.9 },
	[ROW_SHARES_WRITE] = { .name = "1 and 16 writes queued: larger share, smaller",
			       .unit = "MB/s",
			       .bar = 1.03 },
	[ROW_SHARES_WEIGHTED_WRITE] = { .name = "weights 1 and 4, writes: share by weight",
					.unit = "MB/s",
					.bar = 1.05 },
	[ROW_NEWCOMER_LARGE] = { .name = "a newcomer's first read beside 64 MiB x 4096",
				 .unit = "ms",
				 .is_absolute = true,
				 .bar = 20,
				 .decimals = 1 },
	[ROW_NEWCOMER] = { .name = "the same beside the default profile",
			   .unit = "ms",
			   .is_absolute = true,
			   .bar = 20,
			   .decimals = 1 },
	[ROW_GUEST_READ] = { .name = "1 MiB read, depth 1, beside background: alone",
			     .unit = "MB/s",
			     .is_higher_better = true,
			     .bar = 0.8 },
	[ROW_GUEST_READ_SMALL] = { .name = "4 KiB read, depth 1, beside background: alone",
				   .unit = "op/s",
				   .is_higher_better = true,
				   .bar = 0.6 },
	[ROW_GUEST_READ_P99] = { .name = "the 4 KiB read's p99",
				 .unit = "us",
				 .bar = 3,
				 .decimals = 1 },
	[ROW_GUEST_READ_BACK] = { .name = "until background reads have the whole device",
				  .unit = "ms",
				  .is_absolute = true,
				  .bar = 50,
				  .decimals = 1 },
	[ROW_GUEST_WRITE] = { .name = "1 MiB write, depth 1, beside background: alone",
			      .unit = "MB/s",
			      .is_higher_better = true,
			      .bar = 0.8 },
	[ROW_GUEST_WRITE_SMALL] = { .name = "4 KiB write, depth 1, beside background: alone",
				    .unit = "op/s",
				    .is_higher_better = true,
				    .bar = 0.6 },
	[ROW_GUEST_WRITE_P99] = { .name = "the 4 KiB write's p99",
				  .unit = "us",
				  .bar = 3,
				  .decimals = 1 },
	[ROW_GUEST_WRITE_BACK] = { .name = "until background writes have the whole device",
				   .unit = "ms",
				   .is_absolute = true,
				   .bar = 50,
				   .decimals = 1 },
	[ROW_READ_LOCAL] = { .name = "400 MiB read, beside in-process libaio",
			     .unit = "MB/s",
			     .is_higher_better = true,
			     .bar = 0.97 },
	[ROW_WRITE_LOCAL] = { .name = "400 MiB write, beside in-process libaio",
			      .unit = "MB/s",
			      .is_higher_better = true,
			      .bar = 0.97 },
	[ROW_NOWAIT_LATENCY] = { .name = "RWF_NOWAIT, 4 KiB reads, depth 1",
				 .unit = "us",
				 .has_no_bar = true,
				 .decimals = 1 },
	[ROW_NOWAIT_IOPS] = { .name = "RWF_NOWAIT, 4 KiB reads, depth 32",
			      .unit = "IOPS",
			      .is_higher_better = true,
			      .has_no_bar = true },
	[ROW_NOWAIT_STREAM] = { .name = "RWF_NOWAIT, 400 MiB read",
				.unit = "MB/s",
				.is_higher_better = true,
				.has_no_bar = true },
	[ROW_NOWAIT_IOPS_AMONG] = { .name = "RWF_NOWAIT, 4 KiB, depth 32, among others",
				    .unit = "IOPS",
				    .is_higher_better = true,
				    .has_no_bar = true },
	[ROW_NOWAIT_STREAM_AMONG] = { .name = "RWF_NOWAIT, 400 MiB read, among others",
				      .unit = "MB/s",
				      .is_higher_better = true,
				      .has_no_bar = true },
	[ROW_RECORDER] = { .name = "an event of the flight recorder",
			   .unit = "ns",
			   .is_absolute = true,
			   .bar = 30,
			   .decimals = 1 },
};

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
	is_interrupted = number;
}

int failed(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, dsaio_error());
	return -EIO;
}

/* ---- our side ---- */

int ours_open(struct bench *b, const char *config, const struct dsaio_profile *profile,
	      uint64_t memory_bytes)
{
	void *memory;
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", config);

	if (r < 0)
		return r;
	if (socket_connect(b->daemon.socket_path, &b->client) < 0)
		return failed("connect");
	if (profile_open(b->client, profile, &b->handle) < 0)
		return failed("open a handle");
	if (dsaio_open(b->client, b->path, O_RDWR, NULL, &b->file) < 0)
		return failed("open the file");
	if (dsaio_alloc(b->client, memory_bytes, NULL, &memory) < 0)
		return failed("allocate pinned memory");
	b->memory = memory;
	if (dsaio_pread(b->handle, b->file, memory, memory_bytes, 0) != (int64_t)memory_bytes)
		return failed("the first read");
	return 0;
}

void ours_close(struct bench *b)
{
	if (b->file)
		dsaio_file_close(b->file);
	(void)dsaio_handle_close(b->handle, -1);
	(void)dsaio_disconnect(b->client);
	b->file = NULL;
	b->handle = NULL;
	b->client = NULL;
	b->memory = NULL;
	private_daemon_stop(&b->daemon);
}

static int ours_bandwidth(struct bench *b, bool is_write, double *ret_bandwidth)
{
	const int64_t start = now_nsec();
	const int64_t n = is_write ? dsaio_pwrite(b->handle, b->file, b->memory, READ_BYTES, 0)
				   : dsaio_pread(b->handle, b->file, b->memory, READ_BYTES, 0);

	if (n != (int64_t)READ_BYTES)
		return failed(is_write ? "write" : "read");
	*ret_bandwidth = (double)n * 1e9 / (double)(now_nsec() - start);
	return 0;
}

int ours_read_bandwidth(struct bench *b, double *ret_bandwidth)
{
	return ours_bandwidth(b, false, ret_bandwidth);
}

int ours_write_bandwidth(struct bench *b, double *ret_bandwidth)
{
	return ours_bandwidth(b, true, ret_bandwidth);
}

static int ours_latency(struct bench *b, double *ret_usec)
{
	const int64_t start = now_nsec(), end = start + SLICE_USEC * 1000;
	uint64_t n = 0, seed = random_seed();
	int64_t now;

	do {
		const uint64_t off = random_next(&seed) % (READ_BYTES / SMALL_BYTES) * SMALL_BYTES;

		if (dsaio_pread(b->handle, b->file, b->memory, SMALL_BYTES, off) !=
		    (int64_t)SMALL_BYTES)
			return failed("read");
		n++;
		now = now_nsec();
	} while (now < end);
	*ret_usec = (double)(now - start) / 1e3 / (double)n;
	return 0;
}

/* A read that is in flight; the queue holds them in the order of their submission. */
struct flying {
	TAILQ_ENTRY(flying) link;
	struct dsaio_op *op;
	char *memory;
};
TAILQ_HEAD(queue, flying);

static int take_off(struct bench *b, struct flying *f, struct queue *queue, uint64_t *seed)
{
	const uint64_t off = random_next(seed) % (READ_BYTES / SMALL_BYTES) * SMALL_BYTES;
	const struct dsaio_io io = { .opcode = b->is_write ? DSAIO_WRITE : DSAIO_READ,
				     .file = b->file,
				     .buf = f->memory,
				     .len = SMALL_BYTES,
				     .off = off,
				     .user_data = f };

	if (dsaio_submit(b->handle, &io, sizeof(struct dsaio_io), 1, 0, &f->op) < 0)
		return failed("submit");
	TAILQ_INSERT_TAIL(queue, f, link);
	return 0;
}

/*
 * The cheapest way to keep a number of ops in flight: wait for the oldest, then take all that
 * have ended by then and start as many anew.  dsaio_op_wait() sleeps on the futex, dsaio_handle_reap()
 * that finds something makes no system call; its descriptor would cost a poll, a byte sent and
 * a byte read each time.
 */
static int ours_iops(struct bench *b, double *ret_iops)
{
	struct flying flying[SMALL_DEPTH];
	struct queue queue = TAILQ_HEAD_INITIALIZER(queue);
	const int64_t start = now_nsec(), end = start + SLICE_USEC * 1000;
	uint64_t n_done = 0, seed = random_seed();
	bool is_over = false;

	for (unsigned i = 0; i < SMALL_DEPTH; i++) {
		flying[i].memory = b->memory + i * SMALL_BYTES;
		if (take_off(b, &flying[i], &queue, &seed) < 0)
			return -EIO;
	}
	while (!TAILQ_EMPTY(&queue)) {
		struct dsaio_completion ended[SMALL_DEPTH];
		int n;

		(void)dsaio_op_wait(TAILQ_FIRST(&queue)->op, -1, NULL); /* the result: below */
		n = dsaio_handle_reap(b->handle, ended, sizeof(ended[0]), 0, SMALL_DEPTH, 0);
		if (n < 0)
			return failed("reap");
		is_over = is_over || now_nsec() >= end;
		for (int i = 0; i < n; i++) {
			struct flying *f = ended[i].user_data;

			if (ended[i].result != (int64_t)SMALL_BYTES) {
				fprintf(stderr, "bench: %s: %s\n", b->is_write ? "write" : "read",
					dsaio_op_error(ended[i].op));
				return -EIO;
			}
			TAILQ_REMOVE(&queue, f, link);
			dsaio_op_free(ended[i].op);
			if (!is_over && take_off(b, f, &queue, &seed) < 0)
				return -EIO;
		}
		n_done += (uint64_t)n;
	}
	*ret_iops = (double)n_done * 1e9 / (double)(now_nsec() - start);
	return 0;
}

/* ---- the references ---- */

static int local_bandwidth(struct bench *b, bool is_write, double *ret_bandwidth)
{
	double seconds;
	const int r = local_stream(&b->local, b->memory, READ_BYTES, LARGE_DEPTH, is_write,
				   &seconds);

	if (r == 0)
		*ret_bandwidth = (double)READ_BYTES / seconds;
	return r;
}

int local_read_bandwidth(struct bench *b, double *ret_bandwidth)
{
	return local_bandwidth(b, false, ret_bandwidth);
}

static int local_write_bandwidth(struct bench *b, double *ret_bandwidth)
{
	return local_bandwidth(b, true, ret_bandwidth);
}

int local_latency(struct bench *b, double *ret_usec)
{
	uint64_t n;
	double seconds;
	const int r = local_random(&b->local, READ_BYTES, 1, SLICE_USEC, &n, &seconds);

	if (r == 0)
		*ret_usec = seconds * 1e6 / (double)n;
	return r;
}

int local_iops(struct bench *b, double *ret_iops)
{
	uint64_t n;
	double seconds;
	int r;

	b->local.is_write = b->is_write;
	r = local_random(&b->local, READ_BYTES, SMALL_DEPTH, SLICE_USEC, &n, &seconds);
	if (r == 0)
		*ret_iops = (double)n / seconds;
	return r;
}

/* ---- measures ---- */

/* On a terminal, in one line that the next one replaces. */
static void progress(const struct row *row, unsigned n_rounds)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (row)
		fprintf(stderr, "\r\033[K%s: round %u", row->name, n_rounds);
	else
		fprintf(stderr, "\r\033[K");
}

int round_begin(const struct row *row, unsigned round)
{
	progress(row, round);
	return is_interrupted ? -EINTR : 0;
}

int round_run(struct bench *b, const struct row *row, unsigned round,
	      int (*const sides[])(struct bench *, double *), unsigned n, double *ret_values)
{
	int r = round_begin(row, round);

	for (unsigned i = 0; r == 0 && i < n; i++) {
		const unsigned side = (round + i) % n;

		if (sides[side](b, &ret_values[side]) < 0)
			r = -EIO;
	}
	return r;
}

int compare(struct bench *b, struct row *row, double unit, int (*ours)(struct bench *, double *),
	    int (*reference)(struct bench *, double *))
{
	const int64_t end = now_nsec() + COMPARISON_NSEC;
	double values[2];
	int r = 0;

	for (unsigned i = 0;
	     row->n_rounds < ROUNDS_MAX && (row->n_rounds < ROUNDS_MIN || now_nsec() < end); i++) {
		r = round_run(b, row, i,
			      (int (*const[])(struct bench *, double *)){ ours, reference }, 2,
			      values);
		if (r < 0)
			return r;
		if (i > 0)
			row_add(row, values[0] / unit, values[1] / unit);
	}
	return 0;
}

int repeat(struct bench *b, struct row *row, int (*ours)(struct bench *, double *))
{
	double value;
	int r;

	for (unsigned i = 0; row->n_rounds < ROUNDS_MIN; i++) {
		r = round_run(b, row, i, (int (*const[])(struct bench *, double *)){ ours }, 1,
			      &value);
		if (r < 0)
			return r;
		if (i > 0)
			row_add(row, value, 1);
	}
	return 0;
}

int ours_open_large(struct bench *b)
{
	struct dsaio_profile profile = point_profile(LARGE_DEPTH);

	profile.block_size = LARGE_BYTES;
	return ours_open(b, "", &profile, FILE_BYTES);
}

/*
 * The speed of a block depends on how scattered its pages are, and fio has others than we: this
 * one uses the same slab on both sides, and tells what the way through the daemon costs.
 */
static int measure_bandwidth_local(struct bench *b)
{
	int r = ours_open_large(b);

	if (r == 0)
		r = local_open(&b->local, b->path, LARGE_BYTES);
	if (r == 0)
		r = compare(b, &rows[ROW_READ_LOCAL], 1e6, ours_read_bandwidth,
			    local_read_bandwidth);
	if (r == 0)
		r = compare(b, &rows[ROW_WRITE_LOCAL], 1e6, ours_write_bandwidth,
			    local_write_bandwidth);
	local_close(&b->local);
	return r;
}

static int measure_small(struct bench *b, const char *config, struct row *row,
			 int (*ours)(struct bench *, double *),
			 int (*reference)(struct bench *, double *))
{
	int r = ours_open(b, config, NULL, SMALL_DEPTH * SMALL_BYTES);

	if (r == 0)
		r = local_open(&b->local, b->path, SMALL_BYTES);
	if (r == 0)
		r = compare(b, row, 1, ours, reference);
	local_close(&b->local);
	return r;
}

static int measure_latency(struct bench *b)
{
	return measure_small(b, "[daemon]\nspin_usec = 200\n", &rows[ROW_LATENCY], ours_latency,
			     local_latency);
}

static int measure_latency_sleeping(struct bench *b)
{
	return measure_small(b, "[daemon]\nspin_usec = 0\n", &rows[ROW_LATENCY_SLEEPING],
			     ours_latency, local_latency);
}

/*
 * No device limits it: what is left is what the way itself costs.  The daemon of a host gives writes to
 * tmpfs to worker threads, because io_submit would wait for the inode's lock, which any user may hold.  So
 * the writes are those of a user's own daemon.
 */
static int measure_iops_memory(struct bench *b)
{
	char dir[] = "/dev/shm/dsaio-bench-XXXXXX", path[FILES_PATH_BYTES];
	char *const disk = b->path;
	int r;

	if (!mkdtemp(dir)) {
		r = -errno;
		fprintf(stderr, "bench: cannot make %s: %s\n", dir, strerror(-r));
		return r;
	}
	files_path(path, dir, 0);
	b->path = path;
	r = files_make(dir, 1, READ_BYTES);
	if (r == 0)
		r = measure_small(b, "", &rows[ROW_IOPS_MEMORY], ours_iops, local_iops);
	ours_close(b);
	b->is_write = b->daemon.is_user = true;
	if (r == 0)
		r = measure_small(b, "", &rows[ROW_IOPS_MEMORY_WRITE], ours_iops, local_iops);
	ours_close(b);
	b->is_write = b->daemon.is_user = false;
	b->path = disk;
	dir_remove(dir);
	return r;
}

static int pause_seconds(int seconds)
{
	const struct timespec t = { .tv_sec = seconds };

	return is_interrupted || nanosleep(&t, NULL) < 0 ? -EINTR : 0;
}

/* One client is connected, with a handle, a file and a slab, and has done an op. */
static int measure_rest(struct bench *b)
{
	struct process_activity before, after;
	int r = ours_open(b, "", NULL, SMALL_BYTES);

	progress(&rows[ROW_REST_TICKS], 1);
	/* Spinning ends milliseconds after an op, and an idle worker thread ends after a second: then
	   its switches would be missing from the sum. */
	if (r < 0 || (r = pause_seconds(2)) < 0)
		return r;
	r = process_activity(b->daemon.pid, &before);
	if (r < 0 || (r = pause_seconds(REST_SECONDS)) < 0)
		return r;
	r = process_activity(b->daemon.pid, &after);
	if (r < 0)
		return r;
	row_add(&rows[ROW_REST_TICKS], (double)(after.ticks - before.ticks), 1);
	row_add(&rows[ROW_REST_SWITCHES], (double)(after.switches - before.switches), 1);
	return 0;
}

/* Uses every entry of a new handle at once, so that none of its memory is only promised. */
static int fill_handle(struct bench *b, struct dsaio_handle **ret_handle)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	int64_t n_ended;

	options.entries = HANDLE_ENTRIES;
	if (dsaio_handle_open(b->client, &options, ret_handle) < 0)
		return failed("open a handle");
	for (unsigned i = 0; i < HANDLE_ENTRIES; i++)
		if (dsaio_pread_async(*ret_handle, b->file, b->memory, SMALL_BYTES, i * SMALL_BYTES,
				      NULL) < 0)
			return failed("read");
	return dsaio_handle_wait(*ret_handle, -1, &n_ended) == 0 && n_ended == HANDLE_ENTRIES
		       ? 0
		       : failed("wait");
}

/*
 * In a fresh daemon, since memory that was freed before would hide what comes: one client (with
 * a handle in use); then as many more as FURTHER_CLIENTS, each with a file; then handles, whose
 * rings, which are memfds, count too.
 */
static int measure_memory(struct bench *b)
{
	struct dsaio_client *clients[FURTHER_CLIENTS] = { NULL };
	struct dsaio_file *files[FURTHER_CLIENTS] = { NULL };
	struct dsaio_handle *handles[HANDLES] = { NULL };
	struct process_memory one, more, handled;
	int r = ours_open(b, "", NULL, SMALL_BYTES);

	progress(&rows[ROW_MEMORY_ONE], 1);
	if (r == 0)
		r = process_memory(b->daemon.pid, &one);
	for (unsigned i = 0; r == 0 && i < FURTHER_CLIENTS; i++)
		if (socket_connect(b->daemon.socket_path, &clients[i]) < 0 ||
		    dsaio_open(clients[i], b->path, O_RDONLY, NULL, &files[i]) < 0)
			r = failed("a further client");
	if (r == 0)
		r = process_memory(b->daemon.pid, &more);
	for (unsigned i = 0; r == 0 && i < HANDLES; i++)
		r = fill_handle(b, &handles[i]);
	if (r == 0)
		r = process_memory(b->daemon.pid, &handled);

	for (unsigned i = 0; i < HANDLES; i++)
		(void)dsaio_handle_close(handles[i], -1);
	for (unsigned i = 0; i < FURTHER_CLIENTS; i++) {
		if (files[i])
			dsaio_file_close(files[i]);
		(void)dsaio_disconnect(clients[i]);
	}
	if (r < 0)
		return r;
	row_add(&rows[ROW_MEMORY_ONE], (double)one.own_bytes / (1 << 20), 1);
	row_add(&rows[ROW_MEMORY_FURTHER],
		((double)more.own_bytes - (double)one.own_bytes) / 1024 / FURTHER_CLIENTS, 1);
	row_add(&rows[ROW_MEMORY_HANDLE],
		((double)handled.own_bytes + (double)handled.memfd_bytes - (double)more.own_bytes -
		 (double)more.memfd_bytes) /
			(HANDLES * HANDLE_ENTRIES),
		1);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct bench *b);
	const char *on_request; /* what it tells: only when it is named */
} measures[] = {
	{ "bandwidth", measure_bandwidth, NULL },
	{ "bandwidth-huge", measure_bandwidth_huge, NULL },
	{ "bandwidth-many", measure_bandwidth_many, NULL },
	{ "latency", measure_latency, NULL },
	{ "latency-sleeping", measure_latency_sleeping, NULL },
	{ "iops", measure_iops, NULL },
	{ "iops-memory", measure_iops_memory, NULL },
	{ "files", measure_files, NULL },
	{ "path", measure_path, NULL },
	{ "private", measure_private, NULL },
	{ "odd", measure_odd, NULL },
	{ "autostart", measure_autostart, NULL },
	{ "rest", measure_rest, NULL },
	{ "memory", measure_memory, NULL },
	{ "memory-fresh", measure_fresh, "1 GiB of new pinned memory beside memfd and mlock" },
	{ "neighbour", measure_neighbour, NULL },
	{ "shares", measure_shares, NULL },
	{ "neighbour-write", measure_neighbour_write, "a small reader beside large writes" },
	{ "shares-write", measure_shares_write, "the shares of two that write" },
	{ "guest", measure_guest,
	  "a program with one op open beside the class background; two minutes" },
	{ "newcomer", measure_newcomer, "the first read of a client beside one that was alone" },
	{ "bandwidth-local", measure_bandwidth_local,
	  "large reads beside in-process libaio, not fio" },
	{ "nowait", measure_nowait,
	  "what RWF_NOWAIT costs on this device, alone and beside another reader" },
	{ "control-alloc", measure_control_alloc,
	  "connect, open, alloc and status beside alloc and free of 6 x 512 MiB; as root" },
	{ "control-import", measure_control_import, "the same beside imports of 1 GiB" },
	{ "control-connect", measure_control_connect,
	  "the same beside 16 processes that connect and close" },
	{ "recorder", measure_recorder, "an event of the flight recorder" },
	{ "restart", measure_restart,
	  "how long a program with ops open has none end while the daemon is restarted or\n"
	  "    killed; three minutes" },
	{ "gpu-copies", measure_gpu_copies,
	  "ops on GPU memory (a stand-in) beside the slower of I/O and copies; two minutes" },
	{ "small", measure_small_matrix,
	  "ops of 4 and 64 KiB, 1 to 128 at once and 1 to 32 clients,\n"
	  "    beside libaio and io_uring in the same process; three minutes" },
};

/* ---- the directory, the file, the order of things ---- */

/* The program's name: make runs us in the source tree, but fio and daemons get whole paths. */
static int find_program(struct bench *b)
{
	const char *build = getenv("BUILD");
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/dsaiod", build && *build ? build : "build");
	b->program = realpath(path, NULL);
	side_daemon_program = b->program;
	if (!b->program)
		fprintf(stderr, "bench: no daemon at %s (%s); run: make\n", path, strerror(errno));
	return b->program ? 0 : -ENOENT;
}

static int dir_make(struct bench *b)
{
	const char *parent = getenv("BENCH_DIR");
	char *whole = realpath(parent && *parent ? parent : "/var/tmp", NULL);
	int r = 0;

	if (!whole || asprintf(&b->dir, "%s/dsaio-bench-XXXXXX", whole) < 0 || !mkdtemp(b->dir)) {
		r = -errno;
		fprintf(stderr,
			"bench: cannot make a directory in %s: %s; set BENCH_DIR to one "
			"on the disk to measure\n",
			parent ? parent : "/var/tmp", strerror(-r));
		free(b->dir);
		b->dir = NULL;
	} else if (asprintf(&b->path, "%s/" FILES_NAME ".0", b->dir) < 0) {
		b->path = NULL;
		r = -ENOMEM;
	}
	free(whole);
	return r;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	if (remove(path) < 0)
		fprintf(stderr, "bench: cannot remove %s: %s\n", path, strerror(errno));
	return 0;
}

void dir_remove(const char *dir)
{
	(void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* remove_one() reports errors */
}

static bool is_wanted(size_t measure, char **wanted)
{
	if (!*wanted)
		return !measures[measure].on_request;
	for (; *wanted; wanted++)
		if (strcmp(*wanted, measures[measure].name) == 0)
			return true;
	return false;
}

static int run(struct bench *b, char **wanted)
{
	int r = find_program(b);

	if (r == 0)
		r = dir_make(b);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(measures); i++) {
		if (!is_wanted(i, wanted))
			continue;
		/* Written anew, so that none of it has got cold in a cache below us. */
		r = files_make(b->dir, 1, FILE_BYTES);
		if (r == 0)
			r = measures[i].run(b);
		ours_close(b);
	}
	progress(NULL, 0);
	return r;
}

static int usage(FILE *f, int status)
{
	fprintf(f,
		"usage: bench [MEASURE]...\n"
		"   or: bench replay FILE PASSES (for zero_infinity.py)\n"
		"Measures dsaiod beside fio, libaio and DeepNVMe's algorithm; without MEASURE, all "
		"but\nthose marked, in about five minutes:\n");
	for (size_t i = 0; i < ARRAY_SIZE(measures); i++)
		fprintf(f, "  %s%s%s\n", measures[i].name,
			measures[i].on_request ? ": only when named: " : "",
			measures[i].on_request ? measures[i].on_request : "");
	fprintf(f,
		"environment: BUILD (build): where dsaiod lies; BENCH_DIR (/var/tmp): a directory "
		"on the\ndisk to measure; BENCH_JSON: a file for the rows as JSON; BENCH_SMALL: a\n"
		"pattern for the points of small, as \"4K read, 1 x *\"\n");
	return status;
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = on_signal };
	const char *json = getenv("BENCH_JSON");
	struct bench b = { .local.fd = -1 };
	int r;

	if (argc > 1 && strcmp(argv[1], "replay") == 0)
		return replay_main(argc - 1, argv + 1);
	for (int i = 1; i < argc; i++) {
		size_t j = 0;

		if (strcmp(argv[i], "--help") == 0)
			return usage(stdout, 0);
		while (j < ARRAY_SIZE(measures) && strcmp(argv[i], measures[j].name) != 0)
			j++;
		if (j == ARRAY_SIZE(measures))
			return usage(stderr, 2);
	}
	/* Not restarted: a pause ends, and the rounds look at is_interrupted. */
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	(void)setvbuf(stdout, NULL, _IOLBF, 0);

	r = run(&b, argv + 1);
	if (b.dir)
		dir_remove(b.dir);
	free(b.program);
	free(b.dir);
	free(b.path);
	if (r < 0) {
		if (is_interrupted)
			fprintf(stderr, "bench: interrupted\n");
		return 1;
	}
	report_print(stdout, rows, N_ROWS);
	return json && *json && report_write_json(json, rows, N_ROWS) < 0 ? 1 : 0;
}
