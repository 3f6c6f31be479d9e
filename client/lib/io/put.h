/*
 * Puts ops into the rings of their channels.  The caller holds no lock.
 */
#ifndef DSAIO_CLIENT_LIB_IO_PUT_H
#define DSAIO_CLIENT_LIB_IO_PUT_H

#include "client/lib/io/handle.h"

/* As channel_put(), or channel_add() for one op of a batch. */
int put_op(struct dsaio_op *op, bool is_batched);
/* The same; sleeps for room.  Returns 0, or -ENOTCONN if the channel is dead. */
int put_with_room(struct dsaio_op *op, bool is_batched);
/* Shows the lanes what a batch has added so far. */
void put_publish_all(const struct dsaio_handle *handle);

#endif
