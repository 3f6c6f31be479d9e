/*
 * GPU memory of the program's that it has registered (dsaio_memory_register()).
 *
 * A registered range lies within one allocation (allocation.h).  If the program frees that without
 * unregistering the range, the range stays until it is unregistered, or until memory at its place is
 * registered.  gpu_memory_has() does not find it meanwhile.
 *
 * Knows neither client nor ops.  Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_GPU_MEMORY_H
#define DSAIO_CLIENT_LIB_MEMORY_GPU_MEMORY_H

#include "client/lib/memory/allocation.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct gpu_range;

/* All of a client. */
struct gpu_memory {
	pthread_mutex_t lock; /* of all below */
	struct gpu_range *ranges;
	size_t n_ranges, n_ranges_allocated;
	bool is_left; /* the session has ended */
};

void gpu_memory_init(struct gpu_memory *gpu);
void gpu_memory_deinit(struct gpu_memory *gpu);

/*
 * Registers a range of an allocation.  Returns 0, -EINVAL (it is no GPU memory), -ERANGE (it passes
 * the allocation's end), -EEXIST (part of it is registered), -EOPNOTSUPP (the driver is too old) or
 * -ENOMEM, with a sentence.
 */
int gpu_memory_register(struct gpu_memory *gpu, void *start, size_t bytes);

/*
 * Returns 0 and the range's allocation, or -EINVAL: no such range starts there.  *ret_is_last: it was the
 * last one that gpu_memory_leave() has left.
 */
int gpu_memory_unregister(struct gpu_memory *gpu, const void *start,
			  struct allocation *ret_allocation, bool *ret_is_last);

/* Is the whole range in a registered one, whose memory was not freed? */
bool gpu_memory_has(struct gpu_memory *gpu, const void *memory, size_t bytes);

/* The session has ended, or is about to.  Returns whether ranges are registered. */
bool gpu_memory_leave(struct gpu_memory *gpu);

#endif
