/*
 * The end of ops.  It checks results and releases files and buffers.  Then the ops are ENDED and listed
 * for dsaio_handle_reap(), and waiting threads are woken.
 */
#ifndef DSAIO_CLIENT_LIB_IO_END_H
#define DSAIO_CLIENT_LIB_IO_END_H

#include "client/lib/io/op.h"

/*
 * Ends ops of one handle, whose results are filled in (op_set_result()).  first: of an op_list.
 * by_consumer: the caller has the consumer role (wait.h).  The caller holds no lock below inode.lock.
 */
void end_ops(struct dsaio_handle *handle, struct dsaio_op *first, bool by_consumer);

/* All that the end of an op needs but handle->lock: checks the result, releases file and buffer. */
void op_settle(struct dsaio_op *op);

/* Ends an op that did not go by a ring, or never came into it. */
void end_op(struct dsaio_op *op, int64_t result, uint64_t done);

#endif
