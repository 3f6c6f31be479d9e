/*
 * The deadlines of one channel's ops: a binary heap of the ops with a deadline.  It has their numbers in
 * the channel's array.  So the next deadline is found at once, and an op costs nothing before it is due.
 * Room for all ops is allocated in advance.  Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_DEADLINE_H
#define DSAIO_DAEMON_LANE_DEADLINE_H

#include "daemon/lane/op.h"

#include <stddef.h>

struct deadlines {
	struct op *ops;	      /* borrowed: the channel's */
	struct op_rare *rare; /* likewise */
	uint16_t *heap;	      /* owned; a channel has at most 4096 ops */
	uint32_t n;
};

int deadlines_init(struct deadlines *deadlines, struct op *ops, struct op_rare *rare,
		   uint32_t n_ops);		    /* 0, -ENOMEM */
void deadlines_deinit(struct deadlines *deadlines); /* zeroes are fine */

/* The op has none yet; deadline_nsec > 0. */
void deadlines_add(struct deadlines *deadlines, struct op *op, uint64_t deadline_nsec);
/* It has none from then on.  Fine if it has none. */
void deadlines_remove(struct deadlines *deadlines, struct op *op);

/* The op whose deadline is next, or NULL. */
static inline struct op *deadlines_first(const struct deadlines *deadlines)
{
	return deadlines->n ? &deadlines->ops[deadlines->heap[0]] : NULL;
}

/* The deadline of that op.  There is such an op. */
static inline uint64_t deadlines_next_nsec(const struct deadlines *deadlines)
{
	return deadlines->rare[deadlines->heap[0]].deadline_nsec;
}

#endif
