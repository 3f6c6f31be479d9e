#include "daemon/lane/publish.h"

#include "daemon/object/file.h"
#include "daemon/object/pool.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Channels whose threads a run wakes: WAKES_PER_RUN, or one in WAKES_PART of those to wake if that is more.
 * Each takes 3 to 11 us.  The first ones submit their next ops soon, and these should reach the device before
 * all others are awake.  The part bounds the number of runs until the last one is awake.
 */
#define WAKES_PER_RUN 4u
#define WAKES_PART 8u

/* Its channel has a list of ended ops that is not empty. */
static void ended_note(struct publish *publish, struct channel *channel)
{
	if (channel->has_ended)
		return;
	channel->has_ended = true;
	channel->next_ended = publish->first_ended;
	publish->first_ended = channel;
}

void publish_end(struct publish *publish, struct op *op)
{
	struct channel *channel = op->channel;
	int64_t result = op_result(op);

	assert(op->n_in_flight == 0);
	op_set_state(op, OP_ENDED);
	if (op->is_submitted)
		op_rare(op)->batch->results[op_rare(op)->batch_index] = result;
	else
		ring_lane_complete(&channel->ring, op->id, result);

	list_push(&channel->ended, &op->waiter.node);
	ended_note(publish, channel);
}

/* False: it does not sleep. */
static bool wake_client(struct channel *channel)
{
	struct wakes *wakes = &channel->client->wakes;
	uint64_t since_nsec;

	if (wakes_is_costly(wakes))
		return false; /* its session ends */
	since_nsec = wakes_begin();
	switch (ring_lane_wake(&channel->ring)) {
	case RING_WAKE_NONE:
		return false;
	case RING_WAKE_FUTEX:
		/* Not private: the waiter is another process.  It fails only if the client punches the word meanwhile,
		   and then stays asleep by its own doing. */
		(void)syscall(SYS_futex, &channel->ring.shared->cq_bell, FUTEX_WAKE, INT_MAX, NULL,
			      NULL, 0);
		break;
	case RING_WAKE_SOCKET:
		/* Full: it has bytes to wake up for.  Gone: its session ends. */
		(void)send(channel->client_doorbell_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	}
	if (wakes_end(wakes, since_nsec))
		channel_break(channel, WAKES_WHY);
	return true;
}

/* After the fence.  A client that a later run wakes may have seen the completions, and sleep for others: that
   wake-up is in vain. */
static void must_wake(struct publish *publish, struct channel *channel)
{
	struct sched_client *client = channel->client;

	if (channel->must_wake)
		return;
	channel->must_wake = true;
	if (!client->to_wake.first)
		list_push(&publish->to_wake, &client->to_wake_node);
	list_push(&client->to_wake, &channel->wake_node);
	publish->n_to_wake++;
}

/* Clients take turns, so one with many channels does not delay the others. */
static struct channel *next_to_wake(struct publish *publish)
{
	struct sched_client *client = list_entry(list_pop(&publish->to_wake), struct sched_client,
						 to_wake_node);
	struct channel *channel = list_entry(list_pop(&client->to_wake), struct channel, wake_node);

	if (client->to_wake.first)
		list_push(&publish->to_wake, &client->to_wake_node);
	channel->must_wake = false;
	publish->n_to_wake--;
	return channel;
}

static void wake_some(struct publish *publish)
{
	uint32_t n = publish->n_to_wake / WAKES_PART;

	if (n < WAKES_PER_RUN)
		n = WAKES_PER_RUN;
	while (n && publish->n_to_wake)
		n -= wake_client(next_to_wake(publish));
}

static void count_op(struct metrics *metrics, const struct op *op, uint64_t nsec)
{
	switch (op->opcode) {
	case RING_OP_READ:
		metrics_add(&metrics->reads, 1);
		metrics_add(&metrics->read_bytes, op->end);
		break;
	case RING_OP_WRITE:
		metrics_add(&metrics->writes, 1);
		metrics_add(&metrics->write_bytes, op->end);
		break;
	case RING_OP_FSYNC:
	case RING_OP_FDATASYNC:
		metrics_add(&metrics->fsyncs, 1);
		break;
	default: /* refused: it was none of them */
		break;
	}
	if (op->error)
		metrics_add(&metrics->errors, 1);
	metrics_add(&metrics->open_ops, UINT64_MAX);
	metrics_add(&metrics->ended_nsec, nsec);
	metrics_add_latency(metrics, nsec);
}

/* Before anything of them is published: counts the channel's ended ops, and the time of all its ops. */
static void count_ended(const struct publish *publish, struct channel *channel)
{
	const uint64_t now_nsec = publish->turn->now_nsec;

	channel_count_time(channel, now_nsec);
	for (struct list_node *node = channel->ended.first; node; node = node->next) {
		const struct op *op = op_of_node(node);

		count_op(&channel->metrics, op, now_nsec - op->taken_nsec);
		count_op(&publish->store->metrics, op, now_nsec - op->taken_nsec);
	}
}

static void report_batch(struct message *message)
{
	struct batch *batch = container_of(message, struct batch, message);

	batch->on_done(batch);
}

void publish_batch(struct batch *batch)
{
	batch->message.run = report_batch;
	mailbox_post(batch->channel->lane_store->main_mailbox, &batch->message);
}

struct ready_arg {
	struct publish *publish;
	struct channel *channel;
};

/* All ops that the op waited for have ended: for the order. */
static void on_ready(uint16_t number, void *arg)
{
	const struct ready_arg *to = arg;

	to->publish->may_start(&to->channel->ops[number], to->publish->arg);
}

/* Its completion is shown: frees the op, and the ops that waited for it may start. */
static void free_op(struct publish *publish, struct op *op)
{
	struct channel *channel = op->channel;
	struct batch *batch = op->is_submitted ? op_rare(op)->batch : NULL;
	struct slab *slab = op->slab;
	struct file *file = op->file;

	if (op->may_grow)
		extension_remove_op(&file->extension);
	if (op->is_in_order)
		order_end(&channel->order, op_number(op), on_ready,
			  &(struct ready_arg){ publish, channel });
	op_ids_remove(&channel->ids, op);
	deadlines_remove(&channel->deadlines, op);
	op_set_state(op, OP_FREE);
	/* Last in, first out: it is in the cache. */
	list_push_front(&channel->free_ops, &op->waiter.node);
	channel->n_open--; /* count_ended() has counted its time */
	admit_close_op(publish->admit, &channel->admit);
	if (slab)
		slab_unref(slab);
	if (file)
		file_unref(file);
	if (batch && --batch->n_open == 0)
		publish_batch(batch);
}

/* Frees the channel's ended ops; returns how many. */
static int free_ended(struct publish *publish, struct channel *channel)
{
	const struct op *last = op_of_node(channel->ended.last);
	struct op *op;
	int n = 0;

	channel->has_ended = false;
	/* Ops that end meanwhile are published in the next turn. */
	do {
		op = op_of_node(list_pop(&channel->ended));
		free_op(publish, op);
		n++;
	} while (op != last);
	if (channel->ended.first)
		ended_note(publish, channel);
	return n;
}

int publish_run(struct publish *publish)
{
	struct channel *channels = publish->first_ended;
	int n = 0;

	if (!channels && !publish->n_to_wake)
		return 0;
	for (struct channel *c = channels; c; c = c->next_ended)
		count_ended(publish, c);
	for (struct channel *c = channels; c; c = c->next_ended)
		if (c->has_rings)
			(void)ring_lane_publish(&c->ring); /* false: only refused ones before */
	RING_FENCE_COMPLETE();
	for (struct channel *c = channels; c; c = c->next_ended)
		if (c->has_rings)
			must_wake(publish, c);
	wake_some(publish);

	publish->first_ended = NULL;
	for (struct channel *c = channels, *next; c; c = next) {
		next = c->next_ended;
		c->quiet_nsec = publish->turn->now_nsec;
		n += free_ended(publish, c);
	}
	/* The lane must not sleep while there are channels with ended ops, or clients to be woken. */
	return n + (publish->first_ended || publish->n_to_wake);
}
