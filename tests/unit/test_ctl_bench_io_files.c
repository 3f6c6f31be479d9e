/* bench_io_files: no link is followed, no file of another user is written, a half made one is reported. */
#include "client/ctl/cmd/bench_io_files.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[PATH_MAX];
static struct bench_process process = { .id = 3, .folder = dir };
static int fd;
static struct bench_io_made made;

static void setup(void)
{
	make_dir();
	bench_io_path(&process, true, 5000, 7, path);
	fd = -1;
	made = (struct bench_io_made){ 0 };
}

static void teardown(void)
{
	if (fd >= 0)
		(void)close(fd);
	remove_dir();
}

TEST(a_file_is_named_as_ds_io_names_it)
{
	char expected[PATH_MAX];

	(void)snprintf(expected, sizeof(expected), "%s/_aio_read_5000.pt.3_7", dir);
	ck_assert_str_eq(path, expected);
}

TEST(a_file_to_read_is_made_once)
{
	struct stat before, after;

	ck_assert_int_eq(bench_io_open_read(&process, path, 5000, &fd, &made), 0);
	ck_assert_int_eq(fstat(fd, &before), 0);
	ck_assert_int_eq(before.st_size, 5000);
	ck_assert(!made.is_partial);
	ck_assert_uint_eq(made.done_bytes, 5000);
	(void)close(fd);
	ck_assert_int_eq(bench_io_open_read(&process, path, 5000, &fd, &made), 0);
	ck_assert_int_eq(fstat(fd, &after), 0);
	ck_assert_int_eq(memcmp(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim)), 0);
}

TEST(a_file_that_does_not_fit_is_partial)
{
	ck_assert_int_lt(bench_io_open_read(&process, path, (uint64_t)1 << 60, &fd, &made), 0);
	ck_assert_ptr_nonnull(strstr(process.text, "cannot make the file to read"));
	ck_assert(made.is_partial);
}

TEST(a_link_is_not_followed)
{
	char target[PATH_MAX + 8];

	(void)snprintf(target, sizeof(target), "%s.victim", path);
	ck_assert_int_eq(symlink(target, path), 0);
	ck_assert_int_lt(bench_io_open_read(&process, path, 5000, &fd, &made), 0);
	ck_assert_ptr_nonnull(strstr(process.text, "is a symbolic link"));
	ck_assert_int_eq(access(target, F_OK), -1);
}

TEST(a_file_with_another_name_is_not_written)
{
	char other[PATH_MAX + 8];

	ck_assert_int_eq(bench_io_open_write(&process, path, &fd, &made), 0);
	ck_assert(made.is_partial);
	(void)close(fd);
	made.is_partial = false;
	ck_assert_int_eq(bench_io_open_write(&process, path, &fd, &made), 0);
	ck_assert(!made.is_partial);
	(void)close(fd);
	fd = -1;
	(void)snprintf(other, sizeof(other), "%s.2", path);
	ck_assert_int_eq(link(path, other), 0);
	ck_assert_int_lt(bench_io_open_write(&process, path, &fd, &made), 0);
	ck_assert_ptr_nonnull(strstr(process.text, "belongs to another user, or has another name"));
}

TEST(only_the_file_that_was_made_is_removed)
{
	char other[PATH_MAX + 8];

	ck_assert_int_eq(bench_io_open_write(&process, path, &fd, &made), 0);
	(void)snprintf(other, sizeof(other), "%s.2", path);
	ck_assert_int_eq(rename(path, other), 0);
	ck_assert(!bench_io_remove(path, &made)); /* nothing is there */
	(void)close(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	ck_assert(!bench_io_remove(path, &made)); /* another file */
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(rename(other, path), 0);
	ck_assert(bench_io_remove(path, &made));
	ck_assert_int_eq(access(path, F_OK), -1);
}

TEST(a_file_that_was_there_is_not_removed)
{
	(void)close(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	ck_assert_int_eq(bench_io_open_write(&process, path, &fd, &made), 0);
	ck_assert(!bench_io_remove(path, &made));
	ck_assert_int_eq(access(path, F_OK), 0);
}

TEST(a_comparison_names_the_byte_that_differs)
{
	static char expected[5000];

	process.buffer = expected;
	ck_assert_int_eq(bench_io_open_read(&process, path, 5000, &fd, &made), 0);
	ck_assert_int_eq(pread(fd, expected, 5000, 0), 5000);
	ck_assert_int_eq(bench_io_validate(&process, path, 5000, true), 0);
	expected[4321] ^= 1;
	ck_assert_int_lt(bench_io_validate(&process, path, 5000, true), 0);
	ck_assert_ptr_nonnull(strstr(process.text, "byte 4321 differs from what was read"));
	ck_assert_int_lt(bench_io_validate(&process, path, 6000, true), 0);
}

FIXTURE(setup, teardown)
TEST_MAIN
