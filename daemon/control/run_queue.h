/*
 * The run queue of the main thread: the order in which sessions with waiting requests are served.
 *
 * Each owner (a user) has a queue of entries (its sessions with something to read).  The service is
 * round robin over owners, then over an owner's entries, so a user with a thousand busy connections
 * gets as much as a user with one.  After RUN_QUEUE_NSEC the event loop runs: it sees signals, new
 * connections and messages of other threads, and comes back here.
 *
 * An entry is in its owner's queue from run_queue_add() until serve() is called for it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_RUN_QUEUE_H
#define DSAIO_DAEMON_CONTROL_RUN_QUEUE_H

#include "proto/util/list.h"

#include <stdbool.h>

struct event;
struct event_base;

/* Service without a look at other events: a guess.  One request may take longer. */
#define RUN_QUEUE_NSEC 1000000u

/* Zeroes: without entries. */
struct run_owner {
	struct list_node node; /* in the list of owners while it has entries */
	struct list entries;
};

struct run_entry {
	struct list_node node;
	struct run_owner *owner;
	bool is_queued;
};

struct run_queue {
	struct list owners;
	struct event *event;
	/* Serves one entry for a short time; returns whether more is left to do. */
	bool (*serve)(struct run_entry *entry);
};

/* Returns 0 or -ENOMEM. */
int run_queue_init(struct run_queue *queue, struct event_base *base,
		   bool (*serve)(struct run_entry *entry));
/* No entry may be queued.  Zeroes are fine. */
void run_queue_deinit(struct run_queue *queue);

/* Queues an entry behind its owner's others; nothing happens if it is queued already. */
void run_queue_add(struct run_queue *queue, struct run_entry *entry);

#endif
