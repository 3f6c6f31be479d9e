/*
 * Memory that a program has on a host with simulated GPUs (host.h), for end-to-end tests of the library.
 */
#ifndef DSAIO_TESTS_GPU_OWNER_H
#define DSAIO_TESTS_GPU_OWNER_H

#include "tests/gpu/host.h"

/* Addresses for memory that the program maps by itself. */
static inline char *program_reserve(size_t bytes)
{
	CUdeviceptr memory;

	CHECK_EQ(gpu.map.cuMemAddressReserve(&memory, bytes, 0, 0, 0), CUDA_SUCCESS);
	return (char *)(uintptr_t)memory;
}

/* Maps new memory of GPU 0 there; what was mapped there before goes. */
static inline void program_map(const char *memory, size_t bytes, bool may_export)
{
	CHECK_EQ(standins_map(&gpu, memory, bytes, may_export), CUDA_SUCCESS);
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

/* Waits for the op, which takes that path for that reason ("": none), and frees it. */
static inline void check_path(struct dsaio_op *op, int64_t result, enum dsaio_path path,
			      const char *why)
{
	CHECK_EQ(op_wait(op, -1), result);
	CHECK_EQ(dsaio_op_path(op), (int)path);
	CHECK_MSG(*why ? strstr(dsaio_op_why(op), why) != NULL : !*dsaio_op_why(op), "%s",
		  dsaio_op_why(op));
	dsaio_op_free(op);
}

#endif
