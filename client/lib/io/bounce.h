/*
 * Bouncing: ops on memory that the daemon cannot reach, or not at a place where a device can use it.
 *
 * GPU memory whose ops do not go direct (gpu_memory.h) is such memory, too.  The bytes of all these ops
 * are copied through slots, piece by piece (job.h).  A blocking op on the host's memory is run by its
 * caller's thread, on the caller's handle.  Async ops and ops on GPU memory are jobs of one thread for
 * each client (bounce_thread.h).  It is started with the first of them, with all signals blocked, and
 * ends with dsaio_disconnect().
 *
 * Order.  The daemon does not know an op whose pieces are in other rings, or are not all there yet.  So
 * an op waits for the end of each earlier open op of its handle that conflicts with it and is off the
 * ring (inode.h).  An async op that is bounced waits for all earlier ones that conflict with it.  A
 * blocking op that its own thread runs waits there.  An async one, also one that goes by the handle's
 * ring, is given to the bounce thread, and its call returns.
 */
#ifndef DSAIO_CLIENT_LIB_IO_BOUNCE_H
#define DSAIO_CLIENT_LIB_IO_BOUNCE_H

#include "client/lib/io/job.h"

/* The part of a new client; NULL: no memory. */
struct client_bounce *bounce_new(struct dsaio_client *client);
/* The client is closed, and has no handle any more: ends the threads, and unmaps the slots; free(3)
   frees the rest. */
void bounce_stop(struct dsaio_client *client);

/* From now on the client has memory to copy through, if it may have any: see slots_reserve(). */
void bounce_reserve(struct dsaio_client *client);

/* Makes sure that the thread runs.  Returns 0 or a negative errno, with a message. */
int bounce_start(struct dsaio_client *client);

/* Runs and ends a blocking BOUNCED op on the host's memory, which is in its inode's list; channel: of its
   file's store. */
void bounce_run(struct dsaio_op *op, struct handle_channel *channel,
		const struct job_memory *memory);

/* Gives a BOUNCED op to the thread, which runs; channel: of its handle's companion. */
void bounce_submit(struct dsaio_op *op, struct dsaio_handle *companion,
		   struct handle_channel *channel, const struct job_memory *memory);

/*
 * Gives an op that is among the open ones of its inode to the thread, which puts it into its ring, behind ops that it
 * waits for, when there is room.  It is WAITING until then.  Without a thread it ends.
 */
void bounce_defer(struct dsaio_op *op);

/* Sleeps until no earlier op is open that this one has to wait for.  Returns 0, or -ETIMEDOUT. */
int bounce_await_earlier(struct dsaio_op *op, bool is_in_ring, uint64_t deadline_nsec);

/* An op was cancelled: the thread takes care of it, if it has the op. */
void bounce_cancel(struct dsaio_client *client);

/* The handle closes, and its ops were awaited, unless the daemon is silent: cancels jobs that have not
   started, waits for the others. */
void bounce_end_handle(struct dsaio_handle *handle);

/* ---- recovery ---- */

/* Sleeps until the bounce thread, if there is one, is parked: it takes nothing from rings, and sends no request. */
void bounce_park(struct dsaio_client *client);
void bounce_unpark(struct dsaio_client *client);

#endif
