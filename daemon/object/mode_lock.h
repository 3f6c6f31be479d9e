/*
 * The mode lock of an inode: it keeps direct and buffered writes of the inode, by all clients, apart in
 * time.
 *
 * At the end of a direct write the kernel invalidates the page cache of its range.  It cannot
 * invalidate a dirty folio (folios may be large, so the dirty bytes may be outside the range).  It then
 * makes the next fsync return EIO, although no data was lost.  Reads do not have this problem.
 *
 * The lock admits writes of one kind at a time, block by block.  When an op of the other kind waits,
 * the present kind starts writes only for a short slice.  After its last write has ended, the lock
 * switches to the kind of the first waiter and admits all waiters of that kind.  Each of them has a
 * reservation: the lock does not switch again before it has started a write.  So neither kind starves.
 *
 * Waiting ops are in the lock's list, in order, outside of their channels, so that other ops of a
 * channel need not wait for another client's long write.  At most MODE_LOCK_OPS_MAX ops of a channel do
 * so (op.is_gated; ops that wait for an extension, extend.h, count too).  With more, the channel waits.
 * This bounds the ops of another client that an op can wait for.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_OBJECT_MODE_LOCK_H
#define DSAIO_DAEMON_OBJECT_MODE_LOCK_H

#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

enum write_mode { MODE_DIRECT, MODE_BUFFERED };

/* The slice of a kind while the other waits: a few blocks, so that switches do not cost too much.  A
   guess. */
#define MODE_LOCK_SLICE_NSEC 2000000u

/* Ops of one channel that may wait outside of it.  A guess. */
#define MODE_LOCK_OPS_MAX 8u

/* Embedded in each op.  Its node is the op's own while the op does not wait here. */
struct mode_lock_waiter {
	struct list_node node;
	uint8_t mode;	  /* enum write_mode: the one that it waits for */
	bool is_reserved; /* the lock does not switch until this op starts a write */
};

struct mode_lock {
	struct list waiting;  /* of struct mode_lock_waiter */
	uint32_t n_busy;      /* writes of its kind under way */
	uint32_t n_reserved;  /* admitted ops that have not started yet */
	enum write_mode kind; /* of the present writes */
	uint64_t since_nsec;  /* time of the last switch */
};

/* May an op that has no reservation start a write of this kind now? */
bool mode_lock_is_open(const struct mode_lock *mode_lock, enum write_mode kind, uint64_t now_nsec);
/* A write of this kind starts.  This uses the waiter's reservation, if it has one. */
void mode_lock_start(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter,
		     enum write_mode kind);
/* A write is done. */
void mode_lock_end(struct mode_lock *mode_lock);
/* The waiter, which has a reservation, does not need it any more. */
void mode_lock_unreserve(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter);

/* Waits, behind the others, until the lock admits this kind.  A waiter that gives up leaves the list. */
void mode_lock_wait(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter,
		    enum write_mode kind);

/*
 * Switches the lock if it is free.  Call it after mode_lock_end() and mode_lock_unreserve().  It calls
 * on_admitted() for each admitted waiter, in order.  The waiter is out of the list and has a reservation.
 */
void mode_lock_switch(struct mode_lock *mode_lock, uint64_t now_nsec,
		      void (*on_admitted)(struct mode_lock_waiter *waiter, void *arg), void *arg);

#endif
