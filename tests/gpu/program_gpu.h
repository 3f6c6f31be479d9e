/*
 * The GPUs of a program that tests the library: the stand-in for libcuda in its process, contexts, and memory
 * of any GPU.
 */
#ifndef DSAIO_TESTS_GPU_PROGRAM_GPU_H
#define DSAIO_TESTS_GPU_PROGRAM_GPU_H

#include "tests/gpu/load.h"
#include "tests/harness.h"

#include <stdatomic.h>

static struct standins gpu;
static _Atomic unsigned n_own; /* contexts that the program has retained, in any thread */

/* Loads the stand-ins, as PyTorch does with the vendor's libcuda. */
static inline void gpu_open(void)
{
	const char *missing = standins_load(&gpu);

	CHECK_MSG(!missing, "%s", missing);
	CHECK_EQ(gpu.find.cuInit(0), CUDA_SUCCESS);
}

/* The primary context of that GPU becomes current, until gpu_leave(). */
static inline void gpu_enter(int number)
{
	CHECK_EQ(standins_enter(&gpu, number), CUDA_SUCCESS);
	(void)atomic_fetch_add(&n_own, 1);
}

static inline void gpu_leave(void)
{
	CHECK_EQ(standins_leave(&gpu), CUDA_SUCCESS);
}

static inline char *program_alloc(int number, size_t bytes)
{
	char *memory;

	gpu_enter(number);
	CHECK_EQ(standins_alloc(&gpu, bytes, &memory), CUDA_SUCCESS);
	gpu_leave();
	return memory;
}

static inline void program_free(int number, char *memory)
{
	gpu_enter(number);
	CHECK_EQ(gpu.own.cuMemFree_v2((CUdeviceptr)(uintptr_t)memory), CUDA_SUCCESS);
	gpu_leave();
}

/* The bytes of GPU memory, for the host. */
static inline char *program_bytes(const char *memory)
{
	return gpu.look.standin_bytes((CUdeviceptr)(uintptr_t)memory);
}

#endif
