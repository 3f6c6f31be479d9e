/*
 * The engine `threads`: blocking calls on worker threads, because a lane must not block.
 *
 * It does syncs, extensions of files, unaligned writes, reads to misaligned memory, and blocks that the
 * kernel returned because they would block (RWF_NOWAIT).  While no block may wait, it does all blocks of
 * memory that is banned from the lanes (stall.h).  Where io_submit itself would wait, it does all blocks
 * of a store.  It does all blocks of GPU memory (gds.h).
 *
 * The threads belong to users.  Each uid has a work queue on each store while it has channels there, so
 * a user whose calls hang blocks no other user.  Each block names the struct workers of its channel, by
 * which it reaches that queue.  submit() takes a block only if a worker begins with it at once.  Else
 * on_room() is called when there may be room.
 *
 * A worker carries the block out, continues short transfers, and posts it to the engine's mailbox,
 * where reap() finds it.
 *
 * worker_user_ref(), worker_user_unref(): main thread.  All else: the lane.
 */
#ifndef DSAIO_DAEMON_ENGINE_THREADS_H
#define DSAIO_DAEMON_ENGINE_THREADS_H

#include "daemon/base/mailbox.h"
#include "daemon/base/takes.h"
#include "daemon/base/work_queue.h"
#include "daemon/engine/engine.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Blocking calls of one user on one store that may be under way at once, except those of files whose engine
   the worker threads are (may_exceed_max of their work): a guess. */
#define WORKERS_THREADS 8u
/* Where worker threads are the engine: the maximum of one channel's blocks in flight, which is the
   default profile's queue depth.  Deeper profiles are limited to it, because a thread costs 20 KiB. */
#define WORKERS_DEPTH 128u
/* The largest read to misaligned memory, and unaligned write: bounds memory and the time of a thread. */
#define WORKERS_UNALIGNED_BYTES (1u << 20)

extern const struct engine_ops engine_threads;

/* The work queues of a store's users.  Zeroes: none. */
struct worker_queues {
	struct list users;
};

/* The workers of a user on a store. */
struct worker_user {
	struct list_node node;
	uid_t uid;
	unsigned n_refs;
	struct work_queue *queue;
	struct takes takes; /* the lane's: intake.c */
};

/* Takes a reference to the user with its work queue.  Returns 0 or the error of making it. */
int worker_user_ref(struct worker_queues *queues, uid_t uid, struct worker_user **ret_user);
void worker_user_unref(struct worker_queues *queues, struct worker_user *user);

/* The use that a channel makes of its user's workers. */
struct workers {
	struct worker_user *user;
	struct engine *engine;			  /* borrowed; set before the first block */
	void (*on_room)(struct workers *workers); /* called by reap(): a worker may be free */
	bool waits_for_room;			  /* on_room() was not called since */
	struct work_room room;
	struct message message;
};

/* False: on_room() is about to be called.  True: it will not be, and the owner may free workers. */
bool workers_stop_waiting(struct workers *workers);

/* A block for this engine. */
struct worker_block {
	struct block block;
	struct workers *workers; /* who carry it out */
	/* the engine's */
	struct work work; /* the lane sets may_exceed_max */
	struct message message;
};

/* Carries the block out.  May block, except on tmpfs.  For a worker thread; on tmpfs, for a lane; tests. */
void threads_do(struct block *block);

#endif
