#include "daemon/lane/deadline.h"

#include <errno.h>
#include <stdlib.h>

int deadlines_init(struct deadlines *deadlines, struct op *ops, uint32_t n_ops)
{
	*deadlines = (struct deadlines){ .ops = ops };
	deadlines->heap = calloc(n_ops, sizeof(*deadlines->heap));
	return deadlines->heap ? 0 : -ENOMEM;
}

void deadlines_deinit(struct deadlines *deadlines)
{
	free(deadlines->heap);
	deadlines->heap = NULL;
}

static uint64_t nsec_at(const struct deadlines *deadlines, uint32_t at)
{
	return deadlines->ops[deadlines->heap[at]].deadline_nsec;
}

static void place(struct deadlines *deadlines, uint32_t at, struct op *op)
{
	deadlines->heap[at] = (uint16_t)(op - deadlines->ops);
	op->deadline_at = (uint16_t)at;
}

/* The place is free: whoever is later moves down into it, or earlier up, until op fits. */
static void sift(struct deadlines *deadlines, uint32_t at, struct op *op)
{
	while (at && nsec_at(deadlines, (at - 1) / 2) > op->deadline_nsec) {
		place(deadlines, at, &deadlines->ops[deadlines->heap[(at - 1) / 2]]);
		at = (at - 1) / 2;
	}
	for (uint32_t child; (child = 2 * at + 1) < deadlines->n; at = child) {
		if (child + 1 < deadlines->n &&
		    nsec_at(deadlines, child + 1) < nsec_at(deadlines, child))
			child++;
		if (nsec_at(deadlines, child) >= op->deadline_nsec)
			break;
		place(deadlines, at, &deadlines->ops[deadlines->heap[child]]);
	}
	place(deadlines, at, op);
}

void deadlines_add(struct deadlines *deadlines, struct op *op, uint64_t deadline_nsec)
{
	uint32_t at = deadlines->n;

	op->deadline_nsec = deadline_nsec;
	place(deadlines, at, op);
	deadlines->n++;
	sift(deadlines, at, op);
}

void deadlines_remove(struct deadlines *deadlines, struct op *op)
{
	uint32_t at = op->deadline_at;
	struct op *last;

	if (!op->deadline_nsec)
		return;
	op->deadline_nsec = 0;
	last = &deadlines->ops[deadlines->heap[--deadlines->n]];
	if (last != op)
		sift(deadlines, at, last);
}
