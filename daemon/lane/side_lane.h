/*
 * A side lane takes blocks from a queue of the home lane, carries them out with its own engine, and
 * returns them through a second queue.  Both queues have one writer and one reader.
 *
 * A sleeping lane is woken through its mailbox's eventfd.  Both sides announce, fence and check as a
 * client and a lane do (proto/README.md "Sleep and wake-up").
 */
#ifndef DSAIO_DAEMON_LANE_SIDE_LANE_H
#define DSAIO_DAEMON_LANE_SIDE_LANE_H

#include "daemon/lane/engine_queue.h"
#include "proto/ring.h"

#include <stdatomic.h>

struct block_queue {
	_Alignas(64) _Atomic uint32_t tail; /* writer: release; reader: acquire: blocks before it */
	_Alignas(64) _Atomic uint32_t head; /* reader: release; writer: acquire: slots before it */
	uint32_t mask;
	struct block **slots;
};

/* There is room: no more blocks go round than the queue has slots. */
void block_queue_push(struct block_queue *queue, struct block *block);
struct block *block_queue_pop(struct block_queue *queue); /* NULL: it is empty */
bool block_queue_has_any(const struct block_queue *queue);

/* Another lane's, for one thread that rings it. */
struct lane_doorbell {
	const struct lane_board *board;
	int event_fd;
	uint64_t rung; /* the lane's state that was rung for */
};
/* Rings the lane if it sleeps and was not yet rung for that; after what it shall see. */
void lane_doorbell_ring(struct lane_doorbell *doorbell);

struct side_lane {
	struct block_queue from_home, to_home;
	struct lane_doorbell home;
};

int side_lane_init(struct side_lane *side, uint32_t depth, const struct lane_doorbell *home);
void side_lane_deinit(struct side_lane *side); /* zeroes are fine */
/* One turn of the side lane's loop.  Returns how much it did. */
int side_lane_turn(struct side_lane *side, struct engine_queue *engine);

#endif
