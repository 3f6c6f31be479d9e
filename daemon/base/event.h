/*
 * Events of libevent as locals and fields that own them, and their callbacks.
 */
#ifndef DSAIO_DAEMON_BASE_EVENT_H
#define DSAIO_DAEMON_BASE_EVENT_H

#include <event2/event.h>
#include <stddef.h>

/* The parameters of a callback that uses only its own argument. */
#define EVENT_ARG(arg) \
	evutil_socket_t fd_ __attribute__((unused)), short what_ __attribute__((unused)), void *arg

/* NULL is fine. */
static inline void event_freep(struct event **event)
{
	if (*event)
		event_free(*event);
	*event = NULL;
}

#endif
