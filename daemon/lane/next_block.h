/*
 * What the head op of a channel starts next: cutting it, block by block, and which way the block
 * goes.  Pure functions of the op, its file and the rules.
 *
 * What may block goes to a worker thread: syncs, unaligned writes, writes to tmpfs, and blocks of
 * files where RWF_NOWAIT is not known and another client would have to wait.
 */
#ifndef DSAIO_DAEMON_LANE_NEXT_BLOCK_H
#define DSAIO_DAEMON_LANE_NEXT_BLOCK_H

#include "daemon/lane/channel.h"

struct next_block {
	struct op *op;
	struct piece *returned; /* to be started again; NULL: a new block */
	uint64_t op_off;
	uint32_t len;  /* 0: a sync */
	uint32_t lane; /* 0: home */
	bool is_edge, is_nowait;
	bool is_piece;	/* for a worker, not the engine */
	bool is_step;	/* the file has to be extended before */
	bool is_bounce; /* takes a page */
};

/* What holds for all blocks of a turn. */
struct block_rules {
	const struct lane_store *store;
	bool must_not_wait; /* no block may wait in io_submit */
	uint32_t max_bytes; /* of a block that may not wait there */
	uint32_t n_lanes;
};

/* Whether worker threads are the engine for the blocks of this file. */
bool uses_workers(const struct lane_store *store, const struct file *file);

/* The channel has an op that is ready, with a block left. */
struct next_block next_block_look(const struct channel *channel, const struct block_rules *rules);
/* The block has started: its op's counters step over it. */
void next_block_step_over(const struct next_block *next);
/* Nothing of the op is left to start. */
bool next_block_is_over(const struct op *op);
/* The step that the head op, which may have none of its next blocks yet, needs. */
struct extend_step next_block_extend_step(const struct op *op);
/* Cuts the op off before its first block that has not started, and those of its other parts. */
void next_block_stop(struct op *op, int error);

#endif
