/*
 * Worker threads of a store's users: for calls that may block.  A work queue for each uid, so a
 * user whose calls hang holds up no other user.  It is there while a channel of the user's is.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_ENGINE_WORKERS_H
#define DSAIO_DAEMON_ENGINE_WORKERS_H

#include <stdint.h>
#include <sys/types.h>

struct work_queue;

/* Blocks of one channel that worker threads have at a time where these are the engine: the default
   profile's queue depth.  Deeper ones are served so deep: each thread costs some 20 KiB. */
#define WORKERS_DEPTH 128u

/* Zeroes: none. */
struct workers {
	struct workers_of_user *first;
};

/* The user's work queue, counted: workers_give() once for each.  0, or why there is none. */
int workers_take(struct workers *workers, uid_t uid, struct work_queue **ret_queue);
void workers_give(struct workers *workers, uid_t uid);

#endif
