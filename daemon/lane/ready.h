/*
 * Ops that have blocks to start: in the ready list of their channel, or outside of it while they
 * wait for the mode lock of their inode, for the extension of their file or for a worker.
 *
 * Each change of a channel's ready list is reported to admission.  Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_READY_H
#define DSAIO_DAEMON_LANE_READY_H

#include "daemon/lane/channel.h"
#include "daemon/lane/turn.h"

struct ready {
	struct admit *admit;	      /* borrowed */
	const struct lane_turn *turn; /* borrowed */
};

/* The op waits for no earlier op any more. */
void ready_add(struct ready *ready, struct op *op);
/*
 * Moves the head of its channel's ready list to that list, outside of the channel.  If the channel has
 * too many such ops, the channel waits and this returns false.
 */
bool ready_defer(struct ready *ready, struct op *op, struct list *list);
/* The ops of such a list may start again, before those that have not waited. */
void ready_resume(struct ready *ready, struct list *list);
/* A block of the op, which runs or is ready, has to be started again. */
void ready_again(struct ready *ready, struct op *op);
/* No further block of the op will start.  Removes it from its list and releases its reservation. */
void ready_end(struct ready *ready, struct op *op);
/* The head of the channel's ready list may have become another, or may start again. */
void ready_update(struct ready *ready, struct channel *channel);

/* Whether the mode lock admits the op's next block. */
bool ready_has_lock(const struct ready *ready, const struct op *op);
/* A block of the op starts, or has ended. */
void ready_lock(struct ready *ready, struct op *op);
void ready_unlock(struct ready *ready, struct op *op);
/* Releases the op's reservation of the mode lock, because the op may not start for a long time. */
void ready_unreserve(struct ready *ready, struct op *op);
/* Releases the reservations of all ready ops of a channel that is blocked on worker threads, which may
   hang. */
void ready_unreserve_all(struct ready *ready, struct channel *channel);

#endif
