/*
 * A block, from its start to its end.  It has one state at a time; block_move() alone changes it.
 *
 * The state and the kind say what a block is charged with (the table in block.c).  The block keeps what it
 * was charged with, so each charge is released once, whatever way the block ends.  Each discharge lets those
 * try again that wait for it.  The bytes that a client is charged with for its turn, and latencies, are no
 * charges but events: the caller reports them.
 *
 *     FREE           -> AT_ENGINE -> FREE: done; RETURNED: it would have blocked
 *     FREE, RETURNED -> AT_WORKER -> FREE; HUNG
 *     HUNG, RETURNED              -> FREE
 *
 * Blocks are set aside, because the data path does not allocate: a lane has as many as its engine
 * holds, and a channel has its own for workers.  Its depth bounds those in use, also while the calls of
 * other channels hang.  The kernel gives memory to blocks that were used at least once.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_BLOCK_H
#define DSAIO_DAEMON_LANE_BLOCK_H

#include "daemon/engine/threads.h"
#include "proto/profile.h"
#include "proto/util/cleanup.h"

struct transfer;

/* Beside each state: the list that the block is in. */
enum block_state {
	BLOCK_FREE,	 /* its reservation's free list */
	BLOCK_AT_ENGINE, /* the transfer's that wait for the engine, or none */
	BLOCK_AT_WORKER, /* with CHARGE_WINDOW the transfer's windowed_at_workers, else none */
	BLOCK_RETURNED,	 /* its op's returned blocks: a worker has to start it again */
	BLOCK_HUNG, /* none: a worker has it, and the window of all clients does not wait for it */
	N_BLOCK_STATES
};

/* Fixed when it starts. */
enum block_kind {
	BLOCK_OF_ENGINE,
	BLOCK_OUTSIDE_WINDOW,	 /* of an engine whose blocks do not queue at the device */
	BLOCK_OF_WORKERS,	 /* may block; without a count for the client */
	BLOCK_OF_WORKERS_ENGINE, /* workers are the engine of its file */
	BLOCK_OF_GPU,		 /* GPU memory: at workers, and its bytes are at the device */
	BLOCK_OF_EXTENSION,	 /* a step of an extension: counts in its op only */
	N_BLOCK_KINDS
};

enum block_charge {
	CHARGE_OP = 1u << 0,	  /* the op's blocks in flight; the last one ends the op */
	CHARGE_METRICS = 1u << 1, /* the channel's and the store's */
	CHARGE_DEPTH = 1u << 2,	  /* of its channel */
	CHARGE_WINDOW = 1u << 3,  /* of the store */
	CHARGE_CLIENT = 1u << 4,  /* its client's blocks in flight */
	CHARGE_LOCK = 1u << 5,	  /* the mode lock of its inode */
	CHARGE_WORKER = 1u << 6,  /* the channel's blocks at workers */
	CHARGE_DEEP = 1u << 7,	  /* of them, where workers are the engine: if the caller says so */
	CHARGE_PAGE = 1u << 8,	  /* a bounce page: if the caller says so */
	CHARGE_RETURNED = 1u << 9, /* the channel's returned blocks */
	N_BLOCK_CHARGES = 10
};

struct lane_block {
	struct worker_block at_worker; /* its block is the request; the rest only for workers */
	struct lane_block **free_list; /* of its reservation */
	struct lane_block *next_free;  /* FREE */
	struct list_node window_node;  /* in windowed_at_workers */
	uint64_t page_off;   /* with CHARGE_PAGE: of that page in the bounce pages' region */
	uint16_t charges;    /* bits of enum block_charge: held now */
	uint16_t conditions; /* CHARGE_DEEP, CHARGE_PAGE: that apply to it */
	uint8_t state, kind;
	bool is_guarded; /* with CHARGE_WINDOW: the latency guard watches it */
};

static inline struct lane_block *lane_block_of(struct block *block)
{
	return container_of(block, struct lane_block, at_worker.block);
}

/* A block that was taken becomes one of a kind; its request is described. */
void block_prepare(struct lane_block *block, enum block_kind kind, const struct block *request);
/* Moves the block, which must be allowed to follow, and charges and discharges what the states differ in. */
void block_move(struct transfer *transfer, struct lane_block *block, enum block_state state);
/* Another block takes over its request, state and charges.  It is without any then, and free. */
void block_pass_on(struct transfer *transfer, struct lane_block *block, struct lane_block *to);

/* The kind of the block for the window: see window.h. */
unsigned block_window_kind(const struct block *block);

/* Each turn: blocks of GPU memory that hang leave the window, which is the other clients', too. */
void blocks_give_up_hung(struct transfer *transfer);
/* When the next of them leaves it, unless it ends; 0: none is in flight. */
uint64_t blocks_hung_nsec(const struct transfer *transfer);

/* Whether the engine has had the block since then. */
bool block_is_at_engine(const struct block *block, uint64_t started_nsec);
/* The block that the engine has had for the longest time, or NULL.  Looks at all: for a rare look. */
const struct block *blocks_oldest(const struct transfer *transfer);

/* ---- reservations ---- */

/* A reservation.  The owner allocates and frees the array. */
struct block_pool {
	struct lane_block *blocks;
	uint32_t n_max, n_fresh; /* n_fresh: used at least once */
	struct lane_block *free;
};

/* There is one.  For block_prepare(), or for block_pass_on(); else release it. */
struct lane_block *block_take(struct block_pool *pool);
/* A block that did not start. */
void block_release(struct lane_block *block);

#endif
