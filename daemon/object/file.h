/*
 * A file: a client opened it with its own rights and passed the descriptor to the daemon.
 *
 * The daemon checks it once, on a worker thread of the user, because fstat and even close of a hostile
 * FUSE file can hang.  The session and each op on the file have a reference.  The last unreference closes
 * the descriptor, also on a worker thread.
 *
 * For the unaligned head and tail of writes the client may add one buffered description of the same
 * file.  It is checked in the same way, and closed with the file.
 *
 * A file of a store on RADOS has no descriptor.  It is opened by its name, and its inode is its id there.
 *
 * Several files of one or more clients may be the same inode.  Ops are ordered by inode, and direct and
 * buffered writes of an inode are kept apart.  So each file points to the store's one struct store_inode.
 */
#ifndef DSAIO_DAEMON_OBJECT_FILE_H
#define DSAIO_DAEMON_OBJECT_FILE_H

#include "daemon/base/fs_type.h"
#include "daemon/base/job.h"
#include "daemon/base/quota.h"
#include "daemon/object/extend.h"
#include "daemon/object/mode_lock.h"
#include "daemon/object/target.h"
#include "proto/util/inode_id.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct share;
struct store;

struct store_inode {
	struct inode_id id;	    /* first: the tree's key */
	uint32_t n_files;	    /* that are this inode */
	struct mode_lock mode_lock; /* the lane's; all else: main thread */
};

/* The inodes of one store.  Main thread. */
struct inodes {
	void *root; /* tsearch(3) tree by id; NULL: empty */
};

/* The result of the check. */
struct file_facts {
	dev_t dev;     /* of the store: st_rdev for a block device, else that of the file system */
	dev_t ino_dev; /* ino is unique on it: st_dev, which is a layer's on overlayfs, or st_rdev */
	ino_t ino;
	bool can_read, is_direct, is_tmpfs, is_block_device;
	_Atomic bool can_write; /* of a file of a RADOS store: until its commit */
	bool is_foreign;	/* FUSE, network, unknown: its server can block its I/O forever */
	uint32_t offset_align, memory_align; /* powers of two; 1 on tmpfs */
	const struct fs_type *fs_type;
	uint64_t mount_id; /* as in /proc/self/mountinfo; 0: not reported (before 5.8) */
	bool has_uuid;	   /* of the file system; not reported before 6.9, nor by all kinds */
	uint8_t uuid[16];
};

/*
 * Checks a descriptor: fstatfs before anything else; regular file or block device; not O_PATH;
 * no O_APPEND if it can be written; O_DIRECT unless tmpfs; alignment from statx(STATX_DIOALIGN)
 * or, if the kernel does not report it, from test reads.  May block.  Any thread.
 * Returns 0 or a negative errno with a message: -EBADF (O_PATH), -EOPNOTSUPP (kind, O_DIRECT
 * missing or impossible), -EINVAL (O_APPEND).
 */
int file_check(int fd, const char *name, struct file_facts *ret_facts, struct error *error);

/*
 * Finds only the file system of a descriptor of any kind, O_PATH included: dev, ino, fs_type and the
 * other facts of the file system.  May block.  Any thread.  Returns 0 or the kernel's error.
 */
int file_look(int fd, const char *name, struct file_facts *ret_facts, struct error *error);

struct file {
	uint32_t id; /* in its session; 0 before it has one */
	struct target target;
	char name[128]; /* the client's name for it, cut; for messages */
	struct file_facts facts;
	struct store *store;
	struct store_inode *inode;
	bool no_nowait;		    /* lane: the file system has no RWF_NOWAIT */
	bool no_fallocate;	    /* lane: it has no fallocate(2) */
	struct extension extension; /* the lane's */
	struct inodes *inodes;	    /* borrowed: the store's */
	struct charge charge, buffered_charge;
	_Atomic uint32_t n_refs;			/* as in struct slab */
	struct work_queue *work_queue, *gpu_work_queue; /* borrowed: the user's */
	struct job job;
	struct error error;
	int result;
	void (*on_checked)(struct file *file, int result, const struct error *error, void *arg);
	uint32_t idle_word; /* idle_files.c: the word of the file board that a look found, ... */
	uint64_t idle_since_nsec; /* ... and when one found it first */
	struct share *
		share; /* the session's share of the store; on_closed() gets it when the file is closed */
	void (*on_closed)(struct share *share);
	bool is_finishing; /* main thread: a commit or its abandoning runs */
	char *rados_name;  /* of one that was created: its name, with its store, owned */
	void (*release)(struct file *file); /* main thread, before that; NULL: nothing is held */
	void (*on_freed)(void *arg);
	void *checked_arg, *freed_arg;
};

/*
 * Returns 0 and later calls on_checked in the main thread: with 0 and a file that the callee
 * holds (facts filled in; the callee calls file_attach), or an error and NULL; fd is then taken.
 * Or returns -EMFILE (charge) or -ENOMEM and calls nothing; fd is then still the caller's, which
 * must not simply close it.
 */
int file_make(struct quota *quota, struct work_queue *work_queue, struct work_queue *gpu_work_queue,
	      struct mailbox *main_mailbox, const struct hung_who *who, int fd, const char *name,
	      void (*on_checked)(struct file *file, int result, const struct error *error,
				 void *arg),
	      void *arg, struct error *error);

/* A file of a store on RADOS, not opened yet: the caller fills in target.rados, facts.ino and facts.can_write. */
int file_make_named(struct quota *quota, struct work_queue *work_queue,
		    struct mailbox *main_mailbox, const struct hung_who *who, const char *name,
		    struct file **ret_file, struct error *error);

/*
 * Connects the file with its store and inode.  align: what the store's engine needs, a power of two, if
 * the file's own alignment is smaller.  Returns 0 or -ENOMEM.
 */
int file_attach(struct file *file, struct store *store, struct inodes *inodes, uint32_t align);

/*
 * Adds a buffered description: the same device and inode, the same access mode, neither O_APPEND
 * nor O_DIRECT.  Returns 0 and later calls on_added in the main thread, with 0 or an error:
 * -EINVAL (another file or other flags), -EEXIST (it has one), or what the kernel says; fd is then
 * taken, whatever came out; it is charged like a file.  The file is held until then.  Or returns
 * -EMFILE (charge) or -ENOMEM and calls nothing; fd is then still the caller's, which must not
 * simply close it.
 */
int file_add_buffered(struct file *file, int fd,
		      void (*on_added)(struct file *file, int result, const struct error *error,
				       void *arg),
		      void *arg, struct error *error);

static inline void file_ref(struct file *file)
{
	(void)atomic_fetch_add_explicit(&file->n_refs, 1, memory_order_relaxed);
}
/* The last unreference calls the target's on_close, if there is one, on the work queue for GPUs, and closes the
   file on the other.  Then the main thread discharges the charge,
   drops the inode, and calls on_closed and on_freed, if they are set. */
void file_unref(struct file *file);

#endif
