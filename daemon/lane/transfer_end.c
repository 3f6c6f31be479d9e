#include "daemon/lane/transfer_end.h"

#include "daemon/base/stall.h"
#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The op's memory has kept a lane asleep. */
static void note_stall(struct transfer *transfer, const struct op *op)
{
	const uid_t uid = op->channel->uid;
	const struct stalls *stalls;

	if (!op->slab)
		return; /* a sync */
	stalls = stall_table_note(&transfer->stalls, &op->slab->memory, uid,
				  transfer->turn->now_nsec);
	if (!stalls)
		return;
	/* Not log_client(), whose limit other lines may use up.  A memory causes one line for each ban. */
	log_notice(
		"store %s: ops of user %u kept the lane waiting in the kernel %u times, for example "
		"because a program punched their memory: while others are active, worker threads do "
		"the blocks on this memory for %u s",
		transfer->store->name, (unsigned)uid, STALLS_MAX,
		(unsigned)(stalls->banned_nsec / 1000000000u));
}

/* Whether the block goes to a bounce page, from which the lane copies. */
static bool is_on_page(const struct block *block)
{
	return lane_block_of((struct block *)(uintptr_t)block)->charges & CHARGE_PAGE;
}

/* The block becomes the part of its op's range that its bounce page is for. */
static void leave_page(struct transfer *transfer, struct block *block, bool must_copy)
{
	const struct block cover = *block;
	const struct op *op = block->op;
	const uint64_t start = block_start(&cover), end = start + cover.bytes;
	const uint64_t op_end = op->off + op->len;

	block->region = &op->slab->region;
	block->off = start > op->off ? start : op->off;
	block->region_off = op->slab_off + (block->off - op->off);
	block->bytes = block->len = (uint32_t)((end < op_end ? end : op_end) - block->off);
	block->before = block->best = 0;
	if (must_copy) {
		const uint64_t since_nsec = stall_begin();

		block_copy_out(block, &cover);
		if (stall_end(since_nsec, block->result < 0))
			note_stall(transfer, op);
	}
}

/* ---- the end of a block ---- */

static void log_failed(struct transfer *transfer, const struct block *block)
{
	const char *op = block_is_write(block) ? "write" : "read";

	log_event(transfer->log_limit,
		  LOG_FIELDS(.event = "io-error", .store = transfer->store->name, .op = op,
			     .who = &block->op->channel->who, .error = EIO, .is_warning = true),
		  "store %s: %s of %" PRIu32 " bytes at %" PRIu64 " of %s: %s",
		  transfer->store->name, op, block->len, block->off, block->target->about.file,
		  strerrordesc_np(EIO));
}

/* The result reaches the op.  For reads, writes and syncs the only place that does so. */
static void settle(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	int error;

	/* Also those behind a block that failed, which are not in the op's result: they wear the device. */
	if (block_is_write(block))
		CHANNEL_ADD(op->channel, write_bytes, block->best);
	if (block->best == block->bytes && block->result >= 0)
		return;
	op->is_unknown |= block->is_unknown;
	/* A write that makes no progress has no errno; such a read is at the end of the file. */
	error = block->result < 0 ? (int)-block->result : block_is_write(block) ? EIO : 0;
	if (error == EIO && block->bytes)
		log_failed(transfer, block);
	op_stop_at(op, block_start(block) - op->off + block->best, error);
}

/* Ends the blocks of the op that the kernel returned and that no worker has begun. */
static void drop_returned(struct transfer *transfer, struct op *op, int error)
{
	struct block *block;

	while ((block = op_returned(op))) {
		block->result = -error;
		settle(transfer, block);
		block_move(transfer, lane_block_of(block), BLOCK_FREE);
	}
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
		op->cancel_error = (uint8_t)error;
		publish_end(transfer->publish, op);
		return;
	case OP_READY:
	case OP_DEFERRED:
		next_block_stop(op, error);
		op->cancel_error = (uint8_t)error;
		ready_end(transfer->ready, op);
		if (op->has_returned)
			drop_returned(transfer, op, error);
		else if (!op->n_in_flight)
			publish_end(transfer->publish, op);
		return;
	case OP_RUNNING:
		op->cancel_error = (uint8_t)error; /* all of it is in flight: awaited */
		return;
	}
}

/* The result of a step of an extension reaches its op: all ops of the file that wait may look again. */
static void settle_step(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	struct extension *extension = &op->file->extension;
	int error = (int)-block->result;

	extension->is_running = false;
	if (error == EOPNOTSUPP || error == ENOSYS) {
		op->file->no_fallocate = true;
		error = 0;
	} else if (!error) {
		extension_note(extension, &extension->step);
		op_rare(op)->extended = extension->step.extended;
	}
	ready_resume(transfer->ready, &extension->waiting);
	if (error && op->state == OP_READY) /* else it was cancelled meanwhile */
		transfer_cancel(transfer, op, error);
}

/*
 * Is its latency the device's?  The end of a file and holes are read without a request to it.  A block that
 * is done in the turn after its start was such a read, or took less than a turn can measure.
 */
static bool is_of_device(const struct transfer *transfer, struct block *block)
{
	return lane_block_of(block)->charges & CHARGE_WINDOW && block->bytes &&
	       block->result == (int64_t)block->bytes &&
	       block->started_nsec != transfer->turn->before_nsec;
}

/* Before the block leaves its engine. */
static void note_done(struct transfer *transfer, struct block *block)
{
	if (is_of_device(transfer, block))
		admit_note_done(transfer->admit, block_window_kind(block), block->bytes,
				transfer->turn->now_nsec - block->started_nsec,
				transfer->turn->now_nsec);
}

static void end_at_workers(struct transfer *transfer, struct block *block)
{
	const bool is_step = block->operation == BLOCK_EXTEND;

	if (!is_step) {
		note_done(transfer, block);
		settle(transfer, block);
	}
	block_move(transfer, lane_block_of(block), BLOCK_FREE);
	if (is_step)
		settle_step(transfer, block); /* its op may end now: it counts it no more */
}

/* ---- blocks that the kernel returned ---- */

/* The kernel would have had to wait: a worker may.  Until one begins, the mode lock is released. */
static void hand_over(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	struct lane_block *returned = block_take(&op->channel->worker_blocks);
	struct block *request = &returned->at_worker.block;

	if (block->result == -EOPNOTSUPP)
		op->file->no_nowait = true;
	block_pass_on(transfer, lane_block_of(block), returned);
	request->is_nowait = false;
	request->n_retries = 0;
	if (is_on_page(request)) {
		leave_page(transfer, request, false);
		request->is_bounced = true;
	}
	block_move(transfer, returned, BLOCK_RETURNED);
	if (op->cancel_error)
		drop_returned(transfer, op, op->cancel_error);
	else
		ready_again(transfer->ready, op);
}

/* ---- reap ---- */

/* A block is back from an engine of the store's kind: it ends, or a worker has to do it, or it goes there again. */
static void block_back(struct transfer *transfer, struct block *block)
{
	if (block->has_stalled)
		note_stall(transfer, block->op);
	block->has_stalled = false;
	if (block->is_nowait && (block->result == -EAGAIN || block->result == -EOPNOTSUPP)) {
		hand_over(transfer, block);
		return;
	}
	if (block_must_continue(block)) {
		block->next = transfer->again;
		transfer->again = block;
		transfer->n_again++;
		return;
	}
	note_done(transfer, block);
	if (is_on_page(block))
		leave_page(transfer, block, true);
	settle(transfer, block);
	block_move(transfer, lane_block_of(block), BLOCK_FREE);
}

static int reap_workers(struct transfer *transfer)
{
	const struct engine_ops *ops = transfer->threads->ops;
	struct block *blocks[TRANSFER_BATCH];
	int n = 0, r;

	while (ops->is_ready(transfer->threads)) {
		r = ops->reap(transfer->threads, blocks, TRANSFER_BATCH);
		for (int i = 0; i < r; i++)
			end_at_workers(transfer, blocks[i]);
		n += r;
	}
	return n;
}

int transfer_reap(struct transfer *transfer)
{
	struct engine *engine = transfer->engine;
	struct block *blocks[TRANSFER_BATCH];
	int n = reap_workers(transfer), r;

	do {
		r = engine->n_in_flight ? engine->ops->reap(engine, blocks, TRANSFER_BATCH) : 0;
		for (int i = 0; i < r; i++)
			block_back(transfer, blocks[i]);
		n += r;
	} while (r == TRANSFER_BATCH);
	return n;
}

bool transfer_is_ready(const struct transfer *transfer)
{
	const struct engine *engine = transfer->engine, *threads = transfer->threads;

	return (engine->n_in_flight && engine->ops->is_ready(engine)) ||
	       threads->ops->is_ready(threads);
}
