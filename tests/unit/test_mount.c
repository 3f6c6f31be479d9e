#include "daemon/base/mount.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static const struct {
	const char *line;
	const char *root, *point, *fs_type, *source; /* NULL: it is no line */
} lines[] = {
	{ "36 35 98:3 / /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n", "/",
	  "/mnt", "ext3", "/dev/root" },
	{ "36 35 98:3 / /mnt rw - ext4 /dev/sda1 rw", "/", "/mnt", "ext4", "/dev/sda1" },
	{ "36 35 98:3 /a /mnt\\040b\\134c rw a:1 b:2 c - fuse.x\\011y x\\012y rw\n", "/a",
	  "/mnt b\\c", "fuse.x?y", "x?y" },
	{ "36 35 98:3 / /m\\9\\08\\1 rw - t s rw", "/", "/m\\9\\08\\1", "t", "s" },
	{ "36 35 98:3 / /mnt rw - ext4  rw", "/", "/mnt", "ext4", "" },
	{ "", NULL, NULL, NULL, NULL },
	{ "\n", NULL, NULL, NULL, NULL },
	{ "36 35 98:3", NULL, NULL, NULL, NULL },
	{ "36 35 98:3 / /mnt rw", NULL, NULL, NULL, NULL },
	{ "36 35 98:3 / /mnt rw -", NULL, NULL, NULL, NULL },
	{ "36 35 98:3 / /mnt rw - ext4", NULL, NULL, NULL, NULL },
	{ "36 35 98 / /mnt rw - ext4 s rw", NULL, NULL, NULL, NULL },
	{ "x 35 98:3 / /mnt rw - ext4 s rw", NULL, NULL, NULL, NULL },
	{ "36 35 98:3 root /mnt rw - ext4 s rw", NULL, NULL, NULL, NULL },
};

TEST_TABLE(a_line_is_cut_into_what_it_says, lines)
{
	struct mount_line line;
	char text[256];
	bool is_line;

	(void)snprintf(text, sizeof(text), "%s", lines[_i].line);
	is_line = mount_parse(text, &line);
	ck_assert_msg(is_line == (lines[_i].root != NULL), "%s", lines[_i].line);
	if (!is_line)
		return;
	ck_assert_uint_eq(line.id, 36);
	ck_assert_uint_eq(line.dev, makedev(98, 3));
	ck_assert_str_eq(line.root, lines[_i].root);
	ck_assert_str_eq(line.point, lines[_i].point);
	ck_assert_str_eq(line.fs_type, lines[_i].fs_type);
	ck_assert_str_eq(line.source, lines[_i].source);
}

TEST(a_mount_is_found_by_its_device)
{
	struct mount mount;
	struct stat st, at;

	ck_assert_int_eq(stat("/proc", &st), 0);
	ck_assert_int_eq(mount_find(0, 0, st.st_dev, &mount), 0);
	ck_assert_str_eq(mount.fs_type, "proc");
	ck_assert_int_eq(stat(mount.point, &at), 0);
	ck_assert_uint_eq(at.st_dev, st.st_dev);
	mount_deinit(&mount);
	ck_assert_int_eq(mount_find(0, 0, makedev(4000, 1), &mount), -ENOENT);
}

TEST(an_id_goes_before_a_device)
{
	struct statx stx;
	struct mount mount;

	ck_assert_int_eq(statx(AT_FDCWD, "/proc", 0, STATX_MNT_ID, &stx), 0);
	if (!(stx.stx_mask & STATX_MNT_ID))
		return; /* before Linux 5.8 */
	ck_assert_int_eq(mount_find(0, stx.stx_mnt_id, makedev(4000, 1), &mount), 0);
	ck_assert_str_eq(mount.fs_type, "proc");
	mount_deinit(&mount);
}

TEST_MAIN
