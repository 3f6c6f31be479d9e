/*
 * The service: the state that all sessions share, and control sockets whose session has ended.
 *
 * A control socket with unread descriptors is closed on a worker thread of its user, because close(2) of
 * the socket also closes these and may hang.  The kernel counts them, and bounds them to RLIMIT_NOFILE of the
 * user that sent them.  So that is also the limit on such sockets of one user.
 *
 * The limit of all users is a quarter of the daemon's RLIMIT_NOFILE (service_may_accept()).  The unit's
 * LimitNOFILE= makes it larger than 524288, systemd's hard limit of users, so one user without privileges
 * does not reach it.  One user can reach it, and keep others from connecting, if the user's hard limit is
 * above the daemon's quarter: where fs.nr_open allows the daemon less than the unit asks for, or where a
 * daemon for several users was started by hand with a lower limit.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_SERVICE_H
#define DSAIO_DAEMON_CONTROL_SERVICE_H

#include "daemon/account/usage.h"
#include "daemon/base/hung.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/quota.h"
#include "daemon/control/run_queue.h"
#include "daemon/control/user.h"
#include "daemon/engine/gpu_requests.h"
#include "daemon/object/view.h"
#include "daemon/store/registry.h"
#include "proto/frame.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

/* The share of the daemon's descriptors that control sockets with a hung close may use: a guess. */
#define SERVICE_CLOSING_DIVISOR 4u

struct event;
struct event_base;
struct session;

struct service {
	/* The server sets these before the first session. */
	struct config *config; /* borrowed; a reload changes it */
	struct event_base *base;
	struct mailbox *mailbox; /* the main thread's */
	struct pool pool;
	struct registry registry;
	struct usage usage;
	uint64_t n_recoveries;	      /* clients that came from an earlier daemon */
	uint64_t max_closing_sockets; /* see service_may_accept() */
	uint64_t started_nsec;	      /* CLOCK_MONOTONIC */
	struct gpu_requests gpu;
	struct views views;
	struct event *views_event; /* views.c; NULL without views */
	bool is_reloading;
	/* Serves one frame of a session: the layer above.  It takes descriptors with TAKE_FD; the
	   rest is closed on the user's worker threads. */
	void (*on_frame)(struct session *session, struct frame *frame);
	/* The bytes are no frame: replies with an error if that is possible, and ends the session. */
	void (*on_garbage)(struct session *session, const char *why);
	/* Sends a reply that belongs to no request: why the daemon is about to end the session. */
	void (*say_end)(struct session *session, const struct error *why);
	/* A session has gone, or a control socket that had unread descriptors is closed. */
	void (*on_gone)(struct service *service);

	struct run_queue run_queue; /* of sessions with requests to read; set by service_init() */
	struct users users;
	struct user *nobody;  /* stands for users without worker threads; set by service_start() */
	struct list sessions; /* struct session, oldest first */
	uint32_t n_sessions;
	uint32_t n_closing_sockets; /* with unread descriptors, not yet closed by a worker thread */
	uint32_t last_id;
	struct event *look_event; /* idle_files.h; NULL without files */
	uint64_t look_due_nsec;
};

/* The configuration's limits, also those of users that are there, and of clients those that are no numbers of
   objects. */
void service_apply_limits(struct service *service);

/* Makes the parts of a service that are the sessions' own.  Returns 0 or -ENOMEM. */
int service_init(struct service *service, struct event_base *base);
/* Starts its threads: when the daemon has dropped its privileges.  Returns 0, -ENOMEM, or a thread's error. */
int service_start(struct service *service);
/* There must be no session and no closing control socket.  Also of a service that is all zeroes. */
void service_deinit(struct service *service);

/* Closes a control socket, on a worker thread of its user if it contains unread descriptors.  Takes fd
   and the reference to the user. */
void service_close_socket(struct service *service, struct user *user, int fd,
			  const struct hung_who *who, const char *file);

/* Takes a connected socket that gets no session, and closes it. */
void service_close_refused(struct service *service, int fd);

/*
 * False while as many control sockets wait for their close as there may be.  Each takes a descriptor
 * of the daemon until a worker thread has closed it.
 */
bool service_may_accept(const struct service *service);

#endif
