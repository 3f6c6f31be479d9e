/*
 * The program's libcuda, and its functions that this library calls.
 *
 * A process has GPU memory only if it has opened libcuda.  So the program's libcuda is used, and none is
 * opened here: a program without one costs one dl_iterate_phdr(3) per look.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_CUDA_H
#define DSAIO_CLIENT_LIB_MEMORY_CUDA_H

#include "proto/util/cuda.h"

#include <stdint.h>

/* Those that export allocations.  Older drivers lack some. */
#define CUDA_EXPORTER_FUNCTIONS(FUNCTION) \
	CUDA_EXPORT_FUNCTIONS(FUNCTION)   \
	FUNCTION(CUresult, cuDeviceGetUuid_v2, (CUuuid * ret_uuid, CUdevice device))

struct cuda {
	CUDA_COPY_FUNCTIONS(FUNCTION_POINTER)
	CUDA_EXPORTER_FUNCTIONS(FUNCTION_POINTER)
	/* NULL, or the name of one of these that is missing: none of them may be called. */
	const char *lacking;
};

/* NULL: the program has not opened it.  Once it is found, it stays. */
const struct cuda *cuda_get(void);

/* The message about a call that failed, such as "cuCtxPushCurrent()".  The caller's to free; NULL: no
   memory.  libcuda has been found. */
char *cuda_why(const char *call, CUresult result);

/*
 * The primary context of the GPU is retained, and current in this thread, until cuda_leave().  *ret_call: what
 * failed.  libcuda has been found, here and below.
 */
CUresult cuda_enter(int number, CUdevice *ret_device, CUcontext *ret_context,
		    const char **ret_call);
void cuda_leave(CUdevice device);

static inline CUdeviceptr cuda_address(const void *memory)
{
	return (CUdeviceptr)(uintptr_t)memory;
}

#endif
