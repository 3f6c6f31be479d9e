/*
 * The work queues of a store's users, for calls that may block.  Each uid has its own, so a user whose
 * calls hang blocks no other user.  A work queue exists while the user has channels on the store.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_ENGINE_WORKERS_H
#define DSAIO_DAEMON_ENGINE_WORKERS_H

#include <stdint.h>
#include <sys/types.h>

struct work_queue;

/* Where worker threads are the engine: the maximum of one channel's blocks in flight, which is the
   default profile's queue depth.  Deeper profiles are limited to it, because a thread costs 20 KiB. */
#define WORKERS_DEPTH 128u

/* Zeroes: none. */
struct workers {
	struct workers_of_user *first;
};

/* Takes a reference to the user's work queue, for workers_give().  Returns 0 or the error of making it. */
int workers_take(struct workers *workers, uid_t uid, struct work_queue **ret_queue);
void workers_give(struct workers *workers, uid_t uid);

#endif
