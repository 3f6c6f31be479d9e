/*
 * Bouncing: ops on memory that the daemon can not reach, or not where a device could, copied
 * through slots (slots.h) piece by piece, so that the copy of one overlaps the I/O of others.
 *
 *     op      |-----------------------------------------|
 *     pieces  |--|-----|-----|-----|                         at most so many in flight
 *                 done  ended  in flight                     copied and counted in order
 *
 * A piece is an op of its own on a slot, which only this module knows.  The file is cut where a
 * slot's end is at a multiple of the file's alignment, and a slot's bytes lie at the same distance
 * from a page's start as the file's, so all but the op's ends is aligned.  A read covers whole
 * aligned blocks, and what was wanted of them is copied; a write sends the wanted bytes alone, and
 * the daemon takes care of ragged ends.  The first piece that fails, in the order of the file, is
 * the op's error, and what is before it is what was done.
 *
 * A blocking op is run by its caller's thread, on the caller's handle.  Async ops are jobs of one
 * thread for each client, started with the first of them, with all signals blocked, ended by
 * dsaio_disconnect().  It uses companions of the callers' handles and is their one consumer.
 *
 * Of a large read the thread that runs it makes the copies with copiers (copiers.h): when more
 * than one piece has ended it posts all but the first, makes the first copy, and then finds others
 * made.  So nobody is woken where one thread keeps up with the device, and where it does not, which
 * is into memory that was never touched, each piece's page faults are another thread's.  A copier
 * knows the piece's slot and buffer alone; the piece is finished, and its slot given back, by the
 * thread that runs the op, in the order of the file, after the copy.  Writes have no copiers: the
 * kernel lets one thread at a time write to a memfd.
 *
 * Order.  The daemon knows nothing of an op whose pieces are in other rings, or are not all there
 * yet.  So (inode.h) who conflicts with an earlier open op of its handle that is off the ring waits
 * for that one's end, and an async op that is bounced for all that it conflicts with.  A blocking op
 * waits in its thread.  An async one, also one that would go by the handle's ring, is given to the
 * thread, and its call returns.  An op that ends in the caller's ring, where maybe nobody looks,
 * is looked for by the thread itself: it takes the consumer role for a moment, again and again.
 *
 * No deadlock:
 *   - an op waits for ops that were submitted before it, so these waits have no circle;
 *   - a slot belongs to a piece that is filled, in flight, or next to be emptied, and none of these
 *     waits for a slot: who has no piece in flight may sleep for its first, who has takes what is
 *     there; so slots come back as long as the daemon completes entries, or dies;
 *   - a store that completes nothing holds a part of the slots (slots.h) and its own rings; the thread
 *     passes over its jobs, so the ops of other stores do not wait for it;
 *   - who waits for a copier waits for one copy, which waits for nobody;
 *   - pieces of a blocking op are consumed by its own thread, or by one that has the role and hands
 *     it on; those of the thread by the thread, which never sleeps for anything but all of its
 *     events at once;
 *   - the thread needs no room in a caller's ring: it tries again, and consumes meanwhile.
 */
#ifndef DSAIO_CLIENT_LIB_IO_BOUNCE_H
#define DSAIO_CLIENT_LIB_IO_BOUNCE_H

#include "client/lib/io/handle.h"

/* A piece of the file's bytes from off to end, in a slot of slot_bytes.  A pure function. */
struct bounce_cut {
	uint64_t len;			      /* of the piece; it starts at off */
	uint64_t slot_off;		      /* where its first byte lies in the slot */
	uint64_t io_off, io_len, io_slot_off; /* what is read or written, and where it lies */
};
struct bounce_align {
	uint32_t offset, memory; /* as a file's */
};
struct bounce_cut bounce_cut(uint64_t off, uint64_t end, uint64_t slot_bytes,
			     struct bounce_align align, bool is_write);
/* Bytes that a slot for all of it has. */
uint64_t bounce_bytes(uint64_t off, uint64_t end, struct bounce_align align);
/*
 * Bytes that the slot for a blocking op's next piece should have at most: while a write's first
 * piece is copied no I/O goes on, and none while a read's last one is, so there they are short.
 */
uint64_t bounce_wish(uint64_t off, uint64_t next, uint64_t end, bool is_write);

/* Runs a blocking op that is its inode's, off the ring, with its channel's store's; ends it. */
void bounce_run(struct dsaio_op *op, struct channel *channel, void *buf);

/* The thread runs.  Returns 0 or a negative errno, with a sentence. */
int bounce_start(struct dsaio_client *client);

/* Gives an async op to the thread, which runs; channel: of its handle's companion. */
void bounce_submit(struct dsaio_op *op, struct dsaio_handle *companion, struct channel *channel,
		   void *buf);

/* Gives an async op that has to wait before it may be put into its handle's ring to the thread. */
void bounce_defer(struct dsaio_op *op);

/*
 * Sleeps until no earlier op is open that this one has to wait for.  Returns 0, or -ETIMEDOUT.
 */
int bounce_await_earlier(struct dsaio_op *op, bool is_in_ring, uint64_t deadline_nsec);

/* When an op that starts now is over, and what is left of it in milliseconds. */
uint64_t bounce_deadline(const struct dsaio_op *op);
uint32_t bounce_timeout_msec(uint64_t deadline_nsec);

/* op->is_cancelled was set: the thread sees to it, if the op is its. */
void bounce_cancel(struct dsaio_client *client);

/* The pool is empty: gives slabs back that nothing is copied through.  Returns whether it did. */
bool bounce_trim(struct dsaio_client *client);

/* The handle closes: its jobs that have not started are cancelled, the others awaited. */
void bounce_end_handle(struct dsaio_handle *handle);

#endif
