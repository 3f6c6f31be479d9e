/*
 * The table of file systems: their properties, by the number that statfs(2) reports.  A file system
 * that is not in the table is "other": the daemon assumes the worst of it.
 */
#ifndef DSAIO_DAEMON_BASE_FS_TYPE_H
#define DSAIO_DAEMON_BASE_FS_TYPE_H

#include <stdbool.h>
#include <stdint.h>

struct fs_type {
	uint64_t magic; /* f_type */
	const char *name;
	/* The kernel does its I/O, on devices of this host.  Else its server can block an op forever. */
	bool is_local;
	/* The system daemon may make an automatic store for it.  Not overlayfs: it is local, but its
	   layers may be on a file system that is not. */
	bool is_trusted;
	bool has_uuid;	/* a permanent one: tmpfs and overlayfs invent one at mount */
	bool may_wait;	/* io_submit(2) does the work itself, or waits for a server */
	bool is_tmpfs;	/* I/O is a copy in memory */
	bool is_memory; /* its files' pages are memory that ops may name */
	bool is_device; /* not a file system: a raw block device */
	bool is_pseudo; /* its files are the kernel's answers, not stored bytes */
	/* The st_dev of a file may be its layer's, and not that of the file system's directories. */
	bool has_layers;
	/* A hung call ends when the connection is aborted, or the mount unmounted by force. */
	bool is_fuse, is_network;
};

extern const struct fs_type fs_type_block_device, fs_type_rados;

/* Never NULL. */
const struct fs_type *fs_type_of(uint64_t magic);
/* By the name in /proc/PID/mountinfo: "fuse.sshfs", "nfs4", "smb3".  Never NULL. */
const struct fs_type *fs_type_of_mount(const char *name);

#endif
