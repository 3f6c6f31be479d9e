/*
 * Starts blocks, as admission decides.
 *
 * Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_TRANSFER_START_H
#define DSAIO_DAEMON_LANE_TRANSFER_START_H

#include "daemon/lane/transfer.h"

/* For admission: what it has to know of the channel's head block. */
struct admit_head transfer_look(struct admit_channel *admit, void *transfer);
/* Starts what may start, a few blocks.  Returns how many started, with ops that were deferred for their
   file's extension: 0 if nothing changed. */
int transfer_start(struct transfer *transfer);

#endif
