/*
 * GPU memory of an op: may it go directly, by the ring?
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_IO_ROUTE_GPU_H
#define DSAIO_CLIENT_LIB_IO_ROUTE_GPU_H

#include "client/lib/io/submit.h"

/*
 * For memory that is no slab's of the pool.  Sets *ret_gpu: the GPU whose memory it is, or -1.  Returns
 *   1   by the ring: *ret_place is its region, referenced
 *   0   it is to be copied; *ret_why: why, of GPU memory that could go by the ring, the caller's; or NULL
 *   a negative errno with a message: it can neither go by the ring, nor be copied
 * Sleeps for the daemon's answers.
 */
int route_gpu(const struct op_request *q, struct buffer_place *ret_place, int *ret_gpu,
	      char **ret_why);

/* Does that ask the daemon about the op's file, whose file system may be dead? */
bool route_gpu_asks(const struct op_request *q);

#endif
