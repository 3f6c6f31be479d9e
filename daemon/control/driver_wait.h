/*
 * How long a stop waits for the GPU's driver.
 *
 * Imports and releases of GPU memory, and registrations of files at cuFile, are calls of the driver, which may
 * never return.  They move no bytes of an op, so the end of the process in the middle of one harms nobody.  The
 * stop gives them up when nothing else is under way in the daemon, and nothing has begun or ended for
 * DRIVER_WAIT_SEC.  It waits for a call that moves bytes as for all blocks in flight.
 *
 * Ops that wait behind such a call are given up with it: as long as another op could start, something begins
 * or ends.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_DRIVER_WAIT_H
#define DSAIO_DAEMON_CONTROL_DRIVER_WAIT_H

#include "daemon/base/hung.h"
#include "daemon/store/registry.h"

#include <stdbool.h>
#include <stdint.h>

/* A driver that works returns within a second or so.  A guess. */
#define DRIVER_WAIT_SEC 5u

/* The state at the last look.  Zeroes: there was none. */
struct driver_wait {
	struct hung_counts counts;
	uint64_t n_started; /* blocks, of all stores */
	bool is_alone;	    /* only the driver was waited for */
	unsigned n_sec;	    /* for so long it has been alone, and nothing has begun or ended */
};

/* Call it once a second, in the stop.  Returns whether the stop waits for the driver alone, and long enough. */
bool driver_wait_is_over(struct driver_wait *wait, const struct registry *registry);

#endif
