/*
 * Memory that a program has on a host with simulated GPUs (host.h), for end-to-end tests of the library.
 */
#ifndef DSAIO_TESTS_GPU_OWNER_H
#define DSAIO_TESTS_GPU_OWNER_H

#include "tests/gpu/host.h"

static inline char *program_alloc(int number, size_t bytes)
{
	CUdeviceptr memory = 0;

	gpu_enter(number);
	CHECK_EQ(gpu.own.cuMemAlloc_v2(&memory, bytes), CUDA_SUCCESS);
	gpu_leave();
	return (char *)(uintptr_t)memory;
}

static inline void program_free(int number, char *memory)
{
	gpu_enter(number);
	CHECK_EQ(gpu.own.cuMemFree_v2((CUdeviceptr)(uintptr_t)memory), CUDA_SUCCESS);
	gpu_leave();
}

/* Addresses for memory that the program maps by itself. */
static inline char *program_reserve(size_t bytes)
{
	CUdeviceptr memory;

	CHECK_EQ(gpu.map.cuMemAddressReserve(&memory, bytes, 0, 0, 0), CUDA_SUCCESS);
	return (char *)(uintptr_t)memory;
}

/* Maps new memory of GPU 0 there; what was mapped there before goes. */
static inline void program_map(char *memory, size_t bytes, bool may_export)
{
	const CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = may_export ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						   : (CUmemAllocationHandleType)0,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	const CUmemAccessDesc access = { properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;

	(void)gpu.map.cuMemUnmap(at, bytes); /* fails the first time */
	CHECK_EQ(gpu.own.cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemMap(at, bytes, 0, handle, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemSetAccess(at, bytes, &access, 1), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemRelease(handle), CUDA_SUCCESS);
}

/* The bytes of GPU memory, for the host. */
static inline char *program_bytes(const char *memory)
{
	return bytes_of((CUdeviceptr)(uintptr_t)memory);
}

/* Registers a range with the rig's client. */
static inline int program_register(struct rig *rig, void *start, size_t bytes)
{
	struct dsaio_memory memory = DSAIO_MEMORY_INIT;

	memory.kind = DSAIO_MEMORY_CUDA;
	memory.start = start;
	memory.bytes = bytes;
	return dsaio_memory_register(rig->client, &memory);
}

#endif
