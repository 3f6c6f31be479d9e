/*
 * The table of file systems: what the daemon knows of each, by the number that statfs(2) reports.
 * A file system that is not in it is "other", of which nothing is known.
 */
#ifndef DSAIO_DAEMON_BASE_FS_TYPE_H
#define DSAIO_DAEMON_BASE_FS_TYPE_H

#include <stdbool.h>
#include <stdint.h>

struct fs_type {
	uint64_t magic; /* f_type */
	const char *name;
	/* The kernel does its I/O, on devices of this host.  Else its server can hold an op for ever. */
	bool is_local;
	/* The system's daemon may make an automatic store for it: overlayfs, which is local, may lie
	   on one that is not. */
	bool is_trusted;
	bool has_uuid;	/* that stays: tmpfs and overlayfs make one up */
	bool may_wait;	/* io_submit does the work inside, or waits for a server */
	bool is_tmpfs;	/* I/O is a copy in memory */
	bool is_memory; /* its files' pages are memory that ops may name */
	bool is_device; /* not a file system: a raw block device */
	/* A hung call ends when the connection is aborted, or the mount unmounted by force. */
	bool is_fuse, is_network;
};

extern const struct fs_type fs_type_block_device;

/* Never NULL. */
const struct fs_type *fs_type_of(uint64_t magic);
/* By the name in /proc/PID/mountinfo: "fuse.sshfs", "nfs4", "smb3".  Never NULL. */
const struct fs_type *fs_type_of_mount(const char *name);

#endif
