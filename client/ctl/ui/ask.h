/*
 * Requests of commands that show or set something: one connection, one request, its reply.
 */
#ifndef DSAIO_CLIENT_CTL_UI_ASK_H
#define DSAIO_CLIENT_CTL_UI_ASK_H

#include "client/ctl/ui/ctl.h"
#include "client/lib/link/conn.h"

/*
 * Each connects ctl->client if it is NULL, and fills *ret_reply (of wire_replyp()).  With --private the daemon has a
 * store on the path's file system, or on this directory's.  Returns CTL_OK, CTL_FAILED or CTL_NO_DAEMON (reported).
 */
/* The request of that kind, whose body is its message.  what: its object, for messages. */
int ask(struct ctl *ctl, const char *what, Wire__Request__BodyCase kind, void *body,
	Wire__Reply **ret_reply);

/* The same about a store: its name, or, with a '/' in it (or "." or ".."), a path on it.  name: a field of
   the body, set here. */
int ask_on_store(struct ctl *ctl, const char *store, Wire__Request__BodyCase kind, void *body,
		 char **name, Wire__Reply **ret_reply);

/* All pages of the status, as one reply, without the client that asks. */
int ask_status(struct ctl *ctl, Wire__Reply **ret_reply);

int ask_store(struct ctl *ctl, const char *store, Wire__Reply **ret_reply);

/* Sets the fields of its profile that are there; NULL: resets it.  The reply is the store as it is then. */
int ask_profile_set(struct ctl *ctl, const char *store, Wire__Profile *profile,
		    Wire__Reply **ret_reply);

#endif
