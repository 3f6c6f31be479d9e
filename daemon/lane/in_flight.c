#include "daemon/lane/in_flight.h"

/* As channel_count_time(), for the store's blocks: before blocks_in_flight changes. */
static void count_blocks_time(struct transfer *transfer)
{
	struct metrics *metrics = &transfer->store->metrics;
	const uint64_t nsec = transfer->turn->now_nsec - transfer->blocks_timed_nsec;

	if (!nsec)
		return;
	transfer->blocks_timed_nsec = transfer->turn->now_nsec;
	metrics_add(&metrics->blocks_nsec, nsec * metrics_get(&metrics->blocks_in_flight));
}

static const struct engine_ops *engine_of(const struct transfer *transfer,
					  const struct block *block)
{
	return block->is_for_workers ? transfer->threads->ops : transfer->engine->ops;
}

void in_flight_begin_op(struct transfer *transfer, struct op *op)
{
	if (!op->n_in_flight) {
		channel_count_time(op->channel, transfer->turn->now_nsec);
		op->channel->n_in_device++;
	}
	op->n_in_flight++;
}

void in_flight_end_op(struct transfer *transfer, struct op *op)
{
	op->n_in_flight--;
	if (op->n_in_flight)
		return;
	channel_count_time(op->channel, transfer->turn->now_nsec);
	op->channel->n_in_device--;
	if (op->state == OP_RUNNING)
		publish_end(transfer->publish, op);
}

void in_flight_begin(struct transfer *transfer, struct block *block)
{
	struct channel *channel = block->op->channel;
	const uint32_t bytes = block->counted_bytes;

	in_flight_begin_op(transfer, block->op);
	metrics_add(&channel->metrics.blocks_in_flight, 1);
	metrics_add(&channel->metrics.bytes_in_flight, bytes);
	count_blocks_time(transfer);
	metrics_add(&transfer->store->metrics.blocks, bytes > 0);
	metrics_add(&transfer->store->metrics.blocks_in_flight, 1);
	metrics_add(&transfer->store->metrics.bytes_in_flight, bytes);
	admit_start(transfer->admit, &channel->admit, block->lane, bytes, transfer->turn->now_nsec);
}

void in_flight_end(struct transfer *transfer, struct block *block)
{
	struct channel *channel = block->op->channel;
	const uint64_t bytes = block->counted_bytes;

	metrics_add(&channel->metrics.blocks_in_flight, UINT64_MAX);
	metrics_add(&channel->metrics.bytes_in_flight, -bytes);
	count_blocks_time(transfer);
	metrics_add(&transfer->store->metrics.blocks_in_flight, UINT64_MAX);
	metrics_add(&transfer->store->metrics.bytes_in_flight, -bytes);
	admit_end(transfer->admit, &channel->admit, block->lane, transfer->turn->now_nsec);
	in_flight_end_op(transfer, block->op);
	ready_update(transfer->ready, channel); /* it may have waited for depth */
}

unsigned in_flight_kind(const struct block *block)
{
	const bool is_gpu = block->region && block->region->kind == REGION_GPU;

	return (block_is_write(block) ? WINDOW_WRITE : WINDOW_READ) + (is_gpu ? WINDOW_GPU : 0);
}

static struct list_node *window_node(struct block *block)
{
	return &container_of(block, struct worker_block, block)->window_node;
}

void in_flight_enter(struct transfer *transfer, struct block *block)
{
	struct admit_channel *admit = &block->op->channel->admit;

	block->is_in_window = engine_has_window(engine_of(transfer, block), block->region);
	if (block->is_in_window) {
		admit_engine_start(transfer->admit, admit, in_flight_kind(block),
				   block->counted_bytes, transfer->turn->now_nsec,
				   &block->is_guarded);
		if (block->is_for_workers)
			list_push(&transfer->windowed_at_workers, window_node(block));
	} else if (block->workers_are_engine) {
		admit_worker_start(admit);
	}
	ready_lock(transfer->ready, block->op);
}

void in_flight_leave(struct transfer *transfer, struct block *block)
{
	struct admit_channel *admit = &block->op->channel->admit;

	if (block->is_in_window) {
		admit_engine_end(transfer->admit, admit, in_flight_kind(block),
				 block->counted_bytes, block->is_guarded, transfer->turn->now_nsec);
		if (block->is_for_workers)
			list_remove(&transfer->windowed_at_workers, window_node(block));
		block->is_in_window = false;
	} else if (block->workers_are_engine) {
		admit_worker_end(admit, transfer->turn->now_nsec);
	}
	ready_unlock(transfer->ready, block->op);
}

static uint64_t hung_nsec(const struct worker_block *worker_block)
{
	return worker_block->block.started_nsec + WINDOW_HUNG_NSEC;
}

void in_flight_give_up_hung(struct transfer *transfer)
{
	LIST_EACH(struct worker_block, w, &transfer->windowed_at_workers, window_node) {
		if (hung_nsec(w) > transfer->turn->now_nsec)
			return; /* the list is in the order of their start */
		admit_engine_give_up(transfer->admit, &w->block.op->channel->admit,
				     in_flight_kind(&w->block), w->block.counted_bytes,
				     w->block.is_guarded);
		w->block.is_in_window = false;
		list_remove(&transfer->windowed_at_workers, &w->window_node);
	}
}

uint64_t in_flight_hung_nsec(const struct transfer *transfer)
{
	const struct worker_block *oldest = list_entry(transfer->windowed_at_workers.first,
						       struct worker_block, window_node);

	return oldest ? hung_nsec(oldest) : 0;
}
