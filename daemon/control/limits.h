/*
 * Limits: an administrator limits the bytes and ops in a second of a store, a user or a client, or sets the weight of a
 * client, at once.  Those of stores and users are saved; those of a client end with it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_LIMITS_H
#define DSAIO_DAEMON_CONTROL_LIMITS_H

#include "daemon/base/error.h"
#include "proto/dsaio.pb-c.h"

struct call;
struct session;

/*
 * Ends the call now or later, or returns an error: -EPERM (the client is no administrator), -ENXIO, -ESRCH (no such
 * store, client), -ENOMEM.  The request has been checked.
 */
int session_limit_set(struct session *session, const Wire__LimitSet *set, struct call *call,
		      struct error *error);

#endif
