#include "daemon/lane/engine_queue.h"

#include <string.h>

int engine_queue_open(struct engine_queue *queue, const struct engine_ops *ops, uint32_t depth,
		      uint32_t room, struct hung_call *call, struct error *error)
{
	int r = ops->open(depth, room, &queue->engine, error);

	if (r < 0)
		return r;
	queue->ops = ops;
	queue->depth = queue->engine->depth;
	queue->engine->call = call;
	return 0;
}

void engine_queue_close(struct engine_queue *queue)
{
	if (queue->ops)
		queue->ops->close(queue->engine);
}

bool engine_queue_has_room(const struct engine_queue *queue)
{
	return !engine_queue_is_full(queue) &&
	       queue->engine->n_in_flight + (uint32_t)queue->n_waiting + queue->n_again <
		       queue->depth;
}

void engine_queue_add(struct engine_queue *queue, struct block *block)
{
	queue->waiting[queue->n_waiting++] = block;
}

void engine_queue_add_again(struct engine_queue *queue, struct block *block)
{
	block->next = queue->again;
	queue->again = block;
	queue->n_again++;
}

int engine_queue_submit(struct engine_queue *queue)
{
	int n;

	while (queue->again && !engine_queue_is_full(queue)) {
		queue->waiting[queue->n_waiting++] = queue->again;
		queue->again = queue->again->next;
		queue->n_again--;
	}
	if (!queue->n_waiting)
		return 0;
	n = queue->ops->submit(queue->engine, queue->waiting, queue->n_waiting);
	queue->n_waiting -= n;
	if (n && queue->n_waiting)
		memmove(queue->waiting, queue->waiting + n,
			(size_t)queue->n_waiting * sizeof(*queue->waiting));
	return n;
}

int engine_queue_reap(struct engine_queue *queue, struct block **blocks, int n)
{
	return queue->engine->n_in_flight ? queue->ops->reap(queue->engine, blocks, n) : 0;
}

bool engine_queue_is_ready(const struct engine_queue *queue)
{
	return queue->engine->n_in_flight && queue->ops->is_ready(queue->engine);
}
