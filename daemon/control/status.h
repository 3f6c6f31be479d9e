/*
 * Status: the daemon's report on itself, its stores and its clients.  Administrators see all clients.
 * Others see the clients of their own user, and sums of the rest.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_STATUS_H
#define DSAIO_DAEMON_CONTROL_STATUS_H

#include "daemon/control/session.h"
#include "proto/dsaio.pb-c.h"

/*
 * Fills in one page of what the session's user may see, from the place that asked names.  The caller
 * frees the message with wire__status_reply__free_unpacked(), also after an error.  Returns 0 or
 * -ENOMEM.
 */
int status_to_wire(const struct session *session, const Wire__Status *asked,
		   Wire__StatusReply *wire);

/* Fills in one store.  Returns 0 or -ENOMEM; the message owns the fields that are set. */
int store_to_wire(const struct store *store, const struct usage *usage, bool with_histograms,
		  Wire__Store *wire);

#endif
