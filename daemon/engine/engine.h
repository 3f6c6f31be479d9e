/*
 * An engine moves blocks.  Each lane has an engine queue of its own, and only that lane calls it.
 *
 * A block is one read or write of one contiguous range.  It names a target and a region, so that lanes
 * need not know their kinds.  The lane fills in the request, and the engine executes it and fills in the
 * result.  The lane owns the blocks; the engine uses a block between submit and reap.
 */
#ifndef DSAIO_DAEMON_ENGINE_ENGINE_H
#define DSAIO_DAEMON_ENGINE_ENGINE_H

#include "daemon/base/error.h"
#include "daemon/config/config.h"
#include "daemon/object/region.h"
#include "daemon/object/target.h"

#include <stdbool.h>
#include <stdint.h>

struct op;
struct hung_watch;

struct block {
	struct block *next;
	struct op *op;
	const struct target *target; /* both are borrowed from the op's objects, or the lane */
	const struct region *region;
	uint64_t off;	     /* in the target: start of the present request */
	uint64_t region_off; /* in the region: likewise */
	uint32_t len;	     /* of the present request */
	uint32_t before;     /* bytes of the block before off: a short transfer is continued */
	uint32_t best;	     /* bytes of the block known to be done */
	uint32_t bytes;	     /* of the block */
	uint16_t lane;	     /* index of the lane that does it */
	uint16_t n_retries;
	bool is_write;
	bool is_single;	       /* an io_submit of its own */
	bool is_nowait;	       /* fails with -EAGAIN or -EOPNOTSUPP instead of blocking the lane */
	bool is_small;	       /* the guard protects it: window.h */
	uint64_t started_nsec; /* given to the engine, the first time */
	int64_t result;	       /* bytes, or a negative errno */
};

struct engine;

struct engine_ops {
	const char *name;

	/* depth: wanted, at least depth_min; the engine's ->depth is what it got. */
	int (*open)(uint32_t depth, uint32_t depth_min, struct engine **ret_engine,
		    struct error *error);
	void (*close)(struct engine *engine); /* nothing in flight; NULL is fine */

	/*
	 * Starts blocks, with few system calls or (is_single) one each.  Returns how many of the
	 * first blocks it took.  A block that cannot be started is reaped with its error.  A
	 * result less than n means that the engine's queue, or the kernel's, is full.
	 */
	int (*submit)(struct engine *engine, struct block **blocks, int n);

	/* Returns completed blocks, at most n; never sleeps. */
	int (*reap)(struct engine *engine, struct block **blocks, int n);

	/* Whether reap would return a block: the check before a sleep. */
	bool (*is_ready)(const struct engine *engine);

	/* An eventfd that counts completions; for an edge-triggered epoll set. */
	int (*event_fd)(const struct engine *engine);
};

struct engine {
	const struct engine_ops *ops;
	uint32_t depth; /* blocks that fit */
	uint32_t n_in_flight;
	struct hung_watch *watch; /* of its lane: around each call that may hang; NULL: none */
	bool is_at_once; /* lately blocks were complete when submit returned: copies in memory */
};

extern const struct engine_ops engine_libaio;
const struct engine_ops *engine_ops_get(enum engine_kind kind);

/*
 * The budget for all libaio contexts of this process, from aio-max-nr - aio-nr: call once at
 * start, before any lane.
 */
void engine_libaio_budget_init(void);

#endif
