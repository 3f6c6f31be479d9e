#include "client/lib/io/end.h"

#include "client/lib/io/handle.h"
#include "client/lib/io/vector.h"
#include "client/lib/io/wait.h"

/* Returns true if it can be reaped.  Under handle->lock; the op may be gone after. */
static bool end_one(struct dsaio_handle *handle, struct dsaio_op *op)
{
	handle->n_open_ring -= !!op->channel;
	handle->n_open_async -= op->is_async;
	if (op->is_awaited)
		client_poke(handle->client);
	return ended_add(&handle->ended, op);
}

void end_ops(struct dsaio_handle *handle, struct dsaio_op *first, bool by_consumer)
{
	struct dsaio_op *op, *next;
	bool has_listed = false;

	for (op = first; op; op = op_next(op)) {
		struct dsaio_op *whole;

		op_settle(op);
		whole = op->vector && !op->is_vector ? vector_end_part(op) : NULL;
		if (whole) { /* it ends next */
			whole->node.next = op->node.next;
			op->node.next = &whole->node;
		}
	}
	(void)pthread_mutex_lock(&handle->lock); /* a plain mutex: cannot fail */
	for (op = first; op; op = next) {
		next = op_next(op);
		has_listed |= end_one(handle, op);
	}
	wait_after_ends(handle, has_listed, by_consumer);
	(void)pthread_mutex_unlock(&handle->lock);
}

void end_op(struct dsaio_op *op, int64_t result, uint64_t done)
{
	struct op_list list = { NULL, NULL };

	op_set_result(op, result, done);
	op_list_add(&list, op);
	end_ops(op->handle, list.first, false);
}
