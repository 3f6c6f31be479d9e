/*
 * Calls of the library are no cancellation points.
 *
 * A thread that pthread_cancel(3) ended inside would leave locks and the consumer role behind.  So
 * each public call that can reach a cancellation point disables cancellation until it returns:
 *
 *     CANCEL_DISABLE();
 *
 * A request that comes meanwhile stays pending, and takes effect after the call.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_CANCEL_H
#define DSAIO_CLIENT_LIB_BASE_CANCEL_H

#include "proto/util/cleanup.h"

#include <pthread.h>

/* Returns the state before. */
static inline int cancel_disable(void)
{
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* cannot fail */
	return before;
}

static inline void cancel_restorep(const int *before)
{
	(void)pthread_setcancelstate(*before, NULL); /* a state that it has given us */
}

/* Among a function's declarations; until it returns. */
#define CANCEL_DISABLE() \
	_cleanup_(cancel_restorep) __attribute__((unused)) int cancel_before_ = cancel_disable()

#endif
