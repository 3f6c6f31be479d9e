#include "client/lib/io/recover.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/thread.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/bounce_thread.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/view.h"
#include "client/lib/io/wait.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Pauses between two tries: the first and the longest, as each is twice the one before. */
#define PAUSE_MIN_NSEC (UINT64_C(1) * NSEC_PER_MSEC)
#define PAUSE_MAX_NSEC (UINT64_C(250) * NSEC_PER_MSEC)
#define PAUSE_BUSY_NSEC NSEC_PER_SEC /* after one that refused */

/* ---- handles ---- */

/*
 * The handles that are not being closed, and their companions; the last is NULL.  The caller's to free; NULL: no
 * memory.  Under recovery.objects.
 */
static struct dsaio_handle **handles_get(struct dsaio_client *client)
{
	struct dsaio_handle **handles;
	size_t n = 1, n_own;

	(void)pthread_mutex_lock(&client->lock); /* a plain mutex: cannot fail */
	LIST_EACH(struct client_object, object, &client->objects[CLIENT_HANDLE], node)
		n += 2;
	handles = calloc(n, sizeof(struct dsaio_handle *));
	n = 0;
	LIST_EACH(struct dsaio_handle, handle, &client->objects[CLIENT_HANDLE], object.node)
		if (handles && !handle->is_shut && !atomic_load(&handle->is_leaving))
			handles[n++] = handle;
	(void)pthread_mutex_unlock(&client->lock);
	n_own = n;
	for (size_t i = 0; i < n_own; i++) {
		struct dsaio_handle *companion;

		/* One that is being made is shown under this lock, and not after the daemon's end was seen. */
		(void)pthread_mutex_lock(&handles[i]->lock);
		companion = atomic_load(&handles[i]->companion);
		(void)pthread_mutex_unlock(&handles[i]->lock);
		if (companion && !atomic_load(&companion->is_leaving))
			handles[n++] = companion;
	}
	return handles;
}

#define HANDLES_EACH(handle, handles) \
	for (struct dsaio_handle **at_ = handles, *handle; at_ && (handle = *at_); at_++)

/* Ops that recovery took from a handle end. */
static void end_taken(struct dsaio_handle *handle, const struct op_list *list)
{
	if (!list->first)
		return;
	if (list->first->part_of &&
	    list->first->part_of->job->via != list->first->part_of->job->op->handle)
		bounce_end_pieces(handle->client->bounce, list);
	else
		end_ops(handle, list->first, true);
}

/* Doorbell and socket are at their end, which would be readable all the time; or there are new ones. */
static void handle_rewatch(struct dsaio_handle *handle, int op)
{
	LOCKED(&handle->lock);

	/* The kernel may lack memory: the program then finds out by its next call. */
	if (handle->epoll_fd >= 0)
		(void)handle_watch(handle, handle->epoll_fd, op);
}

/* ---- the steps ---- */

static void go_away(struct dsaio_client *client, bool is_crash)
{
	_cleanup_(freep) struct dsaio_handle **handles = NULL;

	files_forget_idle(client);
	bounce_park(client);
	(void)pthread_mutex_lock(&client->recovery.objects);
	handles = handles_get(client); /* no memory: its channels are lost */
	HANDLES_EACH(handle, handles) {
		struct op_list list = { NULL, NULL };

		wait_take_role(handle);
		CHANNEL_EACH(c, handle)
			channel_go_away(c, is_crash, &list);
		handle_rewatch(handle, EPOLL_CTL_DEL);
		handle->is_doorbell_at_end = true;
		end_taken(handle, &list);
		wait_leave_role(handle);
	}
	(void)pthread_mutex_unlock(&client->recovery.objects);
	bounce_unpark(client);
}

/* Ops whose end does not need the daemon end.  The bounce thread does the same for its own. */
static void look_away(struct dsaio_client *client)
{
	LOCKED(&client->recovery.objects);
	_cleanup_(freep) struct dsaio_handle **handles = handles_get(client);

	HANDLES_EACH(handle, handles) {
		struct op_list list = { NULL, NULL };

		if (handle->object.on_disconnect) { /* it is no companion */
			wait_take_role(handle);
			CHANNEL_EACH(c, handle)
				channel_look_away(c, &list);
			end_taken(handle, &list);
			wait_leave_role(handle);
		}
	}
}

struct report {
	struct hand_over slabs;
	uint32_t n_files, n_channels, n_ops, n_failed;
	char *why;
};

/* So many could not be handed over, the last one for this thread's message. */
static void note_refused(struct report *report, uint32_t n)
{
	report->n_failed += n;
	if (n && !report->why)
		report->why = strdup(dsaio_error()); /* NULL: only the number is logged */
}

/* Returns 0, or -ENOTCONN: `next` has gone away, too. */
static int hand_over(struct dsaio_client *client, struct dsaio_conn *next,
		     struct dsaio_handle **handles, struct report *report)
{
	uint32_t n_refused = 0;
	int n, r = 0;

	report->slabs = buffers_hand_over(&client->buffers, next);
	if (report->slabs.must_retry)
		return -ENOTCONN;
	(void)slots_trim(&client->bounce->slots, true);
	note_refused(report, report->slabs.n_refused);
	n = views_hand_over(client, next);
	if (n < 0)
		return n;
	n = files_hand_over(client, next, &n_refused);
	if (n < 0)
		return n;
	note_refused(report, n_refused);
	report->n_files = (uint32_t)n;
	HANDLES_EACH(handle, handles)
		if (r == 0)
			r = handle_hand_over(handle, next, &report->n_channels);
	return r == 0 && conn_is_gone(next) ? -ENOTCONN : r;
}

/* Takes next. */
static void come_back(struct dsaio_client *client, struct dsaio_conn *next,
		      struct dsaio_handle **handles, struct report *report)
{
	const uint64_t features = conn_facts(next).features;

	/* First: a cancel reaches come_back() as a flag, or the daemon, or both. */
	conn_replace(client->conn, next);
	HANDLES_EACH(handle, handles) {
		struct op_list list = { NULL, NULL };

		CHANNEL_EACH(c, handle)
			report->n_ops += channel_come_back(c, features, &list);
		for (const struct dsaio_op *op = list.first; op;
		     op = op_next(op), report->n_failed++)
			if (op->because && !report->why &&
			    asprintf(&report->why, "%s: %s", op->file->name, op->because) < 0)
				report->why = NULL; /* only the number is logged */
		end_taken(handle, &list);
		handle_rewatch(handle, EPOLL_CTL_ADD); /* after conn_replace(): see make_fd() */
	}
}

static void post_report(struct dsaio_client *client, const struct report *report,
			uint64_t since_nsec)
{
	Wire__Recovered body = WIRE__RECOVERED__INIT;
	Wire__Request request = WIRE_REQUEST(RECOVERED, recovered, &body);

	body.slabs = report->slabs.n;
	body.slab_bytes = report->slabs.bytes;
	body.files = report->n_files;
	body.channels = report->n_channels;
	body.ops = report->n_ops;
	body.failed = report->n_failed;
	body.text = report->why ? report->why : (char *)(uintptr_t) ""; /* only read */
	body.usec = (clock_nsec() - since_nsec) / 1000;
	conn_post(client->conn, &request);
	debug_log("session: goes on with the next daemon after %" PRIu64
		  " ms: %u slabs, %u files, %u channels, %u ops; %u could not be",
		  body.usec / 1000, body.slabs, body.files, body.channels, body.ops, body.failed);
}

/*
 * The hand-over to `next` has failed.  Takes it.  Returns -EAGAIN, or -ECANCELED with a message: the daemon has ended
 * that session for good.  One that is silent may only have been too busy.
 */
static int give_up(struct dsaio_conn *next, int r)
{
	char why[CONN_TEXT_BYTES];

	/* A daemon that stops frees what it has adopted, and punches it if we are gone by then. */
	if (r == -ENOTCONN) {
		r = conn_end_read(next) == CONN_END_ON_PURPOSE && !next->silence.is_silent
			    ? -ECANCELED
			    : -EAGAIN;
		conn_why_gone(next, why);
		conn_break(next);
		(void)conn_await_end(next, true); /* after that it has hung */
	}
	conn_close(next);
	return r == -ECANCELED ? error_fail(r, "%s", why) : -EAGAIN;
}

/* Steps 3 and 4.  Takes next.  Returns 0, or as give_up(). */
static int take_over(struct dsaio_client *client, struct dsaio_conn *next, uint64_t since_nsec)
{
	struct report report = { .why = NULL };
	_cleanup_(freep) struct dsaio_handle **handles = NULL;
	int r;

	bounce_park(client);
	(void)pthread_mutex_lock(&client->recovery.objects);
	handles = handles_get(client);
	HANDLES_EACH(handle, handles)
		wait_take_role(handle);
	conn_attempt_begin(client->conn);
	r = handles ? hand_over(client, next, handles, &report) : -ENOMEM;
	if (r == 0)
		come_back(client, next, handles, &report);
	HANDLES_EACH(handle, handles)
		wait_leave_role(handle);
	(void)pthread_mutex_unlock(&client->recovery.objects);
	bounce_unpark(client);
	if (r == 0)
		post_report(client, &report, since_nsec);
	else
		r = give_up(next, r);
	free(report.why);
	return r;
}

/* ---- the thread ---- */

/* op: of epoll_ctl(2), as of handle_rewatch(). */
static void tell(struct dsaio_client *client, int op)
{
	struct epoll_event end = { .events = CLIENT_STATE_EVENTS };
	LOCKED(&client->lock);

	if (client->state_fd < 0)
		return;
	(void)epoll_ctl(client->state_fd, op, client->conn->fd, &end); /* fails if it is there */
	(void)eventfd_write(client->state_event_fd, 1);		       /* full: it is readable */
}

/* Open ops end with -ECONNRESET, by the threads that wait for them. */
static void lose(struct dsaio_client *client, const char *why)
{
	LOCKED(&client->recovery.objects);
	_cleanup_(freep) struct dsaio_handle **handles = handles_get(client);

	debug_log("session: lost: %s", why);
	conn_lose(client->conn, why);
	HANDLES_EACH(handle, handles) {
		handle_rewatch(handle, EPOLL_CTL_ADD); /* readable from now on */
		(void)pthread_mutex_lock(&handle->lock);
		wake_waiters(handle);
		(void)pthread_mutex_unlock(&handle->lock);
	}
	client_poke(client);
	tell(client, EPOLL_CTL_ADD);
}

/* False: the client is being closed. */
static bool pause_for(struct recovery *recovery, uint64_t nsec)
{
	const struct timespec until = timespec_of(clock_nsec() + nsec);
	LOCKED(&recovery->lock);

	if (!recovery->is_stopping)
		(void)pthread_cond_clockwait(&recovery->stopping, &recovery->lock, CLOCK_MONOTONIC,
					     &until);
	return !recovery->is_stopping;
}

/* Finds the next daemon and goes on with it.  Returns 0, -EAGAIN: later, -EBUSY: much later; or what will not change;
   with a message. */
static int reconnect(struct dsaio_client *client, uint64_t since_nsec)
{
	struct dsaio_conn *next;
	int r = conn_open_again(client->conn, &next);

	if (r == -ENOENT || r == -ECONNREFUSED || r == -ENOTCONN)
		return -EAGAIN;
	if (r < 0) /* a daemon that cannot start is started by each try: -EBUSY */
		return r == -EPROTONOSUPPORT ? r : -EBUSY;
	if (!(conn_facts(next).features & RING_FEATURE_RECOVERY)) {
		r = error_fail(-EPROTONOSUPPORT,
			       "the daemon that serves now (%s) takes no sessions over",
			       conn_facts(next).daemon_version);
		conn_close(next);
		return r;
	}
	/* It has seen this session end, without last words, and freed what the session had: slabs are empty. */
	if (conn_facts(next).started_nsec == conn_facts(client->conn).started_nsec) {
		conn_close(next);
		return error_fail(-ECANCELED, "the daemon lives, and has ended this session");
	}
	return take_over(client, next, since_nsec);
}

static void recover(struct dsaio_client *client)
{
	const uint64_t since_nsec = clock_nsec();
	struct recovery *recovery = &client->recovery;
	struct dsaio_conn *conn = client->conn;
	uint64_t pause_nsec = PAUSE_MIN_NSEC;
	const enum conn_end end = conn_end_read(conn);
	char why[CONN_TEXT_BYTES];
	int r;

	if (end == CONN_END_ON_PURPOSE || conn_was_lost(conn)) {
		lose(client, "this session was ended");
		return;
	}
	go_away(client, end == CONN_END_CRASH);
	tell(client, EPOLL_CTL_DEL);
	for (;;) {
		r = reconnect(client, since_nsec);
		if (r == 0) {
			tell(client, EPOLL_CTL_ADD);
			return;
		}
		if ((r != -EAGAIN && r != -EBUSY) || conn_was_lost(conn) ||
		    clock_nsec() - since_nsec >= recovery->timeout_nsec)
			break;
		look_away(client);
		if (!pause_for(recovery, r == -EBUSY ? PAUSE_BUSY_NSEC : pause_nsec))
			break;
		if (pause_nsec < PAUSE_MAX_NSEC)
			pause_nsec *= 2;
	}
	if (r == -EAGAIN || r == -EBUSY)
		(void)snprintf(why, sizeof(why), /* cut is fine */
			       "the daemon has gone away, and no other came for %" PRIu64 " s: %s",
			       (clock_nsec() - since_nsec) / NSEC_PER_SEC, dsaio_error());
	else
		(void)snprintf(why, sizeof(why), "%s", dsaio_error());
	lose(client, why);
}

static void *recover_main(void *arg)
{
	struct dsaio_client *client = arg;
	struct recovery *recovery = &client->recovery;
	bool goes_on = true;

	while (goes_on) {
		recover(client);
		(void)pthread_mutex_lock(&recovery->lock);
		goes_on = recovery->is_wanted;
		recovery->is_wanted = false;
		recovery->is_running = goes_on;
		(void)pthread_mutex_unlock(&recovery->lock);
	}
	return NULL;
}

/* Any thread has seen the end of file. */
static void on_gone(void *arg)
{
	struct dsaio_client *client = arg;
	struct recovery *recovery = &client->recovery;
	int r = 0;

	(void)pthread_mutex_lock(&recovery->lock);
	if (recovery->is_stopping) {
		r = -ECANCELED;
	} else if (recovery->is_running) {
		recovery->is_wanted = true;
	} else {
		if (recovery->has_thread) /* it is at its end */
			(void)pthread_join(recovery->thread, NULL);
		r = thread_start("dsaio-again", recover_main, client, &recovery->thread);
		recovery->has_thread = recovery->is_running = r == 0;
	}
	(void)pthread_mutex_unlock(&recovery->lock);
	if (r < 0)
		conn_lose(client->conn, r == -ECANCELED
						? "the client is being closed"
						: "the daemon has gone away, and there is no "
						  "thread to reconnect");
}

void recover_init(struct dsaio_client *client, uint64_t timeout_nsec)
{
	if (!timeout_nsec || !(conn_facts(client->conn).features & RING_FEATURE_RECOVERY))
		return;
	client->recovery.timeout_nsec = timeout_nsec;
	client->conn->arg = client;
	client->conn->on_gone = on_gone;
}

void recover_stop(struct dsaio_client *client)
{
	struct recovery *recovery = &client->recovery;
	bool has_thread;

	(void)pthread_mutex_lock(&recovery->lock);
	recovery->is_stopping = true;
	(void)pthread_cond_signal(&recovery->stopping);
	has_thread = recovery->has_thread;
	recovery->has_thread = false;
	(void)pthread_mutex_unlock(&recovery->lock);
	if (has_thread)
		(void)pthread_join(recovery->thread, NULL);
	if (conn_is_away(client->conn))
		conn_lose(client->conn, "the client is being closed");
}
