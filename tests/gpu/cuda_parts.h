/*
 * Shared by the parts of the stand-in for libcuda.
 */
#ifndef DSAIO_TESTS_GPU_CUDA_PARTS_H
#define DSAIO_TESTS_GPU_CUDA_PARTS_H

#include "tests/gpu/libcuda.h"

#include <pthread.h>
#include <stddef.h>

#define GPUS_MAX_HERE 128
#define ALLOCATIONS_MAX 256
#define HANDLES_MAX 64

enum allocation_kind { ALLOCATED, IMPORTED, RESERVED };

struct allocation {
	char *address; /* PROT_NONE; NULL: free */
	char *bytes;   /* NULL: reserved, and not mapped */
	size_t size;
	int device;
	enum allocation_kind kind;
	bool is_accessible;    /* (RESERVED) cuMemSetAccess() was called */
	int segment;	       /* of ALLOCATED and IMPORTED */
	unsigned handle;       /* (RESERVED) what is mapped */
	unsigned n_opened;     /* (IMPORTED) */
	unsigned n_pins;       /* users of libcufile */
	unsigned long long id; /* as of CU_POINTER_ATTRIBUTE_BUFFER_ID */
};

extern pthread_mutex_t cuda_lock; /* of the rest */
extern struct standin_cuda cuda_counts;
extern struct allocation cuda_allocations[ALLOCATIONS_MAX];

/* At the start of a call. */
CUresult cuda_call(const char *name);
CUresult cuda_device_call(const char *name, CUdevice device);
CUresult cuda_context_call(const char *name);

/* The allocation that has all bytes; NULL: none.  Under the lock. */
struct allocation *cuda_find(struct allocation *list, const char *address, size_t bytes);
/* The same of GPU memory that may be used. */
struct allocation *cuda_find_memory(CUdeviceptr memory, size_t bytes);

static inline char *cuda_pointer(CUdeviceptr memory)
{
	return (char *)(uintptr_t)memory;
}

#endif
