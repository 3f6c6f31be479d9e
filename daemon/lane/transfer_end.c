#include "daemon/lane/transfer_end.h"

#include "daemon/base/stall.h"
#include "daemon/lane/in_flight.h"
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
static bool is_on_page(const struct transfer *transfer, const struct block *block)
{
	return block->region == &transfer->bounces.region;
}

/* The block becomes the part of its op's range that its bounce page is for, and gives the page back. */
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
	bounce_give(&transfer->bounces, cover.region_off - cover.before);
	admit_give_page(transfer->admit, &op->channel->admit);
}

/* ---- the end of a block ---- */

static void log_failed(struct transfer *transfer, const struct block *block)
{
	log_client(transfer->log_limit,
		   "store %s: %s of %" PRIu32 " bytes at %" PRIu64 " of %s: %s",
		   transfer->store->name, block_is_write(block) ? "write" : "read", block->len,
		   block->off, block->target->about.file, strerrordesc_np(EIO));
}

/* The result reaches the op.  For reads, writes and syncs the only place that does so. */
static void settle(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	int error;

	if (block->best == block->bytes && block->result >= 0)
		return;
	/* A write that makes no progress has no errno; such a read is at the end of the file. */
	error = block->result < 0 ? (int)-block->result : block_is_write(block) ? EIO : 0;
	if (error == EIO && block->bytes)
		log_failed(transfer, block);
	op_stop_at(op, block_start(block) - op->off + block->best, error);
}

/* The same for a step of an extension: all ops of the file that wait may look again. */
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
		op_rare(op)->n_extended = extension->step.n_extended;
	}
	ready_resume(transfer->ready, &extension->waiting);
	if (error && op->state == OP_READY) /* else it was cancelled meanwhile */
		transfer_cancel(transfer, op, error);
}

static void give_back(struct transfer *transfer, struct block *block)
{
	if (block->is_for_workers)
		worker_block_give(&block->op->channel->worker_blocks, block);
	else
		block_give(&transfer->blocks, block);
}

/*
 * Is its latency the device's?  The end of a file and holes are read without a request to it.  A block that
 * is done in the turn after its start was such a read, or took less than a turn can measure.
 */
static bool is_of_device(const struct transfer *transfer, const struct block *block)
{
	return block->is_in_window && block->result == (int64_t)block->bytes &&
	       block->started_nsec != transfer->turn->before_nsec;
}

/* Before the block leaves its engine. */
static void note_done(struct transfer *transfer, const struct block *block)
{
	if (is_of_device(transfer, block))
		admit_note_done(transfer->admit, in_flight_kind(block), block->bytes,
				transfer->turn->now_nsec - block->started_nsec,
				transfer->turn->now_nsec);
}

static void end_at_engine(struct transfer *transfer, struct block *block)
{
	note_done(transfer, block);
	if (is_on_page(transfer, block))
		leave_page(transfer, block, true);
	settle(transfer, block);
	in_flight_leave(transfer, block);
	in_flight_end(transfer, block);
	give_back(transfer, block);
}

static void end_at_workers(struct transfer *transfer, struct block *block)
{
	struct channel *channel = block->op->channel;

	channel->n_at_workers--;
	channel->n_deep_at_workers -=
		container_of(block, struct worker_block, block)->work.may_exceed_max;
	if (block->operation == BLOCK_EXTEND) {
		in_flight_end_op(transfer, block->op);
		settle_step(transfer, block);
	} else {
		note_done(transfer, block);
		settle(transfer, block);
		in_flight_leave(transfer, block);
		in_flight_end(transfer, block);
	}
	give_back(transfer, block);
	ready_resume(transfer->ready, &channel->worker_waiters);
}

/* ---- blocks that the kernel returned ---- */

void transfer_drop_returned(struct transfer *transfer, struct op *op, int error)
{
	struct block *block;

	while ((block = op_returned(op))) {
		op_set_returned(op, block->next);
		op->channel->n_returned--;
		block->result = -error;
		settle(transfer, block);
		in_flight_end(transfer, block);
		give_back(transfer, block);
	}
}

/* The kernel would have had to wait: a worker may.  Until one begins, the mode lock is given back. */
static void hand_over(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	struct block *returned = worker_block_take(&op->channel->worker_blocks);

	if (block->result == -EOPNOTSUPP)
		op->file->no_nowait = true;
	in_flight_leave(transfer, block);
	*returned = *block;
	returned->is_for_workers = true;
	returned->is_nowait = false;
	returned->n_retries = 0;
	if (is_on_page(transfer, block)) {
		leave_page(transfer, returned, false);
		returned->is_bounced = true;
	}
	give_back(transfer, block);
	returned->next = op_returned(op);
	op_set_returned(op, returned);
	op->channel->n_returned++;
	if (op->cancel_error)
		transfer_drop_returned(transfer, op, op->cancel_error);
	else
		ready_again(transfer->ready, op);
}

/* ---- reap ---- */

/* A block is back from an engine of the store's kind: all of it, or it goes there again. */
static void block_back(struct transfer *transfer, struct block *block)
{
	struct transfer_side *side = block->lane ? &transfer->sides[block->lane - 1] : NULL;
	const bool is_returned = block->is_nowait &&
				 (block->result == -EAGAIN || block->result == -EOPNOTSUPP);

	if (block->has_stalled)
		note_stall(transfer, block->op);
	block->has_stalled = false;
	if (!is_returned && block_must_continue(block)) {
		if (side) {
			block_queue_push(&side->side->from_home, block);
			lane_doorbell_ring(&side->doorbell);
		} else {
			engine_queue_add_again(transfer->engine, block);
		}
		return;
	}
	if (side)
		side->n_given--;
	if (is_returned)
		hand_over(transfer, block);
	else
		end_at_engine(transfer, block);
}

static int reap_workers(struct transfer *transfer)
{
	const struct engine_ops *ops = transfer->threads->ops;
	struct block *blocks[ENGINE_QUEUE_BATCH];
	int n = 0, r;

	while (ops->is_ready(transfer->threads)) {
		r = ops->reap(transfer->threads, blocks, ENGINE_QUEUE_BATCH);
		for (int i = 0; i < r; i++)
			end_at_workers(transfer, blocks[i]);
		n += r;
	}
	return n;
}

int transfer_reap(struct transfer *transfer)
{
	struct block *blocks[ENGINE_QUEUE_BATCH];
	struct block *block;
	int n = reap_workers(transfer), r;

	do {
		r = engine_queue_reap(transfer->engine, blocks, ENGINE_QUEUE_BATCH);
		for (int i = 0; i < r; i++)
			block_back(transfer, blocks[i]);
		n += r;
	} while (r == ENGINE_QUEUE_BATCH);
	for (uint32_t i = 0; i < transfer->n_sides; i++) {
		while ((block = block_queue_pop(&transfer->sides[i].side->to_home))) {
			block_back(transfer, block);
			n++;
		}
	}
	return n;
}

bool transfer_is_ready(const struct transfer *transfer)
{
	if (engine_queue_is_ready(transfer->engine) ||
	    transfer->threads->ops->is_ready(transfer->threads))
		return true;
	for (uint32_t i = 0; i < transfer->n_sides; i++)
		if (block_queue_has_any(&transfer->sides[i].side->to_home))
			return true;
	return false;
}
