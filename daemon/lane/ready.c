#include "daemon/lane/ready.h"

#include "daemon/object/file.h"

void ready_update(struct ready *ready, struct channel *channel)
{
	admit_set_ready(ready->admit, &channel->admit, channel->ready.first);
}

void ready_add(struct ready *ready, struct op *op)
{
	op_set_state(op, OP_READY);
	list_push(&op->channel->ready, &op->waiter.node);
	ready_update(ready, op->channel);
}

/* The list that its state names. */
static struct list *list_of(const struct op *op)
{
	return op->state == OP_DEFERRED ? op_rare(op)->list : &op->channel->ready;
}

/* ---- the mode lock ---- */

/* Only these have a page cache that direct I/O goes past. */
static bool has_mode_lock(const struct op *op)
{
	return op->opcode == RING_OP_WRITE && !op->file->facts.is_tmpfs;
}

/* It may go on: before those that have not waited yet. */
static void resume(struct mode_lock_waiter *waiter, void *arg)
{
	struct op *op = container_of(waiter, struct op, waiter);

	op_set_state(op, OP_READY);
	list_push_front(&op->channel->ready, &op->waiter.node);
	ready_update(arg, op->channel);
}

static void switch_mode_lock(struct ready *ready, struct store_inode *inode)
{
	mode_lock_switch(&inode->mode_lock, ready->turn->now_nsec, resume, ready);
}

void ready_unreserve(struct ready *ready, struct op *op)
{
	if (!op->waiter.is_reserved)
		return;
	mode_lock_unreserve(&op->file->inode->mode_lock, &op->waiter);
	switch_mode_lock(ready, op->file->inode);
}

bool ready_has_lock(const struct ready *ready, const struct op *op)
{
	return op->waiter.is_reserved || !has_mode_lock(op) ||
	       mode_lock_is_open(&op->file->inode->mode_lock, op_write_mode(op),
				 ready->turn->now_nsec);
}

void ready_unreserve_all(struct ready *ready, struct channel *channel)
{
	struct op *op = op_of_node(channel->ready.first);

	/* Admitted ops are before the others in the list. */
	for (; op && op->is_gated; op = op_of_node(op->waiter.node.next))
		ready_unreserve(ready, op); /* ops that this admits are put before op */
}

void ready_lock(struct ready *ready, struct op *op)
{
	(void)ready;
	if (has_mode_lock(op))
		mode_lock_start(&op->file->inode->mode_lock, &op->waiter, op_write_mode(op));
}

void ready_unlock(struct ready *ready, struct op *op)
{
	if (!has_mode_lock(op))
		return;
	mode_lock_end(&op->file->inode->mode_lock);
	switch_mode_lock(ready, op->file->inode);
}

/* ---- waiting outside ---- */

bool ready_defer(struct ready *ready, struct op *op, struct list *list)
{
	struct channel *channel = op->channel;

	if (!op->is_gated && channel->n_gated >= MODE_LOCK_OPS_MAX) {
		/* The channel waits: its gated ops are before its other ops.  It goes on when the mode
		   lock admits one of them. */
		admit_set_ready(ready->admit, &channel->admit, false);
		return false;
	}
	channel->n_gated += !op->is_gated;
	op->is_gated = true;
	list_remove(list_of(op), &op->waiter.node);
	op_set_state(op, OP_DEFERRED);
	op_rare(op)->list = list;
	if (list == &op->file->inode->mode_lock.waiting)
		mode_lock_wait(&op->file->inode->mode_lock, &op->waiter, op_write_mode(op));
	else
		list_push(list, &op->waiter.node);
	ready_update(ready, channel);
	return true;
}

void ready_resume(struct ready *ready, struct list *list)
{
	while (list->first) { /* in order: each stands before those behind it */
		struct op *last = op_of_node(list->last);

		list_remove(list, &last->waiter.node);
		resume(&last->waiter, ready);
	}
}

void ready_again(struct ready *ready, struct op *op)
{
	/* Deferred ops may stand before it or behind it: it must not have to wait for one of them. */
	op->channel->n_gated += !op->is_gated;
	op->is_gated = true;
	if (op->state == OP_RUNNING)
		resume(&op->waiter, ready);
	else
		ready_update(ready, op->channel);
}

void ready_end(struct ready *ready, struct op *op)
{
	struct channel *channel = op->channel;

	list_remove(list_of(op), &op->waiter.node);
	channel->n_gated -= op->is_gated;
	op->is_gated = false;
	op_set_state(op, OP_RUNNING);
	ready_unreserve(ready, op);
	ready_update(ready, channel);
}
