#include "daemon/lane/op.h"

#include "daemon/object/file.h"
#include "proto/ring.h"

#include <stddef.h>

#define ORDER_PAGE 4096u /* ranges that share one conflict (PROTOCOL section 3) */

#define BIT(state) (1u << (state))

static const uint8_t may_follow[N_OP_STATES] = {
	[OP_FREE] = BIT(OP_WAITS_ORDER),
	[OP_WAITS_ORDER] = BIT(OP_READY) | BIT(OP_ENDED),
	[OP_READY] = BIT(OP_WAITS_MODE_LOCK) | BIT(OP_WAITS_EXTENSION) | BIT(OP_RUNNING),
	[OP_WAITS_MODE_LOCK] = BIT(OP_READY) | BIT(OP_RUNNING),
	[OP_WAITS_EXTENSION] = BIT(OP_READY) | BIT(OP_RUNNING),
	[OP_RUNNING] = BIT(OP_ENDED),
	[OP_ENDED] = BIT(OP_FREE),
};

void op_set_state(struct op *op, enum op_state state)
{
	assert(may_follow[op->state] & BIT(state));
	op->state = (uint8_t)state;
}

struct order *op_order(struct order orders[N_ORDERS], const struct inode *inode)
{
	/* Allocations are 16 bytes apart; a prime spreads them. */
	return &orders[((uintptr_t)inode >> 4) * 0x9e3779b1u % N_ORDERS];
}

static bool must_wait_for(const struct op *op, const struct op *earlier)
{
	return earlier->file->inode == op->file->inode &&
	       ring_ops_conflict(earlier->opcode, earlier->off, earlier->len, op->opcode, op->off,
				 op->len);
}

/* May it have to wait for any of them?  Most ops need no look at the others. */
static bool must_look(const struct op *op, const struct order *order)
{
	/* Only a write conflicts with reads, all else only with writes. */
	if (op->opcode == RING_OP_WRITE ? !order->n_ops : !order->n_writes)
		return false;
	return op_is_sync(op) || op->off < order->end_off;
}

uint32_t op_link_looks(const struct op *op, const struct order *order)
{
	return must_look(op, order) ? order->n_ops : 0;
}

uint32_t op_unlink_looks(const struct op *op)
{
	return op->order->n_waiting ? op->order->n_ops : 0;
}

bool op_link(struct op *op, struct order *order)
{
	uint64_t end_off = (op->off + op->len + ORDER_PAGE - 1) & ~(uint64_t)(ORDER_PAGE - 1);

	if (!order->n_ops)
		order->end_off = 0;
	op->n_blockers = 0;
	if (must_look(op, order))
		for (struct op *earlier = order->first; earlier; earlier = earlier->order_next)
			op->n_blockers = (uint16_t)(op->n_blockers + must_wait_for(op, earlier));
	if (end_off > order->end_off)
		order->end_off = end_off;

	op->order = order;
	op->order_next = NULL;
	op->order_prev = order->last;
	if (order->last)
		order->last->order_next = op;
	else
		order->first = op;
	order->last = op;
	order->n_ops++;
	order->n_writes += op->opcode == RING_OP_WRITE;
	order->n_waiting += op->n_blockers > 0;
	return op->n_blockers == 0;
}

void op_wait_no_more(struct op *op)
{
	op->order->n_waiting -= op->n_blockers > 0;
	op->n_blockers = 0;
}

void op_unlink(struct op *op, void (*ready)(struct op *op, void *arg), void *arg)
{
	struct order *order = op->order;
	struct op *later = op->order_next;

	if (op->order_prev)
		op->order_prev->order_next = op->order_next;
	else
		order->first = op->order_next;
	if (op->order_next)
		op->order_next->order_prev = op->order_prev;
	else
		order->last = op->order_prev;
	order->n_ops--;
	order->n_writes -= op->opcode == RING_OP_WRITE;
	op_wait_no_more(op);

	for (struct op *next; later && order->n_waiting; later = next) {
		next = later->order_next; /* ready() may end it, but unlinks nothing */
		if (!later->n_blockers || !must_wait_for(later, op))
			continue;
		if (--later->n_blockers == 0) {
			order->n_waiting--;
			if (later->state == OP_WAITS_ORDER)
				ready(later, arg);
		}
	}
}

void op_stop_at(struct op *op, uint64_t pos, int error)
{
	if (pos > op->end || (pos == op->end && !error))
		return;
	op->end = pos;
	op->error = (uint16_t)error;
}

int64_t op_result(const struct op *op)
{
	return op->error ? ring_result_failed(op->error, op->end) : (int64_t)op->end;
}
