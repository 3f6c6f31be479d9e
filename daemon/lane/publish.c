#include "daemon/lane/publish.h"

#include "daemon/lane/record.h"
#include "daemon/object/file.h"
#include "daemon/object/pool.h"
#include "daemon/object/view.h"

#include <assert.h>
#include <errno.h>
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
	record(publish->turn, op,
	       (struct recording_event){ .kind = RECORDING_ENDED, .result = result });
	if (op->slab && slab_is_view(op->slab))
		view_fill_end(op->slab, op->file, result);
	if (op->is_unknown && channel->knows_unknown)
		result = ring_result_unknown(result);
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

/* An error of the store's health: it was not refused, cancelled, failed by its client's memory, or without room. */
/* -ESTALE: a file of RADOS that was replaced long ago. */
static bool is_store_error(const struct op *op)
{
	return op->error && op->file && op->error != op->cancel_error && op->error != EFAULT &&
	       op->error != ENOSPC && op->error != EDQUOT && op->error != ESTALE;
}

static void count_op(struct metrics *metrics, const struct op *op, uint64_t nsec)
{
	switch (op->opcode) {
	case RING_OP_READ:
		metrics_add(&metrics->reads, 1);
		metrics_add(&metrics->read_bytes, op->end);
		break;
	case RING_OP_WRITE:
		metrics_add(&metrics->writes, 1); /* its blocks have counted their bytes */
		break;
	case RING_OP_FSYNC:
	case RING_OP_FDATASYNC:
		metrics_add(&metrics->fsyncs, 1);
		break;
	default: /* refused: it was none of them */
		break;
	}
	metrics_add(&metrics->open_ops, UINT64_MAX);
	metrics_add(&metrics->ended_nsec, nsec);
	metrics_add_latency(metrics, nsec);
}

/* Before anything of them is published: counts the channel's ended ops, and the time of all its ops. */
static void count_ended(const struct publish *publish, struct channel *channel)
{
	struct metrics *class_metrics = channel_class_metrics(channel);
	const uint64_t now_nsec = publish->turn->now_nsec;

	channel_count_time(channel, now_nsec);
	for (struct list_node *node = channel->ended.first; node; node = node->next) {
		const struct op *op = op_of_node(node);

		count_op(&channel->metrics, op, now_nsec - op->taken_nsec);
		count_op(class_metrics, op, now_nsec - op->taken_nsec);
		metrics_add(&channel->metrics.errors, op->error != 0);
		metrics_add(&class_metrics->errors, is_store_error(op));
	}
}

static void report_batch(struct message *message)
{
	struct batch *batch = container_of(message, struct batch, message);

	batch->on_done(batch);
}

void publish_batch(struct batch *batch)
{
	mailbox_post(batch->channel->lane_store->main_mailbox, &batch->message, report_batch);
}

/* The op is out of its channel's order: those that waited for it may start. */
static void end_in_order(struct op *op, struct list *may_start)
{
	struct channel *channel = op->channel;
	uint16_t ready[ORDER_READY_MAX];
	const unsigned n = order_end(&channel->order, op_number(op), ready);

	for (unsigned i = 0; i < n; i++)
		list_push(may_start, &channel->ops[ready[i]].waiter.node);
}

/* Its completion is shown. */
static void free_op(struct publish *publish, struct op *op, struct list *may_start)
{
	struct channel *channel = op->channel;
	struct batch *batch = op->is_submitted ? op_rare(op)->batch : NULL;
	struct slab *slab = op->slab;
	struct file *file = op->file;

	if (op->may_grow)
		extension_remove_op(&file->extension);
	if (op->is_in_order)
		end_in_order(op, may_start);
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
static int free_ended(struct publish *publish, struct channel *channel, struct list *may_start)
{
	struct op *op;
	int n = 0;

	channel->has_ended = false;
	while ((op = op_of_node(list_pop(&channel->ended)))) {
		free_op(publish, op, may_start);
		n++;
	}
	return n;
}

int publish_run(struct publish *publish, struct list *may_start)
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
	/* A client that a later run wakes may have seen the completions, and sleep for others: that wake-up is
	   in vain. */
	for (struct channel *c = channels; c; c = c->next_ended) {
		if (!c->has_rings || c->must_wake)
			continue;
		c->must_wake = true;
		if (!c->client->to_wake.first)
			list_push(&publish->to_wake, &c->client->to_wake_node);
		list_push(&c->client->to_wake, &c->wake_node);
		publish->n_to_wake++;
	}
	wake_some(publish);

	publish->first_ended = NULL;
	for (struct channel *c = channels, *next; c; c = next) {
		next = c->next_ended;
		c->quiet_nsec = publish->turn->now_nsec;
		n += free_ended(publish, c, may_start);
	}
	/* The lane must not sleep while there are clients to be woken. */
	return n + (publish->n_to_wake > 0);
}
