/*
 * Status: what the daemon tells about itself, its stores and its clients.  Administrators see all
 * clients, others those of their own user and the rest in sum.  Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_STATUS_H
#define DSAIO_DAEMON_CONTROL_STATUS_H

#include "daemon/control/session.h"
#include "proto/dsaio.pb-c.h"

/*
 * Fills a message that wire__status_reply__free_unpacked() frees, also after an error: one page of
 * what the session's user may see, from the place that asked names.  0 or -ENOMEM.
 */
int status_to_wire(const struct session *session, const Wire__Status *asked,
		   Wire__StatusReply *wire);

/* One store.  0 or -ENOMEM; what was filled in is freed with the message. */
int store_to_wire(const struct store *store, Wire__Store *wire);

#endif
