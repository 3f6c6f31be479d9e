#include "daemon/lane/next_block.h"

#include "daemon/base/stall.h"

/* The largest RWF_NOWAIT block of a file whose device may not be the store's.  The kernel refuses blocks
   that need several requests, and nearly all devices take requests of this size. */
#define FOREIGN_NOWAIT_BYTES (256u << 10)
/* A write that extends its file by no more than this is done by a worker thread: fallocate(2) and
   the engine take longer than a write(2) that waits. */
#define EXTEND_SMALL_BYTES (256u << 10)

static bool is_of_gpu(const struct op *op)
{
	return op->slab && op->slab->region.kind == REGION_GPU;
}

bool workers_are_engine(const struct lane_store *store, const struct op *op)
{
	const struct file *file = op->file;

	if (is_of_gpu(op))
		return true;
	return !file->facts.is_tmpfs &&
	       (lane_store_is_blocking(store) || store->is_tmpfs ||
		(file->no_nowait && (file->facts.is_foreign || store->is_multi_user)));
}

struct extend_step next_block_extend_step(const struct op *op)
{
	return extend_step(op_middle_len(op), channel_block_size(op->channel, op), op->next,
			   op->off + op->head, op_rare(op)->grow_end);
}

/* Decides the path of a block that may lie behind the end of the file. */
static void look_at_extension(struct op *op, struct next_block *next)
{
	struct extend_step step = next_block_extend_step(op);

	/* Calls at workers extend the file themselves.  Those of GPU memory are direct: see extend.h. */
	if (next->is_worker && (!is_of_gpu(op) || op->is_misaligned))
		return;
	if (extension_has(&op->file->extension, &step))
		op_rare(op)->extended = step.extended;
	else if (op->file->no_fallocate || op_rare(op)->grow_end - op->off <= EXTEND_SMALL_BYTES)
		next->is_worker = true;
	else
		next->is_step = true;
}

/*
 * The op whose block is next: an op with a block that came back goes first, since that block is counted
 * in the depth, which may be full.  Only ops that were deferred, and the one behind them, have started
 * anything.
 */
static struct op *next_op(const struct channel *channel)
{
	struct op *head = op_of_node(channel->ready.first), *op = head;

	while (op && !op->has_returned && op->is_gated)
		op = op_of_node(op->waiter.node.next);
	return op && op->has_returned ? op : head;
}

/* Bytes from the op's next one to the end of the middle's block: rules may have cut a first part off it.  Blocks of
   objects are cut at multiples in the file, so that they are whole objects, or parts of one if their size divides it:
   the engine does no more than that at once. */
static uint32_t block_left(const struct channel *channel, const struct op *op)
{
	const uint64_t left = op_middle_len(op) - op->next;
	const uint64_t from = op->next + (op->file->target.kind == TARGET_RADOS ? op->off : 0);
	uint32_t len = channel_block_size(channel, op);

	if (from) /* most ops: without a division */
		len -= (uint32_t)(from % len);
	return left < len ? (uint32_t)left : len;
}

static enum block_operation operation_of(const struct op *op)
{
	switch (op->opcode) {
	case RING_OP_READ:
		return BLOCK_READ;
	case RING_OP_WRITE:
		return BLOCK_WRITE;
	case RING_OP_FSYNC:
		return BLOCK_FSYNC;
	default:
		return BLOCK_FDATASYNC;
	}
}

struct next_block next_block_look(const struct channel *channel, const struct block_rules *rules)
{
	struct op *op = next_op(channel);
	const struct file *file = op->file;
	struct next_block next = { .op = op };
	const struct region *region = op->slab ? &op->slab->region : NULL;

	next.returned = op_returned(op);
	if (next.returned) {
		next.len = next.returned->counted_bytes;
		next.is_worker = true;
		return next;
	}
	next.operation = operation_of(op);
	next.is_worker = !engine_takes(rules->engine, next.operation, &file->target, region);
	if (op_is_sync(op))
		return next;
	next.is_nowait = (rules->must_not_wait && !file->facts.is_tmpfs) || file->facts.is_foreign;
	next.workers_are_engine = workers_are_engine(rules->store, op);
	next.is_worker |= next.workers_are_engine ||
			  (next.is_nowait && (file->no_nowait || !rules->engine->has_nowait));
	/* tmpfs has no RWF_NOWAIT: a write would wait in io_submit for the inode's lock. */
	next.is_worker |= rules->must_not_wait && file->facts.is_tmpfs &&
			  op->opcode == RING_OP_WRITE;
	next.is_worker |= rules->must_not_wait && stall_table_bans(rules->stalls, &op->slab->memory,
								   channel->uid, rules->now_nsec);
	next.is_unaligned = op->unaligned_left;
	if (op->is_misaligned || (next.is_unaligned && op->opcode == RING_OP_WRITE))
		next.is_worker |= !rules->engine->has_unaligned;
	if (next.is_unaligned) {
		next.is_bounce = !next.is_worker;
		next.op_off = op->unaligned_left & OP_HEAD ? 0 : op->len - op->tail;
		next.len = op->unaligned_left & OP_HEAD ? op->head : op->tail;
		return next;
	}
	if (op->may_grow && op->next >= op_rare(op)->extended)
		look_at_extension(op, &next);
	next.op_off = op->head + op->next;
	next.len = block_left(channel, op);
	if (next.len > rules->engine->max_bytes)
		next.len = rules->engine->max_bytes;
	/* Its driver makes requests of it that the device takes, so only admission's limit cuts it. */
	if (((is_of_gpu(op) && !op->is_misaligned) || rules->is_any_cut) &&
	    next.len > rules->cut_bytes)
		next.len = rules->cut_bytes;
	if ((next.is_nowait || rules->must_not_wait) && !op->is_misaligned &&
	    !next.workers_are_engine) {
		uint32_t max = rules->max_bytes;

		if (file->facts.is_foreign && max > FOREIGN_NOWAIT_BYTES)
			max = FOREIGN_NOWAIT_BYTES;
		max &= ~(file->target.offset_align - 1);
		if (!max)
			max = file->target.offset_align;
		if (next.len > max)
			next.len = max;
	}
	return next;
}

void next_block_step_over(const struct next_block *next)
{
	struct op *op = next->op;

	if (next->is_unaligned)
		op->unaligned_left = op->unaligned_left & OP_HEAD ? op->unaligned_left & OP_TAIL
								  : 0;
	else
		op->next += next->len;
}

bool next_block_is_first(const struct op *op)
{
	return !op->next && op->unaligned_left == op_unaligned(op);
}

bool next_block_is_over(const struct op *op)
{
	return !op->has_returned && !op->unaligned_left && op->next == op_middle_len(op);
}

/* Done is what stands before the first block that did not start. */
void next_block_stop(struct op *op, int error)
{
	if (op_is_sync(op))
		op_stop_at(op, 0, error);
	if (op->unaligned_left & OP_HEAD)
		op_stop_at(op, 0, error);
	if (op->unaligned_left & OP_TAIL)
		op_stop_at(op, op->len - op->tail, error);
	if (op->next < op_middle_len(op))
		op_stop_at(op, op->head + op->next, error);
}
