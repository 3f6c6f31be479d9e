/*
 * GPU memory: which addresses are a GPU's, and copies between it and slots.
 *
 *     devices_fill(), _empty() -> queued -> device_copy_look(), _await() -> over
 *
 * Copies are calls of the program's libcuda (cuda.h).  They run on the primary context of the memory's
 * GPU, as those of PyTorch and CuPy do, and on streams of the library's own, which do not wait for the
 * program's streams.  The program's work on the memory
 * must have ended before it submits an op, as it must for any other memory.  The context is current only
 * during a call, so the program's is the same before and after.
 *
 * A copy is queued on its direction's stream, with an event behind it.  The stream makes its copies in
 * their order, one after the other without a pause as long as there is one.  So callers queue several
 * before they wait for the first.  Slot and buffer of a copy are in use until it is over, also if it fails.
 *
 * A slot's slab is mapped at its first copy, and registered with libcuda, so that the GPU copies by
 * itself.  Where libcuda refuses that, copies work, and are slower.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_DEVICE_H
#define DSAIO_CLIENT_LIB_MEMORY_DEVICE_H

#include "client/lib/memory/slots.h"
#include "proto/util/cuda.h"

/* As many as one op has pieces, for both directions and some threads.  Others are made anew. */
#define DEVICE_EVENTS_MAX 64

struct device_stream {
	CUstream stream;
	uint64_t looked; /* the library's thread's: the turn in which its first copy was not over */
};

/* A GPU that memory was copied to or from. */
struct device {
	CUdevice device;
	CUcontext context;		  /* the primary one, retained */
	struct device_stream fill, empty; /* of slots: one direction does not wait for the other */

	pthread_mutex_t lock; /* of the unused events */
	CUevent events[DEVICE_EVENTS_MAX];
	unsigned n_events;
};

struct devices {
	pthread_mutex_t lock;		  /* of opening one */
	struct device *devices[GPUS_MAX]; /* NULL: not open */
};

/* A queued copy. */
struct device_copy {
	struct device *device;
	struct device_stream *stream;
	CUevent event;
};

void devices_init(struct devices *devices);
/* No copy is queued. */
void devices_deinit(struct devices *devices);

/* The number of the GPU whose memory this is, or -1: the host's. */
int devices_find(const void *memory);

/*
 * Queues a copy of len bytes between the GPU's memory and off of the slot.  Returns 0; or -EFAULT (the
 * range is not within an allocation), -ENOMEM or -EIO, and the failed call in *ret_why, which is the
 * caller's to free; NULL: no memory.  After an error nothing is queued.
 */
int devices_fill(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		 const void *from, uint64_t len, struct device_copy *ret_copy, char **ret_why);
int devices_empty(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		  void *to, uint64_t len, struct device_copy *ret_copy, char **ret_why);

/* Looks at a queued copy.  Returns -EAGAIN: it goes on.  Else it is over: 0, or an error as above. */
int device_copy_look(struct device_copy *copy, char **ret_why);
/* Sleeps until it is over. */
int device_copy_await(struct device_copy *copy, char **ret_why);

/* Before a slab is unmapped. */
void devices_forget(struct devices *devices, void *map);

#endif
