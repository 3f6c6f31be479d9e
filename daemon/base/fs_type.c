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

/* On devices of this host, or in its memory. */
#define OURS .is_local = true, .is_trusted = true
#define PSEUDO .may_wait = true, .is_pseudo = true
#define NETWORK .may_wait = true, .is_network = true

static const struct fs_type types[] = {
	/* also ext2 and ext3 */
	{ .magic = EXT4_SUPER_MAGIC, .name = "ext4", OURS, .has_uuid = true },
	{ .magic = XFS_SUPER_MAGIC, .name = "xfs", OURS, .has_uuid = true },
	{ .magic = BTRFS_SUPER_MAGIC, .name = "btrfs", OURS, .has_uuid = true },
	{ .magic = F2FS_SUPER_MAGIC, .name = "f2fs", OURS, .has_uuid = true },
	{ .magic = ZFS_MAGIC, .name = "zfs", OURS, .has_uuid = true, .may_wait = true },
	{ .magic = TMPFS_MAGIC, .name = "tmpfs", OURS, .is_tmpfs = true, .is_memory = true },
	{ .magic = OVERLAYFS_SUPER_MAGIC,
	  .name = "overlayfs",
	  .is_local = true,
	  .has_layers = true },
	{ .magic = FUSE_SUPER_MAGIC, .name = "fuse", .may_wait = true, .is_fuse = true },
	{ .magic = NFS_SUPER_MAGIC, .name = "nfs", NETWORK },
	{ .magic = CIFS_SUPER_MAGIC, .name = "cifs", NETWORK },
	{ .magic = SMB2_SUPER_MAGIC, .name = "smb", NETWORK },
	{ .magic = CEPH_SUPER_MAGIC, .name = "ceph", NETWORK },
	{ .magic = V9FS_MAGIC, .name = "9p", .may_wait = true },
	{ .magic = LUSTRE_MAGIC, .name = "lustre", .may_wait = true },
	{ .magic = RAMFS_MAGIC, .name = "ramfs" },
	{ .magic = HUGETLBFS_MAGIC, .name = "hugetlbfs", .is_memory = true },
	{ .magic = BCACHEFS_MAGIC, .name = "bcachefs" },
	{ .magic = HFS_MAGIC, .name = "hfs" },
	{ .magic = MSDOS_SUPER_MAGIC, .name = "vfat" },
	{ .magic = EXFAT_SUPER_MAGIC, .name = "exfat" },
	{ .magic = PROC_SUPER_MAGIC, .name = "proc", PSEUDO },
	{ .magic = SYSFS_MAGIC, .name = "sysfs", PSEUDO },
	{ .magic = CGROUP_SUPER_MAGIC, .name = "cgroup", PSEUDO },
	{ .magic = CGROUP2_SUPER_MAGIC, .name = "cgroup2", PSEUDO },
	{ .magic = DEBUGFS_MAGIC, .name = "debugfs", PSEUDO },
	{ .magic = TRACEFS_MAGIC, .name = "tracefs", PSEUDO },
	{ .magic = SECURITYFS_MAGIC, .name = "securityfs", PSEUDO },
	{ .magic = SELINUX_MAGIC, .name = "selinuxfs", PSEUDO },
	{ .magic = CONFIGFS_MAGIC, .name = "configfs", PSEUDO },
	{ .magic = BPF_FS_MAGIC, .name = "bpf", PSEUDO },
	{ .magic = PSTOREFS_MAGIC, .name = "pstore", PSEUDO },
	{ .magic = EFIVARFS_MAGIC, .name = "efivarfs", PSEUDO },
	{ .magic = BINFMTFS_MAGIC, .name = "binfmt_misc", PSEUDO },
	{ .magic = DEVPTS_SUPER_MAGIC, .name = "devpts", PSEUDO },
	{ .magic = NSFS_MAGIC, .name = "nsfs", PSEUDO },
};
#define N_TYPES (sizeof(types) / sizeof(*types))

static const struct fs_type other = { .name = "other", .may_wait = true };

const struct fs_type fs_type_block_device = { .name = "block device", OURS, .is_device = true };

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
