/*
 * Shared by the parts of the stand-in for libcuda.
 */
#ifndef DSAIO_TESTS_GPU_CUDA_PARTS_H
#define DSAIO_TESTS_GPU_CUDA_PARTS_H

#include "tests/gpu/libcuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define GPUS_MAX_HERE 128
#define ALLOCATIONS_MAX 256
#define PAGE 4096u
#define MAGIC UINT64_C(0x20757067206f6e21)

/* Behind the bytes of memory. */
struct label {
	uint64_t magic, tag, size;
	int device;
	_Atomic bool is_freed;
};

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
extern unsigned long long cuda_last_id; /* of allocations, and of memory of cuMemCreate() */
extern struct allocation cuda_allocations[ALLOCATIONS_MAX];

/* At the start of a call. */
CUresult cuda_call(const char *name);
CUresult cuda_device_call(const char *name, CUdevice device);
CUresult cuda_context_call(const char *name);

/* The allocation that has all bytes; NULL: none.  Under the lock. */
struct allocation *cuda_find(struct allocation *list, const char *address, size_t bytes);
/* The same of GPU memory that may be used. */
struct allocation *cuda_find_memory(CUdeviceptr memory, size_t bytes);

/* The one that starts there. */
struct allocation *cuda_find_start(CUdeviceptr memory, enum allocation_kind kind);

/* Takes wanted->bytes, and gives it an address.  NULL: no room. */
struct allocation *cuda_allocation_add(const struct allocation *wanted);
void cuda_allocation_remove(struct allocation *allocation);
/* Else the process ends. */
void cuda_must_be_unused(const struct allocation *allocation);
/* As of CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID. */
unsigned long long cuda_block_id(const struct allocation *allocation);

/* Host memory.  Under the lock. */
bool cuda_is_registered(const void *memory, size_t bytes);

static inline char *cuda_pointer(CUdeviceptr memory)
{
	return (char *)(uintptr_t)memory;
}

#endif
