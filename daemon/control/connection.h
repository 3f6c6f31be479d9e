/*
 * A connection: the socket side of one client.  It reads requests when the run queue serves it (run_queue.h), sends
 * replies and watches for the client's death.
 *
 *   reading -> paused    may_read() returned false: requests stay in the client's socket, whose end is watched
 *   paused  -> reading   connection_resume(), when the reason for the pause may be over
 *   any     -> stopped   connection_stop(): no requests are read any more, and the socket's end is not watched
 *   mute                 nothing can reach the client any more; replies are dropped
 *
 * A death shows on the socket and on a pidfd: a forked child may keep the socket open.
 *
 * Descriptors in a reply count as unread from connection_send() until all replies have left the socket: the
 * peer has read them, or nobody has its end any more.  The kernel counts them until then, too (user.h).
 *
 * The owner embeds it and gets callbacks.  Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_CONNECTION_H
#define DSAIO_DAEMON_CONTROL_CONNECTION_H

#include "daemon/base/error.h"
#include "daemon/base/wakes.h"
#include "daemon/control/run_queue.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>

struct connection;
struct event;
struct event_base;

struct connection_ops {
	/* False: the connection pauses until connection_resume(). */
	bool (*may_read)(const struct connection *connection);
	/* One request.  It takes descriptors with TAKE_FD; those that it leaves go to close_fds(). */
	void (*on_frame)(struct connection *connection, struct frame *frame);
	/* The bytes are no frame. */
	void (*on_garbage)(struct connection *connection, const char *why);
	/* The peer has gone or cannot be reached, and the connection is mute.  Or it is costly to wake (why is not
	   NULL): the connection is mute after the call, which may send one more reply. */
	void (*on_lost)(struct connection *connection, const char *why);
	/* Descriptors that came from the client; the callee takes those that are not -1. */
	void (*close_fds)(struct connection *connection, const int *fds, unsigned n_fds);
	/* Descriptors of a reply, sent or dropped; the callee takes them. */
	void (*close_reply_fds)(struct connection *connection, const int *fds, unsigned n_fds);
	/* n_unread_fds has grown by n, or fallen to 0. */
	void (*on_unread)(struct connection *connection, int n);
};

struct connection {
	const struct connection_ops *ops;
	int fd;
	struct run_queue *run_queue;
	struct run_entry run_entry;
	bool is_reading, is_mute;
	struct wakes wakes;    /* calls on the socket */
	unsigned n_unread_fds; /* in replies that the peer has not read */
	int pidfd;	       /* -1: there is none */
	struct event *read_event, *write_event, *pid_event;
	/* A timer: replies that could not be sent, or were not read at once. */
	struct event *retry_event;
	struct frame_reader reader;
	struct frame_writer writer;
};

/* The state without a socket: connection_deinit() is fine then. */
void connection_init(struct connection *connection, const struct connection_ops *ops);

/*
 * Begins to read from fd, a connected, non-blocking socket, as an entry of the owner.  Takes fd on success
 * only.  Returns 0 or an error.
 */
int connection_start(struct connection *connection, int fd, struct event_base *base,
		     struct run_queue *run_queue, struct run_owner *owner, struct error *error);

/*
 * Watches the client by a pidfd that it sent.  Takes it on success.  Returns 0; -EEXIST: there is one
 * already; -EINVAL: it is no pidfd; -ENOMEM.
 */
int connection_watch_pidfd(struct connection *connection, int pidfd);

/* Whether the peer's socket is open and its process lives, as far as that can be seen. */
bool connection_has_peer(const struct connection *connection);

/* Serves requests for a short time; returns whether more may wait: the run queue's serve(). */
bool connection_serve(struct connection *connection);

void connection_resume(struct connection *connection);
/* Reads no more requests and watches the socket no more, for good. */
void connection_stop(struct connection *connection);

/* Ends the watch of the process: a dead client's pidfd stays readable. */
void connection_unwatch(struct connection *connection);

/*
 * Queues one reply and sends what the socket takes.  Takes fds, also on error.  Returns 0, or what
 * frame_queue() says: the reply is lost.
 */
int connection_send(struct connection *connection, const void *body, size_t len, const int *fds,
		    unsigned n_fds);

/* Drops replies that are not sent and sends nothing more.  Those that were sent may be unread. */
void connection_mute(struct connection *connection);

/* Whether the peer has ended, and nothing that it sent is unread.  False: it may have. */
bool connection_has_ended(int fd);

/*
 * Stops the peer of a connected socket from sending, and drops unread messages up to the first with
 * descriptors.  Returns whether there is one: close(2) of the socket then closes these, and may hang.
 */
bool connection_has_unread_fds(int fd);

/* Frees all but fd, which stays open: its close is the caller's. */
void connection_deinit(struct connection *connection);

#endif
