/*
 * A file: what a client opened with its own rights and handed over by descriptor.
 *
 * It is checked once, on the user's helper thread, since fstat and even close of a hostile FUSE
 * file can hang.  Its session and each op on it hold it; the last drop closes it, there too.
 *
 * Inodes: two files of a session may be one inode; ops are kept in order by inode, so each file
 * points to the session's one struct inode for it.  Lanes only compare the pointers.
 */
#ifndef DSAIO_DAEMON_FILE_H
#define DSAIO_DAEMON_FILE_H

#include "daemon/charge.h"
#include "daemon/helper.h"
#include "daemon/inbox.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct store;

struct inode {
	dev_t dev;
	ino_t ino;
	uint32_t n_files; /* files of the session that are this inode */
};

/* The inodes of one session.  Main thread. */
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
	uint32_t offset_align, memory_align; /* powers of two; 1 on tmpfs */
};

/*
 * Checks a descriptor: fstatfs before anything else; regular file or block device; not O_PATH;
 * no O_APPEND if it can be written; O_DIRECT unless tmpfs; alignment from statx(STATX_DIOALIGN)
 * or, where the kernel does not tell, by probe reads.  May block.  Any thread.
 * Returns 0 or a negative errno with a sentence: -EBADF (O_PATH), -EOPNOTSUPP (kind, O_DIRECT
 * missing or impossible), -EINVAL (O_APPEND).
 */
int file_check(int fd, const char *name, struct file_facts *ret_facts, struct error *error);

struct file {
	uint32_t id; /* in its session; 0 before it has one */
	int fd;
	char name[128]; /* what the client calls it, cut; for messages */
	struct file_facts facts;
	struct store *store;
	struct inode *inode;
	struct inodes *inodes; /* borrowed: the session's */
	struct charge charge;
	_Atomic uint32_t n_holds; /* as in struct slab */
	struct helper *helper;	  /* borrowed: the user's */
	struct inbox *main_inbox;
	struct work work;
	struct message message;
	struct error error;
	int result;
	void (*on_checked)(struct file *file, int result, const struct error *error, void *arg);
	void (*on_freed)(void *arg);
	void *checked_arg, *freed_arg;
};

/*
 * Returns 0 and later calls on_checked in the main thread: with 0 and a file that the callee
 * holds (facts filled in; the callee calls file_attach), or an error and NULL; fd is then taken.
 * Or returns -EMFILE (charge) or -ENOMEM and calls nothing; fd is then still the caller's, who
 * can not just close it.
 */
int file_make(struct account *account, struct helper *helper, struct inbox *main_inbox, int fd,
	      const char *name,
	      void (*on_checked)(struct file *file, int result, const struct error *error,
				 void *arg),
	      void *arg, struct error *error);

/* Says to which store and which of the session's inodes it belongs; 0 or -ENOMEM. */
int file_attach(struct file *file, struct store *store, struct inodes *inodes);

static inline void file_hold(struct file *file)
{
	(void)atomic_fetch_add_explicit(&file->n_holds, 1, memory_order_relaxed);
}
/* The last drop closes it on the helper's thread, gives the charge back and drops the inode in
   the main thread and then calls on_freed, if it was set. */
void file_drop(struct file *file);

#endif
