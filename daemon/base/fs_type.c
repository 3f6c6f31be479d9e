#include "daemon/base/fs_type.h"

#include <linux/magic.h>
#include <stddef.h>
#include <string.h>

/* linux/magic.h has no names for these. */
#define ZFS_MAGIC 0x2fc12fc1
#define LUSTRE_MAGIC 0x0bd00bd0
#define BCACHEFS_MAGIC 0xca451a4e
#define HFS_MAGIC 0x4244
#define CONFIGFS_MAGIC 0x62656570

static const struct fs_type types[] = {
	/* also ext2 and ext3 */
	{ .magic = EXT4_SUPER_MAGIC,
	  .name = "ext4",
	  .is_local = true,
	  .is_trusted = true,
	  .has_uuid = true },
	{ .magic = XFS_SUPER_MAGIC,
	  .name = "xfs",
	  .is_local = true,
	  .is_trusted = true,
	  .has_uuid = true },
	{ .magic = BTRFS_SUPER_MAGIC,
	  .name = "btrfs",
	  .is_local = true,
	  .is_trusted = true,
	  .has_uuid = true },
	{ .magic = F2FS_SUPER_MAGIC,
	  .name = "f2fs",
	  .is_local = true,
	  .is_trusted = true,
	  .has_uuid = true },
	{ .magic = ZFS_MAGIC,
	  .name = "zfs",
	  .is_local = true,
	  .is_trusted = true,
	  .has_uuid = true,
	  .may_wait = true },
	{ .magic = TMPFS_MAGIC,
	  .name = "tmpfs",
	  .is_local = true,
	  .is_trusted = true,
	  .is_tmpfs = true,
	  .is_memory = true },
	{ .magic = OVERLAYFS_SUPER_MAGIC,
	  .name = "overlayfs",
	  .is_local = true,
	  .has_layers = true },
	{ .magic = FUSE_SUPER_MAGIC, .name = "fuse", .may_wait = true, .is_fuse = true },
	{ .magic = NFS_SUPER_MAGIC, .name = "nfs", .may_wait = true, .is_network = true },
	{ .magic = CIFS_SUPER_MAGIC, .name = "cifs", .may_wait = true, .is_network = true },
	{ .magic = SMB2_SUPER_MAGIC, .name = "smb", .may_wait = true, .is_network = true },
	{ .magic = CEPH_SUPER_MAGIC, .name = "ceph", .may_wait = true, .is_network = true },
	{ .magic = V9FS_MAGIC, .name = "9p", .may_wait = true },
	{ .magic = LUSTRE_MAGIC, .name = "lustre", .may_wait = true },
	{ .magic = RAMFS_MAGIC, .name = "ramfs" },
	{ .magic = HUGETLBFS_MAGIC, .name = "hugetlbfs", .is_memory = true },
	{ .magic = BCACHEFS_MAGIC, .name = "bcachefs" },
	{ .magic = HFS_MAGIC, .name = "hfs" },
	{ .magic = MSDOS_SUPER_MAGIC, .name = "vfat" },
	{ .magic = EXFAT_SUPER_MAGIC, .name = "exfat" },
	{ .magic = PROC_SUPER_MAGIC, .name = "proc", .may_wait = true, .is_pseudo = true },
	{ .magic = SYSFS_MAGIC, .name = "sysfs", .may_wait = true, .is_pseudo = true },
	{ .magic = CGROUP_SUPER_MAGIC, .name = "cgroup", .may_wait = true, .is_pseudo = true },
	{ .magic = CGROUP2_SUPER_MAGIC, .name = "cgroup2", .may_wait = true, .is_pseudo = true },
	{ .magic = DEBUGFS_MAGIC, .name = "debugfs", .may_wait = true, .is_pseudo = true },
	{ .magic = TRACEFS_MAGIC, .name = "tracefs", .may_wait = true, .is_pseudo = true },
	{ .magic = SECURITYFS_MAGIC, .name = "securityfs", .may_wait = true, .is_pseudo = true },
	{ .magic = SELINUX_MAGIC, .name = "selinuxfs", .may_wait = true, .is_pseudo = true },
	{ .magic = CONFIGFS_MAGIC, .name = "configfs", .may_wait = true, .is_pseudo = true },
	{ .magic = BPF_FS_MAGIC, .name = "bpf", .may_wait = true, .is_pseudo = true },
	{ .magic = PSTOREFS_MAGIC, .name = "pstore", .may_wait = true, .is_pseudo = true },
	{ .magic = EFIVARFS_MAGIC, .name = "efivarfs", .may_wait = true, .is_pseudo = true },
	{ .magic = BINFMTFS_MAGIC, .name = "binfmt_misc", .may_wait = true, .is_pseudo = true },
	{ .magic = DEVPTS_SUPER_MAGIC, .name = "devpts", .may_wait = true, .is_pseudo = true },
	{ .magic = NSFS_MAGIC, .name = "nsfs", .may_wait = true, .is_pseudo = true },
};
#define N_TYPES (sizeof(types) / sizeof(*types))

static const struct fs_type other = { .name = "other", .may_wait = true };

const struct fs_type fs_type_block_device = {
	.name = "block device", .is_local = true, .is_trusted = true, .is_device = true
};

/* A store of objects. */
const struct fs_type fs_type_rados = { .name = "rados" };

const struct fs_type *fs_type_of(uint64_t magic)
{
	for (size_t i = 0; i < N_TYPES; i++)
		if (types[i].magic == magic)
			return &types[i];
	return &other;
}

/* A mount's type has more behind the name: a helper's, or a version. */
const struct fs_type *fs_type_of_mount(const char *name)
{
	for (size_t i = 0; i < N_TYPES; i++)
		if (strncmp(name, types[i].name, strlen(types[i].name)) == 0)
			return &types[i];
	return &other;
}
