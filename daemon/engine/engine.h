/*
 * An engine moves blocks.  Each lane opens the engine `libaio`, and the engine `threads` for what may block.
 * Only the lane that opened an engine calls it.
 *
 * A block is one read or write of one contiguous range, or a sync, or an allocation.  It names a target
 * and a region.  The lane fills in the request, and the engine executes it and fills in the result.  The
 * lane owns the blocks; the engine uses a block between submit and reap.
 *
 * The end of the process waits for an engine's blocks, because a daemon that is killed does not await them itself.
 *
 * An engine declares what it can do in its struct engine_ops, and lanes decide by that.  A new engine is
 * a file of its own and a line in the table of engine.c.
 */
#ifndef DSAIO_DAEMON_ENGINE_ENGINE_H
#define DSAIO_DAEMON_ENGINE_ENGINE_H

#include "daemon/base/error.h"
#include "daemon/object/region.h"
#include "daemon/object/target.h"

#include <stdbool.h>
#include <stdint.h>

struct extend_step;
struct fault;
struct hung_call;
struct op;
struct rados_store;

enum block_operation {
	BLOCK_READ,
	BLOCK_WRITE,
	BLOCK_FSYNC, /* this and the next two are of no bytes */
	BLOCK_FDATASYNC,
	BLOCK_EXTEND, /* allocates what a step of an extension says: extend.h */
	N_BLOCK_OPERATIONS
};

struct block {
	struct block *next;
	struct op *op;
	const struct target *target; /* borrowed, as all below, from the op's objects or the lane */
	union {
		const struct region *region; /* the memory of a read or write */
		struct extend_step *step;    /* of BLOCK_EXTEND; the engine may cut it */
	};
	uint64_t off;		/* in the target: start of the present request */
	uint64_t region_off;	/* in the region: likewise */
	uint32_t len;		/* of the present request */
	uint32_t before;	/* bytes of the block before off: a short transfer is continued */
	uint32_t best;		/* bytes of the block known to be done */
	uint32_t bytes;		/* of the block */
	uint32_t counted_bytes; /* in flight, as counted at its start */
	uint8_t operation;	/* enum block_operation */
	uint8_t n_retries;
	bool is_single;	       /* a system call of its own */
	bool is_nowait;	       /* fails with -EAGAIN or -EOPNOTSUPP instead of blocking the lane */
	bool is_dsync;	       /* a write is on the device at its end */
	bool is_buffered;      /* a write by the buffered description: any offset and length */
	bool is_bounced;       /* a read of any range, by way of memory of the engine's */
	bool is_unknown;       /* a write that failed may still be carried out (rados) */
	bool has_stalled;      /* its start stalled the lane: stall.h */
	uint64_t started_nsec; /* given to the engine, the first time */
	int64_t result;	       /* of the last request: bytes, or a negative errno */
};

/*
 * After a request of the block: whether the rest has to be requested still, because the transfer was
 * short, or the call has to be repeated.  Then the block describes the next request.
 */
bool block_must_continue(struct block *block);
/*
 * Ends a read that was carried out as cover, a block of the whole units around its range: copies the
 * range as far as it is valid.  Fills in best and result.
 */
void block_copy_out(struct block *block, const struct block *cover);

struct engine;

struct engine_config {
	uint32_t depth;			 /* of the queue */
	uint32_t room;			 /* as of grow(); 0: no block needs any */
	struct rados_store *rados_store; /* of the engine rados; else NULL */
};

struct engine_ops {
	const char *name;

	/* Capabilities. */
	uint32_t operations; /* bits of enum block_operation */
	uint32_t targets;    /* bits of enum target_kind */
	uint32_t regions;    /* bits of enum region_kind */
	uint32_t max_bytes;  /* of a block */
	uint32_t align;	     /* of offset, length and memory, if the target's is smaller */
	bool has_nowait;     /* does blocks with is_nowait */
	bool has_unaligned;  /* does blocks with is_buffered or is_bounced */
	uint32_t
		window_regions; /* bits of enum region_kind: its blocks of these queue at the device,
				    and the window counts them */

	int (*open)(const struct engine_config *config, struct engine **ret_engine,
		    struct error *error);
	/*
	 * Makes room in the kernel for so many of the blocks, or for fewer.  Not in the engine's lane: it waits for the
	 * lock of the process's memory map.  The lane may use the engine meanwhile.  NULL: no block needs any.  An error
	 * if there is no room for any more.
	 */
	int (*grow)(struct engine *engine, uint32_t room, struct error *error);
	uint64_t (*user_room)(void); /* of all automatic stores of a user; where there is grow() */
	void (*close)(struct engine *engine); /* nothing in flight; NULL is fine */

	/*
	 * Starts blocks, with few system calls or (is_single) one each.  Returns how many of the
	 * first blocks it took.  A block that cannot be started is reaped with its error.  A
	 * result less than n means that there is no room: in the engine, in the kernel, or (threads)
	 * among the workers that the block names.
	 */
	int (*submit)(struct engine *engine, struct block **blocks, int n);

	/* Returns completed blocks, at most n; never sleeps.  (threads) Also reports room among workers,
	   which is not counted. */
	int (*reap)(struct engine *engine, struct block **blocks, int n);

	/* Whether reap would return a block or report room: the check before a sleep. */
	bool (*is_ready)(const struct engine *engine);
};

struct engine {
	const struct engine_ops *ops;
	uint32_t depth; /* blocks that fit */
	uint32_t room;	/* of them: in the kernel; of the thread that calls grow() */
	uint32_t n_in_flight;
	int event_fd; /* readable when blocks complete; for an edge-triggered epoll set */
	struct block *ended, *last_ended; /* without an event: to be reaped, in order */
	uint32_t n_ended;
	struct hung_call *call; /* its lane's record of calls that may hang; NULL: none */
	struct fault *fault;	/* of tests; NULL: none */
	bool is_at_once; /* lately blocks were complete when submit returned, as those of a disk in memory */
};

/* For engines: the block has its result, and reap returns it when it takes what has ended. */
static inline void engine_end(struct engine *engine, struct block *block)
{
	block->next = NULL;
	if (engine->ended)
		engine->last_ended->next = block;
	else
		engine->ended = block;
	engine->last_ended = block;
	engine->n_ended++;
}

static inline int engine_take_ended(struct engine *engine, struct block **blocks, int n)
{
	int done = 0;

	while (done < n && engine->ended) {
		blocks[done++] = engine->ended;
		engine->ended = engine->ended->next;
	}
	engine->n_ended -= (uint32_t)done;
	return done;
}

enum engine_kind { ENGINE_LIBAIO, ENGINE_THREADS, N_ENGINE_KINDS };

const struct engine_ops *engine_ops_get(enum engine_kind kind);

/* For tests, before the first engine is opened: fault.h.  Main thread.  Returns 0 or an error. */
int engines_make_fail(const char *plan_path, bool is_user, struct error *error);

/* Whether the engine does such blocks.  region: NULL: of no bytes. */
static inline bool engine_takes(const struct engine_ops *ops, enum block_operation operation,
				const struct target *target, const struct region *region)
{
	return (ops->operations & 1u << operation) && (ops->targets & 1u << target->kind) &&
	       (!region || (ops->regions & 1u << region->kind));
}

static inline bool block_is_write(const struct block *block)
{
	return block->operation == BLOCK_WRITE;
}

/* Do such blocks of the engine count in the window?  region: NULL for syncs. */
static inline bool engine_has_window(const struct engine_ops *ops, const struct region *region)
{
	return ops->window_regions & 1u << (region ? region->kind : REGION_HOST);
}

/* Where the block starts in its target. */
static inline uint64_t block_start(const struct block *block)
{
	return block->off - block->before;
}

#endif
