#include "daemon/op.h"

#include "daemon/file.h"
#include "proto/ring.h"

#include <stddef.h>

static bool must_wait_for(const struct op *op, const struct op *earlier)
{
	return earlier->channel == op->channel &&
	       ring_ops_conflict(earlier->opcode, earlier->off, earlier->len, op->opcode, op->off,
				 op->len);
}

bool op_link(struct op *op)
{
	struct inode *inode = op->file->inode;

	op->n_blockers = 0;
	/* Only a write conflicts with reads, all else only with writes. */
	if (op->opcode == RING_OP_WRITE ? inode->n_ops : inode->n_writes)
		for (struct op *earlier = inode->first_op; earlier; earlier = earlier->inode_next)
			op->n_blockers += must_wait_for(op, earlier);

	op->inode_next = NULL;
	op->inode_prev = inode->last_op;
	if (inode->last_op)
		inode->last_op->inode_next = op;
	else
		inode->first_op = op;
	inode->last_op = op;
	inode->n_ops++;
	inode->n_writes += op->opcode == RING_OP_WRITE;
	inode->n_waiting += op->n_blockers > 0;
	return op->n_blockers == 0;
}

void op_unlink(struct op *op, void (*ready)(struct op *op, void *arg), void *arg)
{
	struct inode *inode = op->file->inode;
	struct op *later = op->inode_next;

	if (op->inode_prev)
		op->inode_prev->inode_next = op->inode_next;
	else
		inode->first_op = op->inode_next;
	if (op->inode_next)
		op->inode_next->inode_prev = op->inode_prev;
	else
		inode->last_op = op->inode_prev;
	inode->n_ops--;
	inode->n_writes -= op->opcode == RING_OP_WRITE;
	if (op->n_blockers) { /* cancelled while it waited */
		op->n_blockers = 0;
		inode->n_waiting--;
	}

	for (struct op *next; later && inode->n_waiting; later = next) {
		next = later->inode_next; /* ready() may end it, but unlinks nothing */
		if (!later->n_blockers || !must_wait_for(later, op))
			continue;
		if (--later->n_blockers == 0) {
			inode->n_waiting--;
			if (later->state == OP_WAITING)
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
