#include "daemon/lane/transfer.h"

#include "daemon/lane/transfer_end.h"
#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

int transfer_init(struct transfer *transfer)
{
	int r = bounces_init(&transfer->bounces);

	if (r < 0)
		return r;
	transfer->blocks.depth = transfer->engine->depth;
	r = blocks_prepare_lane(&transfer->blocks, 0);
	if (r < 0)
		return r;
	blocks_add_lane(&transfer->blocks);
	return 0;
}

void transfer_deinit(struct transfer *transfer)
{
	bounces_deinit(&transfer->bounces);
	blocks_deinit(&transfer->blocks);
}

int transfer_prepare_side(struct transfer *transfer, uint32_t index)
{
	return blocks_prepare_lane(&transfer->blocks, index);
}

void transfer_add_side(struct transfer *transfer, struct side_lane *side, uint32_t depth,
		       const struct lane_doorbell *doorbell)
{
	transfer->sides[transfer->n_sides++] = (struct transfer_side){ .side = side,
								       .depth = depth,
								       .doorbell = *doorbell };
	blocks_add_lane(&transfer->blocks);
}

/* A worker may be free again. */
static void on_room(struct workers *workers)
{
	struct channel *channel = container_of(workers, struct channel, workers);

	ready_resume(channel->transfer->ready, &channel->worker_waiters);
}

void transfer_add_channel(struct transfer *transfer, struct channel *channel)
{
	channel->transfer = transfer;
	channel->workers.engine = transfer->threads;
	channel->workers.on_room = on_room;
}

bool transfer_remove_channel(struct channel *channel)
{
	return workers_stop_waiting(&channel->workers);
}

void transfer_cancel(struct transfer *transfer, struct op *op, int error)
{
	switch ((enum op_state)op->state) {
	case OP_FREE:
	case OP_ENDED:
	case N_OP_STATES:
		return;
	case OP_WAITS_ORDER:
		order_cancel(&op->channel->order, op_number(op));
		op_stop_at(op, 0, error);
		publish_end(transfer->publish, op);
		return;
	case OP_READY:
	case OP_DEFERRED:
		next_block_stop(op, error);
		op->cancel_error = (uint8_t)error;
		ready_end(transfer->ready, op);
		if (op->has_returned)
			transfer_drop_returned(transfer, op, error);
		else if (!op->n_in_flight)
			publish_end(transfer->publish, op);
		return;
	case OP_RUNNING:
		op->cancel_error = (uint8_t)error; /* all of it is in flight: awaited */
		return;
	}
}
