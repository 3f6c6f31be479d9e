/*
 * Starts blocks, as admission decides.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_TRANSFER_START_H
#define DSAIO_DAEMON_LANE_TRANSFER_START_H

#include "daemon/lane/transfer.h"

/* Describes the next block of a channel that is ready, and what it needs. */
struct next_block transfer_look(const struct transfer *transfer, const struct channel *channel);
/* For admission: what it has to know of that block. */
struct admit_head transfer_head(const struct transfer *transfer, const struct next_block *next);
/* Starts what may start, a few blocks.  Returns how many started, with ops that were deferred for their
   file's extension: 0 if nothing changed. */
int transfer_start(struct transfer *transfer);

#endif
