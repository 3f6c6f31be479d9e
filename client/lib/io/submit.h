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

#include "client/lib/io/handle.h"

#include <sys/uio.h>

/* The request for an op: the arguments of a call. */
struct op_request {
	const char *function;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint8_t opcode;
	void *buf; /* a write only reads it */
	uint64_t len, off;
	bool is_async;
	bool is_nowait;	       /* async: -EAGAIN if its ring is full */
	bool is_detached;      /* async: the caller gets no reference */
	bool is_dsync;	       /* a write: is on the device at its end */
	bool is_linked;	       /* a sync: waits for the writes before it */
	uint64_t n_failed;     /* the same: not if inode_has_failed() since */
	bool has_timeout;      /* timeout_msec; else the handle's */
	uint32_t timeout_msec; /* as in struct ring_entry */
	void *data;	       /* for its completion */
	const struct iovec
		*iov; /* async: instead of buf; len is their sum; borrowed for the call */
	unsigned n_iov;
	const struct buffer_place *
		place; /* of a piece of a view, instead of buf's; borrowed, its slab until the end */
};

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
