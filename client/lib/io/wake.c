#include "client/lib/io/wake.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

bool wait_is_done(const struct dsaio_handle *handle, const struct wait_for *w)
{
	switch (w->what) {
	case WAIT_OP:
		return op_has_ended(w->op);
	case WAIT_ALL:
		return !handle->n_open_async;
	case WAIT_REAP:
		return handle->ended.n_listed >= w->n_ops || !handle->n_open_async;
	case WAIT_ROOM:
		return channel_head(w->channel) != w->head || atomic_load(&w->channel->is_dead);
	case WAIT_ROLE:
		return !handle->has_consumer;
	}
	return true;
}

bool wait_may_consume(const struct dsaio_handle *handle, const struct wait_for *w)
{
	switch (w->what) {
	case WAIT_OP:
		return w->op->channel || (w->op->is_vector && handle->n_open_ring);
	case WAIT_ALL:
	case WAIT_REAP:
		return handle->n_open_ring;
	case WAIT_ROOM:
		return true;
	case WAIT_ROLE:
		return false;
	}
	return false;
}

void wake_waiters(struct dsaio_handle *handle)
{
	struct waiter *next_consumer = NULL;

	LIST_EACH(struct waiter, w, &handle->waiters, node)
		if (wait_is_done(handle, w->wait_for))
			(void)pthread_cond_signal(&w->cond); /* cannot fail */
		else if (!next_consumer && wait_may_consume(handle, w->wait_for))
			next_consumer = w;
	if (next_consumer && !handle->has_consumer)
		(void)pthread_cond_signal(&next_consumer->cond);
}

void wake_descriptor(struct dsaio_handle *handle)
{
	handle->is_fd_armed = false;
	handle->is_own_rung = true;
	(void)eventfd_write(handle->own_doorbell_fd, 1); /* full: it is readable all the more */
}

void wake_futexes(struct dsaio_handle *handle)
{
	CHANNEL_EACH(c, handle)
		(void)syscall(SYS_futex, &c->ring.shared->cq_bell, FUTEX_WAKE, INT32_MAX, NULL,
			      NULL, 0);
}

void wake_after_ends(struct dsaio_handle *handle, bool has_listed, bool by_consumer)
{
	if (has_listed && handle->is_fd_armed)
		wake_descriptor(handle);
	if (handle->waiters.first)
		wake_waiters(handle);
	/* The consumer's wait is over, but not by a completion in its rings. */
	if (!by_consumer && handle->consumer_wait && wait_is_done(handle, handle->consumer_wait))
		wake_futexes(handle);
}
