#include "daemon/store/probe.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Kinds of blocks. */
static const struct probe_block later = { false, false, 20000 }; /* io_submit started it */
static const struct probe_block slept = { true, true, 20000 };
static const struct probe_block copied = { true, false, 9000 }; /* DAX, or a busy host */
static const struct probe_block worked = { true, false, 50000 };
static const struct probe_block almost = { true, false, 49999 };
static const struct probe_block queued = { false, true, 20000 }; /* slept, and then started it */

/* The first so many blocks, and all others. */
struct direction {
	unsigned n, n_first;
	const struct probe_block *first, *rest;
};
#define ALL(kind)                                  \
	{                                          \
		PROBE_BLOCKS, 0, &(kind), &(kind), \
	}
#define SOME(n_first, first, rest)                       \
	{                                                \
		PROBE_BLOCKS, n_first, &(first), &(rest) \
	}
#define FEW(n_first, first, rest)             \
	{                                     \
		5, n_first, &(first), &(rest) \
	}
#define NONE                     \
	{                        \
		0, 0, NULL, NULL \
	}

static const struct {
	const char *fs_type;
	bool knows_nowait;
	struct direction reads, writes;
	bool wanted;
	const char *words;
} judgements[] = {
	{ "ext4", true, ALL(later), ALL(later), false, "not wait: measured in 16 of 16 reads" },
	{ "ext4", true, ALL(slept), ALL(later), true, "submit waits: measured in 16 of 16 reads" },
	{ "ext4", true, ALL(later), SOME(9, slept, later), true, "in 9 of 16 writes" },
	{ "ext4", true, SOME(1, slept, later), SOME(8, slept, later), false, "8 of 16 wri" },
	{ "ext4", true, ALL(copied), ALL(copied), false, "does not wait" },
	{ "ext4", true, ALL(queued), ALL(queued), false, "does not wait" },
	{ "ext4", true, ALL(later), ALL(worked), true, "waits: measured in 16 of 16 writes" },
	{ "ext4", true, ALL(later), ALL(almost), false, "does not wait" },
	{ "ext4", true, SOME(5, slept, worked), NONE, true, "waits: measured in 16 of 16" },
	/* The time was over. */
	{ "ext4", true, FEW(3, slept, later), FEW(0, slept, later), true, "3 of 5 reads" },
	{ "ext4", true, FEW(2, slept, later), FEW(0, slept, later), false, "3 of 5 reads" },
	{ "block device", true, ALL(later), NONE, false, "does not wait" },
	{ "fuse", false, ALL(later), NONE, true, "has no RWF_NOWAIT here" },
	{ "nfs", false, ALL(later), NONE, true, "measured to wait in 0 of 16 reads" },
	{ "nfs", true, ALL(later), NONE, false, "does not wait" },
	{ "vfat", false, ALL(later), NONE, false, "does not wait" },
};

/* Without a probe (0), or with one that failed. */
static const struct {
	const char *fs_type;
	int error;
	bool wanted;
	const char *words;
} unmeasured[] = {
	{ "ext4", -EACCES, false, "io_submit does not wait; not measured: Permission denied" },
	{ "fuse", -EROFS, true, "fuse: io_submit may wait; not measured: Read-only" },
	{ "ext4", 0, false, "ext4: io_submit does not wait; not measured" },
	{ "block device", 0, false, "does not wait; not measured" },
	{ "zfs", 0, true, "zfs: io_submit may wait" },
	{ "other", 0, true, "may wait" },
	{ "tmpfs", 0, false, "a copy in memory" },
};

static const struct fs_type *type_of(const char *name)
{
	return strcmp(name, fs_type_block_device.name) == 0 ? &fs_type_block_device
							    : fs_type_of_mount(name);
}

static void add_blocks(struct probe *probe, bool is_write, const struct direction *direction)
{
	for (unsigned i = 0; i < direction->n; i++)
		probe->blocks[is_write][i] = i < direction->n_first ? *direction->first
								    : *direction->rest;
	probe->n_blocks[is_write] = direction->n;
}

TEST_TABLE(most_blocks_decide, judgements)
{
	struct probe probe = { .knows_nowait = judgements[_i].knows_nowait };
	char text[PROBE_TEXT_BYTES];
	bool waits;

	add_blocks(&probe, false, &judgements[_i].reads);
	add_blocks(&probe, true, &judgements[_i].writes);
	waits = probe_judge(&probe, type_of(judgements[_i].fs_type), text);
	ck_assert_msg(waits == judgements[_i].wanted, "row %d: %s", _i, text);
	ck_assert_msg(strstr(text, judgements[_i].words), "%s", text);
}

TEST_TABLE(without_a_measurement_the_kind_of_file_system_decides, unmeasured)
{
	struct probe probe = { .error = unmeasured[_i].error };
	char text[PROBE_TEXT_BYTES];
	bool waits = probe_judge(probe.error ? &probe : NULL, type_of(unmeasured[_i].fs_type),
				 text);

	ck_assert_msg(waits == unmeasured[_i].wanted, "%s: %s", unmeasured[_i].fs_type, text);
	ck_assert_msg(strstr(text, unmeasured[_i].words), "%s", text);
}

TEST(a_directory_is_measured_and_nothing_is_left_there)
{
	const char *base = getenv("TMPDIR");
	struct probe probe;
	char dir[256];

	(void)snprintf(dir, sizeof(dir), "%s/dsaio-probe.XXXXXX", base ? base : "/var/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	probe_measure(dir, false, &probe);
	ck_assert_int_eq(probe.error, 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_ge(probe.n_blocks[i], 5);
		ck_assert_uint_gt(probe.blocks[i][0].cpu_nsec, 0);
	}
	ck_assert_int_eq(rmdir(dir), 0);
}

/* A daemon that died between making and removing it: it stayed forever. */
TEST(a_file_that_a_dead_daemon_left_is_removed)
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

TEST(what_can_not_be_measured_says_why)
{
	struct probe probe;

	probe_measure("/nonexistent/dir", false, &probe);
	ck_assert_int_eq(probe.error, -ENOENT);
	probe_measure("/nonexistent/device", true, &probe);
	ck_assert_int_eq(probe.error, -ENOENT);
}

TEST_MAIN
