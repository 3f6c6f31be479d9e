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

/* One page of what the session's user may see, from the place that asked names.  Valid until the next call. */
Wire__StatusReply *status_reply(const struct session *session, const Wire__Status *asked);

/* One store.  Valid until the next call. */
Wire__Store *status_store(const struct store *store);

#endif
