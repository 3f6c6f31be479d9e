#include "daemon/lane/transfer_start.h"

#include "daemon/lane/in_flight.h"
#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

/* Blocks of one channel at workers: half of a user's threads, so that a client whose calls hang does not
   block the user's other clients.  Where worker threads are the engine the limit is the profile's queue
   depth, up to WORKERS_DEPTH. */
#define AT_WORKERS_MAX (WORKERS_THREADS / 2)
/*
 * Blocks started in a turn.  io_submit takes 5 to 50 us for each.  With more blocks, completions are
 * published late, client and device work in turns instead of overlapping, and the queue drains in waves.
 */
#define STARTS_PER_TURN 4
/* Small blocks take 2 to 6 us each, and a turn costs time, too: up to STARTS_PER_TURN_SMALL start as long
   as the window counts no more bytes of them.  It counts none of host memory at workers, which take no time
   of the lane's. */
#define STARTS_PER_TURN_SMALL 16
#define SMALL_BYTES_PER_TURN (64u << 10)

/* ---- workers ---- */

/* May a worker begin with a block of the channel, as far as the lane knows? */
static bool has_worker(const struct transfer *transfer, const struct op *op)
{
	const struct channel *channel = op->channel;

	/* GPU memory and host memory in one channel: neither waits for the other's calls. */
	return !channel->workers.waits_for_room &&
	       (workers_are_engine(transfer->store, op)
			? channel->n_deep_at_workers < WORKERS_DEPTH
			: channel->n_at_workers - channel->n_deep_at_workers < AT_WORKERS_MAX);
}

/* The op waits outside of its channel until a worker may begin with its next block. */
static void wait_for_worker(struct transfer *transfer, struct op *op)
{
	ready_unreserve(transfer->ready, op); /* it may take long */
	(void)ready_defer(transfer->ready, op, &op->channel->worker_waiters);
}

/* False: no worker is free. */
static bool submit_to_workers(struct transfer *transfer, struct block *block)
{
	struct channel *channel = block->op->channel;
	struct worker_block *worker_block = container_of(block, struct worker_block, block);

	worker_block->workers = &channel->workers;
	worker_block->work.may_exceed_max = workers_are_engine(transfer->store, block->op);
	if (transfer->threads->ops->submit(transfer->threads, &block, 1) < 1)
		return false;
	channel->n_at_workers++;
	channel->n_deep_at_workers += worker_block->work.may_exceed_max;
	return true;
}

/* ---- a block starts ---- */

/* If the last block of the op has started, it runs. */
static void end_if_over(struct transfer *transfer, struct op *op)
{
	if (next_block_is_over(op))
		ready_end(transfer->ready, op);
}

/* The block is with its engine: the next one of its op may follow. */
static void note_started(struct transfer *transfer, struct block *block,
			 const struct next_block *next)
{
	in_flight_enter(transfer, block);
	in_flight_begin(transfer, block);
	next_block_step_over(next);
	end_if_over(transfer, next->op);
}

static struct block describe(const struct transfer *transfer, const struct next_block *next)
{
	struct op *op = next->op;
	const bool is_unaligned = op->is_misaligned || (next->is_unaligned && !next->is_bounce);

	return (struct block){ .op = op,
			       .target = &op->file->target,
			       .region = op->slab ? &op->slab->region : NULL,
			       .off = op->off + next->op_off,
			       .region_off = op->slab_off + next->op_off,
			       .len = next->len,
			       .bytes = next->len,
			       .counted_bytes = next->len,
			       .lane = (uint16_t)next->lane,
			       .operation = (uint8_t)next->operation,
			       .is_buffered = is_unaligned && next->operation == BLOCK_WRITE,
			       .is_bounced = is_unaligned && next->operation == BLOCK_READ,
			       .started_nsec = transfer->turn->now_nsec };
}

/* Starts a block again, which the kernel returned and which is counted still. */
static bool start_returned(struct transfer *transfer, const struct next_block *next)
{
	struct op *op = next->op;
	struct block *after = next->returned->next;

	if (!submit_to_workers(transfer, next->returned)) {
		wait_for_worker(transfer, op);
		return false;
	}
	op_set_returned(op, after);
	op->channel->n_returned--;
	in_flight_enter(transfer, next->returned);
	admit_start_again(transfer->admit, &op->channel->admit, transfer->turn->now_nsec);
	end_if_over(transfer, op);
	return true;
}

/* False: no worker is free. */
static bool start_at_workers(struct transfer *transfer, struct channel *channel,
			     const struct next_block *next)
{
	struct block *block = worker_block_take(&channel->worker_blocks);

	*block = describe(transfer, next);
	block->is_for_workers = true;
	block->workers_are_engine = next->workers_are_engine;
	/* The lane counts after that: it alone takes the block back, and not before. */
	if (!submit_to_workers(transfer, block)) {
		worker_block_give(&channel->worker_blocks, block);
		wait_for_worker(transfer, next->op);
		return false;
	}
	note_started(transfer, block, next);
	return true;
}

/* The block becomes one of whole units, to a bounce page. */
static void cover_units(struct transfer *transfer, struct block *block)
{
	const struct unaligned_cover cover = unaligned_cover(
		block->off, block->bytes, unaligned_unit(block->target->offset_align));

	block->region = &transfer->bounces.region;
	block->region_off = bounce_take(&transfer->bounces);
	admit_take_page(transfer->admit, &block->op->channel->admit);
	block->off = cover.off;
	block->len = block->bytes = block->counted_bytes = (uint32_t)cover.len;
}

static void start_at_engine(struct transfer *transfer, struct channel *channel,
			    const struct next_block *next)
{
	struct block *block = block_take(&transfer->blocks);

	*block = describe(transfer, next);
	block->is_single = channel->profile.single_submit;
	block->is_nowait = next->is_nowait;
	if (next->is_bounce)
		cover_units(transfer, block);
	note_started(transfer, block, next);
	if (next->lane) {
		struct transfer_side *side = &transfer->sides[next->lane - 1];

		side->n_given++;
		block_queue_push(&side->side->from_home, block);
		lane_doorbell_ring(&side->doorbell);
	} else {
		engine_queue_add(transfer->engine, block);
	}
}

/* The head op of its channel waits for its file's extension; if none runs, its step is started. */
static void extend(struct transfer *transfer, struct op *op)
{
	struct extension *extension = &op->file->extension;
	struct channel *channel = op->channel;
	struct block *block;

	ready_unreserve(transfer->ready, op); /* it may take long */
	if (extension->is_running) {
		(void)ready_defer(transfer->ready, op, &extension->waiting);
		return;
	}
	if (!has_worker(transfer, op)) {
		wait_for_worker(transfer, op);
		return;
	}
	if (!ready_defer(transfer->ready, op, &extension->waiting))
		return;
	extension->step = next_block_extend_step(op);
	block = worker_block_take(&channel->worker_blocks);
	*block = (struct block){ .op = op,
				 .target = &op->file->target,
				 .step = &extension->step,
				 .operation = BLOCK_EXTEND,
				 .is_for_workers = true };
	if (!submit_to_workers(transfer, block)) {
		worker_block_give(&channel->worker_blocks, block);
		ready_resume(transfer->ready, &extension->waiting);
		wait_for_worker(transfer, op);
		return;
	}
	extension->is_running = true;
	in_flight_begin_op(transfer, op);
}

/* ---- admission ---- */

/* May a block wait in io_submit?  A client of one user who is alone delays only itself. */
static bool must_not_wait(const struct transfer *transfer)
{
	return transfer->admit->is_shared || transfer->store->is_multi_user;
}

static struct block_rules rules(const struct transfer *transfer, const struct channel *channel)
{
	const uint32_t whole = transfer->store->whole_bytes;
	const uint32_t most = admit_block_bytes(transfer->admit, &channel->admit);

	return (struct block_rules){ .store = transfer->store,
				     .stalls = &transfer->stalls,
				     .engine = transfer->engine->ops,
				     .now_nsec = transfer->turn->now_nsec,
				     .must_not_wait = must_not_wait(transfer),
				     .max_bytes = whole < most ? whole : most,
				     .cut_bytes = most,
				     .is_throttled = most <= SCHED_SHARE_BYTES,
				     .n_lanes = 1 + transfer->n_sides };
}

static bool lane_has_room(const struct transfer *transfer, uint32_t index)
{
	if (index)
		return transfer->sides[index - 1].n_given < transfer->sides[index - 1].depth;
	return engine_queue_has_room(transfer->engine);
}

static enum next_needs needs(const struct transfer *transfer, const struct next_block *next)
{
	if (next->is_step)
		return NEXT_NEEDS_EXTENSION;
	if (next->is_worker && !has_worker(transfer, next->op))
		return NEXT_NEEDS_WORKER;
	if (!ready_has_lock(transfer->ready, next->op))
		return NEXT_NEEDS_LOCK;
	return NEXT_NEEDS_NOTHING;
}

struct admit_head transfer_look(struct admit_channel *admit, void *arg)
{
	struct transfer *transfer = arg;
	struct channel *channel = container_of(admit, struct channel, admit);
	const struct block_rules block_rules = rules(transfer, channel);
	const struct next_block *next = &transfer->next;
	const struct region *region;

	transfer->next = next_block_look(channel, &block_rules);
	transfer->next.needs = needs(transfer, next);
	region = next->op->slab ? &next->op->slab->region : NULL;
	return (struct admit_head){
		.bytes = next->len,
		.lane = next->lane,
		.is_unlimited = next->is_worker &&
				!engine_has_window(transfer->threads->ops, region),
		.must_defer = next->needs != NEXT_NEEDS_NOTHING,
		.needs_page = next->is_bounce,
		.is_gpu = region && region->kind == REGION_GPU,
		.has_room = next->is_worker || lane_has_room(transfer, next->lane),
		.is_counted = next->returned,
	};
}

/* The head op, which may not start its next block, waits outside of its channel.  Returns 1 for an op that
   needs a step of its file's extension, which costs a system call or waits for one; else 0. */
static int defer(struct transfer *transfer, const struct next_block *next)
{
	switch (next->needs) {
	case NEXT_NEEDS_NOTHING:
		break;
	case NEXT_NEEDS_EXTENSION:
		extend(transfer, next->op);
		return 1;
	case NEXT_NEEDS_WORKER:
		wait_for_worker(transfer, next->op);
		break;
	case NEXT_NEEDS_LOCK:
		(void)ready_defer(transfer->ready, next->op,
				  &next->op->file->inode->mode_lock.waiting);
		break;
	}
	return 0;
}

/* Starts the block that admission looked at last; returns 0 if no worker was free. */
static int start(struct transfer *transfer, struct channel *channel)
{
	const struct next_block *next = &transfer->next;

	if (next->returned)
		return start_returned(transfer, next);
	if (next->is_worker)
		return start_at_workers(transfer, channel, next);
	start_at_engine(transfer, channel, next);
	return 1;
}

static void publish_window(struct transfer *transfer)
{
	const uint64_t bytes = window_bytes(&transfer->admit->window);

	if (transfer->published_window_bytes == bytes)
		return;
	transfer->published_window_bytes = bytes;
	atomic_store_explicit(&transfer->store->now_window_bytes, bytes,
			      memory_order_relaxed); /* alone: nothing goes with it */
}

int transfer_start(struct transfer *transfer)
{
	uint64_t bytes_before = transfer->admit->bytes_in_flight;
	int n = engine_queue_submit(transfer->engine);

	in_flight_give_up_hung(transfer);
	admit_begin_turn(transfer->admit, transfer->turn->now_nsec);
	while (n < STARTS_PER_TURN ||
	       (n < STARTS_PER_TURN_SMALL &&
		transfer->admit->bytes_in_flight - bytes_before < SMALL_BYTES_PER_TURN)) {
		struct admit_decision decision = admit_next(transfer->admit,
							    transfer->turn->now_nsec);
		struct channel *channel;

		transfer->until_nsec = decision.until_nsec;
		if (decision.what == ADMIT_NOTHING)
			break;
		channel = container_of(decision.channel, struct channel, admit);
		if (decision.what == ADMIT_DEFER) {
			n += defer(transfer, &transfer->next);
			continue;
		}
		if (decision.what == ADMIT_FULL) {
			/*
			 * Blocks that workers have may never end, and returned ones may wait for
			 * the lock that is reserved for an op behind them.
			 */
			if (channel->n_at_workers || channel->n_returned)
				ready_unreserve_all(transfer->ready, channel);
			continue;
		}
		n += start(transfer, channel);
		if (engine_queue_is_full(transfer->engine) &&
		    engine_queue_submit(transfer->engine) == 0)
			break;
	}
	/* A later turn tries what the engine does not take. */
	(void)engine_queue_submit(transfer->engine);
	publish_window(transfer);
	return n;
}
