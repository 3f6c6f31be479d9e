/*
 * Wake-ups when ops have ended: of threads that wait for them, of the consumer in its sleep, and of the program
 * that polls the handle's descriptor.  wait.h has the consumer role.
 *
 * Under handle->lock, except wake_futexes().
 */
#ifndef DSAIO_CLIENT_LIB_IO_WAKE_H
#define DSAIO_CLIENT_LIB_IO_WAKE_H

#include "client/lib/io/handle.h"

#include <pthread.h>

/* The condition that ends a wait. */
struct wait_for {
	enum {
		WAIT_OP,   /* op has ended */
		WAIT_ALL,  /* no async op of the handle is open */
		WAIT_REAP, /* the same, or dsaio_handle_reap() can report n_ops */
		WAIT_ROOM, /* channel has consumed completions since head was read, or is dead */
		WAIT_ROLE, /* nobody has the role */
	} what;
	const struct dsaio_op *op;
	const struct handle_channel *channel;
	uint64_t head;
	uint64_t n_ops;
};

/* A thread that sleeps while another has the role. */
struct waiter {
	const struct wait_for *wait_for;
	pthread_cond_t cond;
	struct list_node node;
};

bool wait_is_done(const struct dsaio_handle *handle, const struct wait_for *wait_for);
/* Can completions of a ring end this wait, so that the thread should take the role? */
bool wait_may_consume(const struct dsaio_handle *handle, const struct wait_for *wait_for);

/* Wakes threads whose wait is over and, if the role is free, one to take it. */
void wake_waiters(struct dsaio_handle *handle);
/* Makes the handle's descriptor readable. */
void wake_descriptor(struct dsaio_handle *handle);
/*
 * Wakes a consumer that sleeps on a ring's futex.  A consumer that is about to sleep, or sleeps on
 * the doorbell socket, misses this and looks again 100 ms later.
 */
void wake_futexes(struct dsaio_handle *handle);
/*
 * Ops have ended.  Makes the descriptor readable if it is armed (has_listed: some can be reaped) and wakes the
 * threads whose wait is over.  by_consumer: the caller has the role, and checks its own wait itself.
 */
void wake_after_ends(struct dsaio_handle *handle, bool has_listed, bool by_consumer);

#endif
