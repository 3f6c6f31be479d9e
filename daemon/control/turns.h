/*
 * Turns on the main thread: the order in which sessions with waiting requests are served.
 *
 * Each owner (a user) has a queue of turns (its sessions with something to read).  The service is
 * round robin over owners, then over an owner's turns, so a user with a thousand busy connections
 * gets as much as a user with one.  After TURNS_NSEC the event loop runs: it sees signals, new
 * connections and messages of other threads, and comes back here.
 *
 * A turn is in its owner's queue from turns_add() until serve() is called for it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_TURNS_H
#define DSAIO_DAEMON_CONTROL_TURNS_H

#include "proto/util/list.h"

#include <stdbool.h>

struct event;
struct event_base;

/* Service without a look at other events: a guess.  One request may take longer. */
#define TURNS_NSEC 1000000u

/* Zeroes: without turns. */
struct turn_owner {
	struct list_node node; /* in the list of owners while it has turns */
	struct list turns;
};

struct turn {
	struct list_node node;
	struct turn_owner *owner;
	bool is_queued;
};

struct turns {
	struct list owners;
	struct event *event;
	/* Serves one turn for a short time; returns whether more is left to do. */
	bool (*serve)(struct turn *turn);
};

/* Returns 0 or -ENOMEM. */
int turns_init(struct turns *turns, struct event_base *base, bool (*serve)(struct turn *turn));
/* No turn may be queued.  Zeroes are fine. */
void turns_deinit(struct turns *turns);

/* Queues a turn behind its owner's others; nothing happens if it is queued already. */
void turns_add(struct turns *turns, struct turn *turn);

#endif
