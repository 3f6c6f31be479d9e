/*
 * A work queue runs work that may block on worker threads, never in a lane or the main thread.  Each
 * user has a work queue for checks and closes of descriptors, one for slabs, one for GPU memory, and one
 * per store for I/O.  So a hung file system of one user blocks no other user.
 *
 * A queue has one thread for as long as it is there.  Others start when work is queued and no thread is
 * idle, up to max_threads, and end after a second without work; where the host has no more threads, those
 * that are there do the work.  Where the number of threads is a store's queue depth, a queue may use
 * overflow threads from a number that all queues share.  No queue takes more of them than it leaves to the others, so a
 * queue whose threads all hang does not stop the others.  The work of a queue that gets none waits for the queue's own
 * threads.  work_queue_submit(): any thread.
 */
#ifndef DSAIO_DAEMON_BASE_WORK_QUEUE_H
#define DSAIO_DAEMON_BASE_WORK_QUEUE_H

#include "daemon/base/hung.h"

#include "proto/util/list.h"

#include <stdbool.h>

struct work_queue;

/* Overflow threads of all queues.  A thread takes some 20 KiB, so all of them take 20 MiB.  They are a
   quarter of systemd's default limit on the tasks of a service, on a host with 32768 tasks. */
#define WORK_QUEUE_OVERFLOW_MAX 1024u

/* Embedded in the object that it is about. */
struct work {
	struct list_node node;
	void (*run)(struct work *work); /* on a worker thread; the last thing that touches work
					   unless it hands it on (say, posts a message) */
	struct hung_about about;	/* its call on a client's file system; zeroes: none */
	bool may_exceed_max; /* may be more than max_threads at once: work_queue_try_submit() */
};

/* For messages: what to do where a queue's first thread cannot be started. */
#define WORK_QUEUE_ADVICE \
	" (where there are no more threads, raise the daemon's ulimit -u, or TasksMax of the service)"

/* Returns 0, -ENOMEM, or the error of starting its first thread. */
int work_queue_new(const char *name, unsigned max_threads, struct work_queue **ret_queue);
/* Makes a queue with up to max_overflow threads beyond max_threads, while any are left. */
int work_queue_new_overflow(const char *name, unsigned max_threads, unsigned max_overflow,
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
 * Queues work if it begins at once: a thread is idle, or can be started, and no more than max_threads
 * works that are not may_exceed_max are queued or run, whatever overflow threads there are.  Else returns false and
 * calls on_room() once there may be room: once, on any thread, under the work queue's lock.  The room
 * may be asked for again before that.
 */
bool work_queue_try_submit(struct work_queue *work_queue, struct work *work,
			   struct work_room *room);
/* False: on_room() has been called already.  True: it will not be. */
bool work_queue_stop_waiting(struct work_queue *work_queue, struct work_room *room);

/* Runs the queued work, waits for its end, and frees the queue.  Not from one of its threads.  NULL is
   fine. */
void work_queue_free(struct work_queue *work_queue);

/*
 * Gives the queue up without waiting: its last thread frees it.  Work that is queued or hangs must not
 * use memory that the caller frees.
 */
void work_queue_leave(struct work_queue *work_queue);

#endif
