/*
 * A session: one connected client; its identity, its quota, its objects, and how all of it ends.
 *
 * The parts are in files of their own: the socket (connection.h), requests that are not yet answered
 * (call.h), handles and channels (handles.h), slabs (objects.h), files (files.h, idle_files.h).
 *
 * session_advance() ends a session, always in this order:
 *  1. it stops reading requests;
 *  2. the lanes return the channels, when no block is in flight;
 *  3. it unreferences slabs and files;
 *  4. when all of them are free and no call is open, it tells a living client if the daemon stops, and shuts the
 *     control socket down.  Clients take the end of file as proof that the daemon uses none of their memory and
 *     files;
 *  5. when the client has read the descriptors in its replies, or closed its end, it discharges the charges,
 *     frees the session and closes the socket.  A stop of the daemon does not wait for that.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_SESSION_H
#define DSAIO_DAEMON_CONTROL_SESSION_H

#include "daemon/base/hung.h"
#include "daemon/base/peer.h"
#include "daemon/base/quota.h"
#include "daemon/control/call.h"
#include "daemon/control/connection.h"
#include "daemon/control/files.h"
#include "daemon/control/handles.h"
#include "daemon/control/objects.h"
#include "daemon/control/service.h"
#include "daemon/control/user.h"
#include "daemon/lane/channel.h"
#include "daemon/lane/lane.h"
#include "daemon/object/file.h"
#include "daemon/object/objects.h"
#include "daemon/object/pool.h"
#include "daemon/store/registry.h"
#include "daemon/store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct look;

enum session_state {
	SESSION_GREETING, /* only Hello is served				-> OPEN, ENDING */
	SESSION_OPEN,	  /* everything is served				-> ENDING */
	SESSION_ENDING,	  /* nothing is read; handles are closed, lanes give channels back
										-> EMPTYING */
	SESSION_EMPTYING, /* no channel; slabs and files not all free		-> freed */
};

struct session {
	struct list_node node; /* in the service's list while it has a socket */
	struct service *service;
	struct user *user;
	uint32_t id;
	struct peer peer;    /* from the kernel */
	struct hung_who who; /* the same, for reports of calls that hang */
	char name[64];	     /* the program's, printable ASCII; "" before Hello */
	char library[24];    /* the version of its library, likewise */
	uint64_t connected_nsec;
	struct usage_user *usage;
	uint64_t written_bytes; /* by channels that have ended */
	enum session_state state;
	bool is_stopped; /* the daemon stops */
	bool is_lost; /* the connection or the client is gone, or the session ends for another reason than a stop */
	struct limiter limiter;
	uint32_t
		weight; /* of all its channels, as an administrator has set it; 0: of each handle */
	struct quota quota;
	struct charge session_charge; /* on the user's quota */

	struct objects objects; /* slabs and files; lanes look them up */
	struct handles handles;
	uint32_t n_objects;  /* slabs and files: in the making, in the table, or not yet freed */
	uint32_t n_closings; /* session_close_fds() calls whose descriptors are not yet closed */
	uint32_t n_calls;
	struct gpu_client gpu;

	_Atomic uint32_t *board; /* of its files; NULL before Hello */
	size_t board_bytes;
	struct look *look;  /* at idle files, in the user's work queue; or NULL */
	bool has_recovered; /* Recovered has come */
	bool knows_unknown; /* RING_FEATURE_UNKNOWN */
	bool knows_quiet;   /* RING_FEATURE_QUIET */
	bool is_quiet;	    /* so are all its files, and it has sent nothing since */
	bool has_got_files; /* descriptors for replies may be of its files */

	struct connection connection;
	struct message
		advance; /* to this thread's own mailbox, so no caller's session is freed under it */
	bool is_advancing;
};

/*
 * Takes a connected, non-blocking socket, but not on error.  Returns 0 or, with a message for
 * the client, -EUSERS (too many connections), -ENOMEM, or what the kernel says.
 */
int session_new(struct service *service, int fd, struct error *error);

/*
 * Begins the end of a session; the session is freed after the call.  With drain the ops that were read
 * complete, else those that have not started are cancelled.
 */
void session_end(struct session *session, bool drain);
static inline bool session_is_ending(const struct session *session)
{
	return session->state >= SESSION_ENDING;
}
/*
 * The error of a request that has no answer yet when the session ends: -ECANCELED, or -ESHUTDOWN if the daemon
 * stops: only then may the client still read it.  kind, name: the object, "file " and its name; "" if it has none.
 */
int session_end_error(const struct session *session, const char *kind, const char *name,
		      struct error *error);
/* Ends the session for a fault of its client's: one line of the log, and the reason to the client. */
void session_end_for(struct session *session, const char *object, const char *why);
/* The same for a reason of an administrator's, who is no limit to the log. */
void session_kill(struct session *session, const struct error *why);
/* The session of that number, also one that is ending; or NULL. */
struct session *session_find(const struct service *service, uint32_t id);
/* The session ends because the daemon stops, and its client lives: it may go on with the next daemon. */
bool session_client_goes_on(const struct session *session);
/* Checks whether the session's end can go on. */
void session_touch(struct session *session);

/* Serves requests for a short time; returns whether more may wait. */
bool session_serve(struct session *session);

/* "client 7 (pid 123, name)": the object that a log line starts with. */
const char *session_title(const struct session *session);

/* Adds the counters of its channels that have not ended: a coarse sum. */
void session_sum(const struct session *session, struct metrics *sum);
/* The bytes that these have written. */
uint64_t session_open_bytes(const struct session *session);

/* Queues one reply and sends what the socket takes.  Takes fds: the daemon's own, or those of
   session_file_get(). */
void session_send(struct session *session, const void *body, size_t len, const int *fds,
		  unsigned n_fds);

/* Closes descriptors received from the client (-1: none) on a worker thread of its user, because
   close(2) may hang. */
void session_close_fds(struct session *session, const int *fds, unsigned n_fds);

/*
 * The requests.  Those with a struct call, here and in the parts, return 0 and later (or at once) call
 * its on_done, or return an error and never do.
 *
 * Hello: the versions have been checked.  Takes pidfd (-1: none), which came from the client, also
 * on error.  *ret_board_fd: the file board for the reply, the caller's.
 */
int session_hello(struct session *session, const char *name, const char *library, int pidfd,
		  int *ret_board_fd, struct error *error);

#endif
