/*
 * How a home lane works, turn by turn:
 *
 *     take     entries of all channels, up to 64 of each: each becomes an op
 *     reap     blocks that the engine, or another lane, has done
 *     publish  completions; wake who sleeps; then let go those ops that waited for them
 *     start    a few blocks of ops whose turn it is, as the scheduler says
 *
 * and when a turn did nothing: spin for a while, then announce sleep, look once more, sleep in
 * epoll_wait on the channels' doorbells, the engine's eventfd and the mailbox.  Bells and eventfd are
 * edge-triggered and never read: each write wakes again.
 *
 * What a turn costs depends on the channels in use, not on those that are open: one that is quiet
 * and has nothing open is parked.  No turn looks at it until its doorbell rings, which a lane that does
 * not sleep hears by polling.  All loops over channels are over those awake.
 *
 * Another lane of the store (a worker) does the same with blocks from a queue of the home
 * lane's instead of entries, and gives them back by a second queue.  Both queues have one
 * writer and one reader; a lane that sleeps is rung through its mailbox's eventfd, by the same
 * announce-fence-look on both sides as with clients.
 *
 * What may block is never done here: syncs, unaligned writes, writes to tmpfs, and blocks that
 * the kernel returned since it would have had to wait (RWF_NOWAIT) go to the worker threads of the
 * user as pieces, which come back through the mailbox.  One exception: a user's own daemon lets blocks
 * of a client that is alone on the store wait.  A piece no longer counts in the store's window and the
 * engine's depth, but in its op and in the depth of its channel.  On a store where io_submit itself
 * does the work (probe.h), and for files where RWF_NOWAIT is not known and somebody else would have to
 * wait, worker threads are the engine: all blocks are pieces.  There no window bounds the bytes in
 * flight, which a file that hangs would fill for all: only the depth of each channel does.
 *
 * A file that a write makes longer is extended first, by a worker thread (extend.h).  A write that
 * is too short for that to pay is a piece, and extends the file itself.
 *
 * Admission (admit.h) says which block starts.  A write whose mode lock is closed waits outside of
 * its channel (mode_lock.h).  All lists of ops are left in one step.
 *
 * An op ends in end_op(), once; its completion is written there and shown in publish().
 */
#include "daemon/lane/lane.h"

#include "daemon/lane/admit.h"
#include "daemon/lane/unaligned.h"
#include "daemon/base/work_queue.h"
#include "daemon/base/log.h"
#include "daemon/lane/piece.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/clock.h"
#include "proto/util/cpu.h"
#include "proto/util/spin.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of a file whose device need not be the store's: what takes several of the kernel's requests is
   refused with RWF_NOWAIT, and few devices take less. */
#define FOREIGN_NOWAIT_BYTES (256u << 10)
/* Pieces of one channel that a worker has at a time: half of its threads, so that one client that
   blocks them does not hold up the others of its user.  Where worker threads are the engine: as many as the
   profile says, up to WORKERS_DEPTH. */
#define PIECES_AT_ONCE 4u
/* And that it has or waits for: with more, what is left waits for its turn in the scheduler, where
   class and weight count.  A guess.  Where worker threads are the engine further ones start only when a
   thread has room for them. */
#define PIECES_MAX 8u
/* A block that comes back with -EINTR or -EAGAIN is tried again so often: a guess. */
#define BLOCK_RETRIES 16u
/* A write that extends its file by no more than this is done by a worker thread: fallocate(2) and
   the engine take longer than a write(2) that waits. */
#define EXTEND_SMALL_BYTES (256u << 10)
/* Blocks handled by one call of the engine: bounds the arrays, not the depth. */
#define BATCH 128
/*
 * A pause counts as a gap of this at most, so that a busy client soon makes spinning pay again: a
 * guess.  What comes in a bunch is no gap: who looks once more before it sleeps finds it without
 * spinning.  Nor is a turn that took long: there was nothing to wait for.
 */
#define GAP_MAX_NSEC 1000000u
#define GAP_MIN_NSEC 5000u
/*
 * Blocks started in a turn.  io_submit takes 5-10 us for each: with more, what has ended waits to
 * be told, client and device take turns instead of overlapping, and the queue drains in waves.
 */
#define STARTS_PER_TURN 4
/* Where they are done at once (tmpfs), as long as these are no more bytes. */
#define STARTS_PER_TURN_AT_ONCE 8
#define BYTES_PER_TURN_AT_ONCE (64u << 10)
/* Entries taken from one client's channels in a turn: full rings hold up the others no longer. */
#define TAKES_PER_TURN 64
/*
 * For the order of ops others of the channel are looked at, all of its thousands where they conflict.
 * All clients together may cause so many looks a turn, of some ns each: of who has caused his share
 * entries, ops that have ended, batches and cancels wait for a later turn.
 */
#define LOOKS_PER_TURN 4096u
/* While a channel is parked, doorbells are polled so often: by a lane that works, and by one that spins,
   to which it costs nothing but the call, 0.2 us. */
#define POLL_BUSY_NSEC 50000u
#define POLL_SPIN_NSEC 5000u
/* Events taken by one call; what is left comes with the next. */
#define EVENTS_MAX 64
/* When the kernel has no request for us and nothing of ours is in flight: look again then. */
#define RETRY_MSEC 1

/* Blocks between the home lane and a worker: one writer, one reader. */
struct block_queue {
	_Alignas(64) _Atomic uint32_t tail; /* writer: release; reader: acquire: blocks before it */
	_Alignas(64) _Atomic uint32_t head; /* reader: release; writer: acquire: slots before it */
	uint32_t mask;
	struct block **slots;
};

/* What the head op of a channel would start next. */
struct next_block {
	struct op *op;
	uint64_t op_off;
	uint32_t len;  /* 0: a sync */
	uint32_t lane; /* 0: home */
	bool is_edge, is_nowait;
	bool is_piece;	/* for a worker, not the engine */
	bool is_step;	/* the file has to be extended before */
	bool is_bounce; /* takes a page */
};

struct lane {
	struct lane_store *store;
	uint32_t index;
	const struct engine_ops *engine_ops;
	struct engine *engine;
	uint32_t depth;
	pthread_t thread;
	struct mailbox mailbox;
	int epoll_fd;
	struct lane_board *board; /* home: shared with clients; worker: with the home lane */
	int board_fd;		  /* home; -1 */
	uint64_t state;		  /* private copy of the board's */
	bool must_stop;
	struct message stop_message;
	struct log_limit log_limit; /* of lines that clients cause */
	struct hung_watch watch;
	char watch_name[64];

	uint64_t now_nsec;	   /* of this turn */
	uint64_t before_nsec;	   /* of the turn before, or the end of the sleep since */
	uint64_t last_did_nsec;	   /* the last turn that did something */
	uint64_t spin_nsec;	   /* how long it may spin, for one op */
	uint64_t spun_nsec;	   /* the last look of this spin; 0: none */
	uint64_t rests_until_nsec; /* it does not spin: the core is wanted */
	bool was_idle;		   /* the last turn did nothing */
	bool has_told;		   /* this turn: completions, so that ops may follow */
	enum { WAITS_FOR_OP, WAITS_FOR_DEVICE } waits_for;
	uint64_t mean_gap_nsec[2];    /* of waits, by what was waited for */
	struct block *waiting[BATCH]; /* given to no engine yet: it, or the kernel, was full */
	int n_waiting;
	struct block *again; /* back from the engine, and to be continued */
	uint32_t n_again;

	/* a worker's */
	struct lane *home;
	struct block_queue from_home, to_home;
	uint64_t home_rung; /* the home lane's state that was rung for */

	/* the home lane's */
	struct channel *awake; /* channels that are not parked */
	uint32_t n_channels, n_parked, n_closing;
	uint64_t park_nsec;	     /* a channel that was quiet for so long is parked */
	uint32_t idle_doorbells_max; /* of a channel, in a second */
	uint64_t next_park_nsec;     /* when to look for such again */
	uint64_t polled_nsec;	     /* the doorbells were heard */
	uint64_t turn;
	struct message *first_held, **last_held; /* batches and cancels for the next turn */
	bool runs_held;
	struct channel *first_ended; /* channels with ops ended in this turn */
	struct side_lane {
		struct lane *lane;
		uint32_t n_given; /* blocks it has */
		uint64_t rung;	  /* its state that was rung for */
		struct message message;
	} side_lanes[STORE_LANES_MAX];
	uint32_t n_side_lanes;
	struct block *blocks[STORE_LANES_MAX]; /* arrays of depth, one for each lane */
	uint32_t n_blocks, n_fresh;	       /* in all arrays; of them used at least once */
	struct block *free_blocks;
	struct admit admit;
	struct next_block next; /* the last that admission looked at */
	uint64_t admit_nsec;	/* when a block may start that may not now; 0: not known */
	uint32_t n_pieces;	/* with worker threads, or waiting for them */
	uint64_t told_window_bytes;
	uint64_t blocks_timed_nsec; /* the store's blocks_nsec is of then */
	struct bounces bounces;
	uint64_t next_deadline_nsec; /* 0: none */
};

/* ---- block queues ---- */

static int block_queue_init(struct block_queue *queue, uint32_t n_slots)
{
	uint32_t size = 1;

	while (size < n_slots)
		size *= 2;
	queue->mask = size - 1;
	queue->slots = calloc(size, sizeof(struct block *));
	return queue->slots ? 0 : -ENOMEM;
}

/* There is room: no more blocks go round than the queue has slots. */
static void block_queue_push(struct block_queue *queue, struct block *block)
{
	uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed); /* ours */

	queue->slots[tail & queue->mask] = block;
	atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

static struct block *block_queue_pop(struct block_queue *queue)
{
	uint32_t head = atomic_load_explicit(&queue->head, memory_order_relaxed); /* ours */
	struct block *block;

	if (atomic_load_explicit(&queue->tail, memory_order_acquire) == head)
		return NULL;
	block = queue->slots[head & queue->mask];
	atomic_store_explicit(&queue->head, head + 1, memory_order_release);
	return block;
}

static bool block_queue_has_any(const struct block_queue *queue)
{
	return atomic_load_explicit(&queue->tail, memory_order_acquire) !=
	       atomic_load_explicit(&queue->head, memory_order_relaxed);
}

/* Rings the other lane if it sleeps and was not yet rung for that; after what it shall see. */
static void ring_lane_doorbell(struct lane *other, uint64_t *rung)
{
	uint64_t state, one = 1;

	RING_FENCE_SUBMIT(); /* the same pair as a client's with a lane: SUBMIT and SLEEP */
	state = atomic_load_explicit(&other->board->lane_state, memory_order_relaxed);
	if (!(state & 1) || state == *rung)
		return;
	*rung = state;
	/* EAGAIN: the counter is full, so it is rung already */
	if (write(other->mailbox.event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

/* ---- blocks ---- */

/* One of the store's blocks; there are as many as its lanes' engines hold. */
static struct block *block_take(struct lane *lane)
{
	struct block *block = lane->free_blocks;

	if (block) {
		lane->free_blocks = block->next;
		return block;
	}
	assert(lane->n_fresh < lane->n_blocks);
	block = &lane->blocks[lane->n_fresh / lane->depth][lane->n_fresh % lane->depth];
	lane->n_fresh++;
	return block;
}

static void block_give(struct lane *lane, struct block *block)
{
	block->next = lane->free_blocks; /* last in, first out: it is in the cache */
	lane->free_blocks = block;
}

/* Gives blocks that wait to this lane's own engine.  Returns how many it took. */
static int submit_waiting(struct lane *lane)
{
	int n;

	while (lane->again && lane->n_waiting < BATCH) {
		lane->waiting[lane->n_waiting++] = lane->again;
		lane->again = lane->again->next;
		lane->n_again--;
	}
	if (!lane->n_waiting)
		return 0;
	n = lane->engine_ops->submit(lane->engine, lane->waiting, lane->n_waiting);
	lane->n_waiting -= n;
	if (n && lane->n_waiting)
		memmove(lane->waiting, lane->waiting + n,
			(size_t)lane->n_waiting * sizeof(*lane->waiting));
	return n;
}

/* ---- ops: states and their lists ---- */

static void ready_push(struct op *op)
{
	op_set_state(op, OP_READY);
	list_push(&op->channel->ready, &op->waiter.node);
}

static void ready_push_front(struct op *op)
{
	op_set_state(op, OP_READY);
	list_push_front(&op->channel->ready, &op->waiter.node);
}

static void ready_remove(struct op *op)
{
	list_remove(&op->channel->ready, &op->waiter.node);
}

/* Its channel has a list of ended ops that is not empty. */
static void ended_note(struct lane *lane, struct channel *channel)
{
	if (channel->has_ended)
		return;
	channel->has_ended = true;
	channel->next_ended = lane->first_ended;
	lane->first_ended = channel;
}

/* Writes the completion: the op has nothing in flight and starts nothing more. */
static void end_op(struct lane *lane, struct op *op)
{
	struct channel *channel = op->channel;
	int64_t result = op_result(op);

	assert(op->n_in_flight == 0);
	op_set_state(op, OP_ENDED);
	if (op->batch)
		op->batch->results[op->batch_index] = result;
	else
		ring_lane_complete(&channel->ring, op->id, result);

	list_push(&channel->ended, &op->waiter.node);
	ended_note(lane, channel);
}

/* ---- channels awake and parked ---- */

static void awake_remove(struct lane *lane, struct channel *channel)
{
	if (channel->prev)
		channel->prev->next = channel->next;
	else
		lane->awake = channel->next;
	if (channel->next)
		channel->next->prev = channel->prev;
	channel->is_awake = false;
	channel->client->n_awake--;
}

/* From now on turns look at it, until it was quiet again. */
static void channel_wake(struct lane *lane, struct channel *channel)
{
	channel->quiet_nsec = lane->now_nsec;
	if (channel->is_awake)
		return;
	if (ring_lane_is_parked(&channel->ring)) {
		ring_lane_unpark(&channel->ring);
		lane->n_parked--;
	}
	channel->is_awake = true;
	channel->prev = NULL;
	channel->next = lane->awake;
	if (channel->next)
		channel->next->prev = channel;
	lane->awake = channel;
	channel->client->n_awake++;
}

/* With an op open it has deadlines, and pieces, that turns look for; without a doorbell that is heard
   nothing would wake it. */
static bool may_park(const struct lane *lane, const struct channel *channel)
{
	return !channel->n_open && !channel->is_closing && !channel->is_broken &&
	       !channel->has_left_epoll && lane->now_nsec - channel->quiet_nsec >= lane->park_nsec;
}

static void park_quiet(struct lane *lane)
{
	struct channel *parked = NULL, *next;

	lane->next_park_nsec = lane->now_nsec + lane->park_nsec;
	for (struct channel *channel = lane->awake; channel; channel = next) {
		next = channel->next;
		if (!may_park(lane, channel))
			continue;
		awake_remove(lane, channel);
		if (!channel->has_rings)
			continue; /* do_submit() wakes it */
		ring_lane_park(&channel->ring);
		lane->n_parked++;
		channel->next = parked;
		parked = channel;
	}
	if (!parked)
		return;
	RING_FENCE_PARK();
	for (; parked; parked = next) {
		next = parked->next;
		if (ring_lane_has_entries(&parked->ring))
			channel_wake(lane, parked);
	}
}

/* ---- ops that may start ---- */

static void sched_update(struct lane *lane, struct channel *channel)
{
	admit_set_ready(&lane->admit, &channel->admit, channel->ready.first, lane->now_nsec);
}

/* Nothing stands before it any more. */
static void op_may_start(struct op *op, void *arg)
{
	struct lane *lane = arg;

	if (op->len == 0 && !op_is_sync(op)) {
		end_op(lane, op);
	} else {
		ready_push(op);
		sched_update(lane, op->channel);
	}
}

/* May a block wait in io_submit?  A client of one user who is alone delays only itself. */
static bool must_not_wait(const struct lane *lane)
{
	return lane->admit.is_shared || lane->store->is_multi_user;
}

/* ---- ops that wait for a mode lock ---- */

/* Only these have a page cache that direct I/O goes past. */
static bool has_mode_lock(const struct op *op)
{
	return op->opcode == RING_OP_WRITE && !op->file->facts.is_tmpfs;
}

/* It may go on: before those that have not waited yet. */
static void let_in(struct mode_lock_waiter *waiter, void *arg)
{
	struct op *op = container_of(waiter, struct op, waiter);

	ready_push_front(op);
	sched_update(arg, op->channel);
}

static void turn_mode_lock(struct lane *lane, struct inode *inode)
{
	mode_lock_turn(&inode->mode_lock, lane->now_nsec, let_in, lane);
}

/* What was promised to it others may have. */
static void unpromise(struct lane *lane, struct op *op)
{
	if (!op->waiter.is_promised)
		return;
	mode_lock_unpromise(&op->file->inode->mode_lock, &op->waiter);
	turn_mode_lock(lane, op->file->inode);
}

/* May its next block start, as far as the mode lock goes? */
static bool is_let_in(const struct lane *lane, const struct op *op)
{
	return op->waiter.is_promised || !has_mode_lock(op) ||
	       mode_lock_is_open(&op->file->inode->mode_lock, op_write_mode(op), lane->now_nsec);
}

/* The channel may start nothing until worker threads are done, which may be never: nobody else shall wait
   for that.  Ops that were let in stand before the others. */
static void drop_promises(struct lane *lane, struct channel *channel)
{
	struct op *op = op_of_node(channel->ready.first);

	for (; op && op->is_gated; op = op_of_node(op->waiter.node.next))
		unpromise(lane, op); /* who is let in by that stands before op */
}

/*
 * The head of its channel's ready list waits outside of the channel, in that state, if it may; else
 * the channel waits.
 */
static bool hold_back(struct lane *lane, struct op *op, enum op_state state)
{
	struct channel *channel = op->channel;

	if (!op->is_gated && channel->n_gated >= MODE_LOCK_OPS_MAX) {
		/* All those are held, since they stand before the others: back when one is let in. */
		admit_set_ready(&lane->admit, &channel->admit, false, lane->now_nsec);
		return false;
	}
	channel->n_gated += !op->is_gated;
	op->is_gated = true;
	ready_remove(op);
	op_set_state(op, state);
	if (state == OP_WAITS_MODE_LOCK)
		mode_lock_wait(&op->file->inode->mode_lock, &op->waiter, op_write_mode(op));
	else
		list_push(&op->file->extension.waiting, &op->waiter.node);
	sched_update(lane, channel);
	return true;
}

/* Nothing more of it will start. */
static void ungate(struct op *op)
{
	op->channel->n_gated -= op->is_gated;
	op->is_gated = false;
}

/* ---- pieces: what worker threads do ---- */

/* Whether they are the engine for the blocks of this file. */
static bool is_helped(const struct lane *lane, const struct file *file)
{
	return !file->facts.is_tmpfs &&
	       (lane_store_is_blocking(lane->store) ||
		(file->no_nowait && (file->facts.is_foreign || lane->store->is_multi_user)));
}

static void piece_run(struct work *work)
{
	struct piece *piece = container_of(work, struct piece, work);

	piece_do(piece);
	mailbox_post(&piece->lane->mailbox, &piece->message);
}

static void log_failed(struct lane *lane, bool is_write, uint32_t len, uint64_t off,
		       const struct file *file, int error)
{
	log_client(&lane->log_limit, "store %s: %s of %" PRIu32 " bytes at %" PRIu64 " of %s: %s",
		   lane->store->name, is_write ? "write" : "read", len, off, file->name,
		   strerrordesc_np(error));
}

/*
 * Before n_open or n_in_device of the channel changes: brings the sums of time up to now.  What ops
 * waited in all is how many did, summed over time, so none of them has to remember when it began.
 */
static void count_time(struct lane *lane, struct channel *channel)
{
	uint64_t nsec = lane->now_nsec - channel->timed_nsec;

	if (!nsec)
		return;
	channel->timed_nsec = lane->now_nsec;
	if (!channel->n_open)
		return;
	metrics_add(&channel->metrics.open_nsec, nsec * channel->n_open);
	metrics_add(&channel->metrics.device_nsec, nsec * channel->n_in_device);
	metrics_add(&lane->store->metrics.open_nsec, nsec * channel->n_open);
	metrics_add(&lane->store->metrics.device_nsec, nsec * channel->n_in_device);
}

/* The same of the store's blocks and pieces, before blocks_in_flight changes. */
static void count_blocks_time(struct lane *lane)
{
	struct metrics *metrics = &lane->store->metrics;
	const uint64_t nsec = lane->now_nsec - lane->blocks_timed_nsec;

	if (!nsec)
		return;
	lane->blocks_timed_nsec = lane->now_nsec;
	metrics_add(&metrics->blocks_nsec, nsec * metrics_get(&metrics->blocks_in_flight));
}

/* One block or piece less in flight, for those who count it until its end. */
static void count_done(struct lane *lane, struct op *op, uint16_t channel_lane, uint32_t bytes)
{
	struct channel *channel = op->channel;

	metrics_add(&channel->metrics.blocks_in_flight, UINT64_MAX);
	metrics_add(&channel->metrics.bytes_in_flight, -(uint64_t)bytes);
	count_blocks_time(lane);
	metrics_add(&lane->store->metrics.blocks_in_flight, UINT64_MAX);
	metrics_add(&lane->store->metrics.bytes_in_flight, -(uint64_t)bytes);
	admit_end(&lane->admit, &channel->admit, channel_lane, lane->now_nsec);

	op->n_in_flight--;
	if (!op->n_in_flight) {
		count_time(lane, channel);
		channel->n_in_device--;
	}
	if (has_mode_lock(op)) {
		mode_lock_end(&op->file->inode->mode_lock);
		turn_mode_lock(lane, op->file->inode);
	}
	if (!op->n_in_flight && op->state == OP_RUNNING)
		end_op(lane, op);
	sched_update(lane, channel); /* it may have waited for depth */
}

static void cancel_op(struct lane *lane, struct op *op, int error);

/* A step was done, has failed or was dropped: all ops of the file that wait may look again. */
static void step_end(struct piece *piece)
{
	struct lane *lane = piece->lane;
	struct op *op = piece->op;
	struct extension *extension = &op->file->extension;
	int error = piece->error;

	extension->is_running = false;
	op->n_in_flight--;
	if (!op->n_in_flight) {
		count_time(lane, op->channel);
		op->channel->n_in_device--;
	}
	if (error == EOPNOTSUPP || error == ENOSYS) {
		op->file->no_fallocate = true;
		error = 0;
	} else if (!error) {
		extension_note(extension, &piece->step);
		op->n_extended = piece->step.n_extended;
	}
	free(piece);
	while (extension->waiting.first) { /* in order: each stands before those behind it */
		struct op *last = op_of_node(extension->waiting.last);

		list_remove(&extension->waiting, &last->waiter.node);
		let_in(&last->waiter, lane);
	}
	if (op->state != OP_READY) { /* cancelled meanwhile */
		if (!op->n_in_flight)
			end_op(lane, op);
	} else if (error) {
		cancel_op(lane, op, error);
	}
}

/* Done, or dropped. */
static void piece_end(struct piece *piece)
{
	struct lane *lane = piece->lane;
	struct op *op = piece->op;

	lane->n_pieces--;
	op->channel->n_pieces--;
	if (piece->way == PIECE_EXTEND) {
		step_end(piece);
		return;
	}
	if (piece->done < piece->len || piece->error) {
		if (piece->error == EIO && piece->len)
			log_failed(lane, piece->is_write, piece->len, piece->off, op->file, EIO);
		op_stop_at(op, piece->off - op->off + piece->done, piece->error);
	}
	if (piece->is_block)
		admit_worker_end(&op->channel->admit, lane->now_nsec);
	count_done(lane, op, piece->channel_lane, piece->bytes);
	free(piece);
}

/* Hands pieces to the work queue, some at a time. */
static void submit_pieces(struct channel *channel)
{
	while (channel->first_piece) {
		struct piece *piece = channel->first_piece;
		uint32_t max = is_helped(piece->lane, piece->op->file) ? WORKERS_DEPTH
								       : PIECES_AT_ONCE;

		if (channel->n_pieces_helped >= max)
			break;
		channel->first_piece = piece->next;
		if (!channel->first_piece)
			channel->last_piece = NULL;
		channel->n_pieces_helped++;
		work_queue_submit(channel->work_queue, &piece->work);
	}
}

static void piece_done(struct message *message)
{
	struct piece *piece = container_of(message, struct piece, message);
	struct channel *channel = piece->op->channel;

	channel->n_pieces_helped--;
	piece_end(piece);
	submit_pieces(channel);
}

/* Takes the piece, filled in but for what is the lane's. */
static void give_piece(struct lane *lane, struct piece *piece)
{
	struct channel *channel = piece->op->channel;

	piece->lane = lane;
	piece->offset_align = piece->op->file->facts.offset_align;
	piece->memory_align = piece->op->file->facts.memory_align;
	piece->work.run = piece_run;
	piece->work.about = file_about(piece->op->file, piece->way == PIECE_EXTEND ? "fallocate"
							: op_is_sync(piece->op)	   ? "fsync"
							: piece->is_write	   ? "write"
										   : "read");
	piece->message.run = piece_done;
	if (channel->last_piece)
		channel->last_piece->next = piece;
	else
		channel->first_piece = piece;
	channel->last_piece = piece;
	lane->n_pieces++;
	channel->n_pieces++;
	submit_pieces(channel);
}

/* Pieces of it that no worker has yet. */
static void drop_pieces(struct op *op, int error)
{
	struct channel *channel = op->channel;
	struct piece **at = &channel->first_piece, *dropped = NULL;

	channel->last_piece = NULL;
	while (*at) {
		struct piece *piece = *at;

		if (piece->op != op) {
			channel->last_piece = piece;
			at = &piece->next;
			continue;
		}
		*at = piece->next;
		piece->next = dropped;
		dropped = piece;
	}
	for (struct piece *next; dropped; dropped = next) {
		next = dropped->next;
		dropped->error = error;
		piece_end(dropped);
	}
}

/* ---- what a client may cost in a turn ---- */

/* Has the client caused the looks that it may?  Each turn works off a share. */
static bool is_spent(const struct lane *lane, struct sched_client *client)
{
	const uint64_t share = LOOKS_PER_TURN / (lane->admit.n_busy ? lane->admit.n_busy : 1) + 1;

	if (client->looked_turn != lane->turn) {
		client->looked_turn = lane->turn;
		client->n_looks -= client->n_looks < share ? client->n_looks : share;
	}
	return client->n_looks >= share;
}

/* A batch or cancel goes on in the next turn, and whatever comes about its channel behind it. */
static void hold(struct lane *lane, struct channel *channel, struct message *message)
{
	message->next = NULL;
	*lane->last_held = message;
	lane->last_held = &message->next;
	channel->n_held++;
	channel->held_turn = lane->turn;
}

/* Has the message, which is from the mailbox or was held, to wait behind others about the channel? */
static bool is_held_up(const struct lane *lane, const struct channel *channel)
{
	return lane->runs_held ? channel->held_turn == lane->turn : channel->n_held > 0;
}

static int run_held(struct lane *lane)
{
	struct message *message = lane->first_held;
	int n = 0;

	lane->first_held = NULL;
	lane->last_held = &lane->first_held;
	lane->runs_held = true;
	for (struct message *next; message; message = next) {
		next = message->next;
		message->run(message);
		n++;
	}
	lane->runs_held = false;
	return n;
}

/* ---- take ---- */

/* Ops that have ended may not be free yet, though their completions are shown. */
static bool has_op_slot(const struct channel *channel)
{
	return channel->free_ops.first || channel->n_fresh_ops < channel->entries;
}

/* There is one: for rings take_ring() sees to that, for Submit the session. */
static struct op *op_take(struct channel *channel)
{
	struct op *op = op_of_node(list_pop(&channel->free_ops));

	if (op)
		return op;
	assert(channel->n_fresh_ops < channel->entries);
	op = &channel->ops[channel->n_fresh_ops++];
	op->channel = channel;
	return op;
}

/* An entry becomes an op.  The one way in, for rings and Submit. */
static void take_entry(struct lane *lane, struct channel *channel, const struct ring_entry *entry,
		       struct batch *batch, uint32_t batch_index)
{
	struct op *op = op_take(channel);
	struct order *order;
	int r;

	count_time(lane, channel);
	channel->n_open++;
	admit_open_op(&lane->admit, &channel->admit);
	op_set_state(op, OP_WAITS_ORDER);
	op->id = entry->id;
	op->batch = batch;
	op->batch_index = (uint16_t)batch_index;
	op->opcode = entry->opcode;
	op->file = NULL;
	op->slab = NULL;
	op->len = op->end = op->grow_end = 0;
	op->head = op->tail = op->edges_left = 0;
	op->is_misaligned = op->is_gated = false;
	op->next_block = op->next_inner = op->n_in_flight = op->n_blockers = 0;
	op->error = 0;
	op->is_cancelled = false;
	op->taken_nsec = lane->now_nsec;
	op->deadline_nsec = 0;
	metrics_add(&channel->metrics.open_ops, 1);
	metrics_add(&lane->store->metrics.open_ops, 1);

	r = channel_check_entry(channel, entry, op);
	if (r) {
		op->end = 0;
		op->error = (uint16_t)r;
		end_op(lane, op);
		return;
	}
	op->n_extended = op->grow_end ? 0 : UINT32_MAX;
	if (op->grow_end)
		extension_add_op(&op->file->extension);
	admit_note_op(&lane->admit, &channel->admit, op->len, op_is_sync(op), lane->now_nsec);
	if (entry->timeout_msec) {
		deadlines_add(&channel->deadlines, op,
			      lane->now_nsec + entry->timeout_msec * UINT64_C(1000000));
		if (!lane->next_deadline_nsec || op->deadline_nsec < lane->next_deadline_nsec)
			lane->next_deadline_nsec = op->deadline_nsec;
	}
	order = op_order(channel->orders, op->file->inode);
	channel->client->n_looks += op_link_looks(op, order);
	if (op_link(op, order))
		op_may_start(op, lane);
}

/* Starts nothing more of it; it ends now, or when its blocks are back. */
static void cancel_op(struct lane *lane, struct op *op, int error)
{
	switch ((enum op_state)op->state) {
	case OP_FREE:
	case OP_ENDED:
	case N_OP_STATES:
		return;
	case OP_WAITS_ORDER:
		op_wait_no_more(op);
		op_stop_at(op, 0, error);
		end_op(lane, op);
		return;
	case OP_READY:
	case OP_WAITS_MODE_LOCK:
	case OP_WAITS_EXTENSION: {
		struct split split = channel_split(op->channel, op);
		uint32_t n = split_n_blocks(&split);

		if (op_is_sync(op))
			op_stop_at(op, 0, error);
		/* Done is what stands before the first block of any part that did not start. */
		if (op->edges_left & OP_HEAD)
			op_stop_at(op, 0, error);
		if (op->edges_left & OP_TAIL)
			op_stop_at(op, op->len - op->tail, error);
		for (uint32_t i = op->next_block; i < n && i - op->next_block < split.n_parts;
		     i++) {
			struct split_block block = split_block(&split, i);

			if (block.len)
				op_stop_at(op,
					   op->head + block.off +
						   (i == op->next_block ? op->next_inner : 0),
					   error);
		}
		if (op->state == OP_READY)
			ready_remove(op);
		else if (op->state == OP_WAITS_MODE_LOCK)
			mode_lock_leave(&op->file->inode->mode_lock, &op->waiter);
		else
			list_remove(&op->file->extension.waiting, &op->waiter.node);
		ungate(op);
		op->is_cancelled = true;
		op_set_state(op, OP_RUNNING);
		unpromise(lane, op);
		sched_update(lane, op->channel);
		if (!op->n_in_flight)
			end_op(lane, op);
		else
			drop_pieces(op, error);
		return;
	}
	case OP_RUNNING:
		/* All of it is in flight, or a worker syncs: awaited, but for what it only queues. */
		drop_pieces(op, error);
		return;
	}
}

static void report_broken(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, broken_message);

	channel->owner.on_broken(channel, channel->broken_why, channel->owner.arg);
}

static void channel_broke(struct channel *channel, const char *why)
{
	channel->is_broken = true;
	channel->broken_why = why;
	channel->broken_message.run = report_broken;
	mailbox_post(channel->lane_store->main_mailbox, &channel->broken_message);
}

static int take_ring(struct lane *lane, struct channel *channel, int n_max)
{
	int n, i;

	if (!channel->has_rings || channel->is_closing || channel->is_broken)
		return 0;
	n = ring_lane_ready(&channel->ring);
	if (n < 0) {
		channel_broke(channel, "its ring indices make no sense");
		return 1;
	}
	if (n > n_max)
		n = n_max;
	if (n)
		channel->quiet_nsec = lane->now_nsec;
	for (i = 0; i < n && has_op_slot(channel) && !is_spent(lane, channel->client); i++) {
		struct ring_entry entry;

		ring_lane_take(&channel->ring, &entry);
		take_entry(lane, channel, &entry, NULL, 0);
	}
	return i;
}

/* Of one channel; it may have as many as can start. */
static int takes_per_turn(const struct channel *channel)
{
	int n = TAKES_PER_TURN / (int)channel->client->n_awake;

	return n > STARTS_PER_TURN_AT_ONCE ? n : STARTS_PER_TURN_AT_ONCE;
}

static int take_entries(struct lane *lane)
{
	int n = 0;

	for (struct channel *channel = lane->awake; channel; channel = channel->next)
		n += take_ring(lane, channel, takes_per_turn(channel));
	return n;
}

/* ---- start ---- */

/* The step that the head op, which may have none of its next blocks yet, needs. */
static struct extend_step next_step(const struct op *op, const struct split *split)
{
	return extend_step(split, op->next_block, op->off + op->head, op->grow_end);
}

/* Of an op whose next block may lie beyond the file: which way does it go? */
static void look_at_extension(struct op *op, const struct split *split, struct next_block *next)
{
	struct extend_step step = next_step(op, split);

	if (next->is_piece) /* extends the file itself */
		return;
	if (extension_has(&op->file->extension, &step))
		op->n_extended = step.n_extended;
	else if (op->file->no_fallocate || op->grow_end - op->off <= EXTEND_SMALL_BYTES)
		next->is_piece = true;
	else
		next->is_step = true;
}

/* Steps over parts that have fewer blocks; the head op has at least one left. */
static struct next_block head_block(const struct lane *lane, const struct channel *channel)
{
	struct op *op = op_of_node(channel->ready.first);
	const struct file *file = op->file;
	struct split split = channel_split(channel, op);
	struct next_block next = { .op = op };
	uint32_t n_lanes = 1 + lane->n_side_lanes;
	struct split_block block;
	bool is_engine; /* worker threads are */

	if (op_is_sync(op)) {
		next.is_piece = true;
		return next;
	}
	next.is_nowait = (must_not_wait(lane) && !file->facts.is_tmpfs) || file->facts.is_foreign;
	is_engine = is_helped(lane, file);
	next.is_piece = op->is_misaligned || is_engine || (next.is_nowait && file->no_nowait);
	/* tmpfs has no RWF_NOWAIT: a write would wait in io_submit for the inode's lock. */
	next.is_piece |= must_not_wait(lane) && file->facts.is_tmpfs && op->opcode == RING_OP_WRITE;
	if (op->edges_left) {
		next.is_edge = true;
		next.is_piece |= op->opcode == RING_OP_WRITE;
		next.is_bounce = !next.is_piece;
		next.op_off = op->edges_left & OP_HEAD ? 0 : op->len - op->tail;
		next.len = op->edges_left & OP_HEAD ? op->head : op->tail;
		return next;
	}
	block = split_block(&split, op->next_block);
	while (!block.len)
		block = split_block(&split, ++op->next_block);
	if (op->next_block >= op->n_extended)
		look_at_extension(op, &split, &next);
	next.op_off = op->head + block.off + op->next_inner;
	next.len = block.len - op->next_inner;
	if ((next.is_nowait || must_not_wait(lane)) && !op->is_misaligned && !is_engine) {
		uint32_t max = lane->store->whole_bytes;

		if (max > admit_block_bytes(&lane->admit))
			max = admit_block_bytes(&lane->admit);
		if (file->facts.is_foreign && max > FOREIGN_NOWAIT_BYTES)
			max = FOREIGN_NOWAIT_BYTES;
		max &= ~(file->facts.offset_align - 1);
		if (!max)
			max = file->facts.offset_align;
		if (next.len > max)
			next.len = max;
	}
	/* Ops of one block never leave home. */
	if (n_lanes > 1 && !op->is_misaligned && split.len > block.len)
		next.lane = block.part % n_lanes;
	return next;
}

/* What the pieces that it has leave.  Room is the work queue's to tell, under its lock: held for some
   instructions, and asked only by channels that have many pieces where worker threads are the engine. */
static bool pieces_allow(const struct lane *lane, const struct channel *channel,
			 const struct next_block *next)
{
	if (channel->n_pieces < PIECES_MAX)
		return true;
	return next->is_piece && is_helped(lane, next->op->file) &&
	       channel->n_pieces < WORKERS_DEPTH && work_queue_has_room(channel->work_queue);
}

static bool engine_has_room(const struct lane *lane, uint32_t index)
{
	if (index)
		return lane->side_lanes[index - 1].n_given <
		       lane->side_lanes[index - 1].lane->depth;
	return lane->n_waiting < BATCH &&
	       lane->engine->n_in_flight + (uint32_t)lane->n_waiting + lane->n_again < lane->depth;
}

/* Its promise is met, its mode lock held; counts it as in flight for those who do until its end. */
static void count_started(struct lane *lane, struct channel *channel, const struct next_block *next,
			  uint32_t bytes)
{
	struct op *op = next->op;

	if (has_mode_lock(op))
		mode_lock_start(&op->file->inode->mode_lock, &op->waiter, op_write_mode(op));

	if (!op->n_in_flight) {
		count_time(lane, channel);
		channel->n_in_device++;
	}
	op->n_in_flight++;
	metrics_add(&channel->metrics.blocks_in_flight, 1);
	metrics_add(&channel->metrics.bytes_in_flight, bytes);
	count_blocks_time(lane);
	metrics_add(&lane->store->metrics.blocks, bytes > 0);
	metrics_add(&lane->store->metrics.blocks_in_flight, 1);
	metrics_add(&lane->store->metrics.bytes_in_flight, bytes);
	admit_start(&lane->admit, &channel->admit, next->lane, bytes, lane->now_nsec);
}

/* The op's counters step over what has started; if that was the last of it, it runs. */
static void step_over(struct lane *lane, const struct next_block *next)
{
	struct op *op = next->op;
	struct split split = channel_split(op->channel, op);

	if (next->is_edge) {
		op->edges_left &= op->edges_left & OP_HEAD ? (uint8_t)~OP_HEAD : (uint8_t)~OP_TAIL;
	} else if (next->len) {
		op->next_inner += next->len;
		if (op->next_inner == split_block(&split, op->next_block).len) {
			op->next_inner = 0;
			op->next_block++;
		}
	}
	/* Empty blocks of shorter parts may be all that is left. */
	while (!op->next_inner && op->next_block < split_n_blocks(&split) &&
	       !split_block(&split, op->next_block).len)
		op->next_block++;
	if (!op->edges_left && op->next_block == split_n_blocks(&split)) {
		ready_remove(op);
		ungate(op);
		op_set_state(op, OP_RUNNING);
		sched_update(lane, op->channel);
	}
}

static void start_piece(struct lane *lane, struct channel *channel, const struct next_block *next)
{
	struct op *op = next->op;
	struct piece *piece = calloc(1, sizeof(*piece));

	count_started(lane, channel, next, next->len);
	step_over(lane, next);
	if (!piece) {
		op_stop_at(op, next->op_off, ENOMEM);
		count_done(lane, op, (uint16_t)next->lane, next->len);
		return;
	}
	piece->op = op;
	piece->is_write = op->opcode == RING_OP_WRITE;
	if (op_is_sync(op))
		piece->way = op->opcode == RING_OP_FSYNC ? PIECE_SYNC : PIECE_DATASYNC;
	else if (!next->is_edge && !op->is_misaligned)
		piece->way = PIECE_DIRECT;
	else
		piece->way = piece->is_write ? PIECE_BUFFERED : PIECE_BOUNCE;
	piece->fd = piece->way == PIECE_BUFFERED ? file_buffered_fd(op->file) : op->file->fd;
	piece->memory = op->memory ? op->memory + next->op_off : NULL;
	piece->off = op->off + next->op_off;
	piece->len = piece->bytes = next->len;
	piece->channel_lane = (uint16_t)next->lane;
	piece->is_block = next->len && is_helped(lane, op->file);
	if (piece->is_block)
		admit_worker_start(&channel->admit);
	give_piece(lane, piece);
}

static void start_block(struct lane *lane, struct channel *channel, const struct next_block *next)
{
	struct op *op = next->op;
	struct block *block = block_take(lane);

	block->op = op;
	block->bounce = NULL;
	block->off = op->off + next->op_off;
	block->memory = op->memory + next->op_off;
	block->bytes = next->len;
	if (next->is_bounce) {
		struct unaligned_cover cover = unaligned_cover(
			block->off, next->len, unaligned_unit(op->file->facts.offset_align));

		block->bounce = block->memory = bounce_take(&lane->bounces);
		admit_take_page(&lane->admit, &channel->admit);
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
	block->fd = op->file->fd;
	block->who = &op->file->who;
	block->started_nsec = lane->now_nsec;
	admit_engine_start(&lane->admit, &channel->admit, block->is_write, block->bytes,
			   lane->now_nsec, &block->is_small);
	count_started(lane, channel, next, block->bytes);
	if (next->lane) {
		struct side_lane *side = &lane->side_lanes[next->lane - 1];

		side->n_given++;
		block_queue_push(&side->lane->from_home, block);
		ring_lane_doorbell(side->lane, &side->rung);
	} else {
		lane->waiting[lane->n_waiting++] = block;
	}
	step_over(lane, next);
}

/* The head op of its channel waits for its file's extension; if none runs, its step is started. */
static void extend(struct lane *lane, struct op *op)
{
	struct extension *extension = &op->file->extension;
	struct split split = channel_split(op->channel, op);
	struct piece *piece;

	unpromise(lane, op); /* it may take long */
	if (!hold_back(lane, op, OP_WAITS_EXTENSION) || extension->is_running)
		return;
	piece = calloc(1, sizeof(*piece));
	if (!piece) {
		cancel_op(lane, op, ENOMEM);
		return;
	}
	piece->op = op;
	piece->way = PIECE_EXTEND;
	piece->fd = op->file->fd;
	piece->step = next_step(op, &split);
	extension->is_running = true;
	if (!op->n_in_flight) {
		count_time(lane, op->channel);
		op->channel->n_in_device++;
	}
	op->n_in_flight++;
	give_piece(lane, piece);
}

/* What admission has to know of the channel's head block. */
static struct admit_head look_at_head(struct admit_channel *admit, void *arg)
{
	struct lane *lane = arg;
	struct channel *channel = container_of(admit, struct channel, admit);
	const struct next_block *next = &lane->next;

	lane->next = head_block(lane, channel);
	return (struct admit_head){
		.bytes = next->len,
		.lane = next->lane,
		.is_piece = next->is_piece,
		.must_defer = next->is_step || !is_let_in(lane, next->op),
		.needs_page = next->is_bounce,
		.has_room = engine_has_room(lane, next->lane),
		.workers_room = pieces_allow(lane, channel, next),
	};
}

/* The head op, which may not start its next block, waits outside of its channel. */
static int defer(struct lane *lane, const struct next_block *next)
{
	if (next->is_step) {
		extend(lane, next->op);
		return 1;
	}
	(void)hold_back(lane, next->op, OP_WAITS_MODE_LOCK);
	return 0;
}

/* Starts what may start, up to STARTS_PER_TURN; returns how many blocks the engines took. */
static int start_blocks(struct lane *lane)
{
	uint64_t bytes_before = lane->admit.bytes_in_flight;
	int n = submit_waiting(lane);

	admit_begin_turn(&lane->admit, lane->now_nsec);
	while (n < STARTS_PER_TURN ||
	       (lane->engine->is_at_once && n < STARTS_PER_TURN_AT_ONCE &&
		lane->admit.bytes_in_flight - bytes_before < BYTES_PER_TURN_AT_ONCE)) {
		struct admit_decision decision = admit_next(&lane->admit, lane->now_nsec);
		struct channel *channel;

		lane->admit_nsec = decision.until_nsec;
		if (decision.what == ADMIT_NOTHING)
			break;
		channel = container_of(decision.channel, struct channel, admit);
		if (decision.what == ADMIT_DEFER) {
			n += defer(lane, &lane->next);
			continue;
		}
		if (decision.what == ADMIT_FULL) {
			if (channel->n_pieces)
				drop_promises(lane, channel);
			continue;
		}
		if (lane->next.is_piece)
			start_piece(lane, channel, &lane->next);
		else
			start_block(lane, channel, &lane->next);
		n++;
		if (lane->n_waiting == BATCH && submit_waiting(lane) == 0)
			break;
	}
	(void)submit_waiting(lane); /* what it does not take is tried in the next turn */
	if (lane->told_window_bytes != window_bytes(&lane->admit.window)) {
		lane->told_window_bytes = window_bytes(&lane->admit.window);
		atomic_store_explicit(&lane->store->now_window_bytes, lane->told_window_bytes,
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
	block->memory += boundary - block->before;
	block->len = block->bytes - boundary;
	block->before = boundary;
	return true;
}

/* Of a bounce block: copies what is wanted; says how much of that is there, and what failed. */
static uint32_t bounce_out(const struct op *op, const struct block *block, int *error)
{
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
	r = bounce_copy(op->memory + (from - op->off), block->bounce + (from - start), n, &copied);
	if (r)
		*error = r;
	return (uint32_t)copied;
}

/* It leaves the engine and the window. */
static void block_leave(struct lane *lane, struct block *block)
{
	struct admit_channel *channel = &block->op->channel->admit;

	admit_engine_end(&lane->admit, channel, block->bytes, block->is_small, lane->now_nsec);
	if (block->bounce) {
		bounce_give(&lane->bounces, block->bounce);
		admit_give_page(&lane->admit, channel);
	}
	block_give(lane, block);
}

/*
 * Does its time say something of the device?  The end of a file and holes are read without one; what
 * the first look after the start finds done was such, or took less than a turn can tell.
 */
static bool is_of_device(const struct lane *lane, const struct block *block)
{
	return block->result == (int64_t)block->bytes && block->started_nsec != lane->before_nsec;
}

static void block_done(struct lane *lane, struct block *block)
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
			log_failed(lane, block->is_write, block->len, block->off, op->file, error);
	}
	if (is_of_device(lane, block))
		admit_note_done(&lane->admit, block->is_write, block->bytes,
				lane->now_nsec - block->started_nsec, lane->now_nsec);
	/* Nothing is moved, but for its end, by telling that it stopped where it is whole. */
	if (block->bounce) {
		uint32_t wanted = (uint32_t)(op->len - op_off);
		uint32_t done = bounce_out(op, block, &error);

		if (start + bytes < op->off + op->len)
			wanted = (uint32_t)(start + bytes - op->off - op_off);
		if (done < wanted)
			op_stop_at(op, op_off + done, error);
	} else if (block->best < bytes) {
		op_stop_at(op, op_off + block->best, error);
	}
	block_leave(lane, block);
	count_done(lane, op, channel_lane, bytes);
}

/* The kernel would have had to wait: a worker thread may. */
static void hand_over(struct lane *lane, struct block *block)
{
	struct op *op = block->op;
	struct piece *piece;

	if (block->result == -EOPNOTSUPP)
		op->file->no_nowait = true;
	piece = calloc(1, sizeof(*piece));
	if (!piece) {
		block->result = -ENOMEM;
		block_done(lane, block);
		return;
	}
	piece->op = op;
	piece->is_write = block->is_write;
	piece->fd = block->fd;
	piece->bytes = block->bytes;
	piece->channel_lane = block->lane;
	piece->off = block->off - block->before;
	if (block->bounce) {
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
	piece->memory = op->memory + (piece->off - op->off);
	block_leave(lane, block);
	give_piece(lane, piece);
}

/* A block is back from its engine: all of it, or it goes there again. */
static void block_back(struct lane *lane, struct block *block)
{
	struct side_lane *side = block->lane ? &lane->side_lanes[block->lane - 1] : NULL;
	const struct file_facts *facts = &block->op->file->facts;

	if (block->is_nowait && (block->result == -EAGAIN || block->result == -EOPNOTSUPP)) {
		if (side)
			side->n_given--;
		hand_over(lane, block);
		return;
	}
	if (must_continue(block, facts->offset_align > facts->memory_align ? facts->offset_align
									   : facts->memory_align)) {
		if (side) {
			block_queue_push(&side->lane->from_home, block);
			ring_lane_doorbell(side->lane, &side->rung);
			return;
		}
		block->next = lane->again;
		lane->again = block;
		lane->n_again++;
		return;
	}
	if (side)
		side->n_given--;
	block_done(lane, block);
}

static int reap(struct lane *lane)
{
	struct block *blocks[BATCH];
	struct block *block;
	int n = 0, r;

	if (lane->engine->n_in_flight) {
		do {
			r = lane->engine_ops->reap(lane->engine, blocks, BATCH);
			for (int i = 0; i < r; i++)
				block_back(lane, blocks[i]);
			n += r;
		} while (r == BATCH);
	}
	for (uint32_t i = 0; i < lane->n_side_lanes; i++) {
		while ((block = block_queue_pop(&lane->side_lanes[i].lane->to_home))) {
			block_back(lane, block);
			n++;
		}
	}
	return n;
}

/* ---- publish ---- */

static void wake_client(struct channel *channel)
{
	switch (ring_lane_wake(&channel->ring)) {
	case RING_WAKE_NONE:
		break;
	case RING_WAKE_FUTEX:
		/* Not private: the waiter is another process.  No error possible: our mapping. */
		(void)syscall(SYS_futex, &channel->ring.shared->cq_bell, FUTEX_WAKE, INT_MAX, NULL,
			      NULL, 0);
		break;
	case RING_WAKE_SOCKET:
		/* Full: it has bytes to wake up for.  Gone: its session ends. */
		(void)send(channel->client_doorbell_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	}
}

static void count_op(struct metrics *metrics, const struct op *op, uint64_t nsec)
{
	switch (op->opcode) {
	case RING_OP_READ:
		metrics_add(&metrics->reads, 1);
		metrics_add(&metrics->read_bytes, op->end);
		break;
	case RING_OP_WRITE:
		metrics_add(&metrics->writes, 1);
		metrics_add(&metrics->write_bytes, op->end);
		break;
	case RING_OP_FSYNC:
	case RING_OP_FDATASYNC:
		metrics_add(&metrics->fsyncs, 1);
		break;
	default: /* refused: it was none of them */
		break;
	}
	if (op->error)
		metrics_add(&metrics->errors, 1);
	metrics_add(&metrics->open_ops, UINT64_MAX);
	metrics_add(&metrics->ended_nsec, nsec);
	metrics_add_latency(metrics, nsec);
}

static void report_batch(struct message *message)
{
	struct batch *batch = container_of(message, struct batch, message);

	batch->on_done(batch);
}

/* Its completion is shown: lets go of it and of those that waited for it. */
static void free_op(struct lane *lane, struct op *op)
{
	struct channel *channel = op->channel;
	struct batch *batch = op->batch;
	struct slab *slab = op->slab;
	struct file *file = op->file;
	uint64_t nsec = lane->now_nsec - op->taken_nsec;

	count_op(&channel->metrics, op, nsec);
	count_op(&lane->store->metrics, op, nsec);
	if (file) {
		if (op->grow_end)
			extension_remove_op(&file->extension);
		channel->client->n_looks += op_unlink_looks(op);
		op_unlink(op, op_may_start, lane);
	}
	deadlines_remove(&channel->deadlines, op);
	op_set_state(op, OP_FREE);
	list_push_front(&channel->free_ops,
			&op->waiter.node); /* last in, first out: in the cache */
	count_time(lane, channel);
	channel->n_open--;
	admit_close_op(&lane->admit, &channel->admit);
	if (slab)
		slab_unref(slab);
	if (file)
		file_unref(file);
	if (batch && --batch->n_open == 0) {
		batch->message.run = report_batch;
		mailbox_post(channel->lane_store->main_mailbox, &batch->message);
	}
}

/* Frees the channel's ended ops, as many as its client may have in this turn; returns how many. */
static int free_ended(struct lane *lane, struct channel *channel)
{
	const struct op *last = op_of_node(channel->ended.last);
	struct op *op = NULL;
	int n = 0;

	channel->has_ended = false;
	/* What ends meanwhile, behind the last, is published in the next turn. */
	for (; op != last && !is_spent(lane, channel->client); n++) {
		op = op_of_node(list_pop(&channel->ended));
		free_op(lane, op);
	}
	if (channel->ended.first)
		ended_note(lane, channel);
	return n;
}

static int publish(struct lane *lane)
{
	struct channel *channels = lane->first_ended;
	int n = 0;

	if (!channels)
		return 0;
	for (struct channel *c = channels; c; c = c->next_ended)
		if (c->has_rings)
			(void)ring_lane_publish(&c->ring); /* false: only refused ones before */
	RING_FENCE_COMPLETE();
	for (struct channel *c = channels; c; c = c->next_ended)
		if (c->has_rings)
			wake_client(c);
	lane->has_told = true;

	lane->first_ended = NULL;
	for (struct channel *c = channels, *next; c; c = next) {
		next = c->next_ended;
		c->quiet_nsec = lane->now_nsec;
		n += free_ended(lane, c);
	}
	/* What is left must not be slept on. */
	return n + (lane->first_ended != NULL);
}

/* ---- deadlines ---- */

static void run_deadlines(struct lane *lane)
{
	uint64_t next = 0;

	for (struct channel *channel = lane->awake; channel; channel = channel->next) {
		int n = takes_per_turn(channel); /* what is left is due in the next turn */
		struct op *op;

		while ((op = deadlines_first(&channel->deadlines)) &&
		       op->deadline_nsec <= lane->now_nsec && n-- > 0) {
			deadlines_remove(&channel->deadlines, op);
			cancel_op(lane, op, ETIMEDOUT);
		}
		if (op && (!next || op->deadline_nsec < next))
			next = op->deadline_nsec;
	}
	lane->next_deadline_nsec = next;
}

/* ---- messages from the main thread ---- */

static void report_removed(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, message);

	channel->owner.on_removed(channel, channel->owner.arg);
}

static void cancel_all(struct channel *channel)
{
	for (uint32_t i = 0; i < channel->n_fresh_ops; i++)
		cancel_op(channel->home, &channel->ops[i], ECANCELED);
}

/* Lets go of closing channels that have nothing open any more. */
static void remove_idle(struct lane *lane)
{
	for (struct channel *channel = lane->awake, *next; channel; channel = next) {
		next = channel->next;
		if (!channel->is_closing)
			continue;
		/* relaxed: nothing else travels with it, and a later turn sees it, too */
		if (channel->drain &&
		    atomic_load_explicit(&channel->must_hurry, memory_order_relaxed)) {
			channel->drain = false;
			cancel_all(channel);
		}
		if (channel->n_open || channel->n_held)
			continue;
		if (channel->has_rings && !channel->has_left_epoll)
			(void)epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, channel->doorbell_fd, NULL);
		awake_remove(lane, channel);
		lane->n_channels--;
		lane->n_closing--;
		admit_remove_channel(&lane->admit, &channel->admit);
		channel->message.run = report_removed;
		mailbox_post(channel->lane_store->main_mailbox, &channel->message);
	}
}

static void do_add_channel(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, add_message);
	struct lane *lane = channel->home;

	lane->n_channels++;
	channel_wake(lane, channel);
	/* Lanes that a channel is the first to need are added before it. */
	admit_add_channel(&lane->admit, &channel->admit,
			  (uint64_t)channel->profile.block_size * channel->profile.queue_depth *
				  (1 + lane->n_side_lanes));
	if (channel->has_rings) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = channel };

		if (epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, channel->doorbell_fd, &event) < 0)
			channel_broke(channel, "its bell can not be heard (epoll_ctl)");
	}
}

static void do_remove_channel(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, message);

	channel->is_closing = true;
	channel->home->n_closing++;
	channel_wake(channel->home, channel);
	if (!channel->drain)
		cancel_all(channel);
}

static void do_quiesce_reply(struct message *message)
{
	struct lane_quiesce *quiesce = container_of(message, struct lane_quiesce, message);

	quiesce->on_quiet(quiesce);
}

static void do_quiesce(struct message *message)
{
	struct lane_quiesce *quiesce = container_of(message, struct lane_quiesce, message);

	message->run = do_quiesce_reply;
	mailbox_post(quiesce->lane->store->main_mailbox, message);
}

static void do_submit(struct message *message)
{
	struct batch *batch = container_of(message, struct batch, message);
	struct channel *channel = batch->channel;
	struct lane *lane = channel->home;

	if (lane->runs_held) {
		channel->n_held--;
	} else {
		channel_wake(lane, channel);
		batch->n_taken = 0;
		batch->n_open = batch->n + 1; /* one is ours: it may end while we still take */
	}
	for (; batch->n_taken < batch->n; batch->n_taken++) {
		const uint32_t i = batch->n_taken;

		if (channel->is_closing) {
			batch->results[i] = ring_result_failed(ECANCELED, 0);
			batch->n_open--;
		} else if (is_held_up(lane, channel) || is_spent(lane, channel->client)) {
			hold(lane, channel, message);
			return;
		} else {
			take_entry(lane, channel, &batch->entries[i], batch, i);
		}
	}
	if (--batch->n_open == 0) {
		batch->message.run = report_batch;
		mailbox_post(channel->lane_store->main_mailbox, &batch->message);
	}
}

static void report_cancel(struct message *message)
{
	struct lane_cancel *cancel = container_of(message, struct lane_cancel, message);

	cancel->on_done(cancel);
}

static void do_cancel(struct message *message)
{
	struct lane_cancel *cancel = container_of(message, struct lane_cancel, message);
	struct channel *channel = cancel->channel;
	struct lane *lane = channel->home;

	if (lane->runs_held)
		channel->n_held--;
	else
		channel_wake(lane, channel);
	if (!is_held_up(lane, channel) && !is_spent(lane, channel->client))
		(void)take_ring(lane, channel, INT_MAX); /* the op may still be there */
	if (!channel->is_closing && (is_held_up(lane, channel) || is_spent(lane, channel->client) ||
				     (channel->has_rings && !channel->is_broken &&
				      ring_lane_has_entries(&channel->ring)))) {
		hold(lane, channel, message);
		return;
	}
	if (channel->n_open) {
		channel->client->n_looks += channel->n_fresh_ops;
		for (uint32_t i = 0; i < channel->n_fresh_ops; i++)
			if (channel->ops[i].id == cancel->id)
				cancel_op(lane, &channel->ops[i], ECANCELED);
	}
	message->run = report_cancel;
	mailbox_post(channel->lane_store->main_mailbox, message);
}

static void do_add_side_lane(struct message *message)
{
	struct side_lane *side = container_of(message, struct side_lane, message);
	struct lane *home = side->lane->home;

	home->n_blocks += home->depth;
	home->n_side_lanes++;
}

static void do_stop(struct message *message)
{
	container_of(message, struct lane, stop_message)->must_stop = true;
}

/* ---- sleep ---- */

static void note_idle_doorbell(struct lane *lane, struct channel *channel)
{
	/* One that comes late, for entries that were found without it, is not idle. */
	if (ring_lane_has_entries(&channel->ring) ||
	    channel->ring.taken != channel->doorbell_taken) {
		channel->doorbell_taken = channel->ring.taken;
		return;
	}
	if (lane->now_nsec - channel->idle_doorbells_since_nsec > 1000000000u) {
		channel->idle_doorbells_since_nsec = lane->now_nsec;
		channel->n_idle_doorbells = 0;
	}
	if (++channel->n_idle_doorbells <= lane->idle_doorbells_max)
		return;
	(void)epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, channel->doorbell_fd, NULL);
	channel->has_left_epoll = true;
	log_client(&lane->log_limit,
		   "store %s: a client rang its bell %u times in a second without entries: "
		   "it is not heard any more",
		   lane->store->name, channel->n_idle_doorbells);
}

/* The look between announcing a sleep and sleeping. */
static bool has_work(struct lane *lane)
{
	if (mailbox_has_any(&lane->mailbox))
		return true;
	if (lane->engine->n_in_flight && lane->engine_ops->is_ready(lane->engine))
		return true;
	if (lane->home)
		return block_queue_has_any(&lane->from_home);
	for (uint32_t i = 0; i < lane->n_side_lanes; i++)
		if (block_queue_has_any(&lane->side_lanes[i].lane->to_home))
			return true;
	for (struct channel *channel = lane->awake; channel; channel = channel->next)
		if (channel->has_rings && !channel->is_closing && !channel->is_broken &&
		    ring_lane_has_entries(&channel->ring))
			return true;
	return false;
}

static int sleep_msec(const struct lane *lane)
{
	uint64_t until = lane->next_deadline_nsec, left;

	if (lane->n_waiting || lane->n_again)
		return RETRY_MSEC;
	if (lane->admit_nsec && (!until || lane->admit_nsec < until))
		until = lane->admit_nsec;
	if (!until)
		return -1;
	if (until <= lane->now_nsec)
		return 0;
	left = (until - lane->now_nsec + 999999) / 1000000;
	return left < INT_MAX ? (int)left : INT_MAX;
}

/* Acts on every event, whichever call returned it: its edge does not come again.  What the engine
   and the mailbox have to say is looked for in each turn, and before each sleep. */
static void act_on(struct lane *lane, const struct epoll_event *events, int n)
{
	assert(n >= 0 || errno == EINTR);
	if (n < 0)
		return;
	for (int i = 0; i < n; i++) {
		struct channel *channel = events[i].data.ptr;

		if (!channel)
			continue;
		note_idle_doorbell(lane, channel);
		if (!channel->is_awake)
			channel_wake(lane, channel);
	}
	lane->polled_nsec = n < EVENTS_MAX ? lane->now_nsec : 0; /* 0: there may be more */
}

static void poll_doorbells(struct lane *lane)
{
	struct epoll_event events[EVENTS_MAX];

	act_on(lane, events, epoll_wait(lane->epoll_fd, events, EVENTS_MAX, 0));
}

static void lane_sleep(struct lane *lane)
{
	struct epoll_event events[EVENTS_MAX];
	bool has_slept = false;
	int n = 0;

	lane->spun_nsec = 0;
	lane_board_set(lane->board, ++lane->state); /* odd */
	RING_FENCE_SLEEP();
	if (!has_work(lane)) {
		n = epoll_wait(lane->epoll_fd, events, EVENTS_MAX, sleep_msec(lane));
		has_slept = true;
	}
	lane_board_set(lane->board, ++lane->state); /* even */
	lane->now_nsec = clock_nsec();
	if (has_slept)
		act_on(lane, events, n);
}

/* True: spin on.  With completions just told their owner's next ops come first, else the device. */
static bool may_spin(struct lane *lane, bool did)
{
	uint64_t gap = lane->now_nsec - lane->last_did_nsec, allowed;

	if (lane->spun_nsec)
		spin_note_look(&lane->rests_until_nsec, lane->spun_nsec, lane->now_nsec);
	if (did) {
		if (lane->was_idle && gap >= GAP_MIN_NSEC)
			spin_note_wait(&lane->mean_gap_nsec[lane->waits_for], gap, GAP_MAX_NSEC);
		lane->waits_for = !lane->has_told && (lane->admit.n_in_flight ||
						      lane->engine->n_in_flight)
					  ? WAITS_FOR_DEVICE
					  : WAITS_FOR_OP;
		lane->last_did_nsec = lane->now_nsec;
		lane->spun_nsec = 0;
		lane->was_idle = lane->has_told = false;
		return true;
	}
	lane->was_idle = true;
	lane->spun_nsec = lane->now_nsec;
	allowed = spin_among(lane->spin_nsec, lane->admit.n_in_flight, lane->admit.bytes_in_flight);
	return gap < allowed && spin_pays(lane->mean_gap_nsec[lane->waits_for],
					  lane->rests_until_nsec, allowed, lane->now_nsec);
}

/* ---- the two loops ---- */

static int home_turn(struct lane *lane)
{
	int did = 0;

	lane->turn++;
	if (lane->first_held)
		did += run_held(lane);
	if (mailbox_has_any(&lane->mailbox))
		did += mailbox_run(&lane->mailbox);
	did += take_entries(lane);
	did += reap(lane);
	if (lane->next_deadline_nsec && lane->next_deadline_nsec <= lane->now_nsec)
		run_deadlines(lane);
	did += publish(lane);
	did += start_blocks(lane);
	if (did && lane->n_closing)
		remove_idle(lane);
	if (lane->now_nsec >= lane->next_park_nsec)
		park_quiet(lane);
	return did;
}

static int side_turn(struct lane *lane)
{
	struct block *blocks[BATCH];
	struct block *block;
	int did = 0, n;

	if (mailbox_has_any(&lane->mailbox))
		did += mailbox_run(&lane->mailbox);
	while (lane->n_waiting < BATCH && (block = block_queue_pop(&lane->from_home))) {
		lane->waiting[lane->n_waiting++] = block;
		did++;
	}
	did += submit_waiting(lane);
	if (lane->engine->n_in_flight) {
		n = lane->engine_ops->reap(lane->engine, blocks, BATCH);
		for (int i = 0; i < n; i++)
			block_queue_push(&lane->to_home, blocks[i]);
		if (n)
			ring_lane_doorbell(lane->home, &lane->home_rung);
		did += n;
	}
	return did;
}

/* A lane that does not sleep hears doorbells only so. */
static bool must_poll(const struct lane *lane, bool did)
{
	return lane->n_parked &&
	       lane->now_nsec - lane->polled_nsec >= (did ? POLL_BUSY_NSEC : POLL_SPIN_NSEC);
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;

	lane->now_nsec = lane->last_did_nsec = clock_nsec();
	while (!lane->must_stop) {
		int did;

		lane->before_nsec = lane->now_nsec;
		lane->now_nsec = clock_nsec();
		did = lane->home ? side_turn(lane) : home_turn(lane);
		if (!may_spin(lane, did > 0))
			lane_sleep(lane);
		else if (must_poll(lane, did > 0))
			poll_doorbells(lane);
		else
			cpu_relax();
	}
	return NULL;
}

/* ---- start and stop ---- */

static int make_board(struct lane *lane, struct error *error)
{
	long page = sysconf(_SC_PAGESIZE);

	lane->board_fd = memfd_create("dsaio-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (lane->board_fd < 0)
		return error_set(error, -errno, "lane: memfd_create");
	if (ftruncate(lane->board_fd, page) < 0)
		return error_set(error, -errno, "lane: board");
	lane->board = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, lane->board_fd,
			   0);
	if (lane->board == MAP_FAILED) {
		lane->board = NULL;
		return error_set(error, -errno, "lane: mapping the board");
	}
	/* After our own mapping nobody gets a writable one. */
	if (fcntl(lane->board_fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return error_set(error, -errno, "lane: sealing the board");
	lane->board->magic = LANE_BOARD_MAGIC;
	lane->board->version = RING_VERSION;
	return 0;
}

void lane_free(struct lane *lane)
{
	if (!lane)
		return;
	lane->engine_ops->close(lane->engine);
	bounces_deinit(&lane->bounces);
	for (uint32_t i = 0; i < STORE_LANES_MAX; i++)
		free(lane->blocks[i]);
	free(lane->from_home.slots);
	free(lane->to_home.slots);
	if (lane->board)
		(void)munmap(lane->board, (size_t)sysconf(_SC_PAGESIZE)); /* ours: can not fail */
	closep(&lane->board_fd);
	closep(&lane->epoll_fd);
	mailbox_deinit(&lane->mailbox);
	free(lane);
}

static void lane_freep(struct lane **lane)
{
	lane_free(*lane);
}

static int add_to_epoll(struct lane *lane, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = NULL };

	return epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int start_thread(struct lane *lane, struct error *error)
{
	sigset_t all, old;
	char name[16];
	int r;

	/* Lanes take no signals: io_submit is never interrupted. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&lane->thread, NULL, lane_main, lane);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return error_set(error, -r, "store %s: lane %" PRIu32 ": thread", lane->store->name,
				 lane->index);
	(void)snprintf(name, sizeof(name), "%.11s/%" PRIu32, lane->store->name, lane->index);
	(void)pthread_setname_np(lane->thread, name); /* for ps and perf only */
	return 0;
}

int lane_start(const struct lane_config *config, struct lane **ret_lane, struct error *error)
{
	_cleanup_(lane_freep) struct lane *lane = NULL;
	int r;

	if (posix_memalign((void **)&lane, 64, sizeof(*lane)))
		return error_set(error, -ENOMEM, "store %s: lane %" PRIu32, config->store->name,
				 config->index);
	memset(lane, 0, sizeof(*lane));
	lane->store = config->store;
	lane->index = config->index;
	lane->home = config->home;
	lane->engine_ops = config->engine;
	lane->board_fd = lane->epoll_fd = lane->mailbox.event_fd = -1;
	lane->last_held = &lane->first_held;
	if (cpu_count() > 1) /* else it would only keep the clients off the one core */
		lane->spin_nsec = config->store->spin_usec * UINT64_C(1000);
	lane->park_nsec = config->park_nsec;
	lane->idle_doorbells_max = config->idle_doorbells_max;

	r = mailbox_init(&lane->mailbox);
	if (r < 0)
		return error_set(error, r, "store %s: lane %" PRIu32 ": mailbox",
				 config->store->name, config->index);
	r = config->engine->open(config->depth, config->depth_min, &lane->engine, error);
	if (r < 0)
		return r;
	lane->depth = lane->engine->depth;
	lane->engine->watch = &lane->watch;
	r = make_board(lane, error);
	if (r < 0)
		return r;
	if (!lane->home) {
		admit_init(&lane->admit, lane->store->window_bytes, BOUNCES, look_at_head, lane);
		r = bounces_init(&lane->bounces);
		if (r < 0)
			return error_set(error, r, "store %s: lane 0: bounce pages",
					 config->store->name);
		lane->blocks[0] = calloc(lane->depth, sizeof(struct block));
		lane->n_blocks = lane->depth;
		if (!lane->blocks[0])
			return error_set(error, -ENOMEM, "store %s: lane 0: blocks",
					 config->store->name);
	} else if (block_queue_init(&lane->from_home, lane->depth) < 0 ||
		   block_queue_init(&lane->to_home, lane->depth) < 0) {
		return error_set(error, -ENOMEM, "store %s: lane %" PRIu32 ": queues",
				 config->store->name, config->index);
	}
	lane->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (lane->epoll_fd < 0)
		return error_set(error, -errno, "store %s: lane %" PRIu32 ": epoll",
				 config->store->name, config->index);
	r = add_to_epoll(lane, lane->mailbox.event_fd);
	if (r == 0)
		r = add_to_epoll(lane, config->engine->event_fd(lane->engine));
	if (r < 0)
		return error_set(error, r, "store %s: lane %" PRIu32 ": epoll", config->store->name,
				 config->index);
	r = start_thread(lane, error);
	if (r < 0)
		return r;
	(void)snprintf(lane->watch_name, sizeof(lane->watch_name), "store %s, lane %" PRIu32,
		       lane->store->name, lane->index);
	hung_watch_add(&lane->watch, &(struct hung_about){ .what = "io_submit",
							   .file = lane->watch_name,
							   .dev = lane->store->dev });
	if (!lane->home)
		lane->store->home = lane;
	*ret_lane = TAKE_PTR(lane);
	return 0;
}

void lane_stop(struct lane *lane)
{
	lane->stop_message.run = do_stop;
	mailbox_post(&lane->mailbox, &lane->stop_message);
	(void)pthread_join(lane->thread, NULL); /* it was started: can not fail */
	hung_watch_remove(&lane->watch);
	assert(!lane->n_channels && !lane->admit.n_in_flight && !lane->n_pieces);
}

uint32_t lane_depth(const struct lane *lane)
{
	return lane->depth;
}

uint64_t lane_lowest_nsec(const struct lane *lane, bool is_write, uint32_t bytes)
{
	return window_lowest_nsec(&lane->admit.window, is_write, bytes);
}

int lane_board_fd(const struct lane *lane)
{
	return lane->board_fd;
}

int lane_add_side_lane(struct lane *home, struct lane *lane)
{
	struct side_lane *side = &home->side_lanes[lane->index - 1];

	home->blocks[lane->index] = calloc(home->depth, sizeof(struct block));
	if (!home->blocks[lane->index])
		return -ENOMEM;
	side->lane = lane;
	side->message.run = do_add_side_lane;
	mailbox_post(&home->mailbox, &side->message);
	return 0;
}

void lane_add_channel(struct lane *lane, struct channel *channel)
{
	channel->add_message.run = do_add_channel;
	mailbox_post(&lane->mailbox, &channel->add_message);
}

void lane_remove_channel(struct lane *lane, struct channel *channel, bool drain)
{
	channel->drain = drain;
	channel->message.run = do_remove_channel;
	mailbox_post(&lane->mailbox, &channel->message);
}

void lane_hurry_channel(struct channel *channel)
{
	atomic_store_explicit(&channel->must_hurry, true, memory_order_relaxed);
}

void lane_submit(struct batch *batch)
{
	batch->message.run = do_submit;
	mailbox_post(&batch->channel->home->mailbox, &batch->message);
}

void lane_cancel(struct lane_cancel *cancel)
{
	cancel->message.run = do_cancel;
	mailbox_post(&cancel->channel->home->mailbox, &cancel->message);
}

void lane_quiesce(struct lane *lane, struct lane_quiesce *quiesce)
{
	quiesce->lane = lane;
	quiesce->message.run = do_quiesce;
	mailbox_post(&lane->mailbox, &quiesce->message);
}
