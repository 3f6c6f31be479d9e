/*
 * A program with GPU memory, on the stand-in for libcuda.
 */
#ifndef DSAIO_TESTS_UNIT_GPU_H
#define DSAIO_TESTS_UNIT_GPU_H

#include "tests/gpu/load.h"
#include "tests/unit/suite.h"

static struct standins gpu;

/* Memory of that GPU, in a program that has opened libcuda just now. */
static inline void *gpu_alloc(int number, size_t bytes)
{
	CUdeviceptr memory;
	CUcontext context;

	ck_assert_int_eq(setenv("STANDIN", "gpus=100", 1), 0);
	ck_assert_ptr_null(standins_load(&gpu));
	ck_assert_int_eq(gpu.find.cuInit(0), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.copy.cuDevicePrimaryCtxRetain(&context, number), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.copy.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&memory, bytes), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.copy.cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
	return (void *)(uintptr_t)memory;
}

#endif
