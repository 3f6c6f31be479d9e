/* destination: after a failure the old file is as it was, and no temporary file is left. */
#include "client/ctl/cmd/destination.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct ctl ctl = { .command = "test" };
static char path[PATH_MAX], text[DESTINATION_TEXT_BYTES];
static const struct stat no_source = { .st_ino = 0 };

static bool is_full; /* the disk */

int fallocate(int fd, int mode, off_t off, off_t len)
{
	if (is_full)
		errno = ENOSPC;
	return is_full ? -1 : (int)syscall(SYS_fallocate, fd, mode, off, len);
}

static void setup(void)
{
	make_dir();
	is_full = false;
	(void)snprintf(path, sizeof(path), "%s/file", dir);
}

static void teardown(void)
{
	(void)unlink(path);
	remove_empty_dir(); /* no temporary file is left */
}

static void make_old(mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	ck_assert_int_eq(write(fd, "old content", 11), 11);
	(void)close(fd);
}

static off_t size_of_file(void)
{
	struct stat st;

	return stat(path, &st) < 0 ? -1 : st.st_size;
}

static void open_new(struct destination *d, struct side *side)
{
	side->path = path;
	ck_assert_int_eq(destination_check(d, side, "source", &no_source, text), 0);
	ck_assert_int_eq(destination_open(d, 0666, text), 0);
}

/* Opens the destination and writes three bytes to it. */
static void begin(struct destination *d, struct side *side)
{
	open_new(d, side);
	ck_assert_int_eq(write(side->fd, "new", 3), 3);
}

TEST(a_file_that_appeared_meanwhile_stays)
{
	struct destination d = DESTINATION_INIT;
	struct side side = { .fd = -1 };

	begin(&d, &side);
	make_old(0600);
	ck_assert_int_eq(destination_place(&d, &ctl, false, text), -EEXIST);
	destination_deinit(&d);
	ck_assert_int_eq(size_of_file(), 11);
	(void)close(side.fd);
}

TEST(a_file_that_became_a_link_after_the_check_is_refused)
{
	struct destination d = DESTINATION_INIT;
	struct side side = { .path = path, .fd = -1 };
	char other[PATH_MAX + 8];

	(void)snprintf(other, sizeof(other), "%s.2", path);
	make_old(0600);
	ck_assert_int_eq(rename(path, other), 0);
	make_old(0600);
	ck_assert_int_eq(destination_check(&d, &side, "source", &no_source, text), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink(other, path), 0);
	ck_assert_int_eq(destination_open(&d, 0666, text), -ESTALE);
	ck_assert_ptr_nonnull(strstr(text, "was replaced meanwhile"));
	destination_deinit(&d);
	ck_assert_int_eq(size_of_file(), 11);
	ck_assert_int_eq(unlink(other), 0);
}

TEST(a_temporary_file_that_is_removed_meanwhile_is_an_error_with_a_message)
{
	struct destination d = DESTINATION_INIT;
	struct side side = { .fd = -1 };

	make_old(0600);
	begin(&d, &side);
	if (d.temp.temporary[0]) /* a file system without O_TMPFILE */
		ck_assert_int_eq(unlinkat(d.dir_fd, d.temp.temporary, 0), 0);
	(void)snprintf(d.temp.temporary, sizeof(d.temp.temporary), "gone");
	ck_assert_int_eq(destination_place(&d, &ctl, false, text), -ESTALE);
	ck_assert_ptr_nonnull(strstr(text, "removed or replaced the temporary file"));
	destination_deinit(&d);
	ck_assert_int_eq(size_of_file(), 11);
	(void)close(side.fd);
}

TEST(a_full_disk_is_refused_with_advice)
{
	struct destination d = DESTINATION_INIT;
	struct side side = { .fd = -1 };

	make_old(0600);
	begin(&d, &side);
	ck_assert_int_eq(destination_reserve(&d, 0, 4096, text), 0);
	is_full = true;
	ck_assert_int_eq(destination_reserve(&d, 4096, 4096, text), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(text, " beside the old file: No space left on device"));
	ck_assert_ptr_nonnull(strstr(text, "cp(1) or dd(1)"));
	destination_deinit(&d);
	(void)close(side.fd);
}

FIXTURE(setup, teardown)
TEST_MAIN
