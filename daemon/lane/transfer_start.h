/*
 * Starts blocks, as admission decides.
 *
 * Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_TRANSFER_START_H
#define DSAIO_DAEMON_LANE_TRANSFER_START_H

#include "daemon/lane/transfer.h"

/* Blocks started in a turn if the engine completes them in submit. */
#define TRANSFER_STARTS_AT_ONCE 8

/* For admission: what it has to know of the channel's head block. */
struct admit_head transfer_look(struct admit_channel *admit, void *transfer);
/* Starts what may start, a few blocks.  Returns how many started, with ops that were deferred for their
   file's extension: 0 if nothing changed. */
int transfer_start(struct transfer *transfer);

#endif
