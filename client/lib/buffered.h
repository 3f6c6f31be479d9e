/*
 * The plain path: an op that a ring can not take (private memory, or not aligned) is run by the
 * calling thread on the file's buffered description.
 *
 * It begins when no earlier op of this client that it conflicts with is open, by page, whatever
 * the handle: the page cache and direct I/O must not own the same page at a time.
 */
#ifndef DSAIO_CLIENT_BUFFERED_H
#define DSAIO_CLIENT_BUFFERED_H

#include "client/lib/file.h"
#include "client/lib/handle.h"

/* Runs the op, which is among its inode's open ones, and ends it. */
void buffered_run(struct dsaio_op *op, void *buf);

/* Sleeps until no earlier op is open that this one must not meet. */
void buffered_await_earlier(struct dsaio_op *op);

#endif
