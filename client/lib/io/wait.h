/*
 * Waiting, and the consumer role.
 *
 * Of all threads that wait for ops of a handle one has the consumer role: it alone reads the
 * handle's completion rings, ends the ops that they name, spins, and sleeps on the bell.  The
 * others sleep on a condition of their own and are woken when what they wait for has come, or
 * to take the role over.  The role is has_consumer, changed under handle->lock; what belongs to
 * it is touched without that lock.
 *
 * The consumer sleeps on the one ring's futex; or, if there are several rings or the program has
 * a descriptor armed, on the bell socket, with bit 1 set in each ring.  It wakes each 100 ms to
 * look for the end of file on the control socket.  When that has come, and only then, what the
 * rings still hold is consumed and all other open ops end with -ECONNRESET.
 */
#ifndef DSAIO_CLIENT_LIB_IO_WAIT_H
#define DSAIO_CLIENT_LIB_IO_WAIT_H

#include "client/lib/io/handle.h"

/* What a thread waits for. */
struct wait_for {
	enum {
		WAIT_OP,   /* op has ended */
		WAIT_ALL,  /* no async op of the handle is open */
		WAIT_REAP, /* the same, or dsaio_reap() can report n_ops */
		WAIT_ROOM, /* channel has consumed completions since head was read, or is dead */
		WAIT_ROLE, /* nobody has the role */
	} what;
	const struct dsaio_op *op;
	const struct channel *channel;
	uint32_t head;
	uint64_t n_ops;
};

/* Returns 0, or -ETIMEDOUT (after at least one look at the rings).  No lock may be held. */
int wait_until(struct dsaio_handle *handle, const struct wait_for *wait_for,
	       uint64_t deadline_nsec);

/* Consumes what there is, unless another thread is at it.  Never sleeps. */
void wait_poll(struct dsaio_handle *handle);

/*
 * The same when there is nothing to tell: arms the handle's descriptor.  Returns true if ops
 * came meanwhile.
 */
bool wait_poll_or_arm(struct dsaio_handle *handle);

/* Under handle->lock: wakes those whose wait is over and, if nobody has it, one for the role. */
void wait_wake(struct dsaio_handle *handle);

/*
 * Under handle->lock: ops have ended.  Makes the descriptor readable if it is armed (has_listed: some
 * can be reaped) and wakes the threads whose wait is over.  by_consumer: the caller has the role, and
 * checks its own wait itself.
 */
void wait_after_ends(struct dsaio_handle *handle, bool has_listed, bool by_consumer);

/* dsaio_reap(): takes the first n ended ops, and keeps the descriptor readable while some are left. */
int wait_reap(struct dsaio_handle *handle, struct dsaio_op **ret_ops, int n);

/*
 * A companion's completions: its one consumer is the library's thread, and its ops do not end by
 * themselves: what was completed is told by the list alone, result and done filled in.
 */
void wait_collect(struct dsaio_handle *companion, struct op_list *list);
/* The same when the daemon is gone: all that are open. */
void wait_collect_dead(struct dsaio_handle *companion, struct op_list *list);
/* Before a sleep on its bell_fd; false: there is something to collect. */
bool wait_arm(struct dsaio_handle *companion);
void wait_disarm(struct dsaio_handle *companion);

/*
 * May the consumer spin before it sleeps, with so many ops open?  Always where the caller has said
 * how long; else where it pays (proto/util/spin.h) and, with many ops, the lane has a core of its own.
 */
bool wait_may_spin(const struct dsaio_handle *handle, uint64_t n_open, uint64_t now_nsec);

/* A channel was added: who sleeps has to look at it, too. */
void wait_channel_added(struct dsaio_handle *handle);

/*
 * The daemon has closed the handle, or is gone: what it completed counts, all else ends with
 * that result.
 */
void wait_finish(struct dsaio_handle *handle, int result);

#endif
