/*
 * Transfer starts blocks in the order of admission, hands them to an engine, takes them back, continues
 * short ones, and adds their results to their op.
 *
 * Blocks go to the home lane's own engine, or through a queue to a side lane.  A lane must not block, so
 * blocks that may block go to the worker threads of the user as pieces, and return through the mailbox.
 * Blocks that the kernel returned because they would block (RWF_NOWAIT) do so too.  One exception: in a
 * user's own daemon, blocks of a client that is alone on the store may wait.
 *
 * A piece starts only if a worker thread is free.  Until then its op waits outside of the channel and
 * holds no mode lock, because the user's other calls may hang and must not delay other users.
 *
 * A piece counts in its op and in the depth of its channel, but not in the store's window and the
 * engine's depth.  Worker threads are the engine on a store where io_submit itself does the work
 * (probe.h), and for files without RWF_NOWAIT while another client would have to wait.  Then all
 * blocks are pieces.  No window limits them, because a hung file would fill it for all clients.  Only
 * the depth of each channel does.
 *
 * A worker thread extends a file before direct writes behind its end (extend.h).  A short write is a
 * piece instead, and extends the file itself.
 *
 * Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_TRANSFER_H
#define DSAIO_DAEMON_LANE_TRANSFER_H

#include "daemon/base/log.h"
#include "daemon/lane/engine_queue.h"
#include "daemon/lane/next_block.h"
#include "daemon/lane/publish.h"
#include "daemon/lane/ready.h"
#include "daemon/lane/side_lane.h"
#include "daemon/object/unaligned.h"

/* Blocks started in a turn if the engine completes them in submit. */
#define TRANSFER_STARTS_AT_ONCE 8

struct transfer_config {
	struct lane_store *store; /* all are borrowed */
	const struct turn *turn;
	struct admit *admit;
	struct ready *ready;
	struct publish *publish;
	struct engine_queue *engine;
	struct mailbox *mailbox; /* the lane's: pieces come back there */
	struct log_limit *log_limit;
};

struct transfer {
	struct lane_store *store;
	const struct turn *turn;
	struct admit *admit;
	struct ready *ready;
	struct publish *publish;
	struct engine_queue *engine;
	struct mailbox *mailbox;
	struct log_limit *log_limit;

	struct transfer_side {
		struct side_lane *side;
		uint32_t depth, n_given; /* blocks that it takes, and has */
		struct lane_doorbell doorbell;
	} sides[STORE_LANES_MAX];
	uint32_t n_sides;
	struct block *blocks[STORE_LANES_MAX]; /* arrays of the engine's depth, one for each lane */
	uint32_t n_blocks, n_fresh;	       /* in all arrays; of them used at least once */
	struct block *free_blocks;
	struct bounces bounces;
	uint32_t n_pieces;	/* with worker threads */
	struct next_block next; /* the last that admission looked at */
	uint64_t until_nsec;	/* when a block may start that may not now; 0: not known */
	uint64_t told_window_bytes;
	uint64_t blocks_timed_nsec; /* the store's blocks_nsec is of then */
};

int transfer_init(struct transfer *transfer, const struct transfer_config *config); /* 0, -errno */
void transfer_deinit(struct transfer *transfer); /* zeroes are fine */

/* Main thread: sets blocks aside for a further side lane, number index from 1.  0 or -ENOMEM. */
int transfer_prepare_side(struct transfer *transfer, uint32_t index);
/* The home lane: the next side lane may be given blocks. */
void transfer_add_side(struct transfer *transfer, struct side_lane *side, uint32_t depth,
		       const struct lane_doorbell *doorbell);

/* For admission: what it has to know of the channel's head block. */
struct admit_head transfer_look(struct admit_channel *admit, void *transfer);
/* Starts what may start, a few blocks; returns how many started. */
int transfer_start(struct transfer *transfer);
/* Takes blocks back that engines have done; returns how many. */
int transfer_reap(struct transfer *transfer);
/* Before the first op of the channel. */
void transfer_add_channel(struct transfer *transfer, struct channel *channel);
/* A closing channel with no op open: its work queue does not know it any more. */
bool transfer_let_go(struct channel *channel);
/* Starts nothing more of the op; it ends now, or when its blocks are back. */
void transfer_cancel(struct transfer *transfer, struct op *op, int error);
/* transfer_reap() would find something: the look before a sleep. */
bool transfer_is_ready(const struct transfer *transfer);

#endif
