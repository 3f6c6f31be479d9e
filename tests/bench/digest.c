/*
 * The measures against fio, in-process libaio and DeepNVMe's algorithm: the sides of side.h, at the
 * points that bars are set for.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/util/cleanup.h"
#include "tests/bench/contest.h"
#include "tests/bench/files.h"
#include "tests/huge_pages.h"

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

/*
 * The sides of a comparison of large ops, by their index: of tuned (ours), deepnvme and fio the
 * first of several, and then the best one.
 */
struct large {
	struct contest contest;
	unsigned ours, fio, tuned, deepnvme;
	unsigned best_fio, best_tuned, best_deepnvme;
};

static int large_open(struct large *l, const struct point *point)
{
	static const char *const kinds[] = { "ours", "fio-libaio", "fio-uring" };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kinds); i++)
		r = contest_add(&l->contest, kinds[i], point);
	l->fio = 1; /* its libaio */
	return r < 0 ? r : 0;
}

/* A side at each of DeepNVMe's points; the first one's index. */
static int points_add(struct large *l, const char *kind, const struct point *point)
{
	const int first = (int)l->contest.n_sides;
	struct point p = *point;
	int r = 0;

	for (unsigned i = 0; r >= 0 && i < DEEPNVME_POINTS; i++) {
		p.profile = deepnvme_point(i);
		r = contest_add(&l->contest, kind, &p);
	}
	return r < 0 ? r : first;
}

/* Both are tuned: each at its best point. */
static int tuned_add(struct large *l, const struct point *point)
{
	int r = points_add(l, "ours", point);

	if (r < 0)
		return r;
	l->tuned = (unsigned)r;
	r = points_add(l, "deepnvme", point);
	if (r < 0)
		return r;
	l->deepnvme = (unsigned)r;
	return 0;
}

static int large_choose(struct large *l, const struct row *row)
{
	struct contest *c = &l->contest;
	const int r = contest_run(c, row, CHOICE_ROUNDS);

	if (r < 0)
		return r;
	l->best_fio = contest_best(c, l->fio, 2);
	printf("%s: the best engine is %s\n", row->name, c->sides[l->best_fio].kind->name);
	if (l->deepnvme > 0) {
		l->best_tuned = contest_best(c, l->tuned, DEEPNVME_POINTS);
		l->best_deepnvme = contest_best(c, l->deepnvme, DEEPNVME_POINTS);
	}
	contest_forget(c);
	return 0;
}

/* CPU time is compared with the same engine, libaio: so that one goes on in any case. */
static int large_run(struct large *l, struct row *bandwidth, struct row *beside_deepnvme,
		     struct row *cpu)
{
	struct contest *c = &l->contest;
	int r;

	c->is_out[l->fio] = false;
	r = contest_run(c, bandwidth, ROUNDS_MIN);
	if (r < 0)
		return r;
	contest_row(c, bandwidth, l->ours, l->best_fio, result_megabytes_per_sec);
	contest_row(c, beside_deepnvme, l->best_tuned, l->best_deepnvme, result_megabytes_per_sec);
	point_print(beside_deepnvme, "our", &c->sides[l->best_tuned].point.profile);
	point_print(beside_deepnvme, "its", &c->sides[l->best_deepnvme].point.profile);
	contest_row(c, cpu, l->ours, l->fio, result_cpu_msec_per_gigabyte);
	return 0;
}

static int measure_large(struct bench *b, bool is_write, struct row *bandwidth,
			 struct row *beside_deepnvme, struct row *cpu)
{
	const struct point point = large_point(b, is_write, 1);
	struct large l = { 0 };
	int r = large_open(&l, &point);

	if (r == 0)
		r = tuned_add(&l, &point);
	if (r == 0)
		r = large_choose(&l, bandwidth);
	if (r == 0)
		r = large_run(&l, bandwidth, beside_deepnvme, cpu);
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

/* ---- large ops beside fio on huge pages ---- */

/* The size of a huge page that MAP_HUGETLB uses; 0: this host has none. */
static uint64_t huge_page_bytes(void)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	unsigned long kilobytes;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Hugepagesize: %lu kB", &kilobytes) == 1)
			return (uint64_t)kilobytes << 10;
	return 0;
}

static int huge_pages_read(unsigned long *ret_n)
{
	_cleanup_(fclosep) FILE *f = fopen(HUGE_PAGES_PATH, "re");

	return f && fscanf(f, "%lu", ret_n) == 1 ? 0 : -ENOENT;
}

static int huge_pages_write(unsigned long n)
{
	FILE *f = fopen(HUGE_PAGES_PATH, "we");
	int r;

	if (!f)
		return -errno;
	r = fprintf(f, "%lu\n", n) < 0 ? -EIO : 0;
	if (fclose(f) != 0 && r == 0)
		r = -errno;
	return r;
}

static int measure_large_huge(struct bench *b, bool is_write, struct row *row)
{
	static const char *const kinds[] = { "ours", "fio-libaio-huge", "fio-uring-huge" };
	const struct point point = large_point(b, is_write, 1);
	struct large l = { .fio = 1 };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kinds); i++)
		r = contest_add(&l.contest, kinds[i], &point);
	if (r >= 0)
		r = large_choose(&l, row);
	if (r == 0)
		r = contest_run(&l.contest, row, ROUNDS_MIN);
	if (r == 0)
		contest_row(&l.contest, row, l.ours, l.best_fio, result_megabytes_per_sec);
	contest_close(&l.contest);
	return r;
}

/*
 * Our pinned memory is in huge pages, and a device moves those faster.  Beside fio with ordinary
 * memory that is a part of the lead; here fio has huge pages, too.  The pages that fio needs are
 * reserved for the time of the measure, so only root can run it.
 */
int measure_bandwidth_huge(struct bench *b)
{
	_cleanup_(closep) int lock = huge_pages_open();
	const uint64_t page_bytes = huge_page_bytes();
	unsigned long n_before, n_wanted, n_there = 0;
	int r, r_back;

	/* Tests change the count, too.  The lock ends with its descriptor. */
	if (lock < 0 || page_bytes == 0 || flock(lock, LOCK_EX) < 0 ||
	    huge_pages_read(&n_before) < 0) {
		fprintf(stderr, "bench: bandwidth-huge is not measured: this host has no reserved "
				"huge pages (" HUGE_PAGES_PATH ")\n");
		return 0;
	}
	/* fio takes up to two more than its depth fills (version 3.33). */
	n_wanted = n_before + (unsigned long)(LARGE_DEPTH * (uint64_t)LARGE_BYTES / page_bytes) + 2;
	r = huge_pages_write(n_wanted);
	if (r < 0) {
		fprintf(stderr,
			"bench: bandwidth-huge is not measured: cannot write " HUGE_PAGES_PATH
			" (%s); run it as root\n",
			strerror(-r));
		return 0;
	}
	if (huge_pages_read(&n_there) < 0 || n_there < n_wanted)
		fprintf(stderr,
			"bench: bandwidth-huge is not measured: the kernel reserved %lu of %lu "
			"huge pages\n",
			n_there, n_wanted);
	else {
		r = measure_large_huge(b, false, &rows[ROW_READ_HUGE]);
		if (r == 0)
			r = measure_large_huge(b, true, &rows[ROW_WRITE_HUGE]);
	}
	r_back = huge_pages_write(n_before);
	if (r_back < 0)
		fprintf(stderr, "bench: cannot set " HUGE_PAGES_PATH " back to %lu: %s\n", n_before,
			strerror(-r_back));
	return r;
}

/* ---- several clients ---- */

static int measure_large_many(struct bench *b, bool is_write, struct row *row)
{
	const struct point point = large_point(b, is_write, MANY_CLIENTS);
	struct large l = { 0 };
	int r = large_open(&l, &point);

	if (r == 0)
		r = large_choose(&l, row);
	if (r == 0)
		r = contest_run(&l.contest, row, ROUNDS_MIN);
	if (r == 0)
		contest_row(&l.contest, row, l.ours, l.best_fio, result_megabytes_per_sec);
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

/* Ours beside fio; and beside in-process libaio, if there is a row for it. */
static int measure_small_ops(const struct point *point, struct row *beside_fio,
			     struct row *beside_libaio)
{
	static const char *const kinds[] = { "ours", "fio-libaio", "libaio" };
	struct contest c = { 0 };
	int r = 0;

	for (unsigned i = 0; r >= 0 && i < (beside_libaio ? 3 : 2); i++)
		r = contest_add(&c, kinds[i], point);
	if (r >= 0)
		r = contest_run(&c, beside_fio, 1);
	contest_forget(&c);
	if (r == 0)
		r = contest_run(&c, beside_fio, ROUNDS_MIN);
	if (r == 0)
		contest_row(&c, beside_fio, 0, 1, result_ops_per_sec);
	if (r == 0 && beside_libaio)
		contest_row(&c, beside_libaio, 0, 2, result_ops_per_sec);
	contest_close(&c);
	return r;
}

int measure_iops(struct bench *b)
{
	const struct point one = small_point(b->dir, 1, READ_BYTES);
	const struct point some = small_point(b->dir, SOME_CLIENTS, MANY_BYTES);
	int r = measure_small_ops(&one, &rows[ROW_IOPS], &rows[ROW_IOPS_LOCAL]);

	if (r == 0)
		r = files_make(b->dir, SOME_CLIENTS, MANY_BYTES);
	if (r == 0)
		r = measure_small_ops(&some, &rows[ROW_IOPS_SOME], NULL);
	files_remove(b->dir, SOME_CLIENTS);
	return r;
}
