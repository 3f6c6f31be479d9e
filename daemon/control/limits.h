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
struct store;

/*
 * Once, with 0 and a note for people or "", or with an error.  It calls call_free().  As in registry_question; only
 * that of a store has one.
 */
typedef void limits_done_fn(struct store *store, int result, const struct error *error,
			    const char *note, void *call);

/*
 * Calls on_done now or later, or returns an error: -EPERM (the client is no administrator), -ENXIO, -ESRCH (no such
 * store, client), -ENOMEM.  The request has been checked.
 */
int session_limit_set(struct session *session, const Wire__LimitSet *set, struct call *call,
		      limits_done_fn *on_done, struct error *error);

#endif
