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
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
} CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef enum CUpointer_attribute_enum {
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_BUFFER_ID = 7, /* unsigned long long, unique in the process */
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10, /* bool */
	/* unsigned long long, unique in the process: of the physical memory */
	CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
} CUpointer_attribute;
typedef enum CUmemorytype_enum {
	CU_MEMORYTYPE_DEVICE = 2,
} CUmemorytype;
typedef enum CUstream_flags_enum {
	CU_STREAM_NON_BLOCKING = 1,
} CUstream_flags;
typedef enum CUevent_flags_enum {
	CU_EVENT_DISABLE_TIMING = 2,
} CUevent_flags;
#define CU_MEMHOSTREGISTER_PORTABLE 0x01
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
#define CU_IPC_HANDLE_SIZE 64
typedef struct CUipcMemHandle_st {
	char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;
typedef enum CUipcMem_flags_enum {
	CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1, /* the only flags that cuIpcOpenMemHandle() takes */
} CUipcMem_flags;
/* Memory of the calls that map it by themselves (VMM). */
typedef unsigned long long CUmemGenericAllocationHandle;
typedef enum CUmemAllocationHandleType_enum {
	CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
} CUmemAllocationHandleType;
typedef enum CUmemLocationType_enum {
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
} CUmemLocationType;
typedef enum CUmemAccess_flags_enum {
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
} CUmemAccess_flags;
typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id; /* of the device */
} CUmemLocation;
typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;
#endif

#define CUDA_LIBRARY "libcuda.so.1" /* as the driver's packages install it */
#define GPUS_MAX 64		    /* that are used: more than the largest hosts have */

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
	FUNCTION(CUresult, cuEventCreate, (CUevent * ret_event, unsigned int flags))               \
	FUNCTION(CUresult, cuEventDestroy_v2, (CUevent event))                                     \
	FUNCTION(CUresult, cuEventRecord, (CUevent event, CUstream stream))                        \
	FUNCTION(CUresult, cuEventQuery, (CUevent event))                                          \
	FUNCTION(CUresult, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned int flags)) \
	FUNCTION(CUresult, cuMemHostUnregister, (void *memory))                                    \
	FUNCTION(CUresult, cuMemcpyHtoDAsync_v2,                                                   \
		 (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                \
	FUNCTION(CUresult, cuMemcpyDtoHAsync_v2,                                                   \
		 (void *to, CUdeviceptr from, size_t bytes, CUstream stream))

/* Those of a program with GPU memory of its own. */
#define CUDA_MEMORY_FUNCTIONS(FUNCTION)                                                          \
	FUNCTION(CUresult, cuInit, (unsigned int flags))                                         \
	FUNCTION(CUresult, cuGetErrorName, (CUresult error, const char **ret_name))              \
	FUNCTION(CUresult, cuDeviceGetCount, (int *ret_count))                                   \
	FUNCTION(CUresult, cuDeviceGet, (CUdevice * ret_device, int ordinal))                    \
	FUNCTION(CUresult, cuDeviceGetName, (char *name, int len, CUdevice device))              \
	FUNCTION(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * ret_context, CUdevice device)) \
	FUNCTION(CUresult, cuCtxPushCurrent_v2, (CUcontext context))                             \
	FUNCTION(CUresult, cuStreamSynchronize, (CUstream stream))                               \
	FUNCTION(CUresult, cuMemAlloc_v2, (CUdeviceptr * ret_memory, size_t bytes))              \
	FUNCTION(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))    \
	FUNCTION(CUresult, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))

/* Those by which a process exports its memory, beside cuPointerGetAttribute() and cuDeviceGetUuid_v2(). */
#define CUDA_EXPORT_FUNCTIONS(FUNCTION)                                                        \
	FUNCTION(CUresult, cuMemGetAddressRange_v2,                                            \
		 (CUdeviceptr * ret_base, size_t * ret_bytes, CUdeviceptr memory))             \
	FUNCTION(CUresult, cuIpcGetMemHandle, (CUipcMemHandle * ret_handle, CUdeviceptr base)) \
	FUNCTION(CUresult, cuMemRetainAllocationHandle,                                        \
		 (CUmemGenericAllocationHandle * ret_handle, void *memory))                    \
	FUNCTION(CUresult, cuMemExportToShareableHandle,                                       \
		 (void *ret_fd, CUmemGenericAllocationHandle handle,                           \
		  CUmemAllocationHandleType type, unsigned long long flags))                   \
	FUNCTION(CUresult, cuMemRelease, (CUmemGenericAllocationHandle handle))

/* Those by which the daemon maps it, beside those that find GPUs. */
#define CUDA_IMPORT_FUNCTIONS(FUNCTION)                                                          \
	FUNCTION(CUresult, cuPointerGetAttribute,                                                \
		 (void *ret_value, CUpointer_attribute attribute, CUdeviceptr memory))           \
	FUNCTION(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * ret_context, CUdevice device)) \
	FUNCTION(CUresult, cuCtxPushCurrent_v2, (CUcontext context))                             \
	FUNCTION(CUresult, cuCtxPopCurrent_v2, (CUcontext * ret_context))                        \
	FUNCTION(CUresult, cuMemGetAddressRange_v2,                                              \
		 (CUdeviceptr * ret_base, size_t * ret_bytes, CUdeviceptr memory))               \
	FUNCTION(CUresult, cuIpcOpenMemHandle_v2,                                                \
		 (CUdeviceptr * ret_memory, CUipcMemHandle handle, unsigned int flags))          \
	FUNCTION(CUresult, cuIpcCloseMemHandle, (CUdeviceptr memory))                            \
	FUNCTION(CUresult, cuMemImportFromShareableHandle,                                       \
		 (CUmemGenericAllocationHandle * ret_handle, void *fd,                           \
		  CUmemAllocationHandleType type))                                               \
	FUNCTION(CUresult, cuMemRelease, (CUmemGenericAllocationHandle handle))                  \
	FUNCTION(CUresult, cuMemAddressReserve,                                                  \
		 (CUdeviceptr * ret_memory, size_t bytes, size_t alignment, CUdeviceptr wanted,  \
		  unsigned long long flags))                                                     \
	FUNCTION(CUresult, cuMemAddressFree, (CUdeviceptr memory, size_t bytes))                 \
	FUNCTION(CUresult, cuMemMap,                                                             \
		 (CUdeviceptr memory, size_t bytes, size_t off,                                  \
		  CUmemGenericAllocationHandle handle, unsigned long long flags))                \
	FUNCTION(CUresult, cuMemUnmap, (CUdeviceptr memory, size_t bytes))                       \
	FUNCTION(CUresult, cuMemSetAccess,                                                       \
		 (CUdeviceptr memory, size_t bytes, const CUmemAccessDesc *access, size_t n))    \
	FUNCTION(CUresult, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))

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

/* The name of an error, for people. */
static inline const char *cuda_error_name(CUresult (*cuGetErrorName)(CUresult error,
								     const char **ret_name),
					  CUresult error)
{
	const char *name = NULL;

	return cuGetErrorName(error, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

#endif
