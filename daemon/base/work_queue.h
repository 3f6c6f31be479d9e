/*
 * Worker threads: what may block runs here, never in a lane or the main thread.  Checking and
 * closing foreign descriptors, making and freeing slabs (one helper for each user), syncs (one
 * for each user and store), so a hung file system of one user holds up nobody else.
 *
 * Threads start when work comes and none is idle, at most max_threads; one that has had no work
 * for a second ends.  Where more of them are a store's queue depth, a worker may have further ones
 * out of a number that all worker threads share; none takes more than it leaves to the others, so whoever
 * holds up all of his own keeps nobody else's from working.  work_queue_submit(): any thread.
 *
 * If none can be started for a worker that has none, its work goes to the spare: a thread that is
 * there from the first work_queue_new() on, which does one piece of work of each such helper in turn.
 */
#ifndef DSAIO_DAEMON_BASE_WORK_QUEUE_H
#define DSAIO_DAEMON_BASE_WORK_QUEUE_H

#include "daemon/base/hung.h"

#include "proto/util/list.h"

#include <stdbool.h>

struct work_queue;

/* Further threads of all worker threads together.  A thread takes some 20 KiB, so they are 20 MiB, and a
   quarter of the tasks that systemd lets a service have where a host has a default limit of 32768. */
#define WORK_QUEUE_FURTHER_MAX 1024u

/* Embedded in the object that it is about. */
struct work {
	struct work *next;
	void (*run)(struct work *work); /* on a worker thread; the last thing that touches work
					   unless it hands it on (say, posts a message) */
	struct hung_about about; /* what it asks of a client's file system; zeroes: nothing */
};

/* 0, -ENOMEM, or why the spare can not be started. */
int work_queue_new(const char *name, unsigned max_threads, struct work_queue **ret_queue);
/* The same, with up to max_further beyond max_threads while there are any left. */
int work_queue_new_deep(const char *name, unsigned max_threads, unsigned max_further,
			struct work_queue **ret_queue);

/*
 * Queues work; it always runs, in order if max_threads is 1, and never in the caller.
 */
void work_queue_submit(struct work_queue *work_queue, struct work *work);

/* Waits for room, embedded in the object that has work. */
struct work_room {
	struct list_node node;
	bool is_waiting; /* under the work queue's lock */
	void (*on_room)(struct work_room *room);
};

/*
 * Queues work if it begins at once: a thread is idle, or can be started.  Else returns false and
 * calls on_room() once there may be room: once, on any thread, under the work queue's lock.  The room
 * may be asked for again before that.
 */
bool work_queue_try_submit(struct work_queue *work_queue, struct work *work,
			   struct work_room *room);
/* False: on_room() has been called already.  True: it will not be. */
bool work_queue_stop_waiting(struct work_queue *work_queue, struct work_room *room);

/* Runs what is queued, waits for it and frees.  Not from one of its threads.  NULL is fine. */
void work_queue_free(struct work_queue *work_queue);

/*
 * The same without waiting: the last of its threads frees it.  What is queued, or hangs, must need
 * nothing that the caller frees.
 */
void work_queue_leave(struct work_queue *work_queue);

#endif
