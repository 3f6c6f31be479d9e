/*
 * The end of a handle: its ops end, its rings and descriptors go.  The op objects stay as long as the program has
 * any of them.
 */
#ifndef DSAIO_CLIENT_LIB_IO_HANDLE_CLOSE_H
#define DSAIO_CLIENT_LIB_IO_HANDLE_CLOSE_H

#include "client/lib/io/handle.h"

/*
 * dsaio_handle_close(): sleeps until its ops have ended.  Returns 0, the first error of an op that was not reported, or
 * -EINPROGRESS: some were open at the deadline, so the handle is, too; with a message.
 */
int handle_close(struct dsaio_handle *handle, uint64_t deadline_nsec);
/* For handle_open(): the same by dsaio_disconnect(), without a deadline. */
int handle_on_disconnect(struct client_object *object);

#endif
