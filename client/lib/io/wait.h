/*
 * Waiting, and the consumer role.
 *
 * One of the threads that wait for ops of a handle has the consumer role.  Only this thread reads the
 * handle's completion rings, ends the ops that they name, spins, and sleeps on the doorbell.  Each
 * other thread sleeps on a condition of its own.  It is woken when its wait is over, or to take over
 * the role.  The role is has_consumer, changed under handle->lock.  Fields of the role's owner are
 * used without that lock.
 *
 * A consumer with one ring sleeps on its futex.  With several rings, or while the program has the
 * handle's descriptor armed, it sleeps on the doorbell socket, with bit 1 set in each ring.  It wakes
 * every 100 ms to look for the end of file on the control socket.  After that end, and only then, the
 * completions in the rings are consumed.  All other open ops wait for the next daemon (recover.h), or end with
 * -ECONNRESET.
 */
#ifndef DSAIO_CLIENT_LIB_IO_WAIT_H
#define DSAIO_CLIENT_LIB_IO_WAIT_H

#include "client/lib/io/wake.h"

/* Returns 0, or -ETIMEDOUT (after at least one look at the rings).  No lock may be held. */
int wait_until(struct dsaio_handle *handle, const struct wait_for *wait_for,
	       uint64_t deadline_nsec);

/* As channel_put(), but sleeps for room.  No lock may be held. */
int wait_put(struct dsaio_op *op, bool is_batched);

/*
 * Consumes completions, unless another thread has the role.  Never sleeps.  Returns whether an op can be reaped.
 * must_arm: if none can, arms the handle's descriptor.
 */
bool wait_poll(struct dsaio_handle *handle, bool must_arm);

/* dsaio_handle_reap(): takes the first n ended ops, and keeps the descriptor readable while some are left. */
int wait_reap(struct dsaio_handle *handle, struct dsaio_completion *ret, int n);

/*
 * ---- For the consumer: with the role or, of a companion, the bounce thread, which ends these ops itself ----
 *
 * Adds completed ops to the list, with result and done.  error: 0; else the daemon has closed the handle, or is
 * gone: all open ops, with that result.
 */
void wait_collect(struct dsaio_handle *handle, int error, struct op_list *list);
/* Arms all rings for the doorbell socket, before a sleep on it; false: there are completions to collect. */
bool wait_arm(struct dsaio_handle *handle);
void wait_disarm(struct dsaio_handle *handle);

/*
 * May the consumer spin before it sleeps, with n_open ops open?  Always if the caller chose the
 * time; else where it pays (proto/util/spin.h) and, with many ops, the lane has a core of its own.
 */
bool wait_may_spin(const struct dsaio_handle *handle, uint64_t n_open, uint64_t now_nsec);

/* For recovery: sleeps until nobody has the role, and takes it; gives it to the next waiter. */
void wait_take_role(struct dsaio_handle *handle);
void wait_leave_role(struct dsaio_handle *handle);

/* A channel was added: a thread that sleeps has to look at it, too. */
void wait_channel_added(struct dsaio_handle *handle);

/*
 * The daemon has closed the handle, or is gone.  Consumes its completions; all other open ops end with
 * that result.
 */
void wait_finish(struct dsaio_handle *handle, int result);

#endif
