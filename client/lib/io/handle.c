#include "client/lib/io/handle.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/io/wait.h"
#include "proto/wire.h"

#include <stdlib.h>
#include <sys/epoll.h>

#define REOPEN_MSEC 30000u	   /* a guess */
#define COMPANION_ENTRIES_MAX 512u /* pieces that can be in flight: one for each unit of slots.h */

int handle_check(const struct dsaio_handle *handle, const char *function)
{
	if (!handle)
		return client_null(function, "handle");
	return client_check(handle->client, function);
}

/* ---- op objects ---- */

struct dsaio_op *handle_op_new(struct dsaio_handle *handle, bool is_async, bool is_callers,
			       struct handle_channel *channel)
{
	struct dsaio_op *op;
	LOCKED(&handle->lock);

	op = op_pool_take(&handle->pool);
	if (op) {
		op_init(op, handle, channel, is_async, is_callers);
		handle->n_open_async += is_async;
		handle->n_open_ring += !!channel;
		if (channel &&
		    handle->waiters.first) /* a wait for all ops now has a ring to look at */
			wake_waiters(handle);
	}
	return op;
}

int64_t handle_take_ended(struct dsaio_handle *handle, const char *function, bool only_lost)
{
	_cleanup_(freep) char *text = NULL;
	int64_t result;

	(void)pthread_mutex_lock(&handle->lock);
	result = ended_take_all(&handle->ended, only_lost, &text);
	(void)pthread_mutex_unlock(&handle->lock);
	if (result >= 0)
		return result;
	return text ? error_fail((int)result, "%s", text)
		    : error_fail_errno((int)result, "%s: an op", function);
}

struct dsaio_op *handle_next_op(struct dsaio_handle *handle, uint64_t *at)
{
	struct dsaio_op *op;
	LOCKED(&handle->lock);

	op = op_pool_next(&handle->pool, at);
	if (op)
		op_ref(op);
	return op;
}

void handle_clear(struct dsaio_handle *handle)
{
	struct handle_channel *channel, *next;

	for (channel = atomic_exchange(&handle->channels, NULL); channel; channel = next) {
		next = atomic_load(&channel->next);
		channel_close(channel);
	}
	closep(&handle->epoll_fd);
	closep(&handle->own_doorbell_fd);
	closep(&handle->doorbell_fd);
	handle->epoll_fd = handle->own_doorbell_fd = handle->doorbell_fd = -1;
}

void handle_free(struct dsaio_handle *handle)
{
	if (!handle)
		return;
	handle_clear(handle);
	op_pool_deinit(&handle->pool);
	(void)pthread_mutex_destroy(&handle->open_lock);
	(void)pthread_mutex_destroy(&handle->lock);
	free(handle);
}

CLEANUP_FUNCTION(struct dsaio_handle, handle_free)

void handle_leave(struct dsaio_handle *handle)
{
	struct dsaio_client *client = handle->client;

	client_remove(client, &handle->object);
	handle_free(handle);
	client_left(client);
}

void handle_op_unref(struct dsaio_op *op)
{
	struct dsaio_handle *handle = op->handle;
	bool is_last;

	if (!op_unref(op))
		return;
	(void)pthread_mutex_lock(&handle->lock);
	op_pool_release(&handle->pool, op);
	is_last = handle->is_closed && !handle->pool.n_used;
	(void)pthread_mutex_unlock(&handle->lock);
	if (is_last)
		handle_leave(handle);
}

bool handle_has_open(struct dsaio_handle *handle)
{
	LOCKED(&handle->lock);

	return handle->n_open_async;
}

/* ---- channels ---- */

static struct handle_channel *find_channel(const struct dsaio_handle *handle, uint32_t store)
{
	/* acquire: pairs with handle_channel() */
	struct handle_channel *c = atomic_load_explicit(&handle->channels, memory_order_acquire);

	/* One that a daemon refused stays so: the store may be there by now. */
	while (c && (c->store != store || atomic_load(&c->is_dead)))
		c = atomic_load_explicit(&c->next, memory_order_relaxed); /* never changes */
	return c;
}

/* False: the session that this thread has just made it in is over. */
static bool channel_show(struct dsaio_handle *handle, struct handle_channel *channel)
{
	bool is_of;

	(void)pthread_mutex_lock(&handle->lock);
	is_of = conn_is_of(handle->client->conn, conn_answered_in());
	if (is_of) {
		atomic_init(&channel->next, atomic_load(&handle->channels));
		/* release: pairs with find_channel() and wait.c */
		atomic_store_explicit(&handle->channels, channel, memory_order_release);
	}
	(void)pthread_mutex_unlock(&handle->lock);
	if (is_of)
		wait_channel_added(handle);
	return is_of;
}

int handle_channel(struct dsaio_handle *handle, uint32_t store, struct handle_channel **ret_channel)
{
	struct handle_channel *channel = find_channel(handle, store);
	int r;

	if (channel) {
		*ret_channel = channel;
		return 0;
	}
	LOCKED(&handle->open_lock);
	channel = find_channel(handle, store);
	while (!channel) {
		r = channel_open(handle->client, handle->id, store, handle->settings.entries,
				 &channel);
		if (r < 0)
			return r;
		r = atomic_load(&handle->error);
		if (r < 0 || !channel_show(handle, channel))
			channel_close(TAKE_PTR(channel)); /* once more, with the next daemon */
		if (r < 0)
			return error_fail_errno(
				r,
				"handle: it could not be handed over after a restart of the daemon: open another");
	}
	*ret_channel = channel;
	return 0;
}

/* ---- open ---- */

/* wanted: its number, or 0.  As conn_call_for(). */
static int daemon_ask(const struct dsaio_handle *handle, struct dsaio_conn *conn, uint32_t wanted,
		      uint64_t deadline_nsec, Wire__Reply **ret_reply, int *ret_fd)
{
	const struct partial_profile *asked = &handle->settings.profile;
	Wire__Profile profile = WIRE__PROFILE__INIT;
	Wire__HandleOpen body = WIRE__HANDLE_OPEN__INIT;

	partial_to_wire(asked, &profile);
	body.profile = asked->given ? &profile : NULL;
	body.io_class = (Wire__Class)handle->settings.io_class; /* the same numbers */
	body.weight = handle->settings.weight;
	body.handle = wanted;
	return conn_call_for(conn, "handle_open", &WIRE_REQUEST(HANDLE_OPEN, handle_open, &body),
			     NULL, 0, deadline_nsec, ret_reply, ret_fd);
}

static int daemon_open(struct dsaio_handle *handle)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r;

	closep(&handle->doorbell_fd);
	handle->doorbell_fd = -1;
	r = daemon_ask(handle, handle->client->conn, 0, DEADLINE_NEVER, &reply,
		       &handle->doorbell_fd);
	if (r < 0)
		return r;
	handle->id = reply->handle_open->handle;
	handle->session = conn_answered_in();
	return 0;
}

int handle_hand_over(struct dsaio_handle *handle, struct dsaio_conn *next, uint32_t *n)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int fd = -1, r;

	handle->session = conn_attempt(handle->client->conn);
	r = daemon_ask(handle, next, handle->id, deadline_in_msec(REOPEN_MSEC), &reply, &fd);
	if (r == -ETIMEDOUT) /* it hangs: another try */
		r = -ENOTCONN;
	if (r == 0) {
		(void)dup3(fd, handle->doorbell_fd, O_CLOEXEC); /* both are open: cannot fail */
		(void)close(fd);
		handle->is_doorbell_at_end = false;
	}
	for (struct handle_channel *c = handle_first_channel(handle); c && r != -ENOTCONN;
	     c = handle_next_channel(c)) {
		if (atomic_load(&c->is_dead))
			continue;
		if (r < 0)
			c->error = r; /* the handle was refused */
		else if (channel_reopen(c, next, handle->id) == -ENOTCONN)
			r = -ENOTCONN;
		*n += !c->error;
	}
	atomic_store(&handle->error, r == -ENOTCONN ? 0 : r);
	if (r < 0) {
		handle->session = conn_session(handle->client->conn); /* a close is for that one */
		debug_log("handle %#x cannot be handed over: %s", handle->id, dsaio_error());
	}
	return r == -ENOTCONN ? r : 0;
}

static struct dsaio_handle *handle_new(struct dsaio_client *client,
				       const struct handle_settings *settings)
{
	struct dsaio_handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return NULL;
	handle->client = client;
	handle->settings = *settings;
	ended_init(&handle->ended, &handle->pool);
	handle->epoll_fd = handle->own_doorbell_fd = handle->doorbell_fd = -1;
	(void)pthread_mutex_init(&handle->open_lock, NULL); /* cannot fail by default */
	(void)pthread_mutex_init(&handle->lock, NULL);
	return handle;
}

int handle_companion(struct dsaio_handle *handle, struct dsaio_handle **ret_companion)
{
	_cleanup_(handle_freep) struct dsaio_handle *companion = NULL;
	int r;

	/* acquire: pairs with the store below */
	*ret_companion = atomic_load_explicit(&handle->companion, memory_order_acquire);
	if (*ret_companion)
		return 0;
	LOCKED(&handle->open_lock);
	*ret_companion = atomic_load_explicit(&handle->companion, memory_order_acquire);
	if (*ret_companion)
		return 0;
	companion = handle_new(handle->client, &handle->settings);
	if (!companion)
		return error_fail_errno(-ENOMEM, "handle");
	if (companion->settings.entries > COMPANION_ENTRIES_MAX)
		companion->settings.entries = COMPANION_ENTRIES_MAX;
	while (!*ret_companion) { /* once more with the next daemon */
		r = daemon_open(companion);
		if (r < 0)
			return r;
		(void)pthread_mutex_lock(&handle->lock);
		if (conn_is_of(handle->client->conn, companion->session)) {
			*ret_companion = TAKE_PTR(companion);
			atomic_store_explicit(&handle->companion, *ret_companion,
					      memory_order_release);
		}
		(void)pthread_mutex_unlock(&handle->lock);
	}
	return 0;
}

int handle_open(struct dsaio_client *client, const struct handle_settings *settings,
		int (*on_disconnect)(struct client_object *object),
		struct dsaio_handle **ret_handle)
{
	_cleanup_(handle_freep) struct dsaio_handle *handle = handle_new(client, settings);
	uint32_t max_entries = conn_facts(client->conn).max_entries;
	int r;

	if (!handle)
		return error_fail_errno(-ENOMEM, "handle_open");
	handle->object.kind = CLIENT_HANDLE;
	handle->object.on_disconnect = on_disconnect;
	if (max_entries && handle->settings.entries > max_entries)
		handle->settings.entries = max_entries;
	do {
		r = daemon_open(handle);
		if (r < 0)
			return r;
	} while (!client_add_of(client, &handle->object, handle->session));
	debug_log("handle_open: handle %#x, %u entries", handle->id, handle->settings.entries);
	*ret_handle = TAKE_PTR(handle);
	return 0;
}

/* ---- the descriptor ---- */

int handle_watch(const struct dsaio_handle *handle, int epoll_fd, int op)
{
	struct epoll_event doorbell = { .events = EPOLLIN }, end = { .events = EPOLLRDHUP };
	const bool is_done = epoll_ctl(epoll_fd, op, handle->doorbell_fd, &doorbell) == 0;

	return epoll_ctl(epoll_fd, op, handle->client->conn->fd, &end) == 0 && is_done ? 0 : -errno;
}

/* Under handle->lock. */
static int make_fd(struct dsaio_handle *handle)
{
	_cleanup_(closep) int epoll_fd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	_cleanup_(closep) int own_doorbell_fd = fd_above_stdio(
		eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
	struct epoll_event own_doorbell = { .events = EPOLLIN };

	if (epoll_fd < 0 || own_doorbell_fd < 0 ||
	    (!conn_is_away(handle->client->conn) &&
	     handle_watch(handle, epoll_fd, EPOLL_CTL_ADD) < 0) ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, own_doorbell_fd, &own_doorbell) < 0)
		return error_fail_errno(-errno, "handle_fd");
	handle->epoll_fd = TAKE_FD(epoll_fd);
	handle->own_doorbell_fd = TAKE_FD(own_doorbell_fd);
	/* Readable, so that the loop begins with a dsaio_handle_reap(), which arms it. */
	handle->is_own_rung = true;
	return 0;
}

int handle_fd(struct dsaio_handle *handle)
{
	int r = 0;
	LOCKED(&handle->lock);

	if (handle->epoll_fd < 0)
		r = make_fd(handle);
	if (r == 0)
		r = handle->epoll_fd;
	return r;
}
