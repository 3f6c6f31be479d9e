/*
 * The end of a handle: its ops end, its rings and descriptors go.  The op objects stay as long as the program has
 * any of them.
 */
#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/wait.h"

/* Is an op open whose memory is the caller's own, for the daemon to use in place? */
static bool has_op_on_import(const struct dsaio_handle *handle)
{
	CHANNEL_EACH(c, handle) {
		for (uint32_t i = 0; i < c->ring.entries; i++) {
			/* acquire: pairs with channel_put() */
			const struct dsaio_op *op = atomic_load_explicit(&c->rows[i].op,
									 memory_order_acquire);

			if (op && op->buffer.slab && op->buffer.slab->is_imported)
				return true;
		}
	}
	return false;
}

/*
 * The daemon has not closed the handle.  It may live: then it ends the session.  If it is silent, ops
 * on dsaio_alloc()'s memory are given up, and keep their memory: nobody else gets it.  The caller's
 * own memory is used again as soon as the handle is closed, so its ops are awaited without limit.
 */
static void handle_give_up(struct dsaio_handle *handle)
{
	struct dsaio_conn *conn = handle->client->conn;

	conn_break(conn);
	(void)wait_poll(handle, false); /* what was completed is not open any more */
	handle->is_abandoned = !conn_await_end(conn, !has_op_on_import(handle));
	if (handle->is_abandoned)
		debug_log("handle_close: handle %#x: the daemon does not answer: given up",
			  handle->id);
}

/* While a close waits without limit: how often it asks whether the daemon answers at all. */
#define ASK_NSEC UINT64_C(1000000000)

/* Sleeps until no async op of the handle is open, or the daemon is silent.  False: some are, after that deadline. */
static bool await_ops(struct dsaio_handle *handle, uint64_t deadline_nsec)
{
	const struct wait_for all = { .what = WAIT_ALL };

	for (;;) {
		const uint64_t ask_nsec = clock_nsec() + ASK_NSEC;

		if (wait_until(handle, &all, deadline_nsec < ask_nsec ? deadline_nsec : ask_nsec) ==
		    0)
			return true;
		if (deadline_nsec != DEADLINE_NEVER) {
			if (deadline_is_over(deadline_nsec))
				return false;
		} else if (!conn_answers(handle->client->conn)) {
			return true; /* handle_shut() gives it up */
		}
	}
}

/*
 * All ops end, the rings and descriptors go.  The op objects stay.  Returns 0, or the first error of an op that was not
 * reported, with a message.
 */
static int handle_shut(struct dsaio_handle *handle)
{
	struct dsaio_handle *companion;
	Wire__HandleClose body = WIRE__HANDLE_CLOSE__INIT;
	Wire__Request request = WIRE_REQUEST(HANDLE_CLOSE, handle_close, &body);
	int result = -ECANCELED; /* of entries that the daemon has not taken: it was silent */
	struct recovery *recovery = &handle->client->recovery;
	uint32_t session;
	int64_t first;
	int r;

	bounce_end_handle(handle);
	companion = atomic_exchange(&handle->companion, NULL);
	if (companion) {
		(void)handle_shut(companion); /* its ops are pieces, which were awaited */
		handle_free(companion);
	}
	(void)pthread_mutex_lock(&recovery->objects);
	atomic_store(&handle->is_leaving, true);
	session = handle->session;
	(void)pthread_mutex_unlock(&recovery->objects);
	body.handle = handle->id;
	/* Not before the daemon says so, or is at its end, may an op be called ended. */
	r = conn_call_in(handle->client->conn, "handle_close", &request, session, true, 0);
	if (r < 0 && r != -EBADF) {
		handle_give_up(handle);
		result = -ECONNRESET;
	}
	(void)pthread_mutex_lock(&recovery->objects);
	wait_finish(handle, result);
	handle_clear(handle);
	handle->is_shut = true;
	(void)pthread_mutex_unlock(&recovery->objects);
	first = handle_take_ended(handle, "handle_close", true);
	return first < 0 ? (int)first : 0;
}

int handle_close(struct dsaio_handle *handle, uint64_t deadline_nsec)
{
	struct dsaio_client *client = handle->client;
	bool is_last;
	int r = 0;

	if (!handle->is_shut && !await_ops(handle, deadline_nsec))
		return error_fail(
			-EINPROGRESS,
			"handle_close: ops of the handle have not ended in that time: it "
			"stays open: close it later, or cancel them (dsaio_handle_cancel)");
	client_hold(client);
	if (!handle->is_shut) /* else by dsaio_disconnect() */
		r = handle_shut(handle);
	(void)pthread_mutex_lock(&handle->lock);
	handle->is_closed = true;
	is_last = !handle->pool.n_used;
	(void)pthread_mutex_unlock(&handle->lock);
	if (is_last)
		handle_leave(handle);
	client_collect(client);
	client_left(client);
	return r;
}

int handle_on_disconnect(struct client_object *object)
{
	struct dsaio_handle *handle = container_of(object, struct dsaio_handle, object);

	if (handle->is_closed)
		return 0;
	(void)await_ops(handle, DEADLINE_NEVER);
	return handle_shut(handle); /* the program has it, or ops of it */
}
