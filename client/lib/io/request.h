/*
 * The request for an op: the arguments of a call.
 */
#ifndef DSAIO_CLIENT_LIB_IO_REQUEST_H
#define DSAIO_CLIENT_LIB_IO_REQUEST_H

#include "client/lib/io/handle.h"

#include <sys/uio.h>

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
};

#endif
