/*
 * The mode lock of an inode: direct writes and buffered writes of it are never under way together,
 * whoever's they are.
 *
 * A direct write that finds, when it ends, a dirty folio of the page cache over its range (folios
 * may be large, so the dirty bytes may be a neighbour's) can not invalidate it: the kernel then
 * makes the next fsync return EIO, though nothing was lost.  Reads are no trouble.
 *
 * One kind at a time is let in, block by block.  As soon as an op of the other kind waits, no more
 * of this kind start but for a short slice; when the last is done, the kind of the first that
 * waits has its turn, and all who wait with it.  They are promised a start: the mode lock does not turn
 * again before each has started something, so neither kind starves.
 *
 * Ops that wait stand in its list, in order, outside of their channels: a write of another client
 * may take long, and what else a channel has need not wait for it.  At most MODE_LOCK_OPS_MAX ops of a
 * channel do so (op.is_gated; ops that wait for an extension, extend.h, count, too).  With more, the
 * channel waits.  So nobody waits for more of another client's ops than its channels times that.
 *
 * Home lane of the store only.
 */
#ifndef DSAIO_DAEMON_OBJECT_MODE_LOCK_H
#define DSAIO_DAEMON_OBJECT_MODE_LOCK_H

#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

enum write_mode { MODE_DIRECT, MODE_BUFFERED };

/* How long a kind goes on while the other waits: a few blocks, so that turns are not all that is
   done.  A guess. */
#define MODE_LOCK_SLICE_NSEC 2000000u

/* Ops of one channel that may stand outside of it.  A guess. */
#define MODE_LOCK_OPS_MAX 8u

/* Embedded in each op.  Its node is the op's own while the op does not wait here. */
struct mode_lock_waiter {
	struct list_node node;
	uint8_t mode;	  /* enum write_mode: the one that it waits for */
	bool is_promised; /* the mode lock is kept for it until it starts */
};

struct mode_lock {
	struct list waiting;  /* of struct mode_lock_waiter */
	uint32_t n_busy;      /* writes of its kind under way */
	uint32_t n_promised;  /* ops let in that have not started yet */
	enum write_mode kind; /* of those */
	uint64_t since_nsec;  /* when it last turned */
};

/* May an op that has no promise start a write of this kind now? */
bool mode_lock_is_open(const struct mode_lock *mode_lock, enum write_mode kind, uint64_t now_nsec);
/* A write of this kind starts.  A promise to the waiter is met by that. */
void mode_lock_start(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter,
		     enum write_mode kind);
/* A write is done. */
void mode_lock_end(struct mode_lock *mode_lock);
/* The waiter, which has a promise, does not need it any more. */
void mode_lock_unpromise(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter);

/* Waits, behind the others, for a turn of this kind.  A waiter that gives up leaves the list. */
void mode_lock_wait(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter,
		    enum write_mode kind);

/*
 * After mode_lock_end() and mode_lock_unpromise(): if nothing holds the mode lock any more, it turns.
 * let_in() gets the waiters whose turn it is, in order.  Each is out of the list and has a promise.
 */
void mode_lock_turn(struct mode_lock *mode_lock, uint64_t now_nsec,
		    void (*let_in)(struct mode_lock_waiter *waiter, void *arg), void *arg);

#endif
