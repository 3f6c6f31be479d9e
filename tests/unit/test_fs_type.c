#include "daemon/base/fs_type.h"

#include "tests/unit/suite.h"

#include <linux/magic.h>
#include <string.h>

static const struct {
	uint64_t magic;
	const char *name;
	bool is_local, is_trusted, has_uuid, may_wait, is_memory, is_pseudo;
} rows[] = {
	{ EXT4_SUPER_MAGIC, "ext4", true, true, true, false, false, false },
	{ XFS_SUPER_MAGIC, "xfs", true, true, true, false, false, false },
	{ 0x2fc12fc1, "zfs", true, true, true, true, false, false },
	{ TMPFS_MAGIC, "tmpfs", true, true, false, false, true, false },
	{ OVERLAYFS_SUPER_MAGIC, "overlayfs", true, false, false, false, false, false },
	{ FUSE_SUPER_MAGIC, "fuse", false, false, false, true, false, false },
	{ NFS_SUPER_MAGIC, "nfs", false, false, false, true, false, false },
	{ HUGETLBFS_MAGIC, "hugetlbfs", false, false, false, false, true, false },
	{ MSDOS_SUPER_MAGIC, "vfat", false, false, false, false, false, false },
	{ PROC_SUPER_MAGIC, "proc", false, false, false, true, false, true },
	{ CGROUP2_SUPER_MAGIC, "cgroup2", false, false, false, true, false, true },
	{ 0x12345, "other", false, false, false, true, false, false },
};

TEST_TABLE(a_file_system_is_known_by_its_number, rows)
{
	const struct fs_type *type = fs_type_of(rows[_i].magic);

	ck_assert_str_eq(type->name, rows[_i].name);
	ck_assert_uint_eq(type->is_local, rows[_i].is_local);
	ck_assert_uint_eq(type->is_trusted, rows[_i].is_trusted);
	ck_assert_uint_eq(type->has_uuid, rows[_i].has_uuid);
	ck_assert_uint_eq(type->may_wait, rows[_i].may_wait);
	ck_assert_uint_eq(type->is_memory, rows[_i].is_memory);
	ck_assert_uint_eq(type->is_pseudo, rows[_i].is_pseudo);
	ck_assert(!type->is_trusted || type->is_local);
	ck_assert(!type->is_device);
}

static const struct {
	const char *mount, *name;
	bool is_fuse, is_network;
} mounts[] = {
	{ "ext4", "ext4", false, false },      { "fuse", "fuse", true, false },
	{ "fuse.sshfs", "fuse", true, false }, { "fuseblk", "fuse", true, false },
	{ "nfs", "nfs", false, true },	       { "nfs4", "nfs", false, true },
	{ "cifs", "cifs", false, true },       { "smb3", "smb", false, true },
	{ "ceph", "ceph", false, true },       { "9p", "9p", false, false },
	{ "what", "other", false, false },     { "", "other", false, false },
};

TEST_TABLE(a_mounts_type_says_what_frees_a_hung_call, mounts)
{
	const struct fs_type *type = fs_type_of_mount(mounts[_i].mount);

	ck_assert_str_eq(type->name, mounts[_i].name);
	ck_assert_uint_eq(type->is_fuse, mounts[_i].is_fuse);
	ck_assert_uint_eq(type->is_network, mounts[_i].is_network);
}

TEST(a_block_device_is_served_like_a_trusted_file_system)
{
	ck_assert(fs_type_block_device.is_device && fs_type_block_device.is_trusted);
	ck_assert(fs_type_block_device.is_local && !fs_type_block_device.may_wait);
}

TEST_MAIN
