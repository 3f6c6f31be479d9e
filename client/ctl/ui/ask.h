/*
 * Requests of commands that show or set something: one connection, one request, its reply.
 */
#ifndef DSAIO_CLIENT_CTL_UI_ASK_H
#define DSAIO_CLIENT_CTL_UI_ASK_H

#include "client/ctl/ui/ctl.h"
#include "client/lib/link/conn.h"

/*
 * Each connects if *client is NULL, and fills *ret_reply (of wire_replyp()): its status, store_get,
 * store_drain or reload.  With --private the daemon has a store on the path's file system, or on this
 * directory's.  Returns CTL_OK, CTL_FAILED or CTL_NO_DAEMON (reported).
 */
/* All pages of the status, as one reply, without the client that asks. */
int ask_status(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply);

/* All stores and users, with histograms, and no clients.  n_all_clients is of all users. */
int ask_metrics(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply);

/* store: a store's name, or, with a '/' in it (or "." or ".."), a path on it. */
int ask_store(struct ctl *ctl, struct dsaio_client **client, const char *store,
	      Wire__Reply **ret_reply);

/* Another request; what: its object, for messages.  The client is connected. */
int ask_request(struct ctl *ctl, struct dsaio_client *client, const char *what,
		Wire__Request *request, Wire__Reply **ret_reply);

/* Sets the fields of its profile that are there; NULL: resets it.  The reply is the store as it is then. */
int ask_profile_set(struct ctl *ctl, struct dsaio_client **client, const char *store,
		    Wire__Profile *profile, Wire__Reply **ret_reply);

/* Reads the daemon's configuration again. */
int ask_reload(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply);

/* Closes the idle files of all clients there, or begins or ends a drain. */
int ask_store_drain(struct ctl *ctl, struct dsaio_client **client, const char *store,
		    Wire__DrainMode mode, Wire__Reply **ret_reply);

int ask_limit_set(struct ctl *ctl, struct dsaio_client **client, Wire__LimitSet *set,
		  Wire__Reply **ret_reply);

/* Ends a client.  The reply's text names it. */
int ask_client_kill(struct ctl *ctl, struct dsaio_client **client, uint32_t number,
		    const char *reason, Wire__Reply **ret_reply);

#endif
