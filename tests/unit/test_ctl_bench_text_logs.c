/* text_logs: logs have DeepSpeed's names, and stay in their directories. */
#include "client/ctl/bench/text_logs.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static bool is_there(const char *name)
{
	return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void add_row(struct bench_results *results, uint32_t depth, const char *log)
{
	struct bench_row row = { .task = { .op = BENCH_READ,
					   .profile = { 1u << 20, depth, false, true, 1 } },
				 .n_processes = 1,
				 .total = { .e2e_sec = 1, .bytes = 4096 } };

	(void)snprintf(row.log, sizeof(row.log), "%s", log);
	bench_results_append(results, "points", bench_row_json(&row));
}

TEST(a_log_is_named_as_deepspeed_names_it)
{
	const struct bench_task task = { .op = BENCH_READ,
					 .profile = { 1u << 20, 32, true, true, 8 } };
	char log[BENCH_TEXT_BYTES];

	text_logs_name(log, &task, 1);
	ck_assert_str_eq(log, "_aio_bench_read_logs/read_single_overlap_ftd1_d32_bs1M_p8.txt");
}

/* The results may be those of an earlier run, in a file that any program may have written. */
TEST(a_log_that_a_row_names_elsewhere_is_in_its_directory)
{
	struct bench_results results;
	char name[BENCH_TEXT_BYTES] = "";

	bench_results_init(&results, "sweep");
	add_row(&results, 1, "_aio_bench_read_logs/../escaped.txt");
	add_row(&results, 2, "");
	ck_assert_int_eq(text_logs_write(dir_fd, &results, name), 0);
	ck_assert(is_there("_aio_bench_read_logs/read_block_overlap_ftd1_d1_bs1M_p1.txt"));
	ck_assert(!is_there("_aio_bench_read_logs/read_block_overlap_ftd1_d2_bs1M_p1.txt"));
	ck_assert(!is_there("escaped.txt") && is_there("_aio_bench_write_logs"));
	bench_results_deinit(&results);
}

TEST(what_cannot_be_written_is_named)
{
	struct bench_results results;
	char name[BENCH_TEXT_BYTES] = "";
	int fd = openat(dir_fd, "_aio_bench_write_logs", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	bench_results_init(&results, "sweep");
	ck_assert_int_eq(text_logs_write(dir_fd, &results, name), -EEXIST);
	ck_assert_str_eq(name, "_aio_bench_write_logs");
	bench_results_deinit(&results);
}

FIXTURE(make_dir, remove_dir)
TEST_MAIN
