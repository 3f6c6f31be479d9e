#include "daemon/lane/transfer.h"

#include "daemon/lane/piece.h"
#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Pieces of one channel on worker threads: half of a user's threads, so that a client whose calls hang
   does not block the user's other clients.  Where worker threads are the engine the limit is the
   profile's queue depth, up to WORKERS_DEPTH. */
#define PIECES_AT_ONCE 4u
/* A block that comes back with -EINTR or -EAGAIN is tried again so often: a guess. */
#define BLOCK_RETRIES 16u
/*
 * Blocks started in a turn.  io_submit takes 5 to 10 us for each.  With more blocks, completions are
 * published late, client and device work in turns instead of overlapping, and the queue drains in waves.
 */
#define STARTS_PER_TURN 4
/* Where they are done at once (tmpfs), as long as these are no more bytes. */
#define STARTS_PER_TURN_AT_ONCE TRANSFER_STARTS_AT_ONCE
#define BYTES_PER_TURN_AT_ONCE (64u << 10)

int transfer_init(struct transfer *transfer, const struct transfer_config *config)
{
	int r = bounces_init(&transfer->bounces);

	if (r < 0)
		return r;
	transfer->store = config->store;
	transfer->turn = config->turn;
	transfer->admit = config->admit;
	transfer->ready = config->ready;
	transfer->publish = config->publish;
	transfer->engine = config->engine;
	transfer->mailbox = config->mailbox;
	transfer->log_limit = config->log_limit;
	r = transfer_prepare_side(transfer, 0);
	if (r < 0)
		return r;
	transfer->n_blocks = transfer->engine->depth;
	return 0;
}

void transfer_deinit(struct transfer *transfer)
{
	bounces_deinit(&transfer->bounces);
	for (uint32_t i = 0; i < STORE_LANES_MAX; i++)
		free(transfer->blocks[i]);
}

int transfer_prepare_side(struct transfer *transfer, uint32_t index)
{
	transfer->blocks[index] = calloc(transfer->engine->depth, sizeof(struct block));
	return transfer->blocks[index] ? 0 : -ENOMEM;
}

void transfer_add_side(struct transfer *transfer, struct side_lane *side, uint32_t depth,
		       const struct lane_doorbell *doorbell)
{
	transfer->sides[transfer->n_sides++] = (struct transfer_side){ .side = side,
								       .depth = depth,
								       .doorbell = *doorbell };
	transfer->n_blocks += transfer->engine->depth;
}

/* ---- blocks ---- */

/* One of the store's blocks; there are as many as its lanes' engines hold. */
static struct block *block_take(struct transfer *transfer)
{
	struct block *block = transfer->free_blocks;

	if (block) {
		transfer->free_blocks = block->next;
		return block;
	}
	assert(transfer->n_fresh < transfer->n_blocks);
	block = &transfer->blocks[transfer->n_fresh / transfer->engine->depth]
				 [transfer->n_fresh % transfer->engine->depth];
	transfer->n_fresh++;
	return block;
}

static void block_give(struct transfer *transfer, struct block *block)
{
	block->next = transfer->free_blocks; /* last in, first out: it is in the cache */
	transfer->free_blocks = block;
}

/* The address of byte pos of the op's range, for system calls. */
static char *address(const struct op *op, uint64_t pos)
{
	return op->slab->region.base + op->slab_off + pos;
}

/* Whether the block goes to a bounce page, from which the lane copies. */
static bool is_on_page(const struct transfer *transfer, const struct block *block)
{
	return block->region == &transfer->bounces.region;
}

/* The start of its bounce page. */
static uint64_t page_off(const struct block *block)
{
	return block->region_off - block->before;
}

/* ---- pieces: what worker threads do ---- */

/* There is one: the depth and PIECES_AT_ONCE bound those in use. */
static struct piece *piece_take(struct channel *channel)
{
	struct piece *piece = channel->free_pieces;

	if (piece) {
		channel->free_pieces = piece->next;
	} else {
		assert(channel->n_fresh_pieces < channel->n_pieces_max);
		piece = &channel->pieces[channel->n_fresh_pieces++];
	}
	memset(piece, 0, sizeof(*piece));
	return piece;
}

static void piece_give(struct channel *channel, struct piece *piece)
{
	piece->next = channel->free_pieces;
	channel->free_pieces = piece;
}

static void piece_run(struct work *work)
{
	struct piece *piece = container_of(work, struct piece, work);

	piece_do(piece);
	mailbox_post(piece->transfer->mailbox, &piece->message);
}

static void log_failed(struct transfer *transfer, bool is_write, uint32_t len, uint64_t off,
		       const struct file *file, int error)
{
	log_client(transfer->log_limit,
		   "store %s: %s of %" PRIu32 " bytes at %" PRIu64 " of %s: %s",
		   transfer->store->name, is_write ? "write" : "read", len, off, file->name,
		   strerrordesc_np(error));
}

/* As channel_count_time(), for the store's blocks and pieces: before blocks_in_flight changes. */
static void count_blocks_time(struct transfer *transfer)
{
	struct metrics *metrics = &transfer->store->metrics;
	const uint64_t nsec = transfer->turn->now_nsec - transfer->blocks_timed_nsec;

	if (!nsec)
		return;
	transfer->blocks_timed_nsec = transfer->turn->now_nsec;
	metrics_add(&metrics->blocks_nsec, nsec * metrics_get(&metrics->blocks_in_flight));
}

/* One block or piece less in flight, for those who count it until its end. */
static void count_done(struct transfer *transfer, struct op *op, uint16_t channel_lane,
		       uint32_t bytes)
{
	struct channel *channel = op->channel;

	metrics_add(&channel->metrics.blocks_in_flight, UINT64_MAX);
	metrics_add(&channel->metrics.bytes_in_flight, -(uint64_t)bytes);
	count_blocks_time(transfer);
	metrics_add(&transfer->store->metrics.blocks_in_flight, UINT64_MAX);
	metrics_add(&transfer->store->metrics.bytes_in_flight, -(uint64_t)bytes);
	admit_end(transfer->admit, &channel->admit, channel_lane, transfer->turn->now_nsec);

	op->n_in_flight--;
	if (!op->n_in_flight) {
		channel_count_time(channel, transfer->turn->now_nsec);
		channel->n_in_device--;
	}
	if (!op->n_in_flight && op->state == OP_RUNNING)
		publish_end(transfer->publish, op);
	ready_update(transfer->ready, channel); /* it may have waited for depth */
}

/* A step was done, has failed or was dropped: all ops of the file that wait may look again. */
static void step_end(struct piece *piece)
{
	struct transfer *transfer = piece->transfer;
	struct op *op = piece->op;
	struct extension *extension = &op->file->extension;
	int error = piece->error;

	extension->is_running = false;
	op->n_in_flight--;
	if (!op->n_in_flight) {
		channel_count_time(op->channel, transfer->turn->now_nsec);
		op->channel->n_in_device--;
	}
	if (error == EOPNOTSUPP || error == ENOSYS) {
		op->file->no_fallocate = true;
		error = 0;
	} else if (!error) {
		extension_note(extension, &piece->step);
		op_rare(op)->n_extended = piece->step.n_extended;
	}
	piece_give(op->channel, piece);
	ready_let_in(transfer->ready, &extension->waiting);
	if (op->state != OP_READY) { /* cancelled meanwhile */
		if (!op->n_in_flight)
			publish_end(transfer->publish, op);
	} else if (error) {
		transfer_cancel(transfer, op, error);
	}
}

static void piece_end(struct piece *piece)
{
	struct transfer *transfer = piece->transfer;
	struct op *op = piece->op;

	transfer->n_pieces--;
	op->channel->n_pieces--;
	if (piece->way == PIECE_EXTEND) {
		step_end(piece);
		return;
	}
	if (piece->done < piece->len || piece->error) {
		if (piece->error == EIO && piece->len)
			log_failed(transfer, piece->is_write, piece->len, piece->off, op->file,
				   EIO);
		op_stop_at(op, piece->off - op->off + piece->done, piece->error);
	}
	if (piece->is_block)
		admit_worker_end(&op->channel->admit, transfer->turn->now_nsec);
	ready_unlock(transfer->ready, op);
	count_done(transfer, op, piece->channel_lane, piece->bytes);
	piece_give(op->channel, piece);
}

static void piece_done(struct message *message)
{
	struct piece *piece = container_of(message, struct piece, message);
	struct transfer *transfer = piece->transfer;
	struct channel *channel = piece->op->channel;

	piece_end(piece);
	ready_let_in(transfer->ready, &channel->worker_waiters);
}

static void room_told(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, room_message);

	channel->waits_for_room = false;
	ready_let_in(channel->transfer->ready, &channel->worker_waiters);
}

/* Any thread, under the work queue's lock. */
static void on_room(struct work_room *room)
{
	struct channel *channel = container_of(room, struct channel, room);

	mailbox_post(channel->transfer->mailbox, &channel->room_message);
}

void transfer_add_channel(struct transfer *transfer, struct channel *channel)
{
	channel->transfer = transfer;
	channel->room.on_room = on_room;
	channel->room_message.run = room_told;
}

/* May a worker begin with a piece of the channel, as far as the lane knows? */
static bool has_worker(const struct transfer *transfer, const struct channel *channel,
		       const struct file *file)
{
	return !channel->waits_for_room &&
	       channel->n_pieces <
		       (uses_workers(transfer->store, file) ? WORKERS_DEPTH : PIECES_AT_ONCE);
}

/* Gives a piece to a worker and fills in the lane's fields.  Returns false if no worker is free. */
static bool give_piece(struct transfer *transfer, struct piece *piece)
{
	struct channel *channel = piece->op->channel;

	piece->transfer = transfer;
	piece->offset_align = piece->op->file->target.offset_align;
	piece->memory_align = piece->op->file->target.memory_align;
	piece->work.run = piece_run;
	piece->work.about = target_about(&piece->op->file->target, piece->way == PIECE_EXTEND
									   ? "fallocate"
								   : op_is_sync(piece->op) ? "fsync"
								   : piece->is_write	   ? "write"
										     : "read");
	piece->message.run = piece_done;
	if (!work_queue_try_submit(channel->work_queue, &piece->work, &channel->room)) {
		channel->waits_for_room = true;
		return false;
	}
	transfer->n_pieces++;
	channel->n_pieces++;
	return true;
}

/* The op waits outside of its channel until a worker may begin with its next piece. */
static void wait_for_worker(struct transfer *transfer, struct op *op)
{
	ready_unreserve(transfer->ready, op); /* it may take long */
	(void)ready_defer(transfer->ready, op, &op->channel->worker_waiters);
}

bool transfer_let_go(struct channel *channel)
{
	if (channel->waits_for_room && work_queue_stop_waiting(channel->work_queue, &channel->room))
		channel->waits_for_room = false;
	return !channel->waits_for_room; /* else its message is on its way */
}

/* Blocks that came back and did not start again. */
static void drop_returned(struct transfer *transfer, struct op *op, int error)
{
	struct piece *piece;

	while ((piece = op_returned(op))) {
		op_set_returned(op, piece->next);
		op->channel->n_returned--;
		op_stop_at(op, piece->off - op->off + piece->done, error);
		count_done(transfer, op, piece->channel_lane, piece->bytes);
		piece_give(op->channel, piece);
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
		if (op->error)
			return; /* it ends when nothing stands before it any more */
		op_stop_at(op, 0, error);
		if (!order_abandon(&op->channel->order, op->node))
			return;
		op->node = 0;
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

/* ---- start ---- */

/* May a block wait in io_submit?  A client of one user who is alone delays only itself. */
static bool must_not_wait(const struct transfer *transfer)
{
	return transfer->admit->is_shared || transfer->store->is_multi_user;
}

static struct block_rules rules(const struct transfer *transfer)
{
	const uint32_t whole = transfer->store->whole_bytes;
	const uint32_t most = admit_block_bytes(transfer->admit);

	return (struct block_rules){ .store = transfer->store,
				     .must_not_wait = must_not_wait(transfer),
				     .max_bytes = whole < most ? whole : most,
				     .n_lanes = 1 + transfer->n_sides };
}

static bool lane_has_room(const struct transfer *transfer, uint32_t index)
{
	if (index)
		return transfer->sides[index - 1].n_given < transfer->sides[index - 1].depth;
	return engine_queue_has_room(transfer->engine);
}

/* Its reservation is used, its mode lock held; counts it as in flight for those who do until its end. */
static void count_started(struct transfer *transfer, struct channel *channel,
			  const struct next_block *next, uint32_t bytes)
{
	struct op *op = next->op;

	ready_lock(transfer->ready, op);
	if (!op->n_in_flight) {
		channel_count_time(channel, transfer->turn->now_nsec);
		channel->n_in_device++;
	}
	op->n_in_flight++;
	metrics_add(&channel->metrics.blocks_in_flight, 1);
	metrics_add(&channel->metrics.bytes_in_flight, bytes);
	count_blocks_time(transfer);
	metrics_add(&transfer->store->metrics.blocks, bytes > 0);
	metrics_add(&transfer->store->metrics.blocks_in_flight, 1);
	metrics_add(&transfer->store->metrics.bytes_in_flight, bytes);
	admit_start(transfer->admit, &channel->admit, next->lane, bytes, transfer->turn->now_nsec);
}

/* If the last block of the op has started, it runs. */
static void end_if_over(struct transfer *transfer, struct op *op)
{
	if (next_block_is_over(op))
		ready_end(transfer->ready, op);
}

/* Starts a block again, which the kernel returned and which is counted still. */
static bool start_returned(struct transfer *transfer, const struct next_block *next)
{
	struct op *op = next->op;
	struct piece *after = next->returned->next;

	if (!give_piece(transfer, next->returned)) {
		wait_for_worker(transfer, op);
		return false;
	}
	op_set_returned(op, after);
	op->channel->n_returned--;
	ready_lock(transfer->ready, op);
	admit_start_again(transfer->admit, &op->channel->admit, transfer->turn->now_nsec);
	end_if_over(transfer, op);
	return true;
}

/* False: no worker is free. */
static bool start_piece(struct transfer *transfer, struct channel *channel,
			const struct next_block *next)
{
	struct op *op = next->op;
	struct piece *piece = piece_take(channel);
	bool is_block = next->len && uses_workers(transfer->store, op->file);

	piece->op = op;
	piece->is_write = op->opcode == RING_OP_WRITE;
	if (op_is_sync(op))
		piece->way = op->opcode == RING_OP_FSYNC ? PIECE_SYNC : PIECE_DATASYNC;
	else if (!next->is_edge && !op->is_misaligned)
		piece->way = PIECE_DIRECT;
	else
		piece->way = piece->is_write ? PIECE_BUFFERED : PIECE_BOUNCE;
	piece->fd = piece->way == PIECE_BUFFERED ? target_buffered_fd(&op->file->target)
						 : op->file->target.fd;
	piece->memory = op->slab ? address(op, next->op_off) : NULL;
	piece->off = op->off + next->op_off;
	piece->len = piece->bytes = next->len;
	piece->channel_lane = (uint16_t)next->lane;
	piece->is_block = is_block;
	/* The lane counts after that: it alone takes the piece back, and not before. */
	if (!give_piece(transfer, piece)) {
		piece_give(channel, piece);
		wait_for_worker(transfer, op);
		return false;
	}
	if (is_block)
		admit_worker_start(&channel->admit);
	count_started(transfer, channel, next, next->len);
	next_block_step_over(next);
	end_if_over(transfer, op);
	return true;
}

static void start_block(struct transfer *transfer, struct channel *channel,
			const struct next_block *next)
{
	struct op *op = next->op;
	struct block *block = block_take(transfer);

	block->op = op;
	block->target = &op->file->target;
	block->region = &op->slab->region;
	block->off = op->off + next->op_off;
	block->region_off = op->slab_off + next->op_off;
	block->bytes = next->len;
	if (next->is_bounce) {
		struct unaligned_cover cover = unaligned_cover(
			block->off, next->len, unaligned_unit(block->target->offset_align));

		block->region = &transfer->bounces.region;
		block->region_off = bounce_take(&transfer->bounces);
		admit_take_page(transfer->admit, &channel->admit);
		block->off = cover.off;
		block->bytes = (uint32_t)cover.len;
	}
	block->len = block->bytes;
	block->before = block->best = 0;
	block->lane = (uint16_t)next->lane;
	block->n_retries = 0;
	block->is_write = op->opcode == RING_OP_WRITE;
	block->is_single = channel->profile.single_submit;
	block->is_nowait = next->is_nowait;
	block->started_nsec = transfer->turn->now_nsec;
	admit_engine_start(transfer->admit, &channel->admit, block->is_write, block->bytes,
			   transfer->turn->now_nsec, &block->is_small);
	count_started(transfer, channel, next, block->bytes);
	if (next->lane) {
		struct transfer_side *side = &transfer->sides[next->lane - 1];

		side->n_given++;
		block_queue_push(&side->side->from_home, block);
		lane_doorbell_ring(&side->doorbell);
	} else {
		engine_queue_add(transfer->engine, block);
	}
	next_block_step_over(next);
	end_if_over(transfer, op);
}

/* The head op of its channel waits for its file's extension; if none runs, its step is started. */
static void extend(struct transfer *transfer, struct op *op)
{
	struct extension *extension = &op->file->extension;
	struct channel *channel = op->channel;
	struct piece *piece;

	ready_unreserve(transfer->ready, op); /* it may take long */
	if (extension->is_running) {
		(void)ready_defer(transfer->ready, op, &extension->waiting);
		return;
	}
	if (!has_worker(transfer, channel, op->file)) {
		wait_for_worker(transfer, op);
		return;
	}
	if (!ready_defer(transfer->ready, op, &extension->waiting))
		return;
	piece = piece_take(channel);
	piece->op = op;
	piece->way = PIECE_EXTEND;
	piece->fd = op->file->target.fd;
	piece->step = next_block_extend_step(op);
	if (!give_piece(transfer, piece)) {
		piece_give(channel, piece);
		ready_let_in(transfer->ready, &extension->waiting);
		wait_for_worker(transfer, op);
		return;
	}
	extension->is_running = true;
	if (!op->n_in_flight) {
		channel_count_time(channel, transfer->turn->now_nsec);
		channel->n_in_device++;
	}
	op->n_in_flight++;
}

/* Describes the channel's head block for admission. */
struct admit_head transfer_look(struct admit_channel *admit, void *arg)
{
	struct transfer *transfer = arg;
	struct channel *channel = container_of(admit, struct channel, admit);
	const struct block_rules block_rules = rules(transfer);
	const struct next_block *next = &transfer->next;

	transfer->next = next_block_look(channel, &block_rules);
	return (struct admit_head){
		.bytes = next->len,
		.lane = next->lane,
		.is_piece = next->is_piece,
		.must_defer = next->is_step || !ready_has_lock(transfer->ready, next->op) ||
			      (next->is_piece && !has_worker(transfer, channel, next->op->file)),
		.needs_page = next->is_bounce,
		.has_room = lane_has_room(transfer, next->lane),
		.is_counted = next->returned,
	};
}

/* The head op, which may not start its next block, waits outside of its channel. */
static int defer(struct transfer *transfer, const struct next_block *next)
{
	if (next->is_step) {
		extend(transfer, next->op);
		return 1;
	}
	if (next->is_piece && !has_worker(transfer, next->op->channel, next->op->file))
		wait_for_worker(transfer, next->op);
	else
		(void)ready_defer(transfer->ready, next->op,
				  &next->op->file->inode->mode_lock.waiting);
	return 0;
}

/* Starts what may start, up to STARTS_PER_TURN; returns how many blocks the engines took. */
int transfer_start(struct transfer *transfer)
{
	uint64_t bytes_before = transfer->admit->bytes_in_flight;
	int n = engine_queue_submit(transfer->engine);

	admit_begin_turn(transfer->admit, transfer->turn->now_nsec);
	while (n < STARTS_PER_TURN ||
	       (transfer->engine->engine->is_at_once && n < STARTS_PER_TURN_AT_ONCE &&
		transfer->admit->bytes_in_flight - bytes_before < BYTES_PER_TURN_AT_ONCE)) {
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
			if (channel->n_pieces || channel->n_returned)
				ready_unreserve_all(transfer->ready, channel);
			continue;
		}
		if (transfer->next.returned) {
			n += start_returned(transfer, &transfer->next);
		} else if (transfer->next.is_piece) {
			n += start_piece(transfer, channel, &transfer->next);
		} else {
			start_block(transfer, channel, &transfer->next);
			n++;
		}
		if (engine_queue_is_full(transfer->engine) &&
		    engine_queue_submit(transfer->engine) == 0)
			break;
	}
	(void)engine_queue_submit(
		transfer->engine); /* what it does not take is tried in the next turn */
	if (transfer->told_window_bytes != window_bytes(&transfer->admit->window)) {
		transfer->told_window_bytes = window_bytes(&transfer->admit->window);
		atomic_store_explicit(&transfer->store->now_window_bytes,
				      transfer->told_window_bytes,
				      memory_order_relaxed); /* alone: nothing goes with it */
	}
	return n;
}

/* ---- reap ---- */

/* True if the rest of the block has to be done still: a short transfer, or one to try again. */
static bool must_continue(struct block *block, uint32_t align)
{
	uint32_t end, boundary;

	if (block->result == -EINTR || block->result == -EAGAIN)
		return block->n_retries++ < BLOCK_RETRIES;
	if (block->result <= 0)
		return false;
	end = block->before + (uint32_t)block->result;
	if (end <= block->best || end >= block->bytes) {
		block->best = end > block->best ? end : block->best;
		return false; /* no more than before: the end of the file; or whole */
	}
	block->best = end;
	boundary = end & ~(align - 1); /* xfs refuses another */
	block->off += boundary - block->before;
	block->region_off += boundary - block->before;
	block->len = block->bytes - boundary;
	block->before = boundary;
	return true;
}

/* Copies the wanted bytes of a bounce block.  Returns how many are valid, and the error. */
static uint32_t bounce_out(const struct op *op, const struct block *block, int *error)
{
	const char *page = block->region->base + page_off(block);
	uint64_t start = block->off - block->before; /* in the file */
	uint64_t from = start > op->off ? start : op->off;
	uint64_t end = start + block->bytes < op->off + op->len ? start + block->bytes
								: op->off + op->len;
	uint64_t n = start + block->best < end ? start + block->best : end;
	size_t copied = 0;
	int r;

	n = n > from ? n - from : 0;
	if (n == end - from)
		*error = 0; /* what failed lies behind */
	r = bounce_copy(address(op, from - op->off), page + (from - start), n, &copied);
	if (r)
		*error = r;
	return (uint32_t)copied;
}

/* It leaves the engine and the window. */
static void block_leave(struct transfer *transfer, struct block *block)
{
	struct admit_channel *channel = &block->op->channel->admit;

	admit_engine_end(transfer->admit, channel, block->bytes, block->is_small,
			 transfer->turn->now_nsec);
	if (is_on_page(transfer, block)) {
		bounce_give(&transfer->bounces, page_off(block));
		admit_give_page(transfer->admit, channel);
	}
	block_give(transfer, block);
}

/*
 * Does its time say something of the device?  The end of a file and holes are read without one; what
 * the first look after the start finds done was such, or took less than a turn can tell.
 */
static bool is_of_device(const struct transfer *transfer, const struct block *block)
{
	return block->result == (int64_t)block->bytes &&
	       block->started_nsec != transfer->turn->before_nsec;
}

static void block_done(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	uint64_t start = block->off - block->before;
	uint64_t op_off = start > op->off ? start - op->off : 0;
	uint16_t channel_lane = block->lane;
	uint32_t bytes = block->bytes;
	int error = 0;

	if (block->best < block->bytes) {
		if (block->result < 0)
			error = (int)-block->result;
		else if (block->is_write)
			error = EIO; /* a write that stands still: no errno was given */
		if (error == EIO)
			log_failed(transfer, block->is_write, block->len, block->off, op->file,
				   error);
	}
	if (is_of_device(transfer, block))
		admit_note_done(transfer->admit, block->is_write, block->bytes,
				transfer->turn->now_nsec - block->started_nsec,
				transfer->turn->now_nsec);
	/* op_stop_at() with the op's end changes nothing, so a complete block may call it too. */
	if (is_on_page(transfer, block)) {
		uint32_t wanted = (uint32_t)(op->len - op_off);
		uint32_t done = bounce_out(op, block, &error);

		if (start + bytes < op->off + op->len)
			wanted = (uint32_t)(start + bytes - op->off - op_off);
		if (done < wanted)
			op_stop_at(op, op_off + done, error);
	} else if (block->best < bytes) {
		op_stop_at(op, op_off + block->best, error);
	}
	block_leave(transfer, block);
	ready_unlock(transfer->ready, op);
	count_done(transfer, op, channel_lane, bytes);
}

/* The kernel would have had to wait: a worker may.  Until one begins, the mode lock is given back. */
static void hand_over(struct transfer *transfer, struct block *block)
{
	struct op *op = block->op;
	struct piece *piece = piece_take(op->channel);

	if (block->result == -EOPNOTSUPP)
		op->file->no_nowait = true;
	piece->op = op;
	piece->is_write = block->is_write;
	piece->fd = block->target->fd;
	piece->bytes = block->bytes;
	piece->channel_lane = block->lane;
	piece->off = block->off - block->before;
	if (is_on_page(transfer, block)) {
		uint64_t end = piece->off + block->bytes;

		piece->way = PIECE_BOUNCE;
		if (piece->off < op->off)
			piece->off = op->off;
		if (end > op->off + op->len)
			end = op->off + op->len;
		piece->len = (uint32_t)(end - piece->off);
	} else {
		piece->way = PIECE_DIRECT;
		piece->len = block->bytes;
		piece->done = block->best;
	}
	piece->memory = address(op, piece->off - op->off);
	block_leave(transfer, block);
	ready_unlock(transfer->ready, op);
	piece->next = op_returned(op);
	op_set_returned(op, piece);
	op->channel->n_returned++;
	if (op->cancel_error)
		drop_returned(transfer, op, op->cancel_error);
	else
		ready_again(transfer->ready, op);
}

/* A block is back from its engine: all of it, or it goes there again. */
static void block_back(struct transfer *transfer, struct block *block)
{
	struct transfer_side *side = block->lane ? &transfer->sides[block->lane - 1] : NULL;

	if (block->is_nowait && (block->result == -EAGAIN || block->result == -EOPNOTSUPP)) {
		if (side)
			side->n_given--;
		hand_over(transfer, block);
		return;
	}
	if (must_continue(block, target_align(block->target))) {
		if (side) {
			block_queue_push(&side->side->from_home, block);
			lane_doorbell_ring(&side->doorbell);
			return;
		}
		engine_queue_add_again(transfer->engine, block);
		return;
	}
	if (side)
		side->n_given--;
	block_done(transfer, block);
}

int transfer_reap(struct transfer *transfer)
{
	struct block *blocks[ENGINE_QUEUE_BATCH];
	struct block *block;
	int n = 0, r;

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
	if (engine_queue_is_ready(transfer->engine))
		return true;
	for (uint32_t i = 0; i < transfer->n_sides; i++)
		if (block_queue_has_any(&transfer->sides[i].side->to_home))
			return true;
	return false;
}
