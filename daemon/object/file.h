/*
 * A file: what a client opened with its own rights and handed over by descriptor.
 *
 * It is checked once, on the user's worker thread, since fstat and even close of a hostile FUSE
 * file can hang.  Its session and each op on it hold it; the last drop closes it, there too.
 *
 * For ragged ends of writes the client may add a second, buffered description of the same file,
 * once; it is checked there, too, and closed with the file.
 *
 * Inodes: files of one client, or of several, may be one inode; ops are kept in order by inode,
 * and direct and buffered writes apart, so each file points to the store's one struct inode.
 */
#ifndef DSAIO_DAEMON_OBJECT_FILE_H
#define DSAIO_DAEMON_OBJECT_FILE_H

#include "daemon/base/job.h"
#include "daemon/base/fs_type.h"
#include "daemon/base/quota.h"
#include "daemon/object/extend.h"
#include "daemon/object/mode_lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct share;
struct store;

struct inode {
	dev_t dev;
	ino_t ino;
	uint32_t n_files;	    /* that are this inode */
	struct mode_lock mode_lock; /* the home lane's; all else: main thread */
};

/* The inodes of one store.  Main thread. */
struct inodes {
	void *root; /* tsearch(3) tree by dev and ino */
};
void inodes_init(struct inodes *inodes);
void inodes_deinit(struct inodes *inodes); /* asserts that it is empty */

/* What the check found. */
struct file_facts {
	dev_t dev; /* of the store: st_rdev for a block device, else st_dev */
	ino_t ino;
	bool can_read, can_write, is_direct, is_tmpfs, is_block_device;
	bool is_foreign; /* FUSE, network, unknown: whoever serves it can hold its I/O for ever */
	uint32_t offset_align, memory_align; /* powers of two; 1 on tmpfs */
	const struct fs_type *fs_type;
	uint64_t mount_id; /* as in /proc/self/mountinfo; 0: not told (before 5.8) */
	bool has_uuid;	   /* of the file system; not told before 6.9, nor by all kinds */
	uint8_t uuid[16];
};

/*
 * Checks a descriptor: fstatfs before anything else; regular file or block device; not O_PATH;
 * no O_APPEND if it can be written; O_DIRECT unless tmpfs; alignment from statx(STATX_DIOALIGN)
 * or, where the kernel does not tell, by probe reads.  May block.  Any thread.
 * Returns 0 or a negative errno with a sentence: -EBADF (O_PATH), -EOPNOTSUPP (kind, O_DIRECT
 * missing or impossible), -EINVAL (O_APPEND).
 */
int file_check(int fd, const char *name, struct file_facts *ret_facts, struct error *error);

/*
 * Looks only where a descriptor lies, which may be of any kind and O_PATH: dev, ino, fs_type and
 * what else is known of the file system.  May block.  Any thread.  0 or what the kernel says.
 */
int file_look(int fd, const char *name, struct file_facts *ret_facts, struct error *error);

struct file {
	uint32_t id; /* in its session; 0 before it has one */
	int fd;
	_Atomic int buffered_fd; /* -1: none; set once by the work queue (release), lanes acquire */
	char name[128];		 /* what the client calls it, cut; for messages */
	struct file_facts facts;
	struct store *store;
	struct inode *inode;
	bool no_nowait;		    /* home lane: RWF_NOWAIT is not known there */
	bool no_fallocate;	    /* home lane: nor is fallocate(2) */
	struct extension extension; /* home lane */
	struct inodes *inodes;	    /* borrowed: the store's */
	struct hung_who who;
	struct charge charge, buffered_charge;
	_Atomic uint32_t n_holds;      /* as in struct slab */
	struct work_queue *work_queue; /* borrowed: the user's */
	struct job job;
	struct error error;
	int result;
	void (*on_checked)(struct file *file, int result, const struct error *error, void *arg);
	struct share *share; /* the session's, of the store; told first when the file is closed */
	void (*on_closed)(struct share *share);
	void (*on_freed)(void *arg);
	void *checked_arg, *freed_arg;
};

/*
 * Returns 0 and later calls on_checked in the main thread: with 0 and a file that the callee
 * holds (facts filled in; the callee calls file_attach), or an error and NULL; fd is then taken.
 * Or returns -EMFILE (charge) or -ENOMEM and calls nothing; fd is then still the caller's, who
 * can not just close it.
 */
int file_make(struct quota *quota, struct work_queue *work_queue, struct mailbox *main_mailbox,
	      const struct hung_who *who, int fd, const char *name,
	      void (*on_checked)(struct file *file, int result, const struct error *error,
				 void *arg),
	      void *arg, struct error *error);

/* Says to which store and which of the store's inodes it belongs; 0 or -ENOMEM. */
int file_attach(struct file *file, struct store *store, struct inodes *inodes);

/*
 * Adds a buffered description: the same device and inode, the same access mode, neither O_APPEND
 * nor O_DIRECT.  Returns 0 and later calls on_added in the main thread, with 0 or an error:
 * -EINVAL (another file or other flags), -EEXIST (it has one), or what the kernel says; fd is then
 * taken, whatever came out; it is charged like a file.  The file is held until then.  Or returns
 * -EMFILE (charge) or -ENOMEM and calls nothing; fd is then still the caller's, who can not just close it.
 */
int file_add_buffered(struct file *file, int fd,
		      void (*on_added)(struct file *file, int result, const struct error *error,
				       void *arg),
		      void *arg, struct error *error);

/* For a worker's work on it: what is about to be done, say "fsync". */
struct hung_about file_about(const struct file *file, const char *what);

/* The buffered description, or -1.  Any thread. */
static inline int file_buffered_fd(const struct file *file)
{
	/* acquire: pairs with the release in file.c; the number alone travels, but the descriptor
	   has to be there for whoever sees it */
	return atomic_load_explicit(&file->buffered_fd, memory_order_acquire);
}

static inline void file_ref(struct file *file)
{
	(void)atomic_fetch_add_explicit(&file->n_holds, 1, memory_order_relaxed);
}
/* The last drop closes it on the work queue's thread, gives the charge back and drops the inode in
   the main thread and then calls on_closed and on_freed, if they were set. */
void file_unref(struct file *file);

#endif
