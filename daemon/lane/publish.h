/*
 * Publish ends ops.  publish_end() writes an op's completion.  The next publish_run() counts the
 * ops, publishes the completions, wakes clients that sleep, and frees the ops, so that ops that waited for
 * them may start.  A client that has seen a completion finds the op in the counters.
 *
 * A run wakes a few sleepers only, and the next runs the others; clients take turns.  Waking many takes so
 * long that the device would run out of work.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_PUBLISH_H
#define DSAIO_DAEMON_LANE_PUBLISH_H

#include "daemon/lane/channel.h"
#include "daemon/lane/turn.h"

struct publish {
	struct lane_store *store; /* borrowed, as all pointers here */
	const struct lane_turn *turn;
	struct admit *admit;
	struct channel *first_ended; /* channels with ended ops */
	struct list to_wake;	     /* clients with channels whose threads may sleep */
	uint32_t n_to_wake;	     /* number of these channels */
};

/* Writes the completion.  The op must have nothing in flight and nothing left to start. */
void publish_end(struct publish *publish, struct op *op);
/* Adds the ops to may_start that waited for those that had ended, and wait for no other.  Returns 0 if no op had
   ended, and no client is left to be woken. */
int publish_run(struct publish *publish, struct list *may_start);
/* Reports that all ops of a batch have ended. */
void publish_batch(struct batch *batch);

#endif
