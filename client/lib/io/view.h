/*
 * Views: a range of a file in memory of the daemon's that all clients share which may read the file.
 *
 * A view reserves addresses for the pieces (proto/dsaio.proto) that its range lies in.  A piece is opened and mapped
 * when it is first waited for, or soon will be, and this client reads it if the daemon says so:
 *
 *   none    nothing is mapped there						-> open, plain
 *   open    mapped, and not known to be filled; op: this client reads it	-> ready, lost
 *   ready   filled
 *   plain   the daemon makes no view of it: memory of this process, which a read fills  -> ready
 *   lost    mapped, and its daemon is gone before it was filled		-> none
 *
 * view.lock makes one thread at a time go on with a view.  States also change by recovery, under client.lock: an open
 * piece is lost, and a ready one is charged to this client in the next session.
 */
#ifndef DSAIO_CLIENT_LIB_IO_VIEW_H
#define DSAIO_CLIENT_LIB_IO_VIEW_H

#include "client/lib/io/handle.h"

/*
 * Reserves memory for those bytes.  Returns 0 or a negative errno with a message: as file_size(), -EINVAL (the range
 * passes the file's end), -ENOMEM.
 */
int view_open(struct dsaio_client *client, struct dsaio_file *file, uint64_t off, size_t len,
	      bool is_writable, void **ret_memory);

/* Waits until that part of a view is there, and reads it by the handle if nobody else does.  Returns 0, or a negative
   errno with a message: -EINVAL (it lies in no view), -ESTALE (the file is another one by now), or of the read. */
int view_wait(struct dsaio_handle *handle, const char *memory, size_t len);

/* Returns 0, or -EINVAL: no view starts there. */
int view_free(struct dsaio_client *client, const char *memory);

/* Recovery: charges what is mapped to the session of `next`.  Returns 0 or -ENOTCONN. */
int views_hand_over(struct dsaio_client *client, struct dsaio_conn *next);

#endif
