/*
 * Blocks that are back from their engine.
 *
 * A short block is continued, unless its engine does so.  A block that the kernel returned because it
 * would block becomes a block for workers, and waits for one without the mode lock.  All others end, and
 * their result reaches their op.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_TRANSFER_END_H
#define DSAIO_DAEMON_LANE_TRANSFER_END_H

#include "daemon/lane/transfer.h"

/* Takes blocks back that engines have done; returns how many. */
int transfer_reap(struct transfer *transfer);
/* Starts nothing more of the op; it ends now, or when its blocks are back. */
void transfer_cancel(struct transfer *transfer, struct op *op, int error);
/* transfer_reap() would find something: the look before a sleep. */
bool transfer_is_ready(const struct transfer *transfer);

#endif
