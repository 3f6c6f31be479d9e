/* bench small: the points and figures; and the engines in this process, on a real file. */
#include "tests/bench/histogram.h"
#include "tests/bench/report.h"
#include "tests/bench/small_rows.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/util/cleanup.h"
#include "tests/bench/files.h"

TEST(each_point_comes_once_and_is_read_and_written)
{
	struct point points[SMALL_POINTS];
	unsigned n_writes = 0, n_large = 0;

	for (unsigned i = 0; i < SMALL_POINTS; i++) {
		small_rows_point(i, "/disk", &points[i]);
		ck_assert_str_eq(points[i].dir, "/disk");
		ck_assert(points[i].is_one_file && points[i].is_random);
		/* A depth counts ops: none is cut into blocks. */
		ck_assert_uint_eq(point_ops_in_flight(&points[i]), points[i].depth);
		n_writes += points[i].is_write;
		n_large += points[i].op_bytes == 64 * 1024;
		for (unsigned j = 0; j < i; j++)
			ck_assert_msg(points[i].op_bytes != points[j].op_bytes ||
					      points[i].is_write != points[j].is_write ||
					      points[i].depth != points[j].depth ||
					      points[i].n_processes != points[j].n_processes,
				      "points %u and %u are the same", j, i);
	}
	ck_assert_uint_eq(n_writes, SMALL_POINTS / 2);
	ck_assert_uint_eq(n_large, 4);
}

TEST(quantiles_of_a_histogram_are_within_a_hundredth)
{
	static struct histogram h, other;

	ck_assert_double_eq(histogram_quantile(&h, 0.5), 0);
	ck_assert_double_eq(histogram_mean(&h), 0);
	for (int64_t i = 1; i <= 100000; i++)
		histogram_add(i % 2 ? &h : &other, i * 1000);
	histogram_merge(&h, &other);
	ck_assert_double_eq_tol(histogram_mean(&h), 50000500, 1e-3); /* exact */
	for (unsigned i = 1; i < 100; i++) {
		const double exact = i * 1e6, got = histogram_quantile(&h, i / 100.0);

		ck_assert_msg(got >= exact * 0.999 && got <= exact * 1.01, "%u: %f", i, got);
	}
	histogram_add(&h, INT64_MAX);
	ck_assert_double_gt(histogram_quantile(&h, 1), 1e12);
}

TEST(figures_are_of_an_op)
{
	const struct result result = { .ops = 500,
				       .bytes = 500 * 4096,
				       .seconds = 0.25,
				       .cpu_seconds = 0.01,
				       .daemon_cpu_seconds = 0.004,
				       .sleeps = 250,
				       .daemon_sleeps = 100,
				       .mean_usec = 60,
				       .p99_usec = 90 };
	const struct result nothing = { .seconds = 1 };

	ck_assert_double_eq_tol(small_value(&result, SMALL_IOPS), 2000, 1e-9);
	ck_assert_double_eq_tol(small_value(&result, SMALL_MEAN), 60, 1e-9);
	ck_assert_double_eq_tol(small_value(&result, SMALL_P99), 90, 1e-9);
	ck_assert_double_eq_tol(small_value(&result, SMALL_CPU), 20, 1e-9);
	ck_assert_double_eq_tol(small_value(&result, SMALL_CPU_DAEMON), 8, 1e-9);
	ck_assert_double_eq_tol(small_value(&result, SMALL_SLEEPS), 0.5, 1e-9);
	ck_assert_double_eq_tol(small_value(&result, SMALL_SLEEPS_DAEMON), 0.2, 1e-9);
	ck_assert_double_eq(small_value(&nothing, SMALL_CPU), 0);
	ck_assert_double_eq(small_value(&nothing, SMALL_SLEEPS), 0);
}

TEST(the_table_names_the_reference_of_a_row)
{
	struct row row = { .name = "small", .unit = "us", .bar = 1.2, .beside = "io_uring" };
	_cleanup_(freep) char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(f);
	row_add(&row, 3, 2);
	report_print(f, &row, 1);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_ptr_nonnull(strstr(text, "NO beside io_uring\n"));
}

/* ---- the engines in this process ---- */

static const char *const engines[] = { "libaio", "io_uring" };

#define BLOCK 4096u
#define BLOCKS 64u

static struct point file_point(bool is_write)
{
	return (struct point){ .dir = dir,
			       .op_bytes = BLOCK,
			       .file_bytes = BLOCK * BLOCKS,
			       .is_one_file = true,
			       .is_write = is_write,
			       .depth = 8,
			       .n_processes = 1,
			       .profile = point_profile(8),
			       .slice_ops = BLOCKS };
}

static void file_make_empty(void)
{
	_cleanup_(closep) int fd = openat(dir_fd, FILES_NAME ".0",
					  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)BLOCK * BLOCKS), 0);
}

/* False: the kernel has no io_uring for us. */
static bool engine_run(const char *engine, const struct point *point, struct result *ret_result)
{
	struct side side;
	const int r = side_open(&side, side_kind_find(engine), point);

	if (r == -EOPNOTSUPP && strcmp(engine, "io_uring") == 0)
		return false;
	ck_assert_msg(r == 0, "%s: %s", engine, side.why);
	/* The second slice finds all that the first one left behind. */
	for (unsigned i = 0; i < 2; i++)
		ck_assert_msg(side_run(&side, ret_result) == 0, "%s: %s", engine, side.why);
	side_close(&side);
	return true;
}

TEST_TABLE(an_engine_writes_each_block_of_its_range, engines)
{
	const struct point point = file_point(true);
	static const char empty[BLOCK];
	struct result result;
	char block[BLOCK];

	file_make_empty();
	if (engine_run(engines[_i], &point, &result)) {
		_cleanup_(closep) int fd = openat(dir_fd, FILES_NAME ".0", O_RDONLY | O_CLOEXEC);

		ck_assert_int_ge(fd, 0);
		for (unsigned i = 0; i < BLOCKS; i++) {
			ck_assert_int_eq(pread(fd, block, BLOCK, (off_t)i * BLOCK), BLOCK);
			ck_assert_msg(memcmp(block, empty, BLOCK) != 0, "%s: block %u", engines[_i],
				      i);
		}
		ck_assert_int_eq(pread(fd, block, BLOCK, (off_t)BLOCKS * BLOCK), 0);
	}
}

TEST_TABLE(an_engine_counts_the_ops_of_all_processes_on_one_file, engines)
{
	struct point point = file_point(false);
	struct result result;

	point.n_processes = 2;
	file_make_empty();
	if (engine_run(engines[_i], &point, &result)) {
		ck_assert_uint_eq(result.ops, 2 * BLOCKS);
		ck_assert_uint_eq(result.bytes, 2 * BLOCKS * BLOCK);
		ck_assert_double_gt(result.mean_usec, 0);
		ck_assert_double_gt(result.cpu_seconds, 0);
		ck_assert_double_eq(result.daemon_cpu_seconds, 0);
		ck_assert_uint_eq(result.daemon_sleeps, 0);
	}
}

TEST_TABLE(a_process_without_its_file_fails, engines)
{
	struct point point = file_point(false);
	struct side side;

	file_make_empty();
	point.n_processes = 2;
	point.is_one_file = false;
	ck_assert_int_eq(side_open(&side, side_kind_find(engines[_i]), &point), -ENOENT);
	ck_assert_ptr_nonnull(strstr(side.why, FILES_NAME ".1"));
}

TEST(io_uring_refuses_ops_of_several_blocks)
{
	struct point point = file_point(false);
	struct side side;

	point.profile.block_size = BLOCK / 2;
	ck_assert_int_eq(side_open(&side, side_kind_find("io_uring"), &point), -EOPNOTSUPP);
}

FIXTURE(make_dir, remove_dir)
TEST_MAIN
