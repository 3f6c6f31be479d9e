#include "daemon/lane/deadline.h"

#include <errno.h>
#include <stdlib.h>

int deadlines_init(struct deadlines *deadlines, struct op *ops, struct op_rare *rare,
		   uint32_t n_ops)
{
	*deadlines = (struct deadlines){ .ops = ops, .rare = rare };
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
	return deadlines->rare[deadlines->heap[at]].deadline_nsec;
}

static void place(struct deadlines *deadlines, uint32_t at, uint16_t op)
{
	deadlines->heap[at] = op;
	deadlines->rare[op].deadline_at = (uint16_t)at;
}

/* The place is free: a later op moves down into it, or an earlier one up, until op fits. */
static void sift(struct deadlines *deadlines, uint32_t at, uint16_t op)
{
	const uint64_t nsec = deadlines->rare[op].deadline_nsec;

	while (at && nsec_at(deadlines, (at - 1) / 2) > nsec) {
		place(deadlines, at, deadlines->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	for (uint32_t child; (child = 2 * at + 1) < deadlines->n; at = child) {
		if (child + 1 < deadlines->n &&
		    nsec_at(deadlines, child + 1) < nsec_at(deadlines, child))
			child++;
		if (nsec_at(deadlines, child) >= nsec)
			break;
		place(deadlines, at, deadlines->heap[child]);
	}
	place(deadlines, at, op);
}

void deadlines_add(struct deadlines *deadlines, struct op *op, uint64_t deadline_nsec)
{
	uint16_t number = (uint16_t)(op - deadlines->ops);

	op->has_deadline = true;
	deadlines->rare[number].deadline_nsec = deadline_nsec;
	deadlines->n++;
	sift(deadlines, deadlines->n - 1, number);
}

void deadlines_remove(struct deadlines *deadlines, struct op *op)
{
	uint32_t at;

	if (!op->has_deadline)
		return;
	op->has_deadline = false;
	at = deadlines->rare[op - deadlines->ops].deadline_at;
	deadlines->n--;
	if (at != deadlines->n)
		sift(deadlines, at, deadlines->heap[deadlines->n]);
}
