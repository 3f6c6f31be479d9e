/*
 * The watchdog: tells systemd that the daemon lives (WatchdogSec= of the unit), as long as the main thread comes here
 * and each lane answers.  A lane that does not, and is in no call that may hang, has met a bug of ours: systemd
 * then ends the daemon with a core dump and starts the next, to which the clients go.  A mount or device that hangs
 * is none of its business: hung.h reports it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_WATCHDOG_H
#define DSAIO_DAEMON_CONTROL_WATCHDOG_H

#include <stdint.h>

struct event_base;
struct registry;

struct watchdog {
	struct event *event;		 /* NULL: nobody watches */
	const struct registry *registry; /* borrowed */
	uint64_t limit_nsec;
};

/* Starts if the service manager asks for it.  Returns 0 or -ENOMEM. */
int watchdog_start(struct watchdog *watchdog, struct event_base *base,
		   const struct registry *registry);
/* Zeroes are fine. */
void watchdog_stop(struct watchdog *watchdog);

/* The name of a store whose lane has not answered for half of the limit; NULL: all answer.  Asks them again. */
const char *watchdog_look(struct watchdog *watchdog, uint64_t now_nsec);

#endif
