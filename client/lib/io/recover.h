/*
 * Recovery: the client goes on with the next daemon.
 *
 * Whoever sees the end of file on the control socket starts a thread.  Until it is done, the connection is away
 * (conn.h): calls wait, rings have no room, nobody reads them, and waits for ops go on.  The thread
 *
 *   1. go_away():   takes the last completions; the op tables then have all ops that the daemon may not have done;
 *                   files that are only cached go
 *   2.              connects again and again, until the client's timeout.  Meanwhile ops end that are cancelled, or
 *                   whose own time is over: the old daemon is gone, so no block of it is in flight
 *   3. hand_over(): makes slabs, files, handles and channels anew in a session of its own, with the ids that they had
 *   4. come_back(): puts the ops of all tables into the new rings, in the order of their submission, and replaces
 *                   the connection's session
 *
 * Where the next daemon ends during 3, it begins with 2 again: no op was submitted yet.  If there is none in time,
 * the connection is lost, and open ops end with -ECONNRESET.  The same happens where the daemon ended the session
 * on purpose.
 *
 * The bounce thread, which alone reads the rings of companions, is parked during 1, 3 and 4.
 */
#ifndef DSAIO_CLIENT_LIB_IO_RECOVER_H
#define DSAIO_CLIENT_LIB_IO_RECOVER_H

#include "client/lib/io/client.h"

#define RECOVER_TIMEOUT_NSEC (60 * UINT64_C(1000000000))

/* From now on the client reconnects, for so long; 0: it does not.  The daemon may not be able to. */
void recover_init(struct dsaio_client *client, uint64_t timeout_nsec);
/* The client is closed, and has no handle any more: ends the thread.  A daemon that goes away now is lost. */
void recover_stop(struct dsaio_client *client);

#endif
