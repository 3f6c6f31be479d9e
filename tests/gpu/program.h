/*
 * A program with GPUs: what tests of the library on the stand-in for libcuda share.
 */
#ifndef DSAIO_TESTS_GPU_PROGRAM_H
#define DSAIO_TESTS_GPU_PROGRAM_H

#include "tests/gpu/load.h"
#include "tests/harness.h"

static struct standins gpu;
static struct standin_cuda start_counts;
static unsigned n_own; /* contexts that the program has retained */

/* Opens libcuda, as PyTorch does. */
static inline void gpu_open(const char *standin)
{
	const char *missing;

	CHECK_SYS(setenv("STANDIN", standin, 1));
	missing = standins_load(&gpu);
	CHECK_MSG(!missing, "%s", missing);
	CHECK_EQ(gpu.find.cuInit(0), CUDA_SUCCESS);
}

/* A context of that GPU's is current until gpu_leave(). */
static inline void gpu_enter(int number)
{
	CUcontext context;

	CHECK_EQ(gpu.copy.cuDevicePrimaryCtxRetain(&context, number), CUDA_SUCCESS);
	n_own++;
	CHECK_EQ(gpu.copy.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
}

static inline void gpu_leave(void)
{
	CHECK_EQ(gpu.copy.cuCtxPopCurrent_v2(&(CUcontext){ NULL }), CUDA_SUCCESS);
}

static inline char *gpu_alloc(int number, size_t bytes)
{
	CUdeviceptr memory = 0;

	gpu_enter(number);
	CHECK_EQ(gpu.own.cuMemAlloc_v2(&memory, bytes), CUDA_SUCCESS);
	gpu_leave();
	return (char *)(uintptr_t)memory;
}

static inline void gpu_free(int number, char *memory)
{
	gpu_enter(number);
	CHECK_EQ(gpu.own.cuMemFree_v2((CUdeviceptr)(uintptr_t)memory), CUDA_SUCCESS);
	gpu_leave();
}

static inline char *bytes_of(const char *memory)
{
	return gpu.look.standin_bytes((CUdeviceptr)(uintptr_t)memory);
}

static inline void rig_gpu(struct rig *rig, const char *standin)
{
	gpu_open(standin);
	rig_open(rig, NULL);
	start_counts = gpu.look.standin_counts();
}

/* No context, stream, event or registration of the library's is left when the client is gone. */
static inline void rig_gone(struct rig *rig)
{
	struct standin_cuda now;

	rig_close(rig);
	*rig = (struct rig)RIG_NONE;
	now = gpu.look.standin_counts();
	CHECK_EQ(now.n_contexts, n_own);
	CHECK_EQ(now.n_streams, 0);
	CHECK_EQ(now.n_events, 0);
	CHECK_EQ(now.n_races, 0);
	CHECK_EQ(now.n_registered, 0);
	CHECK_EQ(now.n_current, start_counts.n_current);
}

#endif
