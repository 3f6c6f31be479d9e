/*
 * The counts that a block is part of while it is in flight, and its mode lock.
 *
 *     in_flight_enter()   an engine takes it: it counts in the window, if the engine has one, and
 *                         holds the mode lock
 *     in_flight_begin()   new: it counts in its op, in the depth of its channel, and in the metrics
 *     in_flight_leave()   the engine has returned it
 *     in_flight_end()     the reverse of in_flight_begin(); the last block of an op ends the op
 *
 * A block that waits for a worker after the kernel returned it has left its engine and counts in the
 * rest.
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

/* The same for a block that counts in its op only: an extension. */
void in_flight_begin_op(struct transfer *transfer, struct op *op);
void in_flight_end_op(struct transfer *transfer, struct op *op);

#endif
