/*
 * The next block of a channel's head op: its range, and whether a lane or a worker thread carries it
 * out.  It depends on the op, its file and the rules only.
 *
 * Calls that may block run on a worker thread: syncs, unaligned writes, ranges in misaligned memory, and
 * while no block may wait in io_submit also writes to tmpfs, blocks of files without RWF_NOWAIT, and all
 * blocks on memory that is banned from the lanes (stall.h).  All blocks of GPU memory are such calls.
 */
#ifndef DSAIO_DAEMON_LANE_NEXT_BLOCK_H
#define DSAIO_DAEMON_LANE_NEXT_BLOCK_H

#include "daemon/lane/channel.h"

/* Why the block may not start, whatever admission says.  Its op waits for that outside of its channel. */
enum next_needs { NEXT_NEEDS_NOTHING, NEXT_NEEDS_EXTENSION, NEXT_NEEDS_WORKER, NEXT_NEEDS_LOCK };

struct next_block {
	struct op *op;
	struct block *returned; /* to be started again; NULL: a new block */
	enum block_operation operation;
	uint64_t op_off;
	uint32_t len;	   /* 0: a sync */
	bool is_unaligned; /* the head or tail */
	bool is_nowait;
	bool is_worker; /* for a worker, not the engine */
	bool workers_are_engine;
	bool is_step;	       /* the file must be extended first */
	bool is_bounce;	       /* needs a bounce page */
	enum next_needs needs; /* transfer_start.c: depends on other ops, too */
};

/* The rules for all blocks of a channel in a turn. */
struct block_rules {
	const struct lane_store *store;
	const struct engine_ops *engine; /* of the lane */
	const struct stall_table *stalls;
	uint64_t now_nsec;
	bool must_not_wait; /* no block may wait in io_submit */
	uint32_t max_bytes; /* of a block that may not wait there */
	uint32_t cut_bytes; /* of a block of GPU memory, which the driver cuts for the device */
	bool is_any_cut; /* cut_bytes is for any block: a higher class throttles it (sched.h), or the store is limited */
};

/* Whether worker threads are the engine for the blocks of this op: by its file, or for GPU memory. */
bool workers_are_engine(const struct lane_store *store, const struct op *op);

/* Describes the next block.  The channel must have a ready op with a block left. */
struct next_block next_block_look(const struct channel *channel, const struct block_rules *rules);
/* The block has started: advances the op's counters. */
void next_block_step_over(const struct next_block *next);
/* Whether none of its blocks has started. */
bool next_block_is_first(const struct op *op);
/* Whether all blocks of the op have started. */
bool next_block_is_over(const struct op *op);
/* The extension step that the next block of the head op needs. */
struct extend_step next_block_extend_step(const struct op *op);
/* Ends the op before the first block that has not started. */
void next_block_stop(struct op *op, int error);

#endif
