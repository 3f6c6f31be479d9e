/*
 * Ops that have blocks to start: in the ready list of their channel, or outside of it while they
 * wait for the mode lock of their inode, for the extension of their file or for a worker.
 *
 * Admission is told whenever the ready list of a channel changes.  Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_READY_H
#define DSAIO_DAEMON_LANE_READY_H

#include "daemon/lane/channel.h"
#include "daemon/lane/turn.h"

struct ready {
	struct admit *admit;	 /* borrowed */
	const struct turn *turn; /* borrowed */
};

/* Nothing stands before the op any more. */
void ready_add(struct ready *ready, struct op *op);
/*
 * The head of its channel's ready list waits outside of the channel, in that list, if it may; else
 * the channel waits.
 */
bool ready_defer(struct ready *ready, struct op *op, struct list *list);
/* The ops of such a list may start again, before those that have not waited. */
void ready_let_in(struct ready *ready, struct list *list);
/* A block of the op, which runs or is ready, has to be started again. */
void ready_again(struct ready *ready, struct op *op);
/* Nothing more of the op will start.  It leaves its list and gives back what is promised to it. */
void ready_end(struct ready *ready, struct op *op);
/* The head of the channel's ready list may have become another, or may start again. */
void ready_update(struct ready *ready, struct channel *channel);

/* May the op's next block start, as far as the mode lock goes? */
bool ready_has_lock(const struct ready *ready, const struct op *op);
/* A block of the op starts, or has ended. */
void ready_lock(struct ready *ready, struct op *op);
void ready_unlock(struct ready *ready, struct op *op);
/* Gives back what the mode lock promised to the op: it may be long until it starts. */
void ready_unpromise(struct ready *ready, struct op *op);
/* The same for all ready ops of a channel that may start nothing until worker threads are done, which
   may be never. */
void ready_unpromise_all(struct ready *ready, struct channel *channel);

#endif
