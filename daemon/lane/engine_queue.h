/*
 * A lane's engine, and the blocks that wait because the engine or the kernel was full.
 */
#ifndef DSAIO_DAEMON_LANE_ENGINE_QUEUE_H
#define DSAIO_DAEMON_LANE_ENGINE_QUEUE_H

#include "daemon/engine/engine.h"

/* Blocks handled by one call of the engine: bounds the arrays, not the depth. */
#define ENGINE_QUEUE_BATCH 128

struct engine_queue {
	const struct engine_ops *ops;
	struct engine *engine;
	uint32_t depth;
	struct block *waiting[ENGINE_QUEUE_BATCH];
	int n_waiting;
	struct block *again; /* back from the engine, and to be continued */
	uint32_t n_again;
};

int engine_queue_open(struct engine_queue *queue, const struct engine_ops *ops, uint32_t depth,
		      uint32_t room, struct hung_call *call, struct error *error);
void engine_queue_close(struct engine_queue *queue); /* nothing in flight; zeroes are fine */

/* Blocks in flight, or to be handed to the engine, leave room for another. */
bool engine_queue_has_room(const struct engine_queue *queue);
/* There is room in waiting. */
void engine_queue_add(struct engine_queue *queue, struct block *block);
/* A block of this engine goes there again. */
void engine_queue_add_again(struct engine_queue *queue, struct block *block);
/* Gives the engine what waits.  Returns how many blocks it took. */
int engine_queue_submit(struct engine_queue *queue);
/* Blocks that are done, at most n. */
int engine_queue_reap(struct engine_queue *queue, struct block **blocks, int n);
/* engine_queue_reap() would return something: the look before a sleep. */
bool engine_queue_is_ready(const struct engine_queue *queue);

static inline bool engine_queue_is_full(const struct engine_queue *queue)
{
	return queue->n_waiting == ENGINE_QUEUE_BATCH;
}

static inline bool engine_queue_has_waiting(const struct engine_queue *queue)
{
	return queue->n_waiting || queue->n_again;
}

#endif
