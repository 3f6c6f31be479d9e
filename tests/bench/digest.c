/*
 * The measures against fio, in-process libaio and DeepNVMe's algorithm: the sides of side.h, at the
 * points that bars are set for.
 */
#include <stdio.h>

#include "tests/bench/contest.h"
#include "tests/bench/files.h"

#define MANY_CLIENTS 8
#define MANY_BYTES (UINT64_C(100) << 20) /* of each */
#define SOME_CLIENTS 4

/* ---- large ops ---- */

static struct point large_point(const struct bench *b, bool is_write, unsigned n_clients)
{
	const uint64_t bytes = n_clients == 1 ? READ_BYTES : MANY_BYTES;

	return (struct point){ .dir = b->dir,
			       .op_bytes = bytes,
			       .file_bytes = bytes,
			       .is_write = is_write,
			       .depth = LARGE_DEPTH,
			       .n_processes = n_clients,
			       .profile = point_profile(LARGE_DEPTH),
			       .slice_ops = 1 };
}

/* The sides of a comparison of large ops; fio's engines one after the other. */
struct large {
	struct contest contest;
	unsigned ours, libaio, deepnvme; /* the latter two: the first of several */
	unsigned fio_best, deepnvme_best;
};

static int large_open(struct large *l, const struct point *point)
{
	static const char *const kinds[] = { "ours", "fio-libaio", "fio-uring" };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kinds); i++)
		r = contest_add(&l->contest, kinds[i], point);
	l->libaio = 1;
	return r < 0 ? r : 0;
}

static int deepnvme_add(struct large *l, const struct point *point)
{
	struct point p = *point;
	int r = 0;

	l->deepnvme = l->contest.n_sides;
	for (unsigned i = 0; r >= 0 && i < DEEPNVME_POINTS; i++) {
		p.profile = deepnvme_point(i);
		r = contest_add(&l->contest, "deepnvme", &p);
	}
	return r < 0 ? r : 0;
}

static int large_choose(struct bench *b, struct large *l, const struct row *row)
{
	struct contest *c = &l->contest;
	const int r = contest_run(b, c, row, CHOICE_ROUNDS);

	if (r < 0)
		return r;
	l->fio_best = contest_best(c, l->libaio, 2);
	printf("%s: the best engine is %s\n", row->name, c->sides[l->fio_best].kind->name);
	if (l->deepnvme > 0)
		l->deepnvme_best = contest_best(c, l->deepnvme, DEEPNVME_POINTS);
	contest_forget(c);
	return 0;
}

/* CPU time is compared with the same engine, libaio: so that one goes on in any case. */
static int large_run(struct bench *b, struct large *l, struct row *bandwidth,
		     struct row *beside_deepnvme, struct row *cpu)
{
	int r;

	l->contest.is_out[l->libaio] = false;
	r = contest_run(b, &l->contest, bandwidth, ROUNDS_MIN);
	if (r < 0)
		return r;
	contest_row(&l->contest, bandwidth, l->ours, l->fio_best, result_megabytes_per_sec);
	contest_row(&l->contest, beside_deepnvme, l->ours, l->deepnvme_best,
		    result_megabytes_per_sec);
	deepnvme_print(beside_deepnvme, &l->contest.sides[l->deepnvme_best].point.profile);
	contest_row(&l->contest, cpu, l->ours, l->libaio, result_cpu_msec_per_gigabyte);
	return 0;
}

static int measure_large(struct bench *b, bool is_write, struct row *bandwidth,
			 struct row *beside_deepnvme, struct row *cpu)
{
	const struct point point = large_point(b, is_write, 1);
	struct large l = { 0 };
	int r = large_open(&l, &point);

	if (r == 0)
		r = deepnvme_add(&l, &point);
	if (r == 0)
		r = large_choose(b, &l, bandwidth);
	if (r == 0)
		r = large_run(b, &l, bandwidth, beside_deepnvme, cpu);
	contest_close(&l.contest);
	return r;
}

int measure_bandwidth(struct bench *b)
{
	int r = measure_large(b, false, &rows[ROW_READ], &rows[ROW_READ_DEEPNVME],
			      &rows[ROW_READ_CPU]);

	if (r == 0)
		r = measure_large(b, true, &rows[ROW_WRITE], &rows[ROW_WRITE_DEEPNVME],
				  &rows[ROW_WRITE_CPU]);
	return r;
}

static int measure_large_many(struct bench *b, bool is_write, struct row *row)
{
	const struct point point = large_point(b, is_write, MANY_CLIENTS);
	struct large l = { 0 };
	int r = large_open(&l, &point);

	if (r == 0)
		r = large_choose(b, &l, row);
	if (r == 0)
		r = contest_run(b, &l.contest, row, ROUNDS_MIN);
	if (r == 0)
		contest_row(&l.contest, row, l.ours, l.fio_best, result_megabytes_per_sec);
	contest_close(&l.contest);
	return r;
}

int measure_bandwidth_many(struct bench *b)
{
	int r = files_make(b->dir, MANY_CLIENTS, MANY_BYTES);

	if (r == 0)
		r = measure_large_many(b, false, &rows[ROW_READ_MANY]);
	if (r == 0)
		r = measure_large_many(b, true, &rows[ROW_WRITE_MANY]);
	files_remove(b->dir, MANY_CLIENTS);
	return r;
}

/* ---- small ops ---- */

static struct point small_point(const char *dir, unsigned n_clients, uint64_t file_bytes)
{
	return (struct point){ .dir = dir,
			       .op_bytes = SMALL_BYTES,
			       .file_bytes = file_bytes,
			       .is_random = true,
			       .depth = SMALL_DEPTH,
			       .n_processes = n_clients,
			       .profile = point_profile(SMALL_DEPTH),
			       .slice_usec = SLICE_USEC };
}

/* ours beside another */
static int small_compare(struct bench *b, const struct point *point, const char *kind,
			 struct row *row)
{
	struct contest c = { 0 };
	const int ours = contest_add(&c, "ours", point);
	const int other = ours < 0 ? ours : contest_add(&c, kind, point);
	int r = other < 0 ? other : contest_run(b, &c, row, 1);

	contest_forget(&c);
	if (r == 0)
		r = contest_run(b, &c, row, ROUNDS_MIN);
	if (r == 0)
		contest_row(&c, row, (unsigned)ours, (unsigned)other, result_ops_per_sec);
	contest_close(&c);
	return r;
}

int measure_iops(struct bench *b)
{
	const struct point one = small_point(b->dir, 1, READ_BYTES);
	const struct point some = small_point(b->dir, SOME_CLIENTS, MANY_BYTES);
	int r = small_compare(b, &one, "fio-libaio", &rows[ROW_IOPS]);

	if (r == 0)
		r = files_make(b->dir, SOME_CLIENTS, MANY_BYTES);
	if (r == 0)
		r = small_compare(b, &some, "fio-libaio", &rows[ROW_IOPS_SOME]);
	files_remove(b->dir, SOME_CLIENTS);
	return r;
}
