/*
 * A session: one connected client; its identity, what it has made, what that is charged to, and
 * how all of it ends.
 *
 * What the client holds: slabs and files (in struct objects, where lanes look them up), handles,
 * and channels, which its handles have on stores.  A call is a request that is not yet answered.
 *
 * Files that lie idle in the client's cache are looked at every few seconds (file_board.h says
 * why), on the user's helper; those without a link are removed.  No session has files: no timer.
 *
 * Idle files of a user also go when another of its clients needs their place.
 *
 * The end has one order, kept by session_advance() alone: nothing is read any more; the lanes
 * give the channels back, when no block is in flight; only then slabs and files are dropped;
 * when the last is free and no call is open, the session is freed and its charges are given back.
 * The close of the control socket is the last act: clients take the end of file as proof that the
 * daemon uses nothing of theirs.  A control socket that contains unread messages is closed on a
 * worker thread of the user, because close(2) also closes the descriptors in those messages.
 *
 * A user is all sessions of one uid: their common bounds, and worker threads on which foreign
 * descriptors are checked and closed, so that a hung file system of one user hangs only that.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_SESSION_H
#define DSAIO_DAEMON_CONTROL_SESSION_H

#include "daemon/lane/channel.h"
#include "daemon/base/quota.h"
#include "daemon/base/mailbox.h"
#include "daemon/lane/lane.h"
#include "daemon/base/log.h"
#include "daemon/object/objects.h"
#include "daemon/base/peer.h"
#include "daemon/object/pool.h"
#include "daemon/lane/sched.h"
#include "daemon/store/store.h"
#include "daemon/store/registry.h"
#include "daemon/control/turns.h"
#include "proto/frame.h"
#include "proto/profile.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct event;
struct event_base;
struct session;

/* Replies that a client leaves unread, and descriptors with them: beyond this its requests wait. */
#define SESSION_UNSENT_MAX (256u << 10)
#define SESSION_UNSENT_FDS_MAX 16u

/* What all sessions share.  The server's; it sets the first part before the first session. */
struct service {
	struct event_base *base;
	struct mailbox *mailbox; /* the main thread's */
	struct pool pool;
	struct registry stores;
	uint64_t client_limit[N_QUOTA_KINDS], user_limit[N_QUOTA_KINDS];
	uint64_t max_closing_sockets; /* see service_may_accept() */
	uint32_t spin_usec;
	uint64_t started_nsec; /* CLOCK_MONOTONIC */
	/* Serves one frame of a session: the layer above.  It takes descriptors with TAKE_FD or
	   leaves them; those that are left are closed on the user's helper. */
	void (*on_frame)(struct session *session, struct frame *frame);
	/* What came is no frame: tells the client if that can be, and ends the session. */
	void (*on_garbage)(struct session *session, const char *why);
	/* A session has gone, or a control socket that had unread messages is closed. */
	void (*on_gone)(struct service *service);

	struct turns turns; /* of sessions with requests to read; set by service_init() */
	struct user *users;
	struct session *sessions, **last_session; /* oldest first */
	uint32_t n_sessions;
	uint32_t n_closing_sockets; /* with unread messages, not yet closed by a worker thread */
	uint32_t last_id;
	struct event *look_event; /* at idle files; NULL without sessions */
	uint64_t look_due_nsec;
};

struct user {
	struct user *next;
	uid_t uid;
	uint32_t n_sessions;
	struct turn_owner turns;
	struct quota quota;
	struct work_queue
		*slab_work_queue;      /* makes and frees slabs: no file system can hold it up */
	struct work_queue *work_queue; /* asks file systems */
	unsigned n_closing_fds;	       /* on their way to a close on the work queue */
	uint32_t n_leaving;	       /* idle files taken from its clients, not yet closed */
	struct add *first_add, **last_add; /* files that wait for these to be closed */
	uint32_t fruitless_id;		   /* the client for which too few were found, then: */
	uint64_t fruitless_nsec;
	struct log_limit log_limit; /* of lines that its clients cause */
};

enum session_state {
	SESSION_GREETING, /* only Hello is served				-> OPEN, ENDING */
	SESSION_OPEN,	  /* everything is served				-> ENDING */
	SESSION_ENDING,	  /* nothing is read; handles are closed, lanes give channels back
										-> EMPTYING */
	SESSION_EMPTYING, /* no channel; slabs and files are dropped, not all free	-> freed */
};

/* A session's part of a store, while it has files or channels there: its turn in the scheduler,
   over all its channels. */
struct share {
	struct share *next;
	struct session *session;
	struct store *store; /* held */
	struct sched_client client;
	uint32_t n_channels; /* the home lane may look up ids while there is one */
	uint32_t n_files;    /* until they are closed */
};

struct session {
	struct session *next, **prev_next; /* in the service's list */
	struct service *service;
	struct user *user;
	uint32_t id;
	struct peer peer;    /* who it is */
	struct hung_who who; /* the same, for what gets stuck */
	char name[64];	     /* the program's, printable ASCII; "" before Hello */
	enum session_state state;
	bool is_mute; /* nothing can be sent any more */
	struct quota quota;
	struct charge session_charge; /* on the user's quota */

	struct objects objects;
	struct id_table handles, channels; /* struct handle, struct member */
	struct share *shares;
	struct member *members;
	uint32_t n_channels; /* not yet given back by their lanes */
	uint32_t n_objects;  /* slabs and files being made, there, or not yet free */
	uint32_t n_closings; /* session_close_fds() calls whose descriptors are not yet closed */
	uint32_t n_calls;

	_Atomic uint32_t *board; /* of its files; NULL before Hello */
	size_t board_bytes;
	struct look *look;  /* at idle files, on its way through the work queue; or NULL */
	bool has_got_files; /* descriptors for replies may be of its files */

	int fd, pidfd; /* pidfd: -1 if there is none */
	struct event *read_event, *write_event, *pid_event;
	struct event *retry_event; /* a timer: replies that could not be sent */
	bool is_reading;	   /* else the client waits: too many calls, or unread replies */
	struct turn turn;
	struct frame_reader reader;
	struct frame_writer writer;
	struct message advance; /* to the main mailbox itself: nobody's caller is freed under it */
	bool is_advancing;
};

/* What a program opened: a profile, a doorbell, and channels. */
struct handle {
	uint32_t id;
	struct session *session;
	bool has_profile; /* else each store's own */
	struct profile profile;
	enum sched_class io_class;
	uint32_t weight;
	int doorbell_fd; /* the daemon's end */
	struct member *members;
	uint32_t n_channels; /* of it, not yet given back */
	bool is_closed;
	struct call *close_call; /* waits for the channels, or NULL */
	struct charge charge;
};

/* A channel, as its session sees it. */
struct member {
	struct member *next, *next_in_session; /* in the handle's list, and in the session's */
	struct handle *handle;
	struct share *share;
	struct channel *channel;
	uint32_t n_submitted; /* entries of open Submits */
};

/*
 * A request that is not yet answered.  Who asks gets on_done once, in the main thread, with 0
 * and what was asked for, or with an error; then calls call_free().
 */
struct call {
	struct session *session;
	uint64_t seq;
	int what; /* the request's body_case */
	void (*on_done)(struct call *call, int result, const struct error *error);
	struct charge charge;
	union { /* what came out, or is waited for */
		struct slab *slab;
		struct file *file;
		struct batch *batch;
		struct lane_cancel cancel;
	};
	int reply_fds[FRAME_FDS_MAX]; /* for the reply: the daemon's own, owned */
	unsigned n_reply_fds;
	struct member *member; /* of Submit */
};

/* Makes the parts of a service that are the sessions' own.  Returns 0 or -ENOMEM. */
int service_init(struct service *service, struct event_base *base);
/* There must be no session.  Also of a service that is all zeroes.  Users whose worker threads hang
   in the close of a control socket remain. */
void service_deinit(struct service *service);

/*
 * Takes a connected, non-blocking socket, but not on error.  Returns 0 or, with a sentence for
 * the client, -EUSERS (too many connections), -ENOMEM, or what the kernel says.
 */
int session_new(struct service *service, int fd, struct error *error);

/* Takes a connected socket that gets no session, and closes it: on a worker thread of the user if it
   contains unread messages. */
void service_close_refused(struct service *service, int fd);

/*
 * False while as many control sockets wait for their close as there may be.  Each takes a descriptor
 * of the daemon until worker threads have closed it.
 */
bool service_may_accept(const struct service *service);

/*
 * Ends a session; returns at once, the session goes later, never within the call.  Ops that
 * were taken end (drain) or, if they have not started, are cancelled.
 */
void session_end(struct session *session, bool drain);

/* "client 7 (pid 123, name)": the object that a log line starts with. */
const char *session_title(const struct session *session);

/* Queues one reply and sends what goes.  Takes fds: the daemon's own, or of session_file_get(). */
void session_send(struct session *session, const void *body, size_t len, const int *fds,
		  unsigned n_fds);

int call_new(struct session *session, uint64_t seq, struct call **ret_call, struct error *error);
/* Gives the charge back, so that waiting requests go on.  NULL is fine. */
void call_free(struct call *call);

/*
 * The calls.  Those with a struct call return 0 and later (or at once) call its on_done, or an
 * error and never do.
 */

/*
 * version and name have been checked.  Takes pidfd (-1: none), which came from the client, also on
 * error.  *ret_board_fd: the file board for the reply, the caller's.
 */
int session_hello(struct session *session, const char *name, int pidfd, int *ret_board_fd,
		  struct error *error);

/* That it may have; their ids' indices are below. */
uint32_t session_max_files(const struct session *session);

int session_slab_new(struct session *session, uint64_t size_bytes, struct call *call,
		     struct error *error);
/* Takes fd, also on error.  For the reply as session_slab_new(), but no descriptor. */
int session_slab_import(struct session *session, int fd, uint64_t off, uint64_t size_bytes,
			struct call *call, struct error *error);
int session_slab_free(struct session *session, uint32_t id, struct call *call, struct error *error);

/* Takes fd, also on error. */
int session_file_add(struct session *session, int fd, const char *name, struct call *call,
		     struct error *error);
int session_file_remove(struct session *session, uint32_t id, struct call *call,
			struct error *error);
/* Takes fd, also on error. */
int session_file_buffered(struct session *session, uint32_t id, int fd, struct call *call,
			  struct error *error);
/* *ret_fd: a copy of its descriptor, for session_send(). */
int session_file_get(struct session *session, uint32_t id, int *ret_fd, struct error *error);

struct handle_config {
	const struct profile *profile; /* NULL: each store's own */
	enum sched_class io_class;
	uint32_t weight;
};
/* *ret_client_fd: the client's end of the doorbell socket, the caller's. */
int session_handle_open(struct session *session, const struct handle_config *config,
			struct handle **ret_handle, int *ret_client_fd, struct error *error);
int session_handle_close(struct session *session, uint32_t id, struct call *call,
			 struct error *error);

/* Fills in what the reply's descriptors are to be: the caller's. */
int session_channel_open(struct session *session, uint32_t handle_id, uint32_t store_id,
			 uint32_t entries, bool has_rings, struct channel **ret_channel,
			 int ret_fds[FRAME_FDS_MAX], unsigned *ret_n_fds, struct error *error);

/* Copies n entries.  on_done: call->batch has the results until call_free(). */
int session_submit(struct session *session, uint32_t channel_id, const struct ring_entry *entries,
		   uint32_t n, struct call *call, struct error *error);

int session_cancel(struct session *session, uint32_t channel_id, uint64_t op_id, struct call *call,
		   struct error *error);

#endif
