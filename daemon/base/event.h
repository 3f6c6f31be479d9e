/*
 * Events of libevent as locals and fields that own them.
 */
#ifndef DSAIO_DAEMON_BASE_EVENT_H
#define DSAIO_DAEMON_BASE_EVENT_H

#include <event2/event.h>
#include <stddef.h>

/* NULL is fine. */
static inline void event_freep(struct event **event)
{
	if (*event)
		event_free(*event);
	*event = NULL;
}

#endif
