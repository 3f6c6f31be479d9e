#include "client/lib/io/channel.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/io/file_fd.h"
#include "proto/util/clock.h"
#include "proto/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BOARD_BYTES 4096u
#define CHANNEL_REOPEN_MSEC 30000u /* the daemon may have to start threads; a guess */

static void ring_unmap(const struct ring_client *ring)
{
	if (ring->shared) /* our own mappings: cannot fail */
		(void)munmap(ring->shared, ring_bytes(ring->entries));
	if (ring->board)
		(void)munmap((void *)(uintptr_t)ring->board, BOARD_BYTES);
}

void channel_close(struct handle_channel *channel)
{
	if (!channel)
		return;
	ring_unmap(&channel->ring);
	if (channel->doorbell_fd >= 0)
		(void)close(channel->doorbell_fd); /* an eventfd has nothing left to say */
	(void)pthread_mutex_destroy(&channel->submit_lock);
	free(channel->rows);
	free(channel->free_rows);
	free(channel);
}

CLEANUP_FUNCTION(struct handle_channel, channel_close)

static void take_profile(struct handle_channel *channel, const Wire__ChannelOpenReply *reply)
{
	channel->profile = profile_from_wire(reply->profile);
	channel->block_size = reply->block_size;
	channel->queue_depth = reply->queue_depth;
}

/* Maps rings and board of a reply to ChannelOpen.  ring: zeroes; ring_unmap() it also after an error. */
static int ring_map(struct ring_client *ring, const Wire__ChannelOpenReply *reply, const int *fds)
{
	const uint32_t entries = reply->entries;
	void *map, *board;
	int r;

	if (entries < RING_ENTRIES_MIN || entries > RING_ENTRIES_MAX || (entries & (entries - 1)) ||
	    !reply->profile)
		return -EPROTO;
	r = conn_map(fds[0], ring_bytes(entries), PROT_READ | PROT_WRITE, &map);
	if (r < 0)
		return r;
	ring->shared = map;
	ring->entries = entries;
	r = conn_map(fds[2], BOARD_BYTES, PROT_READ, &board);
	if (r < 0)
		return r;
	ring->board = board;
	return ring_client_init(ring, map, board, entries);
}

static int channel_make_table(struct handle_channel *channel)
{
	const uint32_t entries = channel->ring.entries;

	channel->rows = calloc(entries, sizeof(*channel->rows));
	channel->free_rows = calloc(entries, sizeof(*channel->free_rows));
	if (!channel->rows || !channel->free_rows)
		return -ENOMEM;
	for (uint32_t i = 0; i < entries; i++) {
		channel->rows[i].id = i;
		channel->free_rows[i] = i;
	}
	return 0;
}

/* wanted: its number, or 0.  ret_fds: rings, doorbell, board.  As conn_call_for(). */
static int daemon_ask(const struct handle_channel *channel, struct dsaio_conn *conn,
		      uint32_t handle, uint32_t entries, uint32_t wanted, uint64_t deadline_nsec,
		      Wire__Reply **ret_reply, int ret_fds[3])
{
	Wire__ChannelOpen body = WIRE__CHANNEL_OPEN__INIT;

	body.handle = handle;
	body.store = channel->store;
	body.entries = entries;
	body.channel = wanted;
	return conn_call_for(conn, "channel", &WIRE_REQUEST(CHANNEL_OPEN, channel_open, &body),
			     NULL, 0, deadline_nsec, ret_reply, ret_fds);
}

int channel_open(struct dsaio_client *client, uint32_t handle, uint32_t store, uint32_t entries,
		 struct handle_channel **ret_channel)
{
	_cleanup_(channel_closep) struct handle_channel *channel = calloc(1, sizeof(*channel));
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int fds[3];
	int r;

	if (!channel)
		return error_fail_errno(-ENOMEM, "channel");
	channel->client = client;
	channel->store = store;
	channel->doorbell_fd = -1;
	(void)pthread_mutex_init(&channel->submit_lock, NULL); /* cannot fail by default */
	r = daemon_ask(channel, client->conn, handle, entries, 0, DEADLINE_NEVER, &reply, fds);
	if (r < 0)
		return r;
	channel->id = reply->channel_open->channel;
	r = ring_map(&channel->ring, reply->channel_open, fds);
	if (r == 0)
		r = channel_make_table(channel);
	if (r == 0)
		take_profile(channel, reply->channel_open);
	channel->doorbell_fd = fds[1];
	closep(&fds[0]); /* the mappings hold them */
	closep(&fds[2]);
	if (r == -EPROTO)
		conn_break(client->conn);
	if (r < 0) /* the handle's end ends the daemon's part */
		return error_fail_errno(r, "channel: the daemon made one, but its rings cannot be "
					   "used here");
	debug_log("channel: %#x of handle %#x on store %u, %u entries", channel->id, handle, store,
		  channel->ring.entries);
	*ret_channel = TAKE_PTR(channel);
	return 0;
}

struct ring_entry channel_entry(const struct dsaio_op *op)
{
	return (struct ring_entry){
		.opcode = op->opcode,
		.flags = op->is_dsync ? RING_ENTRY_DSYNC : 0,
		.file = op->file->session.id,
		.off = op->off,
		.len = op->len,
		.slab = op->buffer.slab ? op->buffer.slab->id : 0,
		.slab_off = op->buffer.slab_off,
		.grow_end = op->grow_end,
		.timeout_msec = op->timeout_msec,
	};
}

static bool is_away(const struct handle_channel *channel)
{
	return atomic_load_explicit(&channel->n_turns, memory_order_relaxed) & 1; /* submit_lock */
}

/* Under submit_lock. */
static int add(struct dsaio_op *op)
{
	struct handle_channel *channel = op->channel;
	struct ring_client *ring = &channel->ring;
	struct ring_entry entry = channel_entry(op);
	struct channel_row *row;
	const char *why;
	int r;

	if (atomic_load(&channel->is_dead))
		return channel->error ? channel->error : -ENOTCONN;
	r = op_refused(op, conn_session(channel->client->conn), &why);
	if (r < 0)
		return r;
	if (is_away(channel) || !ring_client_room(ring))
		return -EAGAIN;
	row = &channel->rows[channel->free_rows[ring->tail & (ring->entries - 1)]];
	row->id += UINT64_C(1) << 32; /* the next generation */
	row->put_nsec = clock_nsec();
	row->number = channel->n_put++;
	op_change_state(op, OP_SUBMITTED);
	atomic_store(&op->ring_id, row->id); /* seq_cst: see op_set_cancelled() */
	entry.id = row->id;
	/* release: the consumer, which acquires, finds the op filled in */
	atomic_store_explicit(&row->op, op, memory_order_release);
	ring_client_put(ring, &entry);
	return 0;
}

int channel_put(struct dsaio_op *op, bool is_batched)
{
	struct handle_channel *channel = op->channel; /* the op may end, and be used again */
	bool must_ring = false;
	int r;

	(void)pthread_mutex_lock(&channel->submit_lock); /* a plain mutex: cannot fail */
	r = add(op);
	if (r == 0 && !is_batched)
		must_ring = ring_client_submit(&channel->ring);
	(void)pthread_mutex_unlock(&channel->submit_lock);
	if (must_ring)
		(void)eventfd_write(channel->doorbell_fd,
				    1); /* full: it is readable all the more */
	return r;
}

void channel_publish(struct handle_channel *channel)
{
	bool must_ring = false;

	(void)pthread_mutex_lock(&channel->submit_lock);
	if (!is_away(channel) && !atomic_load(&channel->is_dead))
		must_ring = ring_client_submit(&channel->ring);
	(void)pthread_mutex_unlock(&channel->submit_lock);
	if (must_ring)
		(void)eventfd_write(channel->doorbell_fd, 1);
}

uint32_t channel_room(struct handle_channel *channel)
{
	LOCKED(&channel->submit_lock);

	return is_away(channel) ? 0 : ring_client_room(&channel->ring);
}

/*
 * Fills in the request.  False: the op is in no ring yet.  Under the lock an op that is_cancelled is either in the ring
 * of the present session, or is_cancelled will be seen by recovery.
 */
static bool cancel_request(const struct dsaio_op *op, Wire__Request *request, Wire__Cancel *body,
			   uint32_t *ret_session)
{
	(void)pthread_mutex_lock(&op->channel->submit_lock);
	*ret_session = conn_session(op->channel->client->conn);
	(void)pthread_mutex_unlock(&op->channel->submit_lock);
	*request = WIRE_REQUEST(CANCEL, cancel, body);
	wire__cancel__init(body);
	body->channel = op->channel->id;
	body->id = atomic_load(&op->ring_id);
	return body->id;
}

int channel_cancel(const struct dsaio_op *op)
{
	Wire__Request request;
	Wire__Cancel body;
	uint32_t session;

	if (!cancel_request(op, &request, &body, &session))
		return 0;
	return conn_call_in(op->channel->client->conn, "op_cancel", &request, session, false,
			    DEADLINE_NEVER);
}

void channel_post_cancel(const struct dsaio_op *op)
{
	Wire__Request request;
	Wire__Cancel body;
	uint32_t session;

	if (cancel_request(op, &request, &body, &session))
		conn_post_in(op->channel->client->conn, &request, session);
}

void channel_consume(struct handle_channel *channel, struct op_list *list)
{
	struct ring_client *ring = &channel->ring;
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* ours */
	uint64_t now, nsec = 0;
	uint32_t n, i;

	if (channel->is_broken)
		return;
	n = ring_client_ready(ring);
	if (!n)
		return;
	if (n > ring->entries) {
		channel->is_broken = true;
		conn_break(channel->client->conn);
		return;
	}
	now = clock_nsec();
	for (i = 0; i < n; i++) {
		struct ring_completion completion = ring_client_peek(ring, i);
		uint32_t index = (uint32_t)completion.id;
		struct channel_row *row = index < ring->entries ? &channel->rows[index] : NULL;
		/* acquire: pairs with channel_put() */
		struct dsaio_op *op = row ? atomic_load_explicit(&row->op, memory_order_acquire)
					  : NULL;

		if (!op || row->id != completion.id) {
			channel->is_broken = true;
			conn_break(channel->client->conn);
			break;
		}
		/* relaxed: the next submitter comes to the row through ring.head */
		atomic_store_explicit(&row->op, NULL, memory_order_relaxed);
		channel->free_rows[(head + i) & (ring->entries - 1)] = index;
		nsec += now - row->put_nsec;
		op_set_result(op,
			      completion.result < 0 ? -ring_result_errno(completion.result)
						    : completion.result,
			      ring_result_done(completion.result));
		op->is_unknown = ring_result_is_unknown(completion.result);
		op_list_add(list, op);
	}
	ring_client_add_time(ring, nsec);
	ring_client_consume(ring, i);
}

/* The op of that row, which a daemon had, ends without it. */
static void row_lose(struct dsaio_op *op, int result, struct op_list *list)
{
	op_set_result(op, result, 0); /* how much was done is not known */
	op->is_unknown = op->opcode == RING_OP_WRITE && op->file->named.id;
	op_list_add(list, op);
}

void channel_end_ops(struct handle_channel *channel, int result, struct op_list *list)
{
	(void)pthread_mutex_lock(&channel->submit_lock);
	atomic_store(&channel->is_dead, true);
	(void)pthread_mutex_unlock(&channel->submit_lock);
	channel->is_broken = true; /* what the rings say from now on is nothing to us */
	for (uint32_t i = 0; i < channel->ring.entries; i++) {
		struct dsaio_op *op = atomic_exchange_explicit(&channel->rows[i].op, NULL,
							       memory_order_acquire);

		if (op)
			row_lose(op, result, list);
	}
}

/* ---- recovery ---- */

void channel_go_away(struct handle_channel *channel, bool is_crash, struct op_list *list)
{
	if (channel->is_broken || atomic_load(&channel->is_dead))
		return;
	channel_consume(channel, list); /* may find that it is broken */
	LOCKED(&channel->submit_lock);
	channel->is_broken = true;
	atomic_fetch_add(&channel->n_turns, 1);
	for (uint32_t i = 0; i < channel->ring.entries; i++) {
		struct dsaio_op *op = atomic_load_explicit(&channel->rows[i].op,
							   memory_order_acquire);

		if (op)
			op->n_crashes = (uint8_t)(op->n_crashes + is_crash);
	}
}

/* The op of that row ends.  why: NULL: the errno says it.  Under submit_lock. */
static void row_end(struct channel_row *row, int result, const char *why, struct op_list *list)
{
	struct dsaio_op *op = atomic_load_explicit(&row->op, memory_order_acquire);

	atomic_store_explicit(&row->op, NULL, memory_order_relaxed);
	op->because = why;
	row_lose(op, result, list);
}

static uint64_t row_deadline(const struct channel_row *row, const struct dsaio_op *op)
{
	return op->timeout_msec ? row->put_nsec + op->timeout_msec * UINT64_C(1000000) : UINT64_MAX;
}

/* The errno for which the op ends without a daemon, or 0. */
static int row_look(const struct channel_row *row, const struct dsaio_op *op)
{
	if (atomic_load(&op->is_cancelled))
		return -ECANCELED;
	return clock_nsec() >= row_deadline(row, op) ? -ETIMEDOUT : 0;
}

void channel_look_away(struct handle_channel *channel, struct op_list *list)
{
	LOCKED(&channel->submit_lock);

	for (uint32_t i = 0; is_away(channel) && i < channel->ring.entries; i++) {
		struct channel_row *row = &channel->rows[i];
		const struct dsaio_op *op = atomic_load_explicit(&row->op, memory_order_acquire);
		int r = op ? row_look(row, op) : 0;

		if (r < 0)
			row_end(row, r, NULL, list);
	}
}

/* Its mappings change places with those of the fresh one; nothing is in it.  Under submit_lock. */
static void ring_renew(struct ring_client *ring, struct ring_client *fresh)
{
	struct ring_shared *const shared = ring->shared;
	const struct lane_board *const board = ring->board;

	ring->shared = fresh->shared;
	ring->sq = fresh->sq;
	ring->cq = fresh->cq;
	ring->board = fresh->board;
	ring->tail = 0;
	ring->rung = ring->park_rung = 0;
	ring->wait_count = ring->nsec = 0;
	atomic_store(&ring->head, 0);
	fresh->shared = shared;
	fresh->board = board;
}

int channel_reopen(struct handle_channel *channel, struct dsaio_conn *next, uint32_t handle)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	struct ring_client ring = { .shared = NULL };
	int fds[3];
	int r;

	channel->error = 0;
	r = daemon_ask(channel, next, handle, channel->ring.entries, channel->id,
		       deadline_in_msec(CHANNEL_REOPEN_MSEC), &reply, fds);
	if (r == 0) {
		r = ring_map(&ring, reply->channel_open, fds);
		if (r == 0 && ring.entries != channel->ring.entries)
			r = -EPROTO;
		if (r == 0) {
			(void)pthread_mutex_lock(&channel->submit_lock);
			ring_renew(&channel->ring, &ring);
			take_profile(channel, reply->channel_open);
			(void)pthread_mutex_unlock(&channel->submit_lock);
			/* Other threads have its number. */
			(void)dup3(fds[1], channel->doorbell_fd, O_CLOEXEC); /* both are open */
		}
		ring_unmap(
			&ring); /* the old one, which no thread uses by now, or one that will not do */
		for (unsigned i = 0; i < 3; i++)
			closep(&fds[i]);
		if (r < 0)
			(void)error_fail_errno(r, "channel: its rings cannot be used here");
	}
	if (r == -ETIMEDOUT) /* it hangs: another try */
		r = -ENOTCONN;
	channel->error = r;
	if (r < 0)
		debug_log("channel %#x cannot be handed over: %s", channel->id, dsaio_error());
	return r;
}

static int compare_rows(const void *a, const void *b, void *rows)
{
	const struct channel_row *x = (struct channel_row *)rows + *(const uint32_t *)a;
	const struct channel_row *y = (struct channel_row *)rows + *(const uint32_t *)b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* The errno for which the op cannot go on, or 0; *why: the reason, or NULL: the errno says it. */
static int row_check(const struct channel_row *row, uint64_t features, const struct dsaio_op *op,
		     const char **why)
{
	int r = row_look(row, op);

	*why = NULL;
	if (r < 0)
		return r;
	if (op->n_crashes > 1) {
		*why = "it was in flight at two crashes of the daemon in a row, and is not submitted a third time";
		return -ECONNRESET;
	}
	r = op_refused(op, conn_attempt(op->channel->client->conn), why);
	if (r < 0)
		return r;
	if (op->channel->error) {
		*why = "after its restart the daemon refuses its channel";
		return op->channel->error;
	}
	if (op->n_crashes && !op->file->named.id && (op->opcode >= RING_OP_FSYNC || op->is_dsync)) {
		r = file_fd_second_error(op->file);
		*why = r == -ECONNRESET
			       ? "the daemon crashed in the middle of it, and may have met an error that is "
				 "reported once: sync again"
			       : "writing back failed around a crash of the daemon";
		if (r < 0)
			return r;
	}
	if (op->is_dsync && !(features & RING_FEATURE_DSYNC)) {
		*why = "the next daemon has no DSAIO_DSYNC";
		return -EOPNOTSUPP;
	}
	return 0;
}

/* Under submit_lock, with room for all rows. */
static uint32_t rows_put(struct handle_channel *channel, uint64_t features, struct op_list *list)
{
	uint32_t *open = channel->free_rows; /* until it is filled in anew, below */
	struct ring_client *ring = &channel->ring;
	uint32_t n = 0, n_put = 0;

	for (uint32_t i = 0; i < ring->entries; i++)
		if (atomic_load_explicit(&channel->rows[i].op, memory_order_acquire))
			open[n++] = i;
	qsort_r(open, n, sizeof(*open), compare_rows, channel->rows);
	for (uint32_t i = 0; i < n; i++) {
		struct channel_row *row = &channel->rows[open[i]];
		struct dsaio_op *op = atomic_load_explicit(&row->op, memory_order_acquire);
		struct ring_entry entry;
		const char *why;
		int r = row_check(row, features, op, &why);

		if (r < 0) {
			row_end(row, r, why, list);
			continue;
		}
		entry = channel_entry(op);
		entry.id = row->id;
		entry.timeout_msec = deadline_left_msec(row_deadline(row, op));
		ring_client_put(ring, &entry);
		n_put++;
	}
	/* Completion k puts its row at place k: the rest is for the submissions after these. */
	for (uint32_t i = 0, at = n_put; i < ring->entries; i++)
		if (!atomic_load_explicit(&channel->rows[i].op, memory_order_relaxed))
			channel->free_rows[at++] = i;
	return n_put;
}

uint32_t channel_come_back(struct handle_channel *channel, uint64_t features, struct op_list *list)
{
	uint32_t n_put;
	LOCKED(&channel->submit_lock);

	if (!is_away(channel) && !channel->is_broken) /* just made, in this session */
		return 0;
	if (!is_away(channel) && !channel->error) /* its rings were broken before */
		channel->error = -ECONNRESET;
	n_put = rows_put(channel, features, list);
	if (channel->error) {
		atomic_store(&channel->is_dead, true);
	} else {
		channel->is_broken = false;
		if (ring_client_submit(&channel->ring))
			(void)eventfd_write(channel->doorbell_fd, 1);
	}
	if (is_away(channel))
		atomic_fetch_add(&channel->n_turns, 1);
	return n_put;
}
