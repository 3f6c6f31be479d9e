/*
 * Our declarations of libcuda and libcufile beside the vendor's.  tests/e2e/gpu_headers.sh compiles
 * this twice and compares the output.
 *
 *     (nothing)      our headers
 *     -DVENDOR=1     the vendor's cuda.h
 *     -DVENDOR=2     the vendor's cufile.h, which includes cuda.h
 *
 * With the vendor's header, each function is declared a second time, as we have it: the compiler
 * refuses a prototype that differs.
 */
#ifdef VENDOR
#if VENDOR == 2
#include <cufile.h>
#else
#include <cuda.h>
#endif
#endif
#include "daemon/engine/cufile.h"
#include "tests/gpu/libcuda.h"

#include <stdio.h>

#define DECLARE(result, name, parameters) result name parameters;
#ifdef VENDOR
CUDA_FUNCTIONS(DECLARE)
CUDA_COPY_FUNCTIONS(DECLARE)
CUDA_EXPORT_FUNCTIONS(DECLARE)
CUDA_MEMORY_FUNCTIONS(DECLARE)
CUDA_IMPORT_FUNCTIONS(DECLARE)
STANDIN_PROGRAM_FUNCTIONS(DECLARE)
#if VENDOR == 2
CUFILE_FUNCTIONS(DECLARE)
CUFILE_MOVE_FUNCTIONS(DECLARE)
#endif
#endif

#define FIELD(type, field)             \
	NUMBER(offsetof(type, field)); \
	NUMBER(sizeof(((type *)0)->field))
#define NUMBER(what) (void)printf("%s %lld\n", #what, (long long)(what))

int main(void)
{
	NUMBER(sizeof(CUdevice));
	NUMBER((CUdevice)-1 < 0);
	NUMBER(sizeof(CUresult));
	NUMBER(CUDA_SUCCESS);
	NUMBER(CUDA_ERROR_INVALID_VALUE);
	NUMBER(CUDA_ERROR_OUT_OF_MEMORY);
	NUMBER(CUDA_ERROR_NO_DEVICE);
	NUMBER(CUDA_ERROR_INVALID_DEVICE);
	NUMBER(CUDA_ERROR_INVALID_CONTEXT);
	NUMBER(CUDA_ERROR_MAP_FAILED);
	NUMBER(CUDA_ERROR_INVALID_HANDLE);
	NUMBER(CUDA_ERROR_NOT_FOUND);
	NUMBER(CUDA_ERROR_NOT_READY);
	NUMBER(CUDA_ERROR_NOT_PERMITTED);
	NUMBER(CUDA_ERROR_NOT_SUPPORTED);
	NUMBER(sizeof(CUdeviceptr));
	NUMBER(sizeof(CUcontext));
	NUMBER(sizeof(CUstream));
	NUMBER(sizeof(CUevent));
	NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
	NUMBER(CU_POINTER_ATTRIBUTE_BUFFER_ID);
	NUMBER(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
	NUMBER(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
	NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
	NUMBER(CU_MEMORYTYPE_DEVICE);
	NUMBER(sizeof(CUmemorytype));
	NUMBER(CU_STREAM_NON_BLOCKING);
	NUMBER(CU_EVENT_DISABLE_TIMING);
	NUMBER(CU_MEMHOSTREGISTER_PORTABLE);
	NUMBER(sizeof(CUuuid));
	FIELD(CUuuid, bytes);
	FIELD(CUipcMemHandle, reserved);
	NUMBER(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	NUMBER(sizeof(CUmemGenericAllocationHandle));
	NUMBER(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	NUMBER(CU_MEM_LOCATION_TYPE_DEVICE);
	NUMBER(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	NUMBER(CU_MEM_ALLOCATION_TYPE_PINNED);
	NUMBER(sizeof(CUmemLocation));
	FIELD(CUmemLocation, type);
	FIELD(CUmemLocation, id);
	NUMBER(sizeof(CUmemAccessDesc));
	FIELD(CUmemAccessDesc, location);
	FIELD(CUmemAccessDesc, flags);
	NUMBER(sizeof(CUmemAllocationProp));
	FIELD(CUmemAllocationProp, type);
	FIELD(CUmemAllocationProp, requestedHandleTypes);
	FIELD(CUmemAllocationProp, location);
#if !defined(VENDOR) || VENDOR == 2
#define ERROR_NUMBER(name, value) NUMBER(name);
	CUFILE_ERRORS(ERROR_NUMBER)
	NUMBER(sizeof(CUfileOpError));
	NUMBER(sizeof(CUfileError_t));
	FIELD(CUfileError_t, err);
	FIELD(CUfileError_t, cu_err);
	NUMBER(CU_FILE_P2P_SUPPORTED);
	NUMBER(sizeof(CUfileDrvProps_t));
	FIELD(CUfileDrvProps_t, nvfs.major_version);
	FIELD(CUfileDrvProps_t, nvfs.minor_version);
	FIELD(CUfileDrvProps_t, nvfs.poll_thresh_size);
	FIELD(CUfileDrvProps_t, nvfs.max_direct_io_size);
	FIELD(CUfileDrvProps_t, nvfs.dstatusflags);
	FIELD(CUfileDrvProps_t, nvfs.dcontrolflags);
	FIELD(CUfileDrvProps_t, fflags);
	FIELD(CUfileDrvProps_t, max_device_cache_size);
	FIELD(CUfileDrvProps_t, per_buffer_cache_size);
	FIELD(CUfileDrvProps_t, max_device_pinned_mem_size);
	FIELD(CUfileDrvProps_t, max_batch_io_size);
	FIELD(CUfileDrvProps_t, max_batch_io_timeout_msecs);
	NUMBER(CU_FILE_HANDLE_TYPE_OPAQUE_FD);
	NUMBER(sizeof(CUfileHandle_t));
	NUMBER(sizeof(CUfileDescr_t));
	FIELD(CUfileDescr_t, type);
	FIELD(CUfileDescr_t, handle.fd);
	FIELD(CUfileDescr_t, fs_ops);
#endif
	return 0;
}
