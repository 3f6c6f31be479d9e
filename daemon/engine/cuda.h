/*
 * The part of libcuda's public ABI that the daemon calls.
 *
 * The library is opened at run time, so the build needs no CUDA.  The declarations follow cuda.h of the
 * package nvidia-cuda-runtime 13.2 and "CUDA Driver API", docs.nvidia.com/cuda/cuda-driver-api.  The
 * names are those of the library's symbols: cuda.h maps cuDeviceGetUuid to cuDeviceGetUuid_v2.
 * tests/e2e/gpu_headers.sh compares all of it with the vendor's header where that is installed.
 */
#ifndef DSAIO_DAEMON_ENGINE_CUDA_H
#define DSAIO_DAEMON_ENGINE_CUDA_H

#include <stddef.h>

#ifndef CUDA_VERSION /* only the test that compares both has the vendor's header, too */
typedef int CUdevice;
typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_NO_DEVICE = 100,
} CUresult;
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
#endif

#define CUDA_LIBRARY "libcuda.so.1" /* as the driver's packages install it */

/* FUNCTION(result, name, parameters).  A driver before CUDA 11.4 lacks cuDeviceGetUuid_v2, which names a
   part of a GPU (MIG) by an id of its own. */
#define CUDA_FUNCTIONS(FUNCTION)                                                       \
	FUNCTION(CUresult, cuInit, (unsigned int flags))                               \
	FUNCTION(CUresult, cuDriverGetVersion, (int *ret_version))                     \
	FUNCTION(CUresult, cuDeviceGetCount, (int *ret_count))                         \
	FUNCTION(CUresult, cuDeviceGet, (CUdevice * ret_device, int ordinal))          \
	FUNCTION(CUresult, cuDeviceGetName, (char *name, int len, CUdevice device))    \
	FUNCTION(CUresult, cuDeviceGetUuid_v2, (CUuuid * ret_uuid, CUdevice device))   \
	FUNCTION(CUresult, cuDeviceTotalMem_v2, (size_t * ret_bytes, CUdevice device)) \
	FUNCTION(CUresult, cuGetErrorName, (CUresult error, const char **ret_name))

#endif
