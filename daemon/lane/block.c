#include "daemon/lane/block.h"

#include "daemon/lane/record.h"
#include "daemon/lane/transfer.h"

#include <assert.h>

/* ---- states and charges ---- */

/* At each state: those that may follow. */
static const uint8_t follows[N_BLOCK_STATES] = {
	[BLOCK_FREE] = 1u << BLOCK_AT_ENGINE | 1u << BLOCK_AT_WORKER,
	[BLOCK_AT_ENGINE] = 1u << BLOCK_FREE | 1u << BLOCK_RETURNED,
	[BLOCK_AT_WORKER] = 1u << BLOCK_FREE | 1u << BLOCK_HUNG,
	[BLOCK_RETURNED] = 1u << BLOCK_AT_WORKER | 1u << BLOCK_FREE,
	[BLOCK_HUNG] = 1u << BLOCK_FREE,
};

#define STARTED (CHARGE_OP | CHARGE_METRICS | CHARGE_DEPTH)
#define IN_WINDOW (CHARGE_WINDOW | CHARGE_CLIENT)
#define AT_WORKER (CHARGE_WORKER | CHARGE_DEEP)

/* The charges of a block of a kind in a state.  None: it is never in that state. */
static const uint16_t rows[N_BLOCK_KINDS][N_BLOCK_STATES] = {
	[BLOCK_OF_ENGINE] = {
		[BLOCK_AT_ENGINE] = STARTED | IN_WINDOW | CHARGE_LOCK | CHARGE_PAGE,
			[BLOCK_RETURNED] = STARTED | CHARGE_RETURNED,
		[BLOCK_AT_WORKER] = STARTED | CHARGE_LOCK | AT_WORKER,
	},
	[BLOCK_OUTSIDE_WINDOW] = {
		[BLOCK_AT_ENGINE] = STARTED | CHARGE_LOCK | CHARGE_PAGE,
			[BLOCK_RETURNED] = STARTED | CHARGE_RETURNED,
		[BLOCK_AT_WORKER] = STARTED | CHARGE_LOCK | AT_WORKER,
	},
	[BLOCK_OF_WORKERS] = {
		[BLOCK_AT_WORKER] = STARTED | CHARGE_LOCK | AT_WORKER,
	},
	[BLOCK_OF_WORKERS_ENGINE] = {
		[BLOCK_AT_WORKER] = STARTED | CHARGE_CLIENT | CHARGE_LOCK | AT_WORKER,
	},
	[BLOCK_OF_GPU] = {
		[BLOCK_AT_WORKER] = STARTED | IN_WINDOW | CHARGE_LOCK | AT_WORKER,
		[BLOCK_HUNG] = STARTED | CHARGE_CLIENT | CHARGE_LOCK | AT_WORKER,
	},
	[BLOCK_OF_EXTENSION] = {
		[BLOCK_AT_WORKER] = CHARGE_OP | AT_WORKER,
	},
};

/* A row has these only if the block has the condition, or holds the charge already. */
#define CONDITIONAL (CHARGE_DEEP | CHARGE_PAGE)

/* As channel_count_time(), for the store's blocks: before blocks_in_flight changes. */
static void count_blocks_time(struct transfer *transfer)
{
	const uint64_t nsec = transfer->turn->now_nsec - transfer->blocks_timed_nsec;

	if (!nsec)
		return;
	transfer->blocks_timed_nsec = transfer->turn->now_nsec;
	for (unsigned i = 0; i < N_SCHED_CLASSES; i++) {
		struct metrics *metrics = &transfer->store->metrics[i];
		const uint64_t n = metrics_get(&metrics->blocks_in_flight);

		if (n)
			metrics_add(&metrics->blocks_nsec, nsec * n);
	}
}

unsigned block_window_kind(const struct block *block)
{
	const bool is_gpu = block->region && block->region->kind == REGION_GPU;

	return (block_is_write(block) ? WINDOW_WRITE : WINDOW_READ) + (is_gpu ? WINDOW_GPU : 0);
}

static void metrics_charge(struct transfer *transfer, struct channel *channel, uint32_t bytes)
{
	count_blocks_time(transfer);
	metrics_add(&channel_class_metrics(channel)->blocks, bytes > 0);
	CHANNEL_ADD(channel, blocks_in_flight, 1);
	CHANNEL_ADD(channel, bytes_in_flight, bytes);
}

static void metrics_discharge(struct transfer *transfer, struct channel *channel, uint32_t bytes)
{
	count_blocks_time(transfer);
	CHANNEL_ADD(channel, blocks_in_flight, UINT64_MAX);
	CHANNEL_ADD(channel, bytes_in_flight, -(uint64_t)bytes);
}

static void op_charge(struct transfer *transfer, struct op *op)
{
	if (!op->n_in_flight) {
		channel_count_time(op->channel, transfer->turn->now_nsec);
		op->channel->n_in_device++;
	}
	op->n_in_flight++;
}

static void op_discharge(struct transfer *transfer, struct op *op)
{
	op->n_in_flight--;
	if (op->n_in_flight)
		return;
	channel_count_time(op->channel, transfer->turn->now_nsec);
	op->channel->n_in_device--;
	if (op->state == OP_RUNNING)
		publish_end(transfer->publish, op);
}

static void window_charge(struct transfer *transfer, struct lane_block *block)
{
	const struct block *request = &block->at_worker.block;

	block->is_guarded = admit_window_charge(transfer->admit, &request->op->channel->admit,
						block_window_kind(request), request->counted_bytes,
						transfer->turn->now_nsec);
	if (block->state == BLOCK_AT_WORKER)
		list_push(&transfer->windowed_at_workers, &block->window_node);
}

static void window_discharge(struct transfer *transfer, struct lane_block *block,
			     enum block_state before)
{
	const struct block *request = &block->at_worker.block;

	admit_window_discharge(transfer->admit, &request->op->channel->admit,
			       block_window_kind(request), request->counted_bytes,
			       block->is_guarded);
	if (before == BLOCK_AT_WORKER)
		list_remove(&transfer->windowed_at_workers, &block->window_node);
}

static void page_discharge(struct transfer *transfer, struct lane_block *block)
{
	bounce_release(&transfer->bounces, block->page_off);
	admit_release_page(transfer->admit, &block->at_worker.block.op->channel->admit);
}

static void charge(struct transfer *transfer, struct lane_block *block, unsigned charges)
{
	const struct block *request = &block->at_worker.block;
	struct channel *channel = request->op->channel;

	if (charges & CHARGE_WINDOW)
		window_charge(transfer, block);
	if (charges & CHARGE_CLIENT)
		admit_client_charge(&channel->admit);
	if (charges & CHARGE_LOCK)
		ready_lock(transfer->ready, request->op);
	if (charges & CHARGE_PAGE)
		admit_take_page(transfer->admit, &channel->admit);
	channel->n_returned += !!(charges & CHARGE_RETURNED);
	channel->n_at_workers += !!(charges & CHARGE_WORKER);
	channel->n_deep_at_workers += !!(charges & CHARGE_DEEP);
	if (charges & CHARGE_OP)
		op_charge(transfer, request->op);
	if (charges & CHARGE_METRICS)
		metrics_charge(transfer, channel, request->counted_bytes);
	if (charges & CHARGE_DEPTH)
		admit_depth_charge(&channel->admit);
	block->charges |= (uint16_t)charges;
}

/* The op goes last: it may end with that. */
static void discharge(struct transfer *transfer, struct lane_block *block, enum block_state before,
		      unsigned charges)
{
	const struct block *request = &block->at_worker.block;
	struct channel *channel = request->op->channel;

	if (charges & CHARGE_PAGE)
		page_discharge(transfer, block);
	if (charges & CHARGE_WINDOW)
		window_discharge(transfer, block, before);
	if (charges & CHARGE_CLIENT)
		admit_client_discharge(&channel->admit, transfer->turn->now_nsec);
	if (charges & CHARGE_LOCK)
		ready_unlock(transfer->ready, request->op);
	channel->n_returned -= !!(charges & CHARGE_RETURNED);
	channel->n_at_workers -= !!(charges & CHARGE_WORKER);
	channel->n_deep_at_workers -= !!(charges & CHARGE_DEEP);
	if (charges & CHARGE_METRICS)
		metrics_discharge(transfer, channel, request->counted_bytes);
	if (charges & CHARGE_DEPTH)
		admit_depth_discharge(transfer->admit, &channel->admit, transfer->turn->now_nsec);
	if (charges & CHARGE_OP)
		op_discharge(transfer, request->op);
	if (charges & CHARGE_DEPTH)
		ready_update(transfer->ready, channel);
	block->charges &= (uint16_t)~charges;
}

void block_prepare(struct lane_block *block, enum block_kind kind, const struct block *request)
{
	assert(block->state == BLOCK_FREE && !block->charges);
	block->at_worker.block = *request;
	block->kind = (uint8_t)kind;
	block->conditions = 0;
}

void block_move(struct transfer *transfer, struct lane_block *block, enum block_state state)
{
	struct block *request = &block->at_worker.block;
	const enum block_state before = block->state;
	const unsigned row = rows[block->kind][state] &
			     (~(unsigned)CONDITIONAL | block->conditions | block->charges);
	const unsigned gone = block->charges & ~row;
	struct channel *channel = request->op->channel;

	assert(follows[before] & 1u << state && (row || state == BLOCK_FREE));
	if (before == BLOCK_RETURNED)
		op_set_returned(request->op, request->next);
	block->state = (uint8_t)state;
	/* Without charges another one has taken over its request.  A worker has it already: see
	   submit_to_workers(). */
	if ((row || block->charges) && (state == BLOCK_FREE || state == BLOCK_AT_ENGINE))
		record(transfer->turn, request->op,
		       (struct recording_event){ .kind = state == BLOCK_FREE
								 ? RECORDING_BLOCK_DONE
								 : RECORDING_BLOCK_STARTED });
	discharge(transfer, block, before, gone);
	charge(transfer, block, row & ~(unsigned)block->charges);
	if (state == BLOCK_RETURNED) {
		request->next = op_returned(request->op);
		op_set_returned(request->op, request);
	}
	if (state == BLOCK_FREE)
		block_release(block);
	if (gone & CHARGE_WORKER)
		ready_resume(transfer->ready, &channel->worker_waiters);
}

void block_pass_on(struct transfer *transfer, struct lane_block *block, struct lane_block *to)
{
	to->at_worker.block = block->at_worker.block;
	to->page_off = block->page_off;
	to->charges = block->charges;
	to->conditions = block->conditions;
	to->is_guarded = block->is_guarded;
	to->state = block->state;
	to->kind = block->kind;
	block->charges = 0;
	block_move(transfer, block, BLOCK_FREE);
}

/* ---- calls that hang ---- */

static uint64_t hung_nsec(const struct lane_block *block)
{
	return block->at_worker.block.started_nsec + WINDOW_HUNG_NSEC;
}

void blocks_give_up_hung(struct transfer *transfer)
{
	LIST_EACH(struct lane_block, block, &transfer->windowed_at_workers, window_node) {
		if (hung_nsec(block) > transfer->turn->now_nsec)
			return; /* the list is in the order of their start */
		block_move(transfer, block, BLOCK_HUNG);
	}
}

uint64_t blocks_hung_nsec(const struct transfer *transfer)
{
	const struct lane_block *oldest = list_entry(transfer->windowed_at_workers.first,
						     struct lane_block, window_node);

	return oldest ? hung_nsec(oldest) : 0;
}

bool block_is_at_engine(const struct block *block, uint64_t started_nsec)
{
	const struct lane_block *lane_block = container_of(block, const struct lane_block,
							   at_worker.block);

	return lane_block->state == BLOCK_AT_ENGINE && block->started_nsec == started_nsec;
}

const struct block *blocks_oldest(const struct transfer *transfer)
{
	const struct block_pool *pool = &transfer->blocks;
	const struct block *oldest = NULL;

	for (uint32_t i = 0; i < pool->n_fresh; i++) {
		const struct block *block = &pool->blocks[i].at_worker.block;

		if (pool->blocks[i].state == BLOCK_AT_ENGINE &&
		    (!oldest || block->started_nsec < oldest->started_nsec))
			oldest = block;
	}
	return oldest;
}

/* ---- reservations ---- */

struct lane_block *block_take(struct block_pool *pool)
{
	struct lane_block *block = pool->free; /* the last that was released: it is in the cache */

	if (block) {
		pool->free = block->next_free;
		return block;
	}
	assert(pool->n_fresh < pool->n_max);
	block = &pool->blocks[pool->n_fresh++];
	block->free_list = &pool->free;
	return block;
}

void block_release(struct lane_block *block)
{
	block->next_free = *block->free_list;
	*block->free_list = block;
}
