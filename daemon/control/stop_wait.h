/*
 * How long a stop waits for calls that may never return.
 *
 * Closes and checks of files, imports and frees of memory, and registrations of files at cuFile move no
 * bytes of an op, so the end of the process in the middle of one harms nobody.  The stop gives them up when
 * nothing else has been under way in the daemon for STOP_WAIT_SEC.  It waits for a call that moves bytes as for
 * all blocks in flight.
 *
 * Ops that wait behind such a call are given up with it, when nothing has begun or ended for STOP_WAIT_SEC: as long as
 * another op could start, something does.  Without open ops that does not matter: a client can have thousands of
 * closes that take some seconds each.
 *
 * The kernel keeps a process whose thread is in a call that it cannot interrupt, also after kill -9, and with it
 * the start lock.  The flush in a close on FUSE is such a call (seen).
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_STOP_WAIT_H
#define DSAIO_DAEMON_CONTROL_STOP_WAIT_H

#include "daemon/base/hung.h"
#include "daemon/store/registry.h"

#include <stdbool.h>
#include <stdint.h>

/* A call that does not hang returns within a second or so.  Longer than until the log names what frees the call: that
   takes HUNG_NSEC, and a second until the next look. */
#define STOP_WAIT_SEC 7u

/* The state at the last look.  Zeroes: there was none. */
struct stop_wait {
	struct hung_counts counts;
	uint64_t n_started; /* blocks, of all stores */
	bool is_alone;	    /* only calls without bytes were waited for */
	unsigned n_sec;	    /* for so long they were, and no op could start */
};

/* Call it once a second, in the stop.  Returns whether the stop has waited long enough, and only for such calls. */
bool stop_wait_is_over(struct stop_wait *wait, const struct registry *registry);

#endif
