/*
 * GPU memory: which addresses are a GPU's, and copies between it and slots.
 *
 *     gpus_copy() -> queued -> gpu_copy_look() -> over
 *
 * Copies are calls of the program's libcuda (cuda.h).  They run on the primary context of the memory's
 * GPU, as those of PyTorch and CuPy do, and on streams of the library's own, which do not wait for the
 * program's streams.  The program's work on the memory must have ended before it submits an op, as it
 * must for any other memory.  The context is current only during a call, so the program's is the same
 * before and after.
 *
 * A copy is queued on its direction's stream, with an event behind it.  The stream makes its copies in
 * their order, one after the other without a pause as long as there is one.  So callers queue several
 * before they wait for the first.  Slot and buffer of a copy are in use until it is over, also if it fails.
 *
 * A slot's slab is registered with libcuda at its first copy, so that the GPU copies by
 * itself.  Where libcuda refuses that, copies work, and are slower.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_GPU_COPY_H
#define DSAIO_CLIENT_LIB_MEMORY_GPU_COPY_H

#include "client/lib/memory/slots.h"
#include "proto/util/cuda.h"

/* As many as one op has pieces, for both directions and some threads.  Others are made anew. */
#define GPU_EVENTS_MAX 64

struct gpu_stream {
	CUstream stream;
	uint64_t
		looked; /* the library's thread's: the round in which its first copy was not over */
};

/* A GPU that memory was copied to or from. */
struct gpu {
	CUdevice device;
	CUcontext context;	       /* the primary one, retained */
	struct gpu_stream fill, empty; /* of slots: one direction does not wait for the other */

	pthread_mutex_t lock; /* of the unused events */
	CUevent events[GPU_EVENTS_MAX];
	unsigned n_events;
};

struct gpus {
	pthread_mutex_t lock;	   /* of opening one */
	struct gpu *all[GPUS_MAX]; /* NULL: not open */
};

/* A queued copy. */
struct gpu_copy {
	struct gpu *gpu;
	struct gpu_stream *stream;
	CUevent event;
};

void gpus_init(struct gpus *gpus);
/* No copy is queued. */
void gpus_deinit(struct gpus *gpus);

/* The number of the GPU whose memory this is, or -1: the host's. */
int gpus_find(const void *memory);

/*
 * Queues a copy of len bytes between the GPU's memory and off of the slot.  is_fill: to the slot.  Returns 0;
 * or -EFAULT (the range is not within an allocation), -ENOMEM or -EIO, and the failed call in *ret_why, which
 * is the caller's to free; NULL: no memory.  After an error nothing is queued.
 */
int gpus_copy(struct gpus *gpus, int number, bool is_fill, const struct slot *slot, uint64_t off,
	      void *memory, uint64_t len, struct gpu_copy *ret_copy, char **ret_why);

/* Looks at a queued copy.  Returns -EAGAIN: it goes on.  Else it is over: 0, or an error as above. */
int gpu_copy_look(struct gpu_copy *copy, char **ret_why);

/* Before a slab is unmapped. */
void gpus_forget(struct gpus *gpus, void *map);

#endif
