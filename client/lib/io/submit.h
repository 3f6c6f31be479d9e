/*
 * Submission: from the arguments of a call to an op on its way.
 *
 * submit_op() checks the arguments, looks the buffer and the file up, and chooses a transport, once:
 *   at once    there is nothing to do: no bytes, or a read behind the end of the file
 *   by a ring  a sync, memory in one piece of a slab at a place that the daemon can use, or GPU memory
 *              that the daemon has mapped (route_gpu.h)
 *   copied     the rest: through slots, piece by piece (bounce.h), by the caller or the bounce thread
 *   in parts   a vectored op (vector.h): each part has its own transport
 *
 * The op then ends in end.c, whichever it took.  Submission waits in two cases only: for room in
 * a full ring, and, in a blocking call, for earlier ops that the daemon cannot order (inode.h).
 */
#ifndef DSAIO_CLIENT_LIB_IO_SUBMIT_H
#define DSAIO_CLIENT_LIB_IO_SUBMIT_H

#include "client/lib/io/request.h"

/*
 * Starts an op; *ret_op (if ret_op is not NULL) has a reference of the caller's.  Returns 0, or a
 * negative errno with a message if the arguments or the lack of memory keep it from being an op.
 */
int submit_op(struct op_request *request, struct dsaio_op **ret_op);

#define SUBMIT_MAX 64u /* a guess: 15 KiB of stack */

/*
 * Starts n async ops of one handle, up to SUBMIT_MAX, in this order.  Each lane learns of its ops at
 * once.  ret_ops: NULL, or room for n.  Returns how many, up to the first that cannot be one; or, if
 * that is the first, its errno.  In both cases that one's message is this thread's last.
 */
int submit_ops(struct op_request *requests, unsigned n, struct dsaio_op **ret_ops);

/* Cancels all ops of the handle that have not ended, and does not wait for the daemon's answer. */
void submit_cancel_all(struct dsaio_handle *handle);

/* Cancels an op that has not ended.  Returns 0 or conn_call()'s errors, with a message. */
int submit_cancel(struct dsaio_op *op);

#endif
