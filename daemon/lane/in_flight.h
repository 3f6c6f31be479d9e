/*
 * The counts that a block is part of while it is in flight, and its mode lock.
 *
 *     in_flight_enter()   an engine takes it: it counts in the window, if it queues at the device, and
 *                         holds the mode lock
 *     in_flight_begin()   new: it counts in its op, in the depth of its channel, and in the metrics
 *     in_flight_leave()   the engine has returned it
 *     in_flight_end()     the reverse of in_flight_begin(); the last block of an op ends the op
 *
 * A block that waits for a worker after the kernel returned it has left its engine and counts in the
 * rest.
 *
 * A block of GPU memory is in the hands of the GPU's driver, whose call may hang for reasons of its client.
 * After WINDOW_HUNG_NSEC it leaves the window, which is the other clients', too, and counts in the rest.
 *
 * Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_IN_FLIGHT_H
#define DSAIO_DAEMON_LANE_IN_FLIGHT_H

#include "daemon/lane/transfer.h"

void in_flight_begin(struct transfer *transfer, struct block *block);
void in_flight_enter(struct transfer *transfer, struct block *block);
void in_flight_leave(struct transfer *transfer, struct block *block);
void in_flight_end(struct transfer *transfer, struct block *block);

/* Each turn: blocks of GPU memory that hang leave the window. */
void in_flight_give_up_hung(struct transfer *transfer);
/* When the next of them leaves it, unless it ends; 0: none is in flight. */
uint64_t in_flight_hung_nsec(const struct transfer *transfer);

/* The kind of the block: see window.h. */
unsigned in_flight_kind(const struct block *block);

/* The same for a block that counts in its op only: an extension. */
void in_flight_begin_op(struct transfer *transfer, struct op *op);
void in_flight_end_op(struct transfer *transfer, struct op *op);

#endif
