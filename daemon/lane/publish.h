/*
 * Publishing: an op ends here, once.  Its completion is written in publish_end() and shown by the
 * next publish_run(), which wakes clients that sleep and then frees the op, so that ops which waited
 * for it may start.  Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_PUBLISH_H
#define DSAIO_DAEMON_LANE_PUBLISH_H

#include "daemon/lane/channel.h"
#include "daemon/lane/turn.h"

struct publish {
	struct lane_store *store; /* borrowed, as all pointers here */
	const struct turn *turn;
	struct admit *admit;
	/* No earlier op stands before this one any more. */
	void (*may_start)(struct op *op, void *arg);
	void *arg;
	struct channel *first_ended; /* channels with ended ops */
};

/* Writes the completion: the op has nothing in flight and starts nothing more. */
void publish_end(struct publish *publish, struct op *op);
/* 0: nothing had ended. */
int publish_run(struct publish *publish);
/* Reports that all ops of a batch have ended. */
void publish_batch(struct batch *batch);

#endif
