/*
 * Allocations of GPU memory: what libcuda knows about the memory at an address.
 *
 * A program frees GPU memory without a word to this library, and may get the same address again for
 * other memory.  So an allocation is known by the number that libcuda has given it, which never comes
 * again in a process.  Memory that was mapped by cuMemMap() is known by the number of its physical
 * memory, since other memory can be mapped at the same place of the same reserved addresses.
 *
 * It calls the program's libcuda (cuda.h).  A context is current only during a
 * call, as for copies.  Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_ALLOCATION_H
#define DSAIO_CLIENT_LIB_MEMORY_ALLOCATION_H

#include "proto/util/cuda.h"

#include <stdbool.h>
#include <stdint.h>

struct allocation {
	uintptr_t base;
	uint64_t bytes;
	int number;	       /* of its GPU, in this process */
	bool is_mapped;	       /* by cuMemMap() */
	unsigned long long id; /* of it or, if it is mapped, of the physical memory */
};

static inline bool allocation_has(const struct allocation *allocation, const void *memory,
				  uint64_t len)
{
	uint64_t off = (uintptr_t)memory - allocation->base;

	return off < allocation->bytes && len <= allocation->bytes - off;
}

/*
 * The allocation that the byte lies in.  Returns 0, -ENOENT (it is not in a GPU's memory), or
 * -EOPNOTSUPP: the program's libcuda cannot tell one allocation from another one; *ret_why, the failed
 * call, is the caller's to free, and may be NULL.
 */
int allocation_find(const void *memory, struct allocation *ret_allocation, char **ret_why);

/* Is the byte, which was in that allocation, still in it? */
bool allocation_is_current(const struct allocation *allocation, const void *memory);

/* The facts with which another process opens an allocation. */
struct allocation_handle {
	CUuuid uuid; /* of its GPU */
	CUipcMemHandle ipc;
	uint64_t buffer_id; /* beside ipc */
	int fd;		    /* instead, if it is mapped; else -1 */
};

/*
 * Exports an allocation.  Returns 0 or -EOPNOTSUPP: libcuda does not export it; *ret_why as above.
 * Ownership: ret_handle->fd is the caller's.
 */
int allocation_export(const struct allocation *allocation, struct allocation_handle *ret_handle,
		      char **ret_why);

#endif
