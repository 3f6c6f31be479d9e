/*
 * The measures of sharing: a small reader beside a large one, and the shares of two that never
 * have enough.  Each program is a process of its own (neighbour.h).
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/neighbour.h"

/* Until the window and the list of active clients are stable; then the measured time starts. */
#define SETTLE_NSEC INT64_C(200000000)
#define WINDOW_NSEC INT64_C(500000000)
/* In the order of arrival a read takes hundreds of milliseconds: some are needed. */
#define ARRIVAL_NSEC INT64_C(900000000)

#define GREEDY_BYTES (UINT64_C(16) << 20) /* 25 of them are the file */

/* One measure: at most two clients of ours, and two programs without the daemon. */
enum { BIG, SMALL, BIG_LOCAL, SMALL_LOCAL, N_NEIGHBOURS };
static struct neighbour neighbours[N_NEIGHBOURS];

static int start(struct bench *b, unsigned which, const struct neighbour_job *job)
{
	struct neighbour_job whole = *job;

	whole.path = b->path;
	whole.file_bytes = READ_BYTES;
	whole.socket_path = which == BIG || which == SMALL ? b->daemon.socket_path : NULL;
	return neighbour_start(&neighbours[which], &whole);
}

static void stop_all(void)
{
	for (unsigned i = 0; i < N_NEIGHBOURS; i++)
		neighbour_stop(&neighbours[i]);
}

/* Two of them, or with N_NEIGHBOURS as the second one; gives the time that counts. */
static int slice(unsigned one, unsigned two, int64_t nsec, int64_t *ret_from, int64_t *ret_to)
{
	struct neighbour *const both[] = { &neighbours[one], &neighbours[two % N_NEIGHBOURS] };

	*ret_from = now_nsec() + SETTLE_NSEC;
	*ret_to = *ret_from + nsec;
	return neighbours_run(both, two == N_NEIGHBOURS ? 1 : 2, *ret_to);
}

/* ---- small beside large ---- */

static int big_alone(struct bench *b, double *ret_bandwidth)
{
	int64_t from, to;
	const int r = slice(BIG, N_NEIGHBOURS, WINDOW_NSEC, &from, &to);

	(void)b;
	*ret_bandwidth = neighbour_bandwidth(&neighbours[BIG], from, to);
	return r;
}

static double big_beside_bandwidth; /* of the last both_beside() */

static int both_beside(struct bench *b, double *ret_p99_usec)
{
	int64_t from, to;
	const int r = slice(BIG, SMALL, WINDOW_NSEC, &from, &to);

	(void)b;
	big_beside_bandwidth = neighbour_bandwidth(&neighbours[BIG], from, to);
	*ret_p99_usec = neighbour_latency_usec(&neighbours[SMALL], from, to, 0.99);
	return r;
}

static int both_by_arrival(struct bench *b, double *ret_p99_usec)
{
	int64_t from, to;
	const int r = slice(BIG_LOCAL, SMALL_LOCAL, ARRIVAL_NSEC, &from, &to);

	(void)b;
	*ret_p99_usec = neighbour_latency_usec(&neighbours[SMALL_LOCAL], from, to, 0.99);
	return r;
}

static int measure_beside(struct bench *b, bool is_write, struct row *latency,
			  struct row *bandwidth)
{
	static int (*const sides[])(struct bench *, double *) = { big_alone, both_beside,
								  both_by_arrival };
	const struct neighbour_job big = {
		.op_bytes = READ_BYTES, .n_queued = 1, .weight = 1, .is_write = is_write
	};
	const struct neighbour_job small = { .op_bytes = SMALL_BYTES, .n_queued = 1, .weight = 1 };
	double values[ARRAY_SIZE(sides)];
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	for (unsigned i = 0; r == 0 && i < N_NEIGHBOURS; i++)
		r = start(b, i, i == BIG || i == BIG_LOCAL ? &big : &small);
	for (unsigned i = 0; r == 0 && i <= ROUNDS_MIN; i++) {
		r = round_run(b, latency, i, sides, ARRAY_SIZE(sides), values);
		if (r < 0 || i == 0)
			continue;
		row_add(bandwidth, big_beside_bandwidth / 1e6, values[0] / 1e6);
		row_add(latency, values[1], values[2]);
	}
	stop_all();
	return r;
}

int measure_neighbour(struct bench *b)
{
	return measure_beside(b, false, &rows[ROW_SMALL_BESIDE], &rows[ROW_BIG_BESIDE]);
}

int measure_neighbour_write(struct bench *b)
{
	return measure_beside(b, true, &rows[ROW_SMALL_BESIDE_WRITES], &rows[ROW_WRITES_BESIDE]);
}

/* ---- shares ---- */

/*
 * Ours is the larger of the two shares, by weight, and the reference the smaller: if either has too
 * much, the ratio is above 1.
 */
static int measure_share(struct bench *b, struct row *row, const struct neighbour_job *one,
			 const struct neighbour_job *two)
{
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	if (r == 0)
		r = start(b, BIG, one);
	if (r == 0)
		r = start(b, SMALL, two);
	for (unsigned i = 0; r == 0 && i <= ROUNDS_MIN; i++) {
		int64_t from = 0, to = 0;
		double x, y;

		r = round_begin(row, i);
		if (r == 0)
			r = slice(BIG, SMALL, WINDOW_NSEC, &from, &to);
		if (r < 0 || i == 0)
			continue;
		x = neighbour_bandwidth(&neighbours[BIG], from, to) / 1e6 / one->weight;
		y = neighbour_bandwidth(&neighbours[SMALL], from, to) / 1e6 / two->weight;
		row_add(row, x > y ? x : y, x > y ? y : x);
	}
	stop_all();
	private_daemon_stop(&b->daemon);
	return r;
}

static int measure_shares_of(struct bench *b, bool is_write, struct row *equal,
			     struct row *weighted)
{
	const struct neighbour_job short_queue = {
		.op_bytes = GREEDY_BYTES, .n_queued = 1, .weight = 1, .is_write = is_write
	};
	struct neighbour_job long_queue = short_queue, heavy;
	int r;

	long_queue.n_queued = NEIGHBOUR_QUEUED_MAX;
	heavy = long_queue;
	heavy.weight = 4;
	r = measure_share(b, equal, &short_queue, &long_queue);
	if (r == 0)
		r = measure_share(b, weighted, &long_queue, &heavy);
	return r;
}

int measure_shares(struct bench *b)
{
	return measure_shares_of(b, false, &rows[ROW_SHARES], &rows[ROW_SHARES_WEIGHTED]);
}

int measure_shares_write(struct bench *b)
{
	return measure_shares_of(b, true, &rows[ROW_SHARES_WRITE],
				 &rows[ROW_SHARES_WEIGHTED_WRITE]);
}

/* ---- beside the class background ---- */

#define GUEST SMALL /* of the class background; the program beside it is BIG */
/* The program is quiet for so long at the end of a slice; the device is the guest's by the last part. */
#define QUIET_NSEC INT64_C(300000000)
#define WHOLE_NSEC INT64_C(150000000)
#define STEP_NSEC INT64_C(1000000)
#define LOOK_NSEC INT64_C(10000000)

static double guest_p99_usec[2]; /* of the last slices: alone, beside */

static int program_slice(unsigned two, double *ret_rate)
{
	int64_t from, to;
	const int r = slice(BIG, two, WINDOW_NSEC, &from, &to);

	*ret_rate = neighbour_bandwidth(&neighbours[BIG], from, to);
	guest_p99_usec[two == GUEST] = neighbour_latency_usec(&neighbours[BIG], from, to, 0.99);
	return r;
}

static int program_alone(struct bench *b, double *ret_rate)
{
	(void)b;
	return program_slice(N_NEIGHBOURS, ret_rate);
}

static int program_beside(struct bench *b, double *ret_rate)
{
	(void)b;
	return program_slice(GUEST, ret_rate);
}

/* p99: NULL or its row. */
static int measure_program(struct bench *b, const struct neighbour_job *program, struct row *row,
			   double unit, struct row *p99)
{
	static int (*const sides[])(struct bench *, double *) = { program_beside, program_alone };
	const struct neighbour_job guest = { .op_bytes = READ_BYTES,
					     .n_queued = 1,
					     .weight = 1,
					     .is_write = program->is_write,
					     .io_class = DSAIO_CLASS_BACKGROUND };
	double values[ARRAY_SIZE(sides)];
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	if (r == 0)
		r = start(b, BIG, program);
	if (r == 0)
		r = start(b, GUEST, &guest);
	for (unsigned i = 0; r == 0 && i <= ROUNDS_MIN; i++) {
		r = round_run(b, row, i, sides, ARRAY_SIZE(sides), values);
		if (r < 0 || i == 0)
			continue;
		row_add(row, values[0] / unit, values[1] / unit);
		if (p99)
			row_add(p99, guest_p99_usec[1], guest_p99_usec[0]);
	}
	stop_all();
	private_daemon_stop(&b->daemon);
	return r;
}

/* From the program's last op on, until the guest moves nine tenths of what it does at the end. */
static double msec_until_back(int64_t to)
{
	const struct neighbour_log *log = neighbours[BIG].log;
	const int64_t quiet = log->n ? log->ends[log->n - 1] : log->start;
	const double whole = neighbour_bandwidth(&neighbours[GUEST], to - WHOLE_NSEC, to);
	int64_t at = quiet;

	while (at < to - LOOK_NSEC &&
	       neighbour_bandwidth(&neighbours[GUEST], at, at + LOOK_NSEC) < 0.9 * whole)
		at += STEP_NSEC;
	return (double)(at - quiet) / 1e6;
}

static int measure_back(struct bench *b, bool is_write, struct row *row)
{
	const struct neighbour_job program = { .op_bytes = LARGE_BYTES,
					       .n_queued = 1,
					       .weight = 1,
					       .is_write = is_write,
					       .early_nsec = QUIET_NSEC };
	const struct neighbour_job guest = { .op_bytes = LARGE_BYTES,
					     .n_queued = NEIGHBOUR_QUEUED_MAX,
					     .weight = 1,
					     .is_write = is_write,
					     .io_class = DSAIO_CLASS_BACKGROUND };
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	if (r == 0)
		r = start(b, BIG, &program);
	if (r == 0)
		r = start(b, GUEST, &guest);
	for (unsigned i = 0; r == 0 && i <= ROUNDS_MIN; i++) {
		int64_t from, to;

		r = round_begin(row, i);
		if (r == 0)
			r = slice(BIG, GUEST, WINDOW_NSEC, &from, &to);
		if (r == 0 && i > 0)
			row_add(row, msec_until_back(to), 1);
	}
	stop_all();
	private_daemon_stop(&b->daemon);
	return r;
}

static int measure_guest_of(struct bench *b, bool is_write, struct row *all)
{
	const struct neighbour_job large = {
		.op_bytes = LARGE_BYTES, .n_queued = 1, .weight = 1, .is_write = is_write
	};
	struct neighbour_job small = large;
	int r;

	small.op_bytes = SMALL_BYTES;
	r = measure_program(b, &large, &all[0], 1e6, NULL);
	if (r == 0)
		r = measure_program(b, &small, &all[1], (double)SMALL_BYTES, &all[2]);
	if (r == 0)
		r = measure_back(b, is_write, &all[3]);
	return r;
}

int measure_guest(struct bench *b)
{
	int r = measure_guest_of(b, false, &rows[ROW_GUEST_READ]);

	if (r == 0)
		r = measure_guest_of(b, true, &rows[ROW_GUEST_WRITE]);
	return r;
}

/* ---- a newcomer ---- */

/* It comes when the other client is alone, and not within 100 ms of the last slice. */
#define NEWCOMER_NSEC INT64_C(400000000)

/* profile: of the client that was alone; NULL: the store's. */
static int measure_newcomer_of(struct bench *b, const struct dsaio_profile *profile,
			       struct row *row)
{
	const struct neighbour_job big = {
		.op_bytes = READ_BYTES, .n_queued = 4, .weight = 1, .profile = profile
	};
	const struct neighbour_job small = {
		.op_bytes = SMALL_BYTES, .n_queued = 1, .weight = 1, .late_nsec = NEWCOMER_NSEC
	};
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	if (r == 0)
		r = start(b, BIG, &big);
	if (r == 0)
		r = start(b, SMALL, &small);
	for (unsigned i = 0; r == 0 && i <= ROUNDS_MAX; i++) {
		const struct neighbour_log *log = neighbours[SMALL].log;
		int64_t from, to;

		r = round_begin(row, i);
		if (r == 0)
			r = slice(BIG, SMALL, NEWCOMER_NSEC - SETTLE_NSEC + 1, &from, &to);
		if (r == 0 && i > 0)
			row_add(row, (double)(log->ends[0] - log->begins[0]) / 1e6, 1);
	}
	stop_all();
	private_daemon_stop(&b->daemon);
	return r;
}

int measure_newcomer(struct bench *b)
{
	struct dsaio_profile large = point_profile(4096);
	int r;

	large.block_size = 64u << 20;
	r = measure_newcomer_of(b, &large, &rows[ROW_NEWCOMER_LARGE]);
	if (r == 0)
		r = measure_newcomer_of(b, NULL, &rows[ROW_NEWCOMER]);
	return r;
}
