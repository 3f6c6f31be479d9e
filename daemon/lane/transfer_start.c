#include "daemon/lane/transfer_start.h"

#include "daemon/lane/record.h"
#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

#include <string.h>

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

/* ---- the engine ---- */

static bool is_full(const struct transfer *transfer)
{
	return transfer->n_waiting == TRANSFER_BATCH;
}

/* Blocks in flight, or to be handed to the engine, leave room for another. */
static bool has_room(const struct transfer *transfer)
{
	const struct engine *engine = transfer->engine;

	return !is_full(transfer) &&
	       engine->n_in_flight + (uint32_t)transfer->n_waiting + transfer->n_again <
		       engine->depth;
}

/* Gives the engine what waits.  Returns how many blocks it took. */
static int submit(struct transfer *transfer)
{
	int n;

	while (transfer->again && !is_full(transfer)) {
		transfer->waiting[transfer->n_waiting++] = transfer->again;
		transfer->again = transfer->again->next;
		transfer->n_again--;
	}
	if (!transfer->n_waiting)
		return 0;
	n = transfer->engine->ops->submit(transfer->engine, transfer->waiting, transfer->n_waiting);
	transfer->n_waiting -= n;
	if (n && transfer->n_waiting)
		memmove(transfer->waiting, transfer->waiting + n,
			(size_t)transfer->n_waiting * sizeof(*transfer->waiting));
	return n;
}

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
static bool submit_to_workers(struct transfer *transfer, struct lane_block *block)
{
	struct worker_block *worker_block = &block->at_worker;
	struct block *request = &worker_block->block;

	worker_block->workers = &request->op->channel->workers;
	worker_block->work.may_exceed_max = workers_are_engine(transfer->store, request->op);
	block->conditions = worker_block->work.may_exceed_max ? CHARGE_DEEP : 0;
	/* While it is ours. */
	record(transfer->turn, request->op,
	       (struct recording_event){ .kind = RECORDING_BLOCK_STARTED });
	if (transfer->threads->ops->submit(transfer->threads, &request, 1) < 1)
		return false;
	/* It alone takes the block back, and not before that. */
	block_move(transfer, block, BLOCK_AT_WORKER);
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
static void note_started(struct transfer *transfer, const struct block *block,
			 const struct next_block *next)
{
	admit_note_start(transfer->admit, &block->op->channel->admit, block->counted_bytes,
			 next_block_is_first(next->op), transfer->turn->now_nsec);
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
			       .operation = (uint8_t)next->operation,
			       .is_dsync = op->is_dsync,
			       .is_buffered = is_unaligned && next->operation == BLOCK_WRITE,
			       .is_bounced = is_unaligned && next->operation == BLOCK_READ,
			       .started_nsec = transfer->turn->now_nsec };
}

/* Starts a block again, which the kernel returned and which is counted still. */
static bool start_returned(struct transfer *transfer, const struct next_block *next)
{
	struct op *op = next->op;

	if (!submit_to_workers(transfer, lane_block_of(next->returned))) {
		wait_for_worker(transfer, op);
		return false;
	}
	admit_start_again(transfer->admit, &op->channel->admit, transfer->turn->now_nsec);
	end_if_over(transfer, op);
	return true;
}

static enum block_kind kind_at_workers(const struct transfer *transfer,
				       const struct next_block *next, const struct block *request)
{
	if (engine_has_window(transfer->threads->ops, request->region))
		return BLOCK_OF_GPU;
	return next->workers_are_engine ? BLOCK_OF_WORKERS_ENGINE : BLOCK_OF_WORKERS;
}

/* False: no worker is free. */
static bool start_at_workers(struct transfer *transfer, struct channel *channel,
			     const struct next_block *next)
{
	struct lane_block *block = block_take(&channel->worker_blocks);
	const struct block request = describe(transfer, next);

	block_prepare(block, kind_at_workers(transfer, next, &request), &request);
	if (!submit_to_workers(transfer, block)) {
		block_release(block);
		wait_for_worker(transfer, next->op);
		return false;
	}
	note_started(transfer, &request, next);
	return true;
}

/* The block becomes one of whole units, to a bounce page. */
static void cover_units(struct transfer *transfer, struct lane_block *lane_block)
{
	struct block *block = &lane_block->at_worker.block;
	const struct unaligned_cover cover = unaligned_cover(
		block->off, block->bytes, unaligned_unit(block->target->offset_align));

	block->region = &transfer->bounces.region;
	block->region_off = lane_block->page_off = bounce_take(&transfer->bounces);
	lane_block->conditions = CHARGE_PAGE;
	block->off = cover.off;
	block->len = block->bytes = block->counted_bytes = (uint32_t)cover.len;
}

static void start_at_engine(struct transfer *transfer, struct channel *channel,
			    const struct next_block *next)
{
	struct lane_block *block = block_take(&transfer->blocks);
	struct block request = describe(transfer, next);

	request.is_single = channel->profile.single_submit;
	request.is_nowait = next->is_nowait;
	block_prepare(block,
		      engine_has_window(transfer->engine->ops, request.region)
			      ? BLOCK_OF_ENGINE
			      : BLOCK_OUTSIDE_WINDOW,
		      &request);
	if (next->is_bounce)
		cover_units(transfer, block);
	block_move(transfer, block, BLOCK_AT_ENGINE);
	note_started(transfer, &block->at_worker.block, next);
	transfer->waiting[transfer->n_waiting++] = &block->at_worker.block;
}

/* The head op of its channel waits for its file's extension; if none runs, its step is started. */
static void extend(struct transfer *transfer, struct op *op)
{
	struct extension *extension = &op->file->extension;
	struct lane_block *block;

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
	block = block_take(&op->channel->worker_blocks);
	block_prepare(block, BLOCK_OF_EXTENSION,
		      &(struct block){ .op = op,
				       .target = &op->file->target,
				       .step = &extension->step,
				       .operation = BLOCK_EXTEND });
	if (!submit_to_workers(transfer, block)) {
		block_release(block);
		ready_resume(transfer->ready, &extension->waiting);
		wait_for_worker(transfer, op);
		return;
	}
	extension->is_running = true;
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
				     .is_any_cut = most <= SCHED_SHARE_BYTES ||
						   transfer->admit->is_limited };
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

struct next_block transfer_look(const struct transfer *transfer, const struct channel *channel)
{
	const struct block_rules block_rules = rules(transfer, channel);
	struct next_block next = next_block_look(channel, &block_rules);

	next.needs = needs(transfer, &next);
	return next;
}

struct admit_head transfer_head(const struct transfer *transfer, const struct next_block *next)
{
	const struct region *region = next->op->slab ? &next->op->slab->region : NULL;

	return (struct admit_head){
		.bytes = next->len,
		.is_unlimited = next->is_worker &&
				!engine_has_window(transfer->threads->ops, region),
		.must_defer = next->needs != NEXT_NEEDS_NOTHING,
		.needs_page = next->is_bounce,
		.is_gpu = region && region->kind == REGION_GPU,
		.has_room = next->is_worker || has_room(transfer),
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

/* Does what admission says of the candidate's next block.  Returns how many blocks started, with ops that were
   deferred for their file's extension, or -1: no other may start now. */
static int consider(struct transfer *transfer, struct channel *channel)
{
	const struct next_block next = transfer_look(transfer, channel);
	const struct admit_head head = transfer_head(transfer, &next);

	switch (admit_ask(transfer->admit, &channel->admit, &head, transfer->turn->now_nsec)) {
	case ADMIT_START:
		if (next.returned)
			return start_returned(transfer, &next);
		if (next.is_worker)
			return start_at_workers(transfer, channel, &next);
		start_at_engine(transfer, channel, &next);
		return 1;
	case ADMIT_DEFER:
		return defer(transfer, &next);
	case ADMIT_FULL:
		/*
		 * Blocks that workers have may never end, and returned ones may wait for
		 * the lock that is reserved for an op behind them.
		 */
		if (channel->n_at_workers || channel->n_returned)
			ready_unreserve_all(transfer->ready, channel);
		return 0;
	case ADMIT_LIMITED:
		ready_unreserve_all(transfer->ready, channel);
		return 0;
	case ADMIT_OTHER:
		return 0;
	case ADMIT_NOTHING:
		break;
	}
	return -1;
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
	int n = submit(transfer);

	blocks_give_up_hung(transfer);
	admit_begin_turn(transfer->admit, transfer->turn->now_nsec);
	while (n < STARTS_PER_TURN ||
	       (n < STARTS_PER_TURN_SMALL &&
		transfer->admit->bytes_in_flight - bytes_before < SMALL_BYTES_PER_TURN)) {
		struct admit_channel *admit = admit_candidate(transfer->admit,
							      transfer->turn->now_nsec);
		int did = admit ? consider(transfer, container_of(admit, struct channel, admit))
				: -1;

		transfer->until_nsec = transfer->admit->until_nsec;
		if (did < 0)
			break;
		n += did;
		if (is_full(transfer) && submit(transfer) == 0)
			break;
	}
	/* A later turn tries what the engine does not take. */
	(void)submit(transfer);
	publish_window(transfer);
	return n;
}
