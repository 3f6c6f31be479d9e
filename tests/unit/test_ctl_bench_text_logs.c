/* text_logs, own_dir: logs stay in their directories, and files of others are not taken for them. */
#include "client/ctl/bench/own_dir.h"
#include "client/ctl/bench/text_logs.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ctl ctl = { .command = "test" };
static bool is_there(const char *name)
{
	return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void make_file(const char *name)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	ck_assert_int_ge(fd, 0);
	(void)close(fd);
}

static void add_row(struct bench_results *results, const char *log)
{
	struct bench_row row = { .task = { .op = BENCH_READ, .profile = PROFILE_DEFAULT },
				 .total = { .e2e_sec = 1, .bytes = 4096 } };

	(void)snprintf(row.log, sizeof(row.log), "%s", log);
	ck_assert_int_eq(bench_results_add(results, &row), 0);
}

START_TEST(a_log_is_named_as_deepspeed_names_it)
{
	const struct bench_task task = { .op = BENCH_READ,
					 .profile = { 1u << 20, 32, true, true, 8 } };
	char log[BENCH_TEXT_BYTES];

	text_logs_name(log, &task, 1);
	ck_assert_str_eq(log, "_aio_bench_read_logs/read_single_overlap_ftd1_d32_bs1M_p8.txt");
}
END_TEST

START_TEST(only_logs_in_their_directory_are_written)
{
	struct bench_results results;
	char name[BENCH_TEXT_BYTES] = "";

	ck_assert_int_eq(bench_results_init(&results, "sweep"), 0);
	add_row(&results, "_aio_bench_read_logs/a.txt");
	add_row(&results, "_aio_bench_read_logs/../escaped.txt");
	add_row(&results, "escaped.txt");
	add_row(&results, "_aio_bench_write_logs/a.txt"); /* a read among the writes */
	add_row(&results, "");
	ck_assert_int_eq(text_logs_write(dir_fd, &results, name), 0);
	ck_assert(is_there("_aio_bench_read_logs/a.txt"));
	ck_assert(!is_there("escaped.txt") && !is_there("_aio_bench_write_logs"));
	bench_results_deinit(&results);
}
END_TEST

START_TEST(a_log_that_cannot_be_written_is_named)
{
	struct bench_results results;
	char name[BENCH_TEXT_BYTES] = "";

	ck_assert_int_eq(bench_results_init(&results, "sweep"), 0);
	add_row(&results, "_aio_bench_read_logs/a.txt");
	make_file("_aio_bench_read_logs"); /* where the directory should be */
	ck_assert_int_eq(text_logs_write(dir_fd, &results, name), -ENOTDIR);
	ck_assert_str_eq(name, "_aio_bench_read_logs/a.txt");
	bench_results_deinit(&results);
}
END_TEST

START_TEST(files_that_no_results_name_are_refused)
{
	struct json_object *known = json_object_new_object();

	ck_assert_int_eq(text_logs_check_foreign(&ctl, dir_fd, dir, NULL), CTL_OK);
	ck_assert_int_eq(mkdirat(dir_fd, "_aio_bench_write_logs", 0777), 0);
	ck_assert_int_eq(text_logs_check_foreign(&ctl, dir_fd, dir, NULL), CTL_OK);
	make_file("_aio_bench_write_logs/a.txt");
	ck_assert_int_eq(text_logs_check_foreign(&ctl, dir_fd, dir, NULL), CTL_FAILED);
	json_object_object_add(known, "_aio_bench_write_logs/a.txt", NULL);
	ck_assert_int_eq(text_logs_check_foreign(&ctl, dir_fd, dir, known), CTL_OK);
	(void)json_object_put(known);
}
END_TEST

START_TEST(a_link_is_no_directory_of_ours)
{
	int fd;

	ck_assert_int_eq(mkdirat(dir_fd, "real", 0777), 0);
	ck_assert_int_eq(symlinkat("real", dir_fd, "link"), 0);
	fd = own_dir_open(dir_fd, "real");
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_lt(own_dir_open(dir_fd, "link"), 0);
	ck_assert_int_eq(own_dir_open(dir_fd, "none"), -ENOENT);
	if (geteuid() == 0) {
		ck_assert_int_eq(fchownat(dir_fd, "real", 1, 1, 0), 0);
		ck_assert_int_eq(own_dir_open(dir_fd, "real"), -EPERM);
	}
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, make_dir, remove_dir);
	tcase_add_test(tcase, a_log_is_named_as_deepspeed_names_it);
	tcase_add_test(tcase, only_logs_in_their_directory_are_written);
	tcase_add_test(tcase, a_log_that_cannot_be_written_is_named);
	tcase_add_test(tcase, files_that_no_results_name_are_refused);
	tcase_add_test(tcase, a_link_is_no_directory_of_ours);
}

SUITE("text_logs", add_tests)
