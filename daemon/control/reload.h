/*
 * A reload: reads and checks the configuration again on a worker thread, and applies it in the main thread.  Any
 * mistake leaves the running configuration untouched.
 *
 * Applied at once: limits, administrators, access, profiles, and stores that are new.  Limits on the number of a
 * client's objects are those of clients that connect from now on, since their tables have been made.  The rest
 * needs a restart, and the reply says so.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_RELOAD_H
#define DSAIO_DAEMON_CONTROL_RELOAD_H

#include "daemon/base/error.h"

struct call;
struct session;

/*
 * Returns 0, and the call ends later, with call->changes; or an error: -EPERM (no administrator), -EBUSY (another
 * reload is under way), -EOPNOTSUPP (no program started this daemon), -ENOMEM.  The call's: -EINVAL (the first mistake;
 * the log has all).
 */
int session_reload(struct session *session, struct call *call, struct error *error);

#endif
