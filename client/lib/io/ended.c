#include "client/lib/io/ended.h"

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
	op->is_listed = false;
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
	if (ended->lost)
		op_pool_unref(ended->pool, TAKE_PTR(ended->lost));
}

static void keep_first(const struct ended *ended, struct dsaio_op **first, struct dsaio_op *op)
{
	if (op->result >= 0 || (*first && (*first)->end_number < op->end_number))
		return;
	if (*first)
		op_pool_unref(ended->pool, *first);
	op_ref(op);
	*first = op;
}

static bool is_taken(const struct dsaio_op *op)
{
	return atomic_load_explicit(&op->is_taken, memory_order_relaxed);
}

/* A freed op that was not reported.  Takes the list's reference. */
static void keep_orphan(struct ended *ended, struct dsaio_op *op)
{
	keep_first(ended, &ended->orphan, op);
	if (!is_taken(op))
		keep_first(ended, &ended->lost, op);
	op_pool_unref(ended->pool, op);
}

bool ended_add(struct ended *ended, struct dsaio_op *op)
{
	op->end_number = ++ended->n_ends;
	op_change_state(op, OP_ENDED);
	if (!op->is_async) {
		op_pool_unref(ended->pool, op);
		return false;
	}
	ended->n_unreported++;
	if (op->is_orphan) {
		keep_orphan(ended, op);
		return false;
	}
	op->is_listed = true;
	list_push(&ended->ops, &op->node);
	ended->n_listed++;
	return true;
}

void ended_forget(struct ended *ended, struct dsaio_op *op)
{
	op->is_orphan = true;
	if (!op->is_listed)
		return;
	list_remove(&ended->ops, &op->node);
	op->is_listed = false;
	ended->n_listed--;
	keep_orphan(ended, op);
}

int ended_take(struct ended *ended, struct dsaio_completion *ret, int n)
{
	struct dsaio_op *op;
	int got = 0;

	while (got < n && (op = ended_pop(ended))) {
		const bool is_done = op->result >= 0;

		ended->n_unreported--;
		ret[got++] = (struct dsaio_completion){
			.op = op->is_callers || !is_done ? op : NULL,
			.user_data = op->data,
			.result = op->result,
			.bytes = is_done ? (uint64_t)op->result : op->done,
			.flags = op->is_callers || is_done ? 0 : DSAIO_COMPLETION_FREE,
		};
		if (op->is_callers || is_done) /* the caller has a reference of its own, or none */
			op_pool_unref(ended->pool, op);
	}
	return got;
}

int64_t ended_take_all(struct ended *ended, bool only_lost, char **ret_text)
{
	int64_t result = (int64_t)ended->n_unreported;
	const struct dsaio_op *op, *failed = only_lost ? ended->lost : ended->orphan;

	for (op = op_of_node(ended->ops.first); op; op = op_next(op))
		if (op->result < 0 && !(only_lost && is_taken(op)) &&
		    (!failed || op->end_number < failed->end_number))
			failed = op;
	if (failed) {
		result = failed->result;
		*ret_text = failed->text ? strdup(failed->text) : NULL;
	}
	ended->n_unreported = 0;
	ended_clear(ended);
	return result;
}
