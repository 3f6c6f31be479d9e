/*
 * An inode: shared by all files of a client that are the same inode.
 *
 * It lists its open ops in the order of their submission.  The daemon orders the ops of a handle that
 * are in its ring.  It does not know, or not as a whole, an op that is off the ring (op.h).  So a
 * later op that conflicts with such an op waits for its end.
 *
 * It records the file's size as far as it is known.  A write that may end beyond it says so in its
 * entry, and the daemon extends the file.  Other processes may extend and truncate the file, so the
 * known size may be wrong: it only selects the faster way.  The library shrinks a file only for
 * dsaio_file_truncate().
 */
#ifndef DSAIO_CLIENT_LIB_IO_INODE_H
#define DSAIO_CLIENT_LIB_IO_INODE_H

#include "client/lib/io/channel.h"
#include "proto/util/inode_id.h"

struct inode {
	struct inode_id id;   /* first: the tree's key */
	uint32_t n_files;     /* client.lock */
	pthread_mutex_t lock; /* of all below */
	uint64_t known_size;  /* the file is at least that long, unless others cut it */
	_Atomic uint64_t seen_size, seen_tick; /* the size at the last look, and when; relaxed */
	uint64_t failed;		/* client_count_failed() of the last write that failed */
	struct list ops;		/* open ones, in the order of their submission */
	uint32_t n_off_ring, n_writing; /* of the open ops */
	uint64_t n_pages; /* all ops since there was none ended before this page: see is_clear */
};

/* Finds or makes it.  Returns 0 or -ENOMEM.  Pair with inode_drop(). */
int inode_hold(struct dsaio_client *client, dev_t dev, ino_t ino, struct inode **ret_inode);
void inode_drop(struct dsaio_client *client, struct inode *inode); /* NULL is fine */

/* The op is open from now on. */
void inode_add(struct inode *inode, struct dsaio_op *op);

/*
 * An earlier open op of its handle that this one has to wait for, with a reference for the caller;
 * NULL: none.  is_in_ring: it goes by the handle's own ring.
 */
struct dsaio_op *inode_conflict(struct inode *inode, const struct dsaio_op *op, bool is_in_ring);

/*
 * Where the handle's open writes of these bytes end, at most: a read that comes behind them finds
 * the file at least that long, also where none of them could move the size first.
 */
uint64_t inode_end_to_be(struct inode *inode, const struct dsaio_handle *handle, uint64_t off,
			 uint64_t len);

/* The op, which was added, is off the ring from now on: it is WAITING. */
void inode_leave_ring(struct inode *inode, struct dsaio_op *op);

/* Submits a WAITING op, as channel_put(). */
int inode_put(struct inode *inode, struct dsaio_op *op);

bool inode_has_ops(struct inode *inode);
/* The end of the last byte that was written: of a file of a RADOS store. */
static inline uint64_t inode_written_end(struct inode *inode)
{
	LOCKED(&inode->lock);

	return inode->known_size;
}

/* Is the file known to be at least that long? */
bool inode_is_long(struct inode *inode, uint64_t size);
/* It is. */
void inode_know_size(struct inode *inode, uint64_t size);

/* A write of it has failed, and is still among its open ops. */
void inode_note_failed(struct inode *inode, struct dsaio_client *client);
/* Has a write of it failed since client_n_failed() was that? */
bool inode_has_failed(struct inode *inode, uint64_t n_failed);

/* The op has ended, result and done are filled in: takes it off. */
void inode_remove(struct inode *inode, struct dsaio_op *op);

/*
 * Was the file at least that long a moment (1 to 4 ms) ago?  Spares most reads a look at its size,
 * which is a system call; inode_saw_size() tells what that look found.
 */
bool inode_reached(const struct inode *inode, uint64_t size);
void inode_saw_size(struct inode *inode, uint64_t size);

/*
 * A file of it was opened, opened again or truncated, and is that long now: what was known before
 * holds no longer.
 */
void inode_opened(struct inode *inode, uint64_t size);

/* dsaio_file_truncate().  Returns 0 or a negative errno. */
int inode_truncate(struct inode *inode, int fd, uint64_t size);
/* The same for dsaio_file_allocate(). */
int inode_allocate(struct inode *inode, int fd, uint64_t off, uint64_t len);

#endif
