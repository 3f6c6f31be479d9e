/*
 * The bounce thread: runs the jobs of async ops, one thread for each client.
 *
 * It uses companions of the callers' handles (handle.h) and is their only consumer.  It also puts
 * deferred ops (op.h: WAITING) into their rings when the ops that they wait for have ended.  Such an
 * earlier op may end in the caller's own ring, which perhaps no thread looks at.  So the bounce thread
 * takes that handle's consumer role for a moment, again and again.
 *
 * In each round of its loop it does all that can be done without sleeping (bounce_round()).  It then sleeps for all of
 * its events at once: jobs, doorbells of companions, the end of the control socket, deadlines.
 *
 * No deadlock:
 *   - an op waits only for ops that were submitted before it, so these waits form no circle;
 *   - each slot belongs to a piece that is being filled, in flight, or next to be emptied.  None of
 *     these waits for a slot: a thread sleeps for a slot only while it has no piece in flight.  So
 *     slots come back as long as the daemon completes entries, or dies;
 *   - a store that completes nothing holds a part of the slots (slots.h) and its own rings.  The thread
 *     passes over its jobs, so ops on other stores do not wait for it;
 *   - waiting for a copier is waiting for one copy, which waits for nothing;
 *   - the thread never sleeps for a GPU alone: while copies are queued it looks at them again and again;
 *   - pieces of a blocking op are consumed by its own thread, or by the thread that has the role and
 *     hands it on;
 *   - the bounce thread needs no room in a caller's ring: it tries again, and consumes meanwhile.
 */
#ifndef DSAIO_CLIENT_LIB_IO_BOUNCE_THREAD_H
#define DSAIO_CLIENT_LIB_IO_BOUNCE_THREAD_H

#include "client/lib/io/job.h"

struct client_bounce {
	struct dsaio_client *client;
	struct slots slots;
	struct copiers copiers;
	struct gpus gpus;
	int wake_fd; /* client->poke_fd */
	pthread_t thread;

	pthread_mutex_t
		lock; /* of the rest of this group, and of n_jobs and is_ending of handles */
	pthread_cond_t jobs_ended; /* also: it is parked, or may go on */
	struct list inbox;
	bool has_thread, is_stopping, is_asleep;
	bool must_park, is_parked; /* recovery wants it to rest; it does */
	bool must_look;		   /* jobs may have been cancelled */

	/* the thread's */
	struct list jobs[JOB_FULL + 1]; /* by state */
	struct list starting;		/* channels with jobs that may start pieces */
	struct list copies;		/* pieces whose copies by a GPU are queued, in that order */
	bool is_short;			/* a job without pieces in flight waits for a slot */
	struct bounce_job *touched;
	struct dsaio_handle *active; /* companions with pieces in flight */
	uint64_t round;
	bool has_looked;     /* at callers' rings, since something was done last */
	uint64_t pause_nsec; /* until the next look at these, or at copies */
};

/* One round.  Returns whether anything was done: then there may be more. */
bool bounce_round(struct client_bounce *bounce);

/* The ops of these pieces have ended.  The thread, or while it is parked. */
void bounce_end_pieces(struct client_bounce *bounce, const struct op_list *list);

/* The thread; arg: struct client_bounce. */
void *bounce_main(void *arg);

#endif
