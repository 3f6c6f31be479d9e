/*
 * Transfer starts blocks in the order of admission, hands them to an engine, takes them back, continues
 * short ones, and adds their results to their op.
 *
 *     transfer_start.h   the next block of an op starts, or the op waits outside of its channel
 *     block.h            the states of a block, and what it is charged with in each
 *     transfer_end.h     a block is back: it is continued, goes to the workers, or ends
 *
 * Blocks go to the lane's own engine.  A lane must not block, so blocks that may block go to the engine
 * `threads`, to the workers of their user.  Blocks that the kernel returned because they would block
 * (RWF_NOWAIT) do so too.  One exception: in a user's own daemon, blocks of a client that is alone on the
 * store may wait.
 *
 * A block for workers starts only if a worker begins with it.  Until then its op waits outside of the
 * channel and holds no mode lock, because the user's other calls may hang and must not delay other
 * users.
 *
 * Such a block counts in its op and in the depth of its channel, but not in the engine's depth, and in the
 * store's window only if it is of GPU memory, whose bytes are at the device (block.h).  Worker threads
 * are the engine on a store where io_submit itself does the work (probe.h), and for files without
 * RWF_NOWAIT while another client would have to wait.  Then all blocks go to workers.  No window limits
 * these, because a hung file would fill it for all clients.  Only the depth of each channel does.
 *
 * A worker extends a file before direct writes behind its end (extend.h).  A short write goes to a
 * worker instead, and extends the file itself.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_TRANSFER_H
#define DSAIO_DAEMON_LANE_TRANSFER_H

#include "daemon/base/log.h"
#include "daemon/base/stall.h"
#include "daemon/engine/engine.h"
#include "daemon/lane/block.h"
#include "daemon/lane/next_block.h"
#include "daemon/lane/publish.h"
#include "daemon/lane/ready.h"
#include "daemon/object/unaligned.h"

/* Blocks handled by one call of an engine: bounds the arrays, not the depth. */
#define TRANSFER_BATCH 128

/* The lane sets the pointers before transfer_init(); the others start as zeroes. */
struct transfer {
	struct lane_store *store; /* all are borrowed */
	const struct lane_turn *turn;
	struct admit *admit;
	struct ready *ready;
	struct publish *publish;
	struct engine *engine; /* the lane's own */
	struct engine *threads;
	struct log_limit *log_limit;
	struct stall_table stalls; /* of clients' memory on this store */

	struct block_pool blocks; /* for the engine: as many as it holds */
	struct bounces bounces;
	struct list windowed_at_workers; /* struct lane_block, by age */
	uint64_t until_nsec;		 /* when a block may start that may not now; 0: not known */
	uint64_t published_window_bytes;
	uint64_t blocks_timed_nsec; /* the store's blocks_nsec is of then */

	/* For the engine: new ones, in their order, and those that are back from it and to be continued. */
	struct block *waiting[TRANSFER_BATCH], *again;
	int n_waiting;
	uint32_t n_again;
};

int transfer_init(struct transfer *transfer);	 /* 0, -errno */
void transfer_deinit(struct transfer *transfer); /* zeroes are fine */

/* Before the first op of the channel. */
void transfer_add_channel(struct transfer *transfer, struct channel *channel);
/* A closing channel with no op open.  False: a message about it is on its way; try again later. */
bool transfer_remove_channel(struct channel *channel);

/* Blocks wait, and nothing wakes the lane when there is room for them. */
static inline bool transfer_has_waiting(const struct transfer *transfer)
{
	return transfer->n_waiting || transfer->n_again;
}

#endif
