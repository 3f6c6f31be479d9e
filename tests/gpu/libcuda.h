/*
 * The stand-in for libcuda, for tests that load it: calls of programs with GPU memory, and a look inside.
 */
#ifndef DSAIO_TESTS_GPU_LIBCUDA_H
#define DSAIO_TESTS_GPU_LIBCUDA_H

#include "proto/util/cuda.h"

#include <stdbool.h>
#include <stdint.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))

#ifndef CUDA_VERSION /* as in cuda.h */
typedef enum CUmemAllocationType_enum {
	CU_MEM_ALLOCATION_TYPE_PINNED = 1,
} CUmemAllocationType;
typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char flags[8];
} CUmemAllocationProp;
#endif

/* The program's own. */
#define STANDIN_PROGRAM_FUNCTIONS(FUNCTION)                                                   \
	FUNCTION(CUresult, cuMemAlloc_v2, (CUdeviceptr * ret_memory, size_t bytes))           \
	FUNCTION(CUresult, cuMemFree_v2, (CUdeviceptr memory))                                \
	FUNCTION(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
	FUNCTION(CUresult, cuMemCreate,                                                       \
		 (CUmemGenericAllocationHandle * ret_handle, size_t bytes,                    \
		  const CUmemAllocationProp *properties, unsigned long long flags))

#define STANDIN_DECLARE(result, name, parameters) STANDIN_EXPORT result name parameters;
#ifndef CUDA_VERSION
STANDIN_PROGRAM_FUNCTIONS(STANDIN_DECLARE)
#endif

#define STANDIN_GRANULARITY (2u << 20) /* of memory that cuMemCreate() makes */

struct standin_cuda {
	unsigned n_contexts, n_streams, n_events, n_registered; /* now */
	unsigned n_current;			    /* contexts on this thread's stack */
	unsigned n_allocations;			    /* now; own ones, and those of others */
	unsigned n_imported, n_handles, n_reserved; /* now */
	uint64_t n_asked;			    /* attributes of addresses */
	uint64_t n_copies, copied_bytes;
	uint64_t n_pageable; /* copies whose host memory was not registered */
	uint64_t n_ahead;    /* most copies that were in a stream at a time */
	uint64_t n_races;    /* copies whose host memory a copy before used that had not ended */
};
STANDIN_EXPORT struct standin_cuda standin_counts(void);

/* Only the first n of all copies may end, until another call says more. */
STANDIN_EXPORT void standin_let(uint64_t n);

/* The bytes of GPU memory, for the host; NULL: no such memory. */
STANDIN_EXPORT char *standin_bytes(CUdeviceptr memory);

/*
 * For the stand-in for libcufile: the bytes from memory on, which stay until standin_unpin(); an
 * end of the allocation before that ends the process.  ret_device: its GPU.  NULL: no such memory.
 */
STANDIN_EXPORT char *standin_pin(CUdeviceptr memory, size_t bytes, int *ret_device,
				 bool *ret_is_imported);
STANDIN_EXPORT void standin_unpin(CUdeviceptr memory);
/* The GPU of the thread's current context, or -1. */
STANDIN_EXPORT int standin_current(void);

#endif
