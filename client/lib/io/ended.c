#include "client/lib/io/ended.h"

#include "proto/util/cleanup.h"

#include <string.h>

void ended_init(struct ended *ended, struct op_pool *pool)
{
	*ended = (struct ended){ .pool = pool };
}

static struct dsaio_op *ended_pop(struct ended *ended)
{
	struct dsaio_op *op = op_of_node(list_pop(&ended->ops));

	if (!op)
		return NULL;
	op_set_listed(op, false);
	ended->n_listed--;
	return op;
}

void ended_clear(struct ended *ended)
{
	struct dsaio_op *op;

	while ((op = ended_pop(ended)))
		op_pool_unref(ended->pool, op);
	if (ended->orphan)
		op_pool_unref(ended->pool, TAKE_PTR(ended->orphan));
}

/* A freed op that was not reported.  Takes the list's reference. */
static void keep_orphan(struct ended *ended, struct dsaio_op *op)
{
	struct dsaio_op *other = ended->orphan;

	if (op->result < 0 && (!other || op->end_number < other->end_number)) {
		ended->orphan = op;
		op = other;
	}
	if (op)
		op_pool_unref(ended->pool, op);
}

bool ended_add(struct ended *ended, struct dsaio_op *op)
{
	op_ended(op, ++ended->n_ends);
	if (!op->is_async) {
		op_pool_unref(ended->pool, op);
		return false;
	}
	ended->n_unreported++;
	if (op->is_orphan) {
		keep_orphan(ended, op);
		return false;
	}
	op_set_listed(op, true);
	list_push(&ended->ops, &op->node);
	ended->n_listed++;
	return true;
}

void ended_forget(struct ended *ended, struct dsaio_op *op)
{
	op_set_orphan(op);
	if (!op->is_listed)
		return;
	list_remove(&ended->ops, &op->node);
	op_set_listed(op, false);
	ended->n_listed--;
	keep_orphan(ended, op);
}

int ended_take(struct ended *ended, struct dsaio_op **ret_ops, int n)
{
	struct dsaio_op *op;
	int got = 0;

	while (got < n && (op = ended_pop(ended))) {
		ended->n_unreported--;
		if (op->is_callers) /* it has a reference of its own */
			op_pool_unref(ended->pool, op);
		op_set_callers(op);
		ret_ops[got++] = op;
	}
	return got;
}

int64_t ended_take_all(struct ended *ended, char **ret_text)
{
	int64_t result = (int64_t)ended->n_unreported;
	const struct dsaio_op *op, *failed = ended->orphan;

	for (op = op_of_node(ended->ops.first); op; op = op_next(op))
		if (op->result < 0 && (!failed || op->end_number < failed->end_number))
			failed = op;
	if (failed) {
		result = failed->result;
		*ret_text = failed->text ? strdup(failed->text) : NULL;
	}
	ended->n_unreported = 0;
	ended_clear(ended);
	return result;
}
