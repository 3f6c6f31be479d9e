/*
 * Views: read-only memory of the pool that holds a part of a file, mapped by every client that may read that file.
 *
 * The parts of a file are pieces of VIEW_PIECE_BYTES, so that overlapping views share.  A piece is a memfd, made and
 * sealed by the daemon, so that nobody else can write it: clients get a read-only description, and the seal
 * F_SEAL_FUTURE_WRITE refuses writes and writable shared mappings also to those who open it again.  The daemon's own
 * mapping is from before the seal.  Each client that has the piece has a slab of its own for it, a use, whose bytes
 * are charged to the client: its share, all uses having the same.
 *
 * Where the page cache has all of a piece, it is copied from there, if its first client has passed a buffered
 * description.  Else it is filled by a read of one of its clients, an op like any other: scheduled, limited and counted
 * as that client's.  view_fill_begin() takes only the one read that puts the file's bytes at their place, and only one
 * at a time.  So a client cannot decide what the others see; it can only be slow.  A client that was asked to read and
 * does not is not waited for.
 *
 * Which bytes: view_look() says which version of the file a client has open.  A piece is of one version, and is ready
 * when the file still had that version after the read.  A write(2) that begins after the look changes the ctime before
 * it changes bytes; so that the clock has ticked by then, a file that has just been changed has no views.  Writes
 * through mappings change nothing that can be seen.
 *
 * The memory cannot be punched.  When the last use is gone, the piece is no longer found; the memory stays charged
 * until nobody maps it, which is looked for at once and by views_tick(): then the kernel grants a write lease.  Where
 * others map it, it is charged to the pool alone, since nobody knows which user's they are; while that is a quarter of
 * the pool, no more pieces are made.
 *
 * Main thread, except as said.
 */
#ifndef DSAIO_DAEMON_OBJECT_VIEW_H
#define DSAIO_DAEMON_OBJECT_VIEW_H

#include "daemon/object/pool.h"
#include "proto/ring.h"

#include <time.h>

#define VIEW_PIECE_BYTES (UINT64_C(64) << 20)

struct file;
struct view_piece;

/* All pieces of the daemon. */
struct views {
	struct pool *pool;
	struct work_queue *
		work_queue; /* its own, to free pieces: they may outlive the users that have them */
	struct list all; /* struct view_piece that are made, or being made, and have uses or will */
	struct list leaving;  /* no use any more, and others map them ... */
	uint32_t n_left;      /* ... so many of them, ... */
	uint64_t left_bytes;  /* ... and their bytes */
	uint32_t n_made;      /* with memory that is to be unmapped, or to be freed, yet */
	uint64_t saved_bytes; /* of uses that were ready without a read for them */
	uint64_t n_refused;   /* uses: the clients read for themselves */
	void (*on_left)(struct views *views); /* one more is leaving: views_tick() has work */
};

/* Padding is zero, since versions are compared by bytes. */
struct view_version {
	struct inode_id inode;
	uint64_t generation; /* of the inode; 0: the file system has none */
	uint64_t size;
	struct timespec mtime, ctime;
};

/*
 * On the file's work queue: may hang.  Returns 0, or with a message: -EOPNOTSUPP (a device, no local file system, or
 * not open for reading), -EAGAIN (it was changed a moment ago), or the kernel's error.
 */
int view_look(const struct file *file, struct view_version *ret_version, struct error *error);

enum view_state {
	VIEW_EMPTY, /* to be read */
	VIEW_READY,
	VIEW_STALE, /* the file has another version by now */
};

/* Waits for a piece to change its state; embedded. */
struct view_waiter {
	struct list_node node;
	struct slab *use;
	/* fills: the caller is to read it now.  Or an error: its use is freed, or the piece is stale. */
	void (*on_state)(struct view_waiter *waiter, int result, bool fills,
			 const struct error *error);
};

/* Waits for a piece to be made; embedded. */
struct view_opener {
	struct list_node node;
	/* The caller may call view_join() now, or the making has failed. */
	void (*on_made)(struct view_opener *opener, struct view_piece *view, int result,
			const struct error *error);
};

int views_init(struct views *views, struct pool *pool); /* 0 or -errno: of its thread */
/* There is no use, and no message of theirs is under way. */
void views_deinit(struct views *views);

/*
 * The piece of that version from byte off on: on_made follows, at once if it is there.  Pieces of other versions of
 * the file become stale.  file: as view_look() found it.  A new one is charged to the quota meanwhile, and
 * made on that work queue, of the same user, so that users with many do not wait for each other.  Returns 0, or,
 * with a message, -EINVAL (off is no multiple of VIEW_PIECE_BYTES, or not before the end), or as slab_make(), and
 * calls nothing.
 */
int views_open(struct views *views, struct file *file, const struct view_version *version,
	       uint64_t off, struct quota *quota, struct work_queue *work_queue,
	       struct view_opener *opener, struct error *error);

/* From on_made: a use, to be started by slab_start().  Returns 0 or as quota_charge(), with a message. */
int view_join(struct view_piece *view, struct quota *quota, struct work_queue *work_queue,
	      struct slab **ret_slab, struct error *error);

/* Memory of an earlier daemon's piece: a slab that is charged, and that no op can use. */
extern const struct slab_kind slab_kind_kept;

static inline bool slab_is_view(const struct slab *slab)
{
	return slab->view != NULL;
}

/*
 * The state of the use's piece.  Returns 0: it is ready.  1: the caller is to read it.  -EBUSY: another reads it.
 * With a message -ESTALE, or -ETIMEDOUT (others read it for 10 s by now, whether one or one after the other).
 */
int view_ask(struct slab *use, struct error *error);
/* After -EBUSY: calls on_state once. */
void view_wait(struct slab *use, struct view_waiter *waiter);
/* For the reply: the piece's file. */
const struct view_version *view_version_of(const struct slab *use);

/* Lane.  An op of that entry begins or ends.  Returns 0 or a positive errno: EPERM (it is no read of this piece of
   this version), EBUSY (another fills it, or it is full). */
int view_fill_begin(struct slab *use, const struct file *file, const struct ring_entry *entry);
void view_fill_end(struct slab *use, struct file *file, int64_t result);

/* Now and then.  Frees what nobody maps any more, and asks another client where one that was asked does not read.
   Returns whether there is more to come. */
bool views_tick(struct views *views);

/* For status. */
struct views_sum {
	uint32_t n, n_uses;
	uint64_t bytes, left_bytes, saved_bytes, n_refused;
};
struct views_sum views_sum(const struct views *views);

#endif
