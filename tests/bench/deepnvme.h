/*
 * DeepNVMe's aio_handle, as its source does it (DeepSpeed 0.19.8, csrc/aio), without Python.
 *
 * A handle has intra_op_parallelism threads, each with an io context for queue_depth requests and
 * a FIFO queue under a mutex and a condition variable.  An op opens its file with O_DIRECT and is
 * put into every thread's queue; each does one contiguous slice of it, in requests of block_size,
 * and puts the op into its queue of what is done.  wait() takes each op from all of these, in
 * turn, and closes its file.  So ops of a handle never overlap with one another in a thread.
 *
 * Sequential: a thread fills its context to the depth, waits for all of that, and goes on.
 * Overlap: it refills as requests come back.  single_submit: a system call for each request.
 *
 * Unlike the original it looks at what requests end with.  A handle is used by one thread.
 *
 * Its system calls are the original's, one for one, but what Python, pybind11 and torch add is not
 * there: beside the genuine aio_handle (two runs of interleaved rounds, 1,000 files, one thread) it
 * took 0.60 and 0.77 of the time for a 4 KiB sync_pread, 0.80 and 0.99 for an async one, 0.76 and
 * 0.81, 0.80 and 0.84 at 64 KiB.  So it is the harder one to be ahead of.
 */
#ifndef DSAIO_TESTS_BENCH_DEEPNVME_H
#define DSAIO_TESTS_BENCH_DEEPNVME_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/dsaio.h"

struct deepnvme;

/* 0 or -errno (-EAGAIN: fs.aio-max-nr is used up). */
int deepnvme_new(const struct dsaio_profile *profile, struct deepnvme **ret_handle);
void deepnvme_free(struct deepnvme *handle); /* nothing may be pending; NULL is fine */

/*
 * async_pread(), async_pwrite(): 0 or -errno.  path is copied, buffer is borrowed until
 * deepnvme_wait() returns.  bytes must be divisible by the parallelism (-EINVAL).
 */
int deepnvme_submit(struct deepnvme *handle, bool is_write, const char *path, void *buffer,
		    uint64_t bytes, uint64_t off);
/* How many ops ended, or the first error of any of their requests. */
int64_t deepnvme_wait(struct deepnvme *handle);

/* Pure: the slice of an op that a thread does. */
struct slice {
	uint64_t off, len; /* from the op's start */
};
struct slice deepnvme_slice(uint64_t op_bytes, unsigned parallelism, unsigned thread);

/* Pure: request i of a slice; len is 0 behind its end. */
struct slice deepnvme_request(struct slice slice, uint64_t block_bytes, uint64_t i);

#endif
