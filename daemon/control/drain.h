/*
 * Drains: an administrator wants a file system unmounted, and the daemon closes the idle files of all clients
 * there.  If the drain begins (DRAIN_BEGIN), the store refuses new files and ops first, until its end (DRAIN_END).
 *
 * A drain walks the files of all sessions that have a share of the store, some at each turn of the main thread, and
 * takes the idle ones.  It walks again, with a pause, until no file is on its way to its close, or DRAIN_NSEC are
 * over; then it reports the clients that still have files or channels there.  Files in use are not waited for.
 * The daemon's own file of a store's probe, at the start of the daemon, counts as one that is being closed.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_DRAIN_H
#define DSAIO_DAEMON_CONTROL_DRAIN_H

#include "daemon/base/error.h"
#include "proto/dsaio.pb-c.h"

struct call;
struct session;

/*
 * The request's name, fd: as in struct registry_question.  Takes fd and ends the call later, with the reply in
 * call->drained, or returns an error:
 * -EPERM (the client is no administrator), -ENOMEM, or as registry_change(); fd is then the caller's.
 */
int session_drain(struct session *session, const Wire__StoreDrain *request, int fd,
		  struct call *call, struct error *error);

#endif
