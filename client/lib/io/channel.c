#include "client/lib/io/channel.h"

#include "client/lib/base/debug.h"
#include "client/lib/io/file.h"
#include "proto/util/clock.h"
#include "proto/wire.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BOARD_BYTES 4096u

void channel_close(struct handle_channel *channel)
{
	if (!channel)
		return;
	if (channel->map) /* our own mappings: cannot fail */
		(void)munmap(channel->map, channel->map_bytes);
	if (channel->board)
		(void)munmap(channel->board, BOARD_BYTES);
	if (channel->doorbell_fd >= 0)
		(void)close(channel->doorbell_fd); /* an eventfd has nothing left to say */
	(void)pthread_mutex_destroy(&channel->submit_lock);
	free(channel->rows);
	free(channel->free_rows);
	free(channel);
}

static void channel_closep(struct handle_channel **channel)
{
	channel_close(*channel);
}

static int channel_map(struct handle_channel *channel, uint32_t entries, const int *fds)
{
	int r;

	if (entries < RING_ENTRIES_MIN || entries > RING_ENTRIES_MAX || (entries & (entries - 1)))
		return -EPROTO;
	channel->map_bytes = ring_bytes(entries);
	r = conn_map(fds[0], channel->map_bytes, PROT_READ | PROT_WRITE, &channel->map);
	if (r < 0)
		return r;
	r = conn_map(fds[2], BOARD_BYTES, PROT_READ, &channel->board);
	if (r < 0)
		return r;
	r = ring_client_init(&channel->ring, channel->map, channel->board, entries);
	if (r < 0)
		return r;
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

int channel_open(struct dsaio_client *client, uint32_t handle, uint32_t store, uint32_t entries,
		 struct handle_channel **ret_channel)
{
	_cleanup_(channel_closep) struct handle_channel *channel = calloc(1, sizeof(*channel));
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__ChannelOpen body = WIRE__CHANNEL_OPEN__INIT;
	int fds[3]; /* rings, doorbell, board */
	int r;

	if (!channel)
		return error_fail_errno(-ENOMEM, "channel");
	channel->client = client;
	channel->doorbell_fd = -1;
	(void)pthread_mutex_init(&channel->submit_lock, NULL); /* cannot fail by default */
	body.handle = handle;
	body.store = store;
	body.entries = entries;
	request.body_case = WIRE__REQUEST__BODY_CHANNEL_OPEN;
	request.channel_open = &body;
	r = conn_call(client->conn, "channel", &request, NULL, 0, &reply, fds);
	if (r < 0)
		return r;
	channel->id = reply->channel_open->channel;
	channel->store = store;
	channel->block_size = reply->channel_open->block_size;
	channel->queue_depth = reply->channel_open->queue_depth;
	r = reply->channel_open->profile ? channel_map(channel, reply->channel_open->entries, fds)
					 : -EPROTO;
	if (r == 0)
		channel->profile = profile_from_wire(reply->channel_open->profile);
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

/* Under submit_lock. */
static int add(struct dsaio_op *op)
{
	struct handle_channel *channel = op->channel;
	struct ring_client *ring = &channel->ring;
	struct ring_entry entry = channel_entry(op);
	struct channel_row *row;

	if (atomic_load(&channel->is_dead))
		return -ENOTCONN;
	if (!ring_client_room(ring))
		return -EAGAIN;
	row = &channel->rows[channel->free_rows[ring->tail & (ring->entries - 1)]];
	row->id += UINT64_C(1) << 32; /* the next generation */
	row->put_nsec = clock_nsec();
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
	bool must_ring;

	(void)pthread_mutex_lock(&channel->submit_lock);
	must_ring = ring_client_submit(&channel->ring);
	(void)pthread_mutex_unlock(&channel->submit_lock);
	if (must_ring)
		(void)eventfd_write(channel->doorbell_fd, 1);
}

uint32_t channel_room(struct handle_channel *channel)
{
	uint32_t n;

	(void)pthread_mutex_lock(&channel->submit_lock);
	n = ring_client_room(&channel->ring);
	(void)pthread_mutex_unlock(&channel->submit_lock);
	return n;
}

/* Fills in the request.  False: the op is in no ring yet. */
static bool cancel_request(const struct dsaio_op *op, Wire__Request *request, Wire__Cancel *body)
{
	wire__request__init(request);
	wire__cancel__init(body);
	body->channel = op->channel->id;
	body->id = atomic_load(&op->ring_id);
	request->body_case = WIRE__REQUEST__BODY_CANCEL;
	request->cancel = body;
	return body->id;
}

int channel_cancel(const struct dsaio_op *op)
{
	Wire__Request request;
	Wire__Cancel body;

	if (!cancel_request(op, &request, &body))
		return 0;
	return conn_call(op->channel->client->conn, "op_cancel", &request, NULL, 0, NULL, NULL);
}

void channel_post_cancel(const struct dsaio_op *op)
{
	Wire__Request request;
	Wire__Cancel body;

	if (cancel_request(op, &request, &body))
		conn_post(op->channel->client->conn, &request);
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
		op_list_add(list, op);
	}
	ring_client_add_time(ring, nsec);
	ring_client_consume(ring, i);
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

		if (!op)
			continue;
		op_set_result(op, result, 0); /* how much was done is not known */
		op_list_add(list, op);
	}
}
