#include "daemon/store/probe.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *fs_type;
	bool was_there;
	struct probe probe;
	bool wanted;
	const char *words;
} judgements[] = {
	{ "ext4", true, { 0, 27, 18000, true }, false, "does not wait: measured 27%" },
	{ "ext4", true, { 0, 97, 900000, true }, true, "io_submit waits: measured 97%" },
	{ "ext4", true, { 0, 80, 50000, true }, true, "waits: measured 80%" },
	{ "ext4", true, { 0, 79, 900000, true }, false, "does not wait: measured 79%" },
	/* a copy: DAX */
	{ "xfs", true, { 0, 99, 9000, true }, false, "does the work, in 9 us: measured 99%" },
	{ "fuse", true, { 0, 99, 9000, false }, true, "has no RWF_NOWAIT" },
	{ "nfs", true, { 0, 10, 9000, false }, true, "has no RWF_NOWAIT" },
	{ "nfs", true, { 0, 10, 9000, true }, false, "does not wait: measured 10%" },
	{ "vfat", true, { 0, 10, 9000, false }, false, "does not wait: measured 10%" },
	{ "ext4", true, { -EACCES, 0, 0, false }, false, "not measured: Permission denied" },
	{ "fuse", true, { -EROFS, 0, 0, false }, true, "fuse: io_submit may wait; not measured" },
	{ "ext4", false, { 0 }, false, "ext4: io_submit does not wait; not measured" },
	{ "block device", false, { 0 }, false, "does not wait; not measured" },
	{ "zfs", false, { 0 }, true, "zfs: io_submit may wait" },
	{ "other", false, { 0 }, true, "may wait" },
	{ "tmpfs", false, { 0 }, false, "a copy in memory" },
};

static const struct fs_type *type_of(const char *name)
{
	return strcmp(name, fs_type_block_device.name) == 0 ? &fs_type_block_device
							    : fs_type_of_mount(name);
}

START_TEST(judgement)
{
	char text[PROBE_TEXT_BYTES];
	bool waits = probe_judge(judgements[_i].was_there ? &judgements[_i].probe : NULL,
				 type_of(judgements[_i].fs_type), text);

	ck_assert_msg(waits == judgements[_i].wanted, "%s: %s", judgements[_i].fs_type, text);
	ck_assert_msg(strstr(text, judgements[_i].words), "%s", text);
}
END_TEST

START_TEST(a_directory_is_measured_and_nothing_is_left_there)
{
	const char *base = getenv("TMPDIR");
	struct probe probe;
	char dir[256];

	(void)snprintf(dir, sizeof(dir), "%s/dsaio-probe.XXXXXX", base ? base : "/var/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	probe_measure(dir, false, &probe);
	ck_assert_int_eq(probe.error, 0);
	ck_assert_uint_le(probe.share_percent, 100);
	ck_assert_uint_gt(probe.inside_nsec, 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

/* A daemon that died between making and removing it: it stayed forever. */
START_TEST(a_file_that_a_dead_daemon_left_is_removed)
{
	const char *base = getenv("TMPDIR");
	struct probe probe;
	char dir[256], left[300];
	int fd;

	(void)snprintf(dir, sizeof(dir), "%s/dsaio-probe.XXXXXX", base ? base : "/var/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(left, sizeof(left), "%s/.dsaiod-probe-%u", dir, geteuid());
	fd = open(left, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	probe_measure(dir, false, &probe);
	ck_assert_int_eq(probe.error, 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(what_can_not_be_measured_says_why)
{
	struct probe probe;

	probe_measure("/nonexistent/dir", false, &probe);
	ck_assert_int_eq(probe.error, -ENOENT);
	probe_measure("/nonexistent/device", true, &probe);
	ck_assert_int_eq(probe.error, -ENOENT);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, judgement, 0, N_ROWS(judgements));
	tcase_add_test(tcase, a_directory_is_measured_and_nothing_is_left_there);
	tcase_add_test(tcase, a_file_that_a_dead_daemon_left_is_removed);
	tcase_add_test(tcase, what_can_not_be_measured_says_why);
}

SUITE("probe", add_tests)
