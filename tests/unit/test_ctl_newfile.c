/* newfile: a reader finds the old content or the new content, and no temporary file is left. */
#include "client/ctl/ui/newfile.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_noreplace = true; /* else as NFS, which knows no flags */

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	if (flags && !has_noreplace) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static void teardown(void)
{
	(void)unlinkat(dir_fd, "a", 0);
	remove_empty_dir(); /* no temporary file is left */
}

static void write_text(int fd, const char *text)
{
	ck_assert_int_eq(write_all(fd, text, strlen(text)), 0);
}

static const char *read_text(const char *name)
{
	static char text[64];
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	return fd < 0 ? NULL : text;
}

START_TEST(a_commit_replaces_the_file_of_that_name)
{
	struct newfile file;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
		write_text(file.fd, i ? "new" : "the old content");
		if (i)
			ck_assert_str_eq(read_text("a"), "the old content");
		ck_assert_int_eq(newfile_commit(&file), 0);
		ck_assert_int_eq(file.fd, -1);
		newfile_discard(&file); /* nothing is left to do */
	}
	ck_assert_str_eq(read_text("a"), "new");
}
END_TEST

START_TEST(a_discarded_file_leaves_nothing)
{
	struct newfile file;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "lost");
	newfile_discard(&file);
	newfile_discard(&file);
	ck_assert_ptr_null(read_text("a"));
}
END_TEST

/* As the daemon does for a while. */
START_TEST(a_discarded_file_gives_its_room_back_while_another_process_has_it_open)
{
	struct newfile file;
	struct stat st;
	int other;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(newfile_reserve(file.fd, 1 << 20), 0);
	write_text(file.fd, "lost");
	other = openat(dir_fd, file.temporary, O_RDONLY | O_CLOEXEC);
	newfile_discard(&file);
	ck_assert_int_eq(fstat(other, &st), 0);
	ck_assert_int_eq(st.st_blocks, 0);
	(void)close(other);
}
END_TEST

START_TEST(a_discarded_file_that_has_another_name_keeps_its_bytes)
{
	struct newfile file;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "kept");
	ck_assert_int_eq(linkat(dir_fd, file.temporary, dir_fd, "a", 0), 0);
	newfile_discard(&file);
	ck_assert_str_eq(read_text("a"), "kept");
}
END_TEST

START_TEST(a_commit_that_fails_leaves_nothing)
{
	struct newfile file;

	ck_assert_int_eq(mkdirat(dir_fd, "a", 0777), 0);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(newfile_commit(&file), -EISDIR);
	ck_assert_int_eq(file.fd, -1);
	ck_assert_int_eq(unlinkat(dir_fd, "a", AT_REMOVEDIR), 0);
}
END_TEST

START_TEST(a_rename_replaces_only_if_it_is_told_to) /* _i: has_noreplace */
{
	struct newfile file;
	int fd = openat(dir_fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	has_noreplace = _i;
	ck_assert_int_ge(fd, 0);
	write_text(fd, "of another process");
	(void)close(fd);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "ours");
	ck_assert_int_eq(newfile_rename(&file, false), -EEXIST);
	ck_assert_str_eq(read_text("a"), "of another process");
	ck_assert_int_eq(newfile_rename(&file, true), 0);
	ck_assert_str_eq(read_text("a"), "ours");
	newfile_discard(&file); /* closes it, and removes nothing */
	ck_assert_str_eq(read_text("a"), "ours");
}
END_TEST

START_TEST(a_rename_takes_a_free_name) /* _i: has_noreplace */
{
	struct newfile file;

	has_noreplace = _i;
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "ours");
	ck_assert_int_eq(newfile_rename(&file, false), 0);
	newfile_discard(&file);
	ck_assert_str_eq(read_text("a"), "ours");
}
END_TEST

START_TEST(the_descriptor_may_be_taken)
{
	struct newfile file;
	int fd;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0600, &file), 0);
	fd = file.fd;
	file.fd = -1;
	newfile_discard(&file);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	(void)close(fd);
}
END_TEST

START_TEST(the_name_may_be_as_long_as_a_name_can_be)
{
	char name[NAME_MAX + 1];
	struct newfile file;

	(void)memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	ck_assert_int_eq(newfile_open(dir_fd, name, 0666, &file), 0);
	ck_assert_int_eq(newfile_commit(&file), 0);
	ck_assert_int_eq(unlinkat(dir_fd, name, 0), 0);
}
END_TEST

START_TEST(a_temporary_name_of_another_process_is_neither_renamed_nor_removed)
{
	char name[NEWFILE_NAME_BYTES];
	struct newfile file;
	struct stat st;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(unlinkat(dir_fd, file.temporary, 0), 0);
	ck_assert_int_eq(newfile_rename(&file, true), -ESTALE);
	ck_assert_int_eq(symlinkat("nothing", dir_fd, file.temporary), 0);
	ck_assert_int_eq(newfile_rename(&file, true), -ESTALE);
	memcpy(name, file.temporary, sizeof(name));
	newfile_discard(&file);
	ck_assert_int_eq(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(unlinkat(dir_fd, name, 0), 0);
}
END_TEST

START_TEST(reserved_blocks_keep_the_size)
{
	struct newfile file;
	struct stat st;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(newfile_reserve(file.fd, 65536), 0);
	ck_assert_int_eq(fstat(file.fd, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(newfile_check_room(file.fd, 1), 0);
	ck_assert_int_eq(newfile_check_room(file.fd, (uint64_t)1 << 60), -ENOSPC);
	newfile_discard(&file);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, make_dir, teardown);
	tcase_add_test(tcase, a_commit_replaces_the_file_of_that_name);
	tcase_add_test(tcase, a_discarded_file_leaves_nothing);
	tcase_add_test(tcase,
		       a_discarded_file_gives_its_room_back_while_another_process_has_it_open);
	tcase_add_test(tcase, a_discarded_file_that_has_another_name_keeps_its_bytes);
	tcase_add_test(tcase, a_commit_that_fails_leaves_nothing);
	tcase_add_loop_test(tcase, a_rename_replaces_only_if_it_is_told_to, 0, 2);
	tcase_add_loop_test(tcase, a_rename_takes_a_free_name, 0, 2);
	tcase_add_test(tcase, the_descriptor_may_be_taken);
	tcase_add_test(tcase, the_name_may_be_as_long_as_a_name_can_be);
	tcase_add_test(tcase, a_temporary_name_of_another_process_is_neither_renamed_nor_removed);
	tcase_add_test(tcase, reserved_blocks_keep_the_size);
}

SUITE("newfile", add_tests)
