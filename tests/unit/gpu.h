/*
 * A program with GPU memory, on the stand-in for libcuda.
 */
#ifndef DSAIO_TESTS_UNIT_GPU_H
#define DSAIO_TESTS_UNIT_GPU_H

#include "tests/gpu/load.h"
#include "tests/unit/suite.h"

static struct standins gpu;

/* As PyTorch does: on a host as standin says. */
static inline void cuda_open(const char *standin)
{
	const char *missing;

	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
	missing = standins_load(&gpu);
	ck_assert_msg(!missing, "%s", missing);
	ck_assert_int_eq(gpu.find.cuInit(0), CUDA_SUCCESS);
}

static inline char *gpu_memory_new(int number, size_t bytes)
{
	char *memory;

	ck_assert_int_eq(standins_enter(&gpu, number), CUDA_SUCCESS);
	ck_assert_int_eq(standins_alloc(&gpu, bytes, &memory), CUDA_SUCCESS);
	ck_assert_int_eq(standins_leave(&gpu), CUDA_SUCCESS);
	return memory;
}

static inline void gpu_memory_free(int number, const char *memory)
{
	ck_assert_int_eq(standins_enter(&gpu, number), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.own.cuMemFree_v2((CUdeviceptr)(uintptr_t)memory), CUDA_SUCCESS);
	ck_assert_int_eq(standins_leave(&gpu), CUDA_SUCCESS);
}

#endif
