/*
 * Helper threads: what may block runs here, never in a lane or the main thread.  Checking and
 * closing foreign descriptors, making and freeing slabs (one helper for each user), syncs (one
 * for each user and store), so a hung file system of one user holds up nobody else.
 *
 * Threads start when work comes and none is idle, at most max_threads; one that has had no work
 * for a second ends.  helper_submit(): any thread.
 *
 * If none can be started for a helper that has none, its work goes to the spare: a thread that is
 * there from the first helper_new() on, which does one piece of work of each such helper in turn.
 */
#ifndef DSAIO_DAEMON_HELPER_H
#define DSAIO_DAEMON_HELPER_H

#include "daemon/stuck.h"

struct helper;

/* Embedded in the object that it is about. */
struct work {
	struct work *next;
	void (*run)(struct work *work); /* on a helper thread; the last thing that touches work
					   unless it hands it on (say, posts a message) */
	struct stuck_about about; /* what it asks of a client's file system; zeroes: nothing */
};

/* 0, -ENOMEM, or why the spare can not be started. */
int helper_new(const char *name, unsigned max_threads, struct helper **ret_helper);

/*
 * Queues work; it always runs, in order if max_threads is 1, and never in the caller.
 */
void helper_submit(struct helper *helper, struct work *work);

/* Runs what is queued, joins the threads and frees.  Not from one of its threads.  NULL is fine. */
void helper_free(struct helper *helper);

#endif
