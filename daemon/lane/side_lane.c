#include "daemon/lane/side_lane.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int block_queue_init(struct block_queue *queue, uint32_t n_slots)
{
	uint32_t size = 1;

	while (size < n_slots)
		size *= 2;
	queue->mask = size - 1;
	queue->slots = calloc(size, sizeof(struct block *));
	return queue->slots ? 0 : -ENOMEM;
}

static void block_queue_deinit(struct block_queue *queue)
{
	free(queue->slots);
	queue->slots = NULL;
}

void block_queue_push(struct block_queue *queue, struct block *block)
{
	uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed); /* ours */

	queue->slots[tail & queue->mask] = block;
	atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

struct block *block_queue_pop(struct block_queue *queue)
{
	uint32_t head = atomic_load_explicit(&queue->head, memory_order_relaxed); /* ours */
	struct block *block;

	if (atomic_load_explicit(&queue->tail, memory_order_acquire) == head)
		return NULL;
	block = queue->slots[head & queue->mask];
	atomic_store_explicit(&queue->head, head + 1, memory_order_release);
	return block;
}

bool block_queue_has_any(const struct block_queue *queue)
{
	return atomic_load_explicit(&queue->tail, memory_order_acquire) !=
	       atomic_load_explicit(&queue->head, memory_order_relaxed);
}

void lane_doorbell_ring(struct lane_doorbell *doorbell)
{
	uint64_t state, one = 1;

	RING_FENCE_SUBMIT(); /* the same pair as a client's with a lane: SUBMIT and SLEEP */
	state = atomic_load_explicit(&doorbell->board->lane_state, memory_order_relaxed);
	if (!(state & 1) || state == doorbell->rung)
		return;
	doorbell->rung = state;
	/* EAGAIN: the counter is full, so it is rung already */
	if (write(doorbell->event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

int side_lane_init(struct side_lane *side, uint32_t depth, const struct lane_doorbell *home)
{
	side->home = *home;
	if (block_queue_init(&side->from_home, depth) < 0 ||
	    block_queue_init(&side->to_home, depth) < 0)
		return -ENOMEM;
	return 0;
}

void side_lane_deinit(struct side_lane *side)
{
	block_queue_deinit(&side->from_home);
	block_queue_deinit(&side->to_home);
}

int side_lane_turn(struct side_lane *side, struct engine_queue *engine)
{
	struct block *blocks[ENGINE_QUEUE_BATCH];
	struct block *block;
	int did = 0, n;

	while (!engine_queue_is_full(engine) && (block = block_queue_pop(&side->from_home))) {
		engine_queue_add(engine, block);
		did++;
	}
	did += engine_queue_submit(engine);
	n = engine_queue_reap(engine, blocks, ENGINE_QUEUE_BATCH);
	for (int i = 0; i < n; i++)
		block_queue_push(&side->to_home, blocks[i]);
	if (n)
		lane_doorbell_ring(&side->home);
	return did + n;
}
