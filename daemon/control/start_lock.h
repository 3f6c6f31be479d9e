/*
 * The start lock: SOCKET.lock, beside the socket, with the holder's pid and start time in it.  It is
 * taken before anything else and given up last.
 *
 * A daemon that dies holds the lock until its last block is back from the device (proto/README.md "Death of
 * a daemon"): it has mapped the file, and the kernel waits for blocks before it unmaps.  Descriptors alone
 * would be closed earlier if another process has the daemon's memory in use, as in a read of /proc/PID/mem.
 * A new daemon waits for the lock, as long as the device takes.  If the holder lives, the new one refuses to
 * start.  An orderly stop removes the word "serving" from the file, so a new daemon logs that its predecessor
 * crashed or was killed.
 *
 * Main thread, at start.
 */
#ifndef DSAIO_DAEMON_CONTROL_START_LOCK_H
#define DSAIO_DAEMON_CONTROL_START_LOCK_H

#include "daemon/base/error.h"

#include <stdbool.h>

/*
 * Takes the lock of the socket at path.  may_find_starting: a daemon that has it may be about to end
 * because it has found our socket, so wait a second for that.  Returns 0; -EADDRINUSE: another daemon,
 * or a process that is none, holds it; -ENOENT: the directory is missing; or -errno.
 */
int start_lock_take(const char *path, bool may_find_starting, int *ret_fd, struct error *error);

/* At the end of an orderly stop.  -1 is fine. */
void start_lock_release(int *fd);

#endif
