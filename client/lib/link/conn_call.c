/*
 * Calls: requests, and the replies that come in any order.
 *
 * Everything here runs under conn->lock, except poll(2) and the conditions.  The socket does not block.
 * A request that it does not accept at once stays in the writer, and the thread that brought it polls
 * for room.  So there are two kinds of waiting threads:
 *
 *     polling    one of them, and each one as long as the writer holds requests: sleeps in poll(2),
 *                then sends and reads what it can, and completes the calls whose replies came
 *     following  sleeps on its call's condition
 *
 * A thread that leaves wakes a follower if nobody polls any more.  The connection's end completes
 * all calls.
 */
#include "client/lib/link/conn.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "client/lib/base/fd.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ERRNO_MAX 4095 /* the kernel's */
#define CALL_ANY UINT32_MAX
#define CALL_AGAIN 1
#define AWAIT_END_MSEC 100

/* A call in progress, on its thread's stack. */
struct conn_pending {
	struct list_node node;
	uint64_t seq; /* 0: waits in conn_await_post() */
	bool while_alive;
	uint64_t nsec; /* while_alive: the begin of the call; else its end */
	uint32_t
		session; /* CALL_ANY, or the one that it makes sense in; then the one of its reply */
	bool is_moot;	 /* that session is over */
	unsigned n_places;
	pthread_cond_t cond;
	bool is_done; /* not in the list any more; then either ... */
	int error;    /* ... the connection has ended, or ... */
	Wire__Reply *reply;
	int fds[FRAME_FDS_MAX];
	unsigned n_fds;
};

/* The reply to each kind of request; zeroes: one without fields and descriptors. */
static const struct reply_kind {
	Wire__Reply__BodyCase body;
	unsigned n_fds; /* that come with it */
} replies[] = {
	[WIRE__REQUEST__BODY_HELLO] = { WIRE__REPLY__BODY_HELLO, 1 },
	[WIRE__REQUEST__BODY_SLAB_NEW] = { WIRE__REPLY__BODY_SLAB_NEW, 1 },
	[WIRE__REQUEST__BODY_FILE_ADD] = { WIRE__REPLY__BODY_FILE_ADD, 0 },
	[WIRE__REQUEST__BODY_HANDLE_OPEN] = { WIRE__REPLY__BODY_HANDLE_OPEN, 1 },
	[WIRE__REQUEST__BODY_CHANNEL_OPEN] = { WIRE__REPLY__BODY_CHANNEL_OPEN,
					       3 }, /* rings, bell, board */
	[WIRE__REQUEST__BODY_SUBMIT] = { WIRE__REPLY__BODY_SUBMIT, 0 },
	[WIRE__REQUEST__BODY_STATUS] = { WIRE__REPLY__BODY_STATUS, 0 },
	[WIRE__REQUEST__BODY_SLAB_IMPORT] = { WIRE__REPLY__BODY_SLAB_IMPORT, 0 },
	[WIRE__REQUEST__BODY_FILE_GET] = { WIRE__REPLY__BODY__NOT_SET, 1 },
	[WIRE__REQUEST__BODY_STORE_GET] = { WIRE__REPLY__BODY_STORE_GET, 0 },
	[WIRE__REQUEST__BODY_PROFILE_SET] = { WIRE__REPLY__BODY_STORE_GET, 0 },
	[WIRE__REQUEST__BODY_DEVICE_IMPORT] = { WIRE__REPLY__BODY_DEVICE_IMPORT, 0 },
	[WIRE__REQUEST__BODY_STORE_DRAIN] = { WIRE__REPLY__BODY_STORE_DRAIN, 0 },
	[WIRE__REQUEST__BODY_RELOAD] = { WIRE__REPLY__BODY_RELOAD, 0 },
	[WIRE__REQUEST__BODY_SLAB_ADOPT] = { WIRE__REPLY__BODY_SLAB_ADOPT, 0 },
	[WIRE__REQUEST__BODY_FILE_OPEN] = { WIRE__REPLY__BODY_FILE_OPEN, 0 },
	[WIRE__REQUEST__BODY_NAME_STAT] = { WIRE__REPLY__BODY_NAME_STAT, 0 },
	[WIRE__REQUEST__BODY_NAME_LIST] = { WIRE__REPLY__BODY_NAME_LIST, 0 },
	[WIRE__REQUEST__BODY_VIEW_OPEN] = { WIRE__REPLY__BODY_VIEW_OPEN, 1 },
	[WIRE__REQUEST__BODY_VIEW_WAIT] = { WIRE__REPLY__BODY_VIEW_WAIT, 0 },
	[WIRE__REQUEST__BODY_VIEW_KEEP] = { WIRE__REPLY__BODY_VIEW_KEEP, 0 },
};

/* See conn_answered_in() and conn_never_waits(). */
static _Thread_local uint32_t answered_in;
static _Thread_local bool never_waits;

static struct reply_kind reply_to(const Wire__Request *request)
{
	const size_t n = sizeof(replies) / sizeof(replies[0]);

	return (size_t)request->body_case < n ? replies[request->body_case]
					      : (struct reply_kind){ 0 };
}

/* ---- the end ---- */

bool conn_is_gone(struct dsaio_conn *conn)
{
	/* Before the look: an end that is seen is of this session, or of an earlier one. */
	const uint32_t n_gone = atomic_load(&conn->n_replaced) + 1;
	uint32_t seen = atomic_load(&conn->n_gone);
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	if (conn_was_gone(conn))
		return true;
	if (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP)))
		return false;
	/* release: who sees it sees also what the daemon published before it died */
	while (seen < n_gone &&
	       !atomic_compare_exchange_weak_explicit(&conn->n_gone, &seen, n_gone,
						      memory_order_release, memory_order_relaxed))
		;
	if (seen < n_gone) {
		debug_log("session: the daemon on %s has gone away", conn->path);
		if (conn->on_gone)
			conn->on_gone(conn->arg);
	}
	return conn_was_gone(conn);
}

bool conn_await_end(struct dsaio_conn *conn, bool has_limit)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };
	const uint64_t began_nsec = clock_nsec();
	const uint32_t n_replaced = atomic_load(&conn->n_replaced);

	while (!conn_is_gone(conn) && atomic_load(&conn->n_replaced) == n_replaced) {
		int msec = AWAIT_END_MSEC;

		if (has_limit) {
			(void)pthread_mutex_lock(&conn->lock);
			/* The wait is for the old session: a new one is not silent because of it. */
			if (atomic_load(&conn->n_replaced) == n_replaced) {
				msec = silence_left(&conn->silence, began_nsec, clock_nsec(), NULL);
				conn->silence.is_silent = !msec;
			}
			(void)pthread_mutex_unlock(&conn->lock);
		}
		if (!msec)
			return false;
		/* EINTR: polls again.  The poll is short: another thread's limit may be over. */
		(void)poll(&p, 1, msec > AWAIT_END_MSEC ? AWAIT_END_MSEC : msec);
	}
	return true;
}

uint32_t conn_answered_in(void)
{
	return answered_in;
}

void conn_never_waits(void)
{
	never_waits = true;
}

/* No request can be sent, nor a reply read. */
static void hang_up(struct dsaio_conn *conn)
{
	if (atomic_exchange(&conn->is_broken, true))
		return;
	/* It ends the session, then closes: its end of file stays the one proof. */
	(void)shutdown(conn->fd, SHUT_WR); /* fails only if the daemon is gone already */
}

void conn_break(struct dsaio_conn *conn)
{
	LOCKED(&conn->lock);

	conn->is_on_purpose = true;
	hang_up(conn);
}

/* ---- places for descriptors ---- */

/*
 * The kernel drops descriptors that a process at its limit is sent, and nothing brings them back: the
 * stream would be lost.  So a call takes places for those of its reply before it sends the request.
 * Just before a reply with descriptors is read, that many places are given up, whichever call took
 * them.  Another thread that opens files at that moment can still be faster: the connection is lost
 * then.
 */
static void places_give_up(struct dsaio_conn *conn, unsigned n_left)
{
	while (conn->n_places > n_left)
		(void)close(conn->places[--conn->n_places]); /* a duplicate of the socket */
}

/* Returns 0, or a negative errno with a message. */
static int places_take(struct dsaio_conn *conn, const char *what, unsigned n)
{
	const unsigned wanted = conn->n_places_wanted + n;
	int *places = n ? reallocarray(conn->places, wanted, sizeof(*places)) : conn->places;

	if (n && !places)
		return error_fail_errno(-ENOMEM, "%s: request", what);
	conn->places = places;
	while (conn->n_places < wanted) {
		int fd = fd_duplicate(conn->fd), r = -errno;

		if (fd >= 0) {
			conn->places[conn->n_places++] = fd;
			continue;
		}
		places_give_up(conn, conn->n_places_wanted);
		return error_fail_errno(r, "%s", what);
	}
	conn->n_places_wanted = wanted;
	return 0;
}

static void places_return(struct dsaio_conn *conn, unsigned n)
{
	conn->n_places_wanted -= n;
	places_give_up(conn, conn->n_places_wanted);
}

static void places_make_room(struct dsaio_conn *conn)
{
	unsigned n = conn->n_places ? frame_coming_fds(&conn->reader, conn->fd) : 0;

	places_give_up(conn, n < conn->n_places ? conn->n_places - n : 0);
}

/* ---- the calls in progress ---- */

static void pending_remove(struct dsaio_conn *conn, struct conn_pending *call)
{
	list_remove(&conn->pending, &call->node);
	places_return(conn, call->n_places);
}

static void pending_complete(struct dsaio_conn *conn, struct conn_pending *call)
{
	pending_remove(conn, call);
	call->is_done = true;
	(void)pthread_cond_signal(&call->cond); /* cannot fail */
}

/* Nothing is read from now on, and all calls end with that error and reason. */
static void calls_end(struct dsaio_conn *conn, int error, const char *why)
{
	hang_up(conn);
	conn->is_ended = true;
	(void)snprintf(conn->end_text, sizeof(conn->end_text), "%s", why); /* cut is fine */
	frame_writer_deinit(&conn->writer);
	LIST_EACH(struct conn_pending, call, &conn->pending, node) {
		call->error = error;
		pending_complete(conn, call);
	}
}

/* The same: the daemon talks nonsense. */
static void calls_fail(struct dsaio_conn *conn, const char *why)
{
	conn->is_on_purpose = true;
	calls_end(conn, -ENOTCONN, why);
}

/* A reply that no call waits for. */
static void unawaited_take(struct dsaio_conn *conn)
{
	if (!conn->n_unawaited) {
		calls_fail(conn, "the answer belongs to no request");
		return;
	}
	conn->n_unawaited--;
	conn->n_answered++;
	LIST_EACH(struct conn_pending, call, &conn->pending, node)
		if (!call->seq)
			pending_complete(conn, call);
}

static void reply_take(struct dsaio_conn *conn, struct frame *frame)
{
	_cleanup_(wire_replyp)
		Wire__Reply *reply = wire__reply__unpack(NULL, frame->len, frame->body);
	struct conn_pending *call = NULL;

	silence_heard(&conn->silence, clock_nsec());
	if (!reply) {
		calls_fail(conn, "the answer is no Reply: is it dsaiod?");
		return;
	}
	if (reply->error > 0 || reply->error < -ERRNO_MAX) {
		calls_fail(conn, "the answer's error is none");
		return;
	}
	if (reply->seq == 0 && reply->error < 0) { /* why it closes the connection */
		conn->is_stop = reply->error == -ESHUTDOWN;
		conn->is_on_purpose |= !conn->is_stop;
		calls_end(conn, reply->error, reply->text);
		return;
	}
	LIST_EACH(struct conn_pending, other, &conn->pending, node)
		if (reply->seq && other->seq == reply->seq)
			call = other;
	if (!call) {
		unawaited_take(conn);
		return;
	}
	call->reply = TAKE_PTR(reply);
	call->session = conn_session(conn);
	call->n_fds = frame->n_fds;
	for (unsigned i = 0; i < frame->n_fds; i++)
		call->fds[i] = TAKE_FD(frame->fds[i]);
	pending_complete(conn, call);
}

/* ---- the socket ---- */

void conn_calls_send(struct dsaio_conn *conn)
{
	int r = frame_flush(&conn->writer, conn->fd);

	if (r == 0 || r == -EAGAIN)
		return;
	/* It hung up, or the stream is lost, with the session.  It may have said why before its end. */
	conn->is_on_purpose |= r != -EPIPE && r != -ECONNRESET;
	hang_up(conn);
	frame_writer_deinit(&conn->writer);
}

void conn_calls_receive(struct dsaio_conn *conn)
{
	while (!conn->is_ended) {
		_cleanup_(frame_deinit) struct frame frame = { .n_fds = 0 };
		char text[CONN_TEXT_BYTES] = "";
		int r;

		places_make_room(conn);
		r = frame_read(&conn->reader, conn->fd, &frame, text, sizeof(text));
		if (r == -EAGAIN)
			return;
		if (r == 1)
			reply_take(conn, &frame);
		else if (r == 0 || r == -ECONNRESET)
			calls_end(conn, -ENOTCONN, "the daemon hung up");
		else
			calls_fail(conn, r == -EPROTO ? text : strerrordesc_np(-r));
	}
}

/* The descriptors stay the caller's, and open until the call is done. */
static int request_queue(struct dsaio_conn *conn, struct frame_writer *writer,
			 Wire__Request *request, const int *fds, unsigned n_fds)
{
	_cleanup_(freep) uint8_t *packed = NULL;
	size_t len;

	request->seq = ++conn->seq;
	len = wire__request__get_packed_size(request);
	packed = malloc(len);
	if (!packed)
		return -ENOMEM;
	(void)wire__request__pack(request, packed);
	return frame_queue(writer, packed, len, fds, n_fds);
}

/* ---- waiting ---- */

static void pending_poll(struct dsaio_conn *conn, int msec)
{
	struct pollfd p = { .fd = conn->fd,
			    .events = (short)(conn->writer.queue.first ? POLLIN | POLLOUT
								       : POLLIN) };

	conn->n_polling++;
	(void)pthread_mutex_unlock(&conn->lock);
	(void)poll(&p, 1, msec); /* EINTR: looks, and polls again */
	(void)pthread_mutex_lock(&conn->lock);
	conn->n_polling--;
	conn_calls_send(conn);
	conn_calls_receive(conn);
}

static void pending_follow(struct dsaio_conn *conn, struct conn_pending *call, int msec)
{
	const struct timespec ts = timespec_of(clock_nsec() + (uint64_t)msec * NSEC_PER_MSEC);

	(void)pthread_cond_clockwait(&call->cond, &conn->lock, CLOCK_MONOTONIC, &ts);
}

/* Nobody waits for the reply.  Without memory the request is lost. */
static void request_post(struct dsaio_conn *conn, Wire__Request *request)
{
	if (request_queue(conn, &conn->writer, request, NULL, 0) < 0)
		return;
	conn->n_unawaited++;
	conn_calls_send(conn);
}

/* Milliseconds for poll(2); 0: the time is over.  Asks for a sign of life if need be. */
static int pending_left(struct dsaio_conn *conn, const struct conn_pending *call)
{
	/* Any daemon refuses an empty request at once, and so shows that it lives. */
	Wire__Request request = WIRE__REQUEST__INIT;
	const uint64_t now = clock_nsec();
	bool must_ask;
	uint64_t msec;

	if (call->while_alive) {
		msec = (uint64_t)silence_left(&conn->silence, call->nsec, now, &must_ask);
		if (must_ask)
			request_post(conn, &request);
	} else {
		msec = now < call->nsec ? (call->nsec - now) / NSEC_PER_MSEC + 1 : 0;
	}
	return msec < INT_MAX ? (int)msec : INT_MAX;
}

/* Waits until the call is done, and takes it off the list.  Returns 0 or -ETIMEDOUT. */
static int pending_await(struct dsaio_conn *conn, struct conn_pending *call)
{
	int msec = pending_left(conn, call);

	while (!call->is_done && msec) {
		if (conn->n_polling && !conn->writer.queue.first)
			pending_follow(conn, call, msec);
		else
			pending_poll(conn, msec);
		msec = pending_left(conn, call);
		if (!msec) { /* this process may have been stopped itself */
			conn_calls_receive(conn);
			msec = pending_left(conn, call);
		}
	}
	if (!call->is_done) {
		pending_remove(conn, call);
		conn->n_unawaited++; /* its reply may still come */
	}
	if (!conn->n_polling && conn->pending.last)
		(void)pthread_cond_signal(
			&list_entry(conn->pending.last, struct conn_pending, node)->cond);
	return call->is_done ? 0 : -ETIMEDOUT;
}

/* ---- calls ---- */

void conn_why_gone(struct dsaio_conn *conn, char text[CONN_TEXT_BYTES])
{
	LOCKED(&conn->lock);

	if (!conn->is_ended && conn_was_gone(conn)) { /* the last words may not have been read */
		conn_calls_receive(conn);
		if (!conn->is_on_purpose) /* that it hung up is no reason */
			conn->end_text[0] = '\0';
	}
	if (*conn->end_text && (conn->is_on_purpose || atomic_load(&conn->is_lost)))
		(void)strcpy(text, conn->end_text);
	else
		(void)strcpy(text, "the daemon has gone away");
}

bool conn_is_ended_on_purpose(struct dsaio_conn *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLIN };
	bool is_on_purpose;

	(void)pthread_mutex_lock(&conn->lock);
	/* A polling thread would not see that its reply was taken. */
	while (conn->n_polling && !conn->is_ended && poll(&p, 1, 0) > 0) {
		(void)pthread_mutex_unlock(&conn->lock);
		(void)sched_yield();
		(void)pthread_mutex_lock(&conn->lock);
	}
	if (!conn->n_polling)
		conn_calls_receive(conn);
	is_on_purpose = conn->is_on_purpose;
	(void)pthread_mutex_unlock(&conn->lock);
	return is_on_purpose;
}

int conn_fail_gone(struct dsaio_conn *conn, const char *what)
{
	char why[CONN_TEXT_BYTES];

	conn_why_gone(conn, why);
	return error_fail(-ENOTCONN, "%s: %s (%s): %s", what, why, conn->path, error_reconnect);
}

/* The message of a call whose session is of no use any more.  Returns -ENOTCONN. */
static int lost(struct dsaio_conn *conn, const char *what, const char *why)
{
	if (conn_is_gone(conn))
		return conn_fail_gone(conn, what);
	return error_fail(-ENOTCONN, "%s: %s (%s): %s", what, why, conn->path, error_reconnect);
}

/* Such a reply ends the session. */
static int conn_lost(struct dsaio_conn *conn, const char *what, const char *why)
{
	conn_break(conn);
	return lost(conn, what, why);
}

/* Is there a next session for what this thread wants? */
static bool may_wait(const struct dsaio_conn *conn)
{
	return conn->on_gone && !conn->is_on_purpose && !never_waits;
}

/*
 * Sleeps while the connection is away.  It does not sleep for a request that ends an object: the object goes with its
 * session, or was handed over, and then the request is a post of the next session.  Returns 0, -ENOTCONN or
 * -ETIMEDOUT, without a message.  Under the lock, which is released meanwhile.
 */
static int session_await(struct dsaio_conn *conn, const struct conn_pending *call)
{
	const struct timespec until = timespec_of(call->while_alive ? DEADLINE_NEVER : call->nsec);

	while (atomic_load(&conn->is_broken) || conn_was_gone(conn)) {
		if (conn_was_lost(conn) || !may_wait(conn))
			return -ENOTCONN;
		if (conn_was_gone(conn) && call->session != CALL_ANY)
			return 0;
		if (!conn_was_gone(conn)) { /* the end of file is to come */
			(void)pthread_mutex_unlock(&conn->lock);
			(void)conn_await_end(conn, false);
			(void)pthread_mutex_lock(&conn->lock);
		} else if (call->while_alive || call->nsec == DEADLINE_NEVER) {
			(void)pthread_cond_wait(&conn->changed, &conn->lock);
		} else if (pthread_cond_clockwait(&conn->changed, &conn->lock, CLOCK_MONOTONIC,
						  &until) != 0) {
			return -ETIMEDOUT;
		}
	}
	return 0;
}

/* The object was handed over to the next session: sends it there, if the connection is still away.  Under the lock. */
static void defer_post(struct dsaio_conn *conn, Wire__Request *request, uint32_t session)
{
	if (session == conn_attempt(conn) && conn_is_away(conn) &&
	    request_queue(conn, &conn->deferred, request, NULL, 0) == 0)
		conn->n_deferred++;
}

/*
 * Sends the request and waits; leaves the call done.  Returns 0, CALL_AGAIN (the daemon went away, and may come
 * back), or a negative errno, with a message.
 */
static int call_once(struct dsaio_conn *conn, const char *what, Wire__Request *request,
		     const int *fds, unsigned n_fds, struct conn_pending *call)
{
	_cleanup_(unlockp) pthread_mutex_t *locked = &conn->lock;
	char why[CONN_TEXT_BYTES], listener[32] = "";
	pid_t pid; /* if systemd listens, or unknown */
	const uint32_t wanted = call->session;
	bool is_again, is_said;
	int r;

	(void)pthread_mutex_lock(locked); /* a plain mutex: cannot fail */
	r = session_await(conn, call);
	if (r == -ENOTCONN) {
		(void)strcpy(why, conn->end_text);
		is_said = conn->on_gone || conn->is_on_purpose;
		(void)pthread_mutex_unlock(TAKE_PTR(locked));
		return lost(conn, what, is_said && *why ? why : "the connection is broken");
	}
	call->is_moot = wanted != CALL_ANY && (conn_is_away(conn) || wanted != conn_session(conn));
	if (r == 0 && call->is_moot) {
		defer_post(conn, request, wanted);
		return 0;
	}
	if (r == 0) {
		r = places_take(conn, what, reply_to(request).n_fds);
		if (r < 0)
			return r;
		call->n_places = reply_to(request).n_fds;
		r = request_queue(conn, &conn->writer, request, fds, n_fds);
		if (r < 0) {
			places_return(conn, call->n_places);
			return error_fail_errno(r, "%s: request", what);
		}
		call->seq = request->seq;
		list_push(&conn->pending, &call->node);
		conn_calls_send(conn);
		r = pending_await(conn, call);
	}
	if (r == 0 && call->reply &&
	    call->reply->error == -ESHUTDOWN) { /* its last answers: it stops */
		(void)snprintf(conn->end_text, sizeof(conn->end_text), "%s", call->reply->text);
		wire_replyp(&call->reply);
		call->reply = NULL;
		call->error = -ENOTCONN;
	}
	is_again = r == 0 && call->error < 0 && may_wait(conn);
	(void)strcpy(why, conn->end_text);
	if (r < 0 && call->while_alive) {
		conn->silence.is_silent = true;
		conn->is_on_purpose = true;
		hang_up(conn);
		frame_writer_deinit(&conn->writer); /* the caller closes what may still be in it */
	}
	pid = conn->peer.pid;
	(void)pthread_mutex_unlock(TAKE_PTR(locked));
	if (is_again)
		return CALL_AGAIN;
	if (r < 0 && !call->while_alive)
		return error_fail(r, "%s: the daemon has not answered in time", what);
	if (r < 0) {
		if (pid > 1)
			(void)snprintf(listener, sizeof(listener), " (pid %d)", pid);
		return error_fail(r,
				  "%s: what listens on %s%s has not answered for %u s: is the "
				  "daemon stopped, do as many requests hang as it reads (dsaioctl "
				  "status shows them), or is it another program?",
				  what, conn->path, listener, conn->silence.limit_msec / 1000);
	}
	/* Before the end of Hello, the last words are a refusal. */
	if (call->error == -ENOTCONN || call->error == -ESHUTDOWN ||
	    (call->error < 0 && conn->file_board))
		return lost(conn, what, *why ? why : "the connection is broken");
	if (call->error < 0)
		return error_fail(call->error, "%s: %s", what, why);
	answered_in = call->session;
	return 0;
}

static int call_run(struct dsaio_conn *conn, const char *what, Wire__Request *request,
		    const int *fds, unsigned n_fds, struct conn_pending *call)
{
	const uint32_t session = call->session;
	int r;

	while ((r = call_once(conn, what, request, fds, n_fds, call)) == CALL_AGAIN) {
		call->is_done = false;
		call->error = 0;
		call->session = session;
		if (call->while_alive)
			call->nsec = clock_nsec();
	}
	return r;
}

static void pending_deinit(struct conn_pending *call)
{
	for (unsigned i = 0; i < call->n_fds; i++)
		closep(&call->fds[i]);
	wire_replyp(&call->reply);
	(void)pthread_cond_destroy(&call->cond);
}

static int call_with(struct dsaio_conn *conn, const char *what, Wire__Request *request,
		     const int *fds, unsigned n_fds, bool while_alive, uint64_t nsec,
		     uint32_t session, Wire__Reply **ret_reply, int *ret_fds)
{
	_cleanup_(pending_deinit) struct conn_pending call = { .while_alive = while_alive,
							       .nsec = nsec,
							       .session = session,
							       .cond = PTHREAD_COND_INITIALIZER };
	int r = call_run(conn, what, request, fds, n_fds, &call);

	if (r == -EMFILE && nsec != DEADLINE_NEVER && !while_alive) /* recovery's: another try */
		r = -ENOTCONN;
	if (r < 0 || call.is_moot)
		return r;
	if (call.reply->error < 0)
		return error_fail(call.reply->error, "%s",
				  call.reply->text && *call.reply->text
					  ? call.reply->text
					  : strerror(-call.reply->error));
	if (call.reply->body_case != reply_to(request).body ||
	    (ret_fds && call.n_fds != reply_to(request).n_fds))
		return conn_lost(conn, what, "the answer does not fit the request");
	for (unsigned i = 0; i < call.n_fds; i++) {
		call.fds[i] = fd_above_stdio(call.fds[i]);
		if (call.fds[i] < 0)
			return conn_lost(conn, what, "this process may open no more descriptors");
	}
	if (ret_fds) {
		memcpy(ret_fds, call.fds, call.n_fds * sizeof(*ret_fds));
		call.n_fds = 0;
	}
	if (ret_reply)
		*ret_reply = TAKE_PTR(call.reply);
	return 0;
}

int conn_call(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
	      unsigned n_fds, Wire__Reply **ret_reply, int *ret_fds)
{
	int r = conn_call_for(conn, what, request, fds, n_fds, DEADLINE_NEVER, ret_reply, ret_fds);

	/* Without the lock, because close(2) may wait for the server of the file's mount. */
	for (unsigned i = 0; i < n_fds; i++)
		(void)close(fds[i]); /* nothing was written to it */
	return r;
}

int conn_call_while_alive(struct dsaio_conn *conn, const char *what, Wire__Request *request,
			  const int *fds, unsigned n_fds, Wire__Reply **ret_reply, int *ret_fds)
{
	return call_with(conn, what, request, fds, n_fds, true, clock_nsec(), CALL_ANY, ret_reply,
			 ret_fds);
}

int conn_call_in(struct dsaio_conn *conn, const char *what, Wire__Request *request,
		 uint32_t session, bool while_alive, uint64_t deadline_nsec)
{
	return call_with(conn, what, request, NULL, 0, while_alive,
			 while_alive ? clock_nsec() : deadline_nsec, session, NULL, NULL);
}

int conn_call_for(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
		  unsigned n_fds, uint64_t deadline_nsec, Wire__Reply **ret_reply, int *ret_fds)
{
	return call_with(conn, what, request, fds, n_fds, false, deadline_nsec, CALL_ANY, ret_reply,
			 ret_fds);
}

bool conn_answers(struct dsaio_conn *conn)
{
	Wire__Status body = WIRE__STATUS__INIT;
	Wire__Request request = WIRE_REQUEST(STATUS, status, &body);
	int r;

	r = conn_call_while_alive(conn, "handle_close", &request, NULL, 0, NULL, NULL);

	return r != -ETIMEDOUT && r != -ENOTCONN;
}

/* Under the lock. */
static void post(struct dsaio_conn *conn, Wire__Request *request)
{
	request_post(conn, request);
	/* Else the daemon may wait for room for its replies, and read no more requests. */
	if (!conn->n_polling)
		conn_calls_receive(conn);
}

void conn_post(struct dsaio_conn *conn, Wire__Request *request)
{
	LOCKED(&conn->lock);

	if (!atomic_load(&conn->is_broken))
		post(conn, request);
}

void conn_post_in(struct dsaio_conn *conn, Wire__Request *request, uint32_t session)
{
	LOCKED(&conn->lock);

	if (session == conn_session(conn) && !atomic_load(&conn->is_broken))
		post(conn, request);
	else
		defer_post(conn, request, session);
}

uint64_t conn_posts_answered(struct dsaio_conn *conn)
{
	LOCKED(&conn->lock);

	return conn->n_answered;
}

bool conn_await_post(struct dsaio_conn *conn, uint64_t n_answered)
{
	_cleanup_(pending_deinit) struct conn_pending call = { .nsec = DEADLINE_NEVER,
							       .cond = PTHREAD_COND_INITIALIZER };
	LOCKED(&conn->lock);

	if (conn->n_answered == n_answered && conn->n_unawaited && !conn->is_ended) {
		list_push(&conn->pending, &call.node);
		(void)pending_await(conn, &call); /* cannot time out */
	}
	return conn->n_answered != n_answered;
}

void conn_calls_stop(struct dsaio_conn *conn)
{
	struct conn_pending last = { .cond = PTHREAD_COND_INITIALIZER };

	calls_end(conn, -ENOTCONN, "another session has begun");
	/* Wakes the polling threads; fails if it is at its end. */
	(void)shutdown(conn->fd, SHUT_RDWR);
	list_push(&conn->pending, &last.node);
	while (conn->n_polling) /* the last of them signals */
		(void)pthread_cond_wait(&last.cond, &conn->lock);
	pending_remove(conn, &last);
	(void)pthread_cond_destroy(&last.cond);
}

/* The writer's hook: each call closes its own descriptors, when it is done. */
static void keep_fds(struct frame_writer *writer, const int *fds, unsigned n_fds)
{
	(void)writer;
	(void)fds;
	(void)n_fds;
}

void conn_calls_init(struct dsaio_conn *conn)
{
	conn->reader = (struct frame_reader){ .is_exact = true };
	conn->writer = (struct frame_writer){ .close_fds = keep_fds };
	conn->n_unawaited = 0;
	conn->is_ended = conn->is_on_purpose = conn->is_stop = false;
	conn->end_text[0] = '\0';
}

void conn_calls_deinit(struct dsaio_conn *conn)
{
	places_give_up(conn, 0);
	free(conn->places);
	conn->places = NULL;
	frame_reader_deinit(&conn->reader);
	frame_writer_deinit(&conn->writer);
}
