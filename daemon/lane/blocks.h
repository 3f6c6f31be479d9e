/*
 * Blocks that are set aside, because the data path does not allocate.
 *
 * A store has as many blocks for engines as its lanes' engine queues hold.  A channel has its own blocks
 * for workers: its depth bounds those in use, also while the calls of other channels hang.  The kernel
 * gives memory to blocks that were used at least once.
 *
 * blocks_prepare_lane(): main thread.  All else: home lane.
 */
#ifndef DSAIO_DAEMON_LANE_BLOCKS_H
#define DSAIO_DAEMON_LANE_BLOCKS_H

#include "daemon/engine/threads.h"
#include "proto/profile.h"

/* Blocks for engines. */
struct blocks {
	struct block *lanes[STORE_LANES_MAX]; /* an array of depth blocks for each lane */
	uint32_t depth;
	uint32_t n, n_fresh; /* in all arrays; of them used at least once */
	struct block *free;
};

/* Sets blocks aside for a lane, number lane from 0.  0 or -ENOMEM. */
int blocks_prepare_lane(struct blocks *blocks, uint32_t lane);
/* The blocks of the next lane may be used. */
void blocks_add_lane(struct blocks *blocks);
void blocks_deinit(struct blocks *blocks); /* zeroes are fine */

/* There is one.  Its content is undefined. */
struct block *block_take(struct blocks *blocks);
void block_give(struct blocks *blocks, struct block *block);

/* A channel's blocks for workers. */
struct worker_blocks {
	struct worker_block *blocks; /* n_max; the channel's */
	uint32_t n_max, n_fresh;     /* n_fresh: used at least once */
	struct block *free;
};

/* There is one.  Its content is undefined. */
struct block *worker_block_take(struct worker_blocks *blocks);
void worker_block_give(struct worker_blocks *blocks, struct block *block);

#endif
