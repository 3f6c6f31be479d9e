/*
 * The part of libcuda's public ABI that daemon and client library call, and how its functions are found.
 *
 * The library is opened at run time, so the build needs no CUDA.  The declarations follow cuda.h of the
 * package nvidia-cuda-runtime 13.2 and "CUDA Driver API", docs.nvidia.com/cuda/cuda-driver-api.  The
 * names are those of the library's symbols: cuda.h maps cuDeviceGetUuid to cuDeviceGetUuid_v2.
 * tests/e2e/gpu_headers.sh compares all of it with the vendor's header where that is installed.
 */
#ifndef DSAIO_PROTO_UTIL_CUDA_H
#define DSAIO_PROTO_UTIL_CUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#ifndef CUDA_VERSION /* only the test that compares both has the vendor's header, too */
typedef int CUdevice;
typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NO_DEVICE = 100,
} CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef enum CUpointer_attribute_enum {
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
} CUpointer_attribute;
typedef enum CUmemorytype_enum {
	CU_MEMORYTYPE_DEVICE = 2,
} CUmemorytype;
typedef enum CUstream_flags_enum {
	CU_STREAM_NON_BLOCKING = 1,
} CUstream_flags;
#define CU_MEMHOSTREGISTER_PORTABLE 0x01
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
#endif

#define CUDA_LIBRARY "libcuda.so.1" /* as the driver's packages install it */

/* FUNCTION(result, name, parameters): those that find GPUs.  A driver before CUDA 11.4 lacks
   cuDeviceGetUuid_v2, which names a part of a GPU (MIG) by an id of its own. */
#define CUDA_FUNCTIONS(FUNCTION)                                                       \
	FUNCTION(CUresult, cuInit, (unsigned int flags))                               \
	FUNCTION(CUresult, cuDriverGetVersion, (int *ret_version))                     \
	FUNCTION(CUresult, cuDeviceGetCount, (int *ret_count))                         \
	FUNCTION(CUresult, cuDeviceGet, (CUdevice * ret_device, int ordinal))          \
	FUNCTION(CUresult, cuDeviceGetName, (char *name, int len, CUdevice device))    \
	FUNCTION(CUresult, cuDeviceGetUuid_v2, (CUuuid * ret_uuid, CUdevice device))   \
	FUNCTION(CUresult, cuDeviceTotalMem_v2, (size_t * ret_bytes, CUdevice device)) \
	FUNCTION(CUresult, cuGetErrorName, (CUresult error, const char **ret_name))

/* Those that copy. */
#define CUDA_COPY_FUNCTIONS(FUNCTION)                                                              \
	FUNCTION(CUresult, cuGetErrorName, (CUresult error, const char **ret_name))                \
	FUNCTION(CUresult, cuPointerGetAttribute,                                                  \
		 (void *ret_value, CUpointer_attribute attribute, CUdeviceptr memory))             \
	FUNCTION(CUresult, cuDeviceGet, (CUdevice * ret_device, int ordinal))                      \
	FUNCTION(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * ret_context, CUdevice device))   \
	FUNCTION(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                        \
	FUNCTION(CUresult, cuCtxPushCurrent_v2, (CUcontext context))                               \
	FUNCTION(CUresult, cuCtxPopCurrent_v2, (CUcontext * ret_context))                          \
	FUNCTION(CUresult, cuStreamCreate, (CUstream * ret_stream, unsigned int flags))            \
	FUNCTION(CUresult, cuStreamDestroy_v2, (CUstream stream))                                  \
	FUNCTION(CUresult, cuStreamSynchronize, (CUstream stream))                                 \
	FUNCTION(CUresult, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned int flags)) \
	FUNCTION(CUresult, cuMemHostUnregister, (void *memory))                                    \
	FUNCTION(CUresult, cuMemcpyHtoDAsync_v2,                                                   \
		 (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                \
	FUNCTION(CUresult, cuMemcpyDtoHAsync_v2,                                                   \
		 (void *to, CUdeviceptr from, size_t bytes, CUstream stream))

/* A function of a library, and where a struct of pointers has it. */
struct function {
	const char *name;
	size_t offset;
};
#define FUNCTION_POINTER(result, name, parameters) result(*name) parameters;

/* Fills in the pointers of a struct.  Returns NULL, or the name of a function that is not there. */
static inline const char *functions_find(void *library, const struct function *functions, size_t n,
					 void *ret_functions)
{
	for (size_t i = 0; i < n; i++) {
		void *address = dlsym(library, functions[i].name);

		if (!address)
			return functions[i].name;
		memcpy((char *)ret_functions + functions[i].offset, &address, sizeof(address));
	}
	return NULL;
}

#endif
