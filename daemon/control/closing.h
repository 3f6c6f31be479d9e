/*
 * Closing: descriptors that came from clients are closed on worker threads of their user, because
 * close(2) of a foreign file may hang.
 *
 * The user keeps count of them (n_closing_fds).  With too many its sessions read no request, so a
 * client cannot fill the daemon's descriptor table with files that hang.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_CLOSING_H
#define DSAIO_DAEMON_CONTROL_CLOSING_H

#include "daemon/base/hung.h"
#include "daemon/control/user.h"

#include <stdbool.h>

/*
 * Closes fds (-1: none).  who and file are what a report of a hang names; file must outlive the call
 * of on_closed.  The user must have a reference until then.  Returns true if on_closed(arg) will be
 * called, in the main thread, after the last close.  False: there was nothing to close, or, without
 * memory, they are closed already, by this thread.
 */
bool closing_start(struct user *user, const struct hung_who *who, const char *file, const int *fds,
		   unsigned n_fds, void (*on_closed)(void *arg), void *arg);

#endif
