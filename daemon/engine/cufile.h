/*
 * The part of libcufile's public ABI that the daemon calls.
 *
 * The library is opened at run time, so the build needs no CUDA.  The declarations follow cufile.h of the
 * packages nvidia-cufile 1.17 and 1.20 and "cuFile API Reference Guide", docs.nvidia.com/gpudirect-storage.
 * tests/e2e/gpu_headers.sh compares all of it with the vendor's header where that is installed.
 */
#ifndef DSAIO_DAEMON_ENGINE_CUFILE_H
#define DSAIO_DAEMON_ENGINE_CUFILE_H

#include "proto/util/cuda.h"

#include <stddef.h>
#include <sys/types.h>

/* ERROR(name, value) */
#define CUFILE_ERRORS(ERROR)                                \
	ERROR(CU_FILE_SUCCESS, 0)                           \
	ERROR(CU_FILE_DRIVER_NOT_INITIALIZED, 5001)         \
	ERROR(CU_FILE_DRIVER_INVALID_PROPS, 5002)           \
	ERROR(CU_FILE_DRIVER_UNSUPPORTED_LIMIT, 5003)       \
	ERROR(CU_FILE_DRIVER_VERSION_MISMATCH, 5004)        \
	ERROR(CU_FILE_DRIVER_VERSION_READ_ERROR, 5005)      \
	ERROR(CU_FILE_DRIVER_CLOSING, 5006)                 \
	ERROR(CU_FILE_PLATFORM_NOT_SUPPORTED, 5007)         \
	ERROR(CU_FILE_IO_NOT_SUPPORTED, 5008)               \
	ERROR(CU_FILE_DEVICE_NOT_SUPPORTED, 5009)           \
	ERROR(CU_FILE_NVFS_DRIVER_ERROR, 5010)              \
	ERROR(CU_FILE_CUDA_DRIVER_ERROR, 5011)              \
	ERROR(CU_FILE_CUDA_POINTER_INVALID, 5012)           \
	ERROR(CU_FILE_CUDA_MEMORY_TYPE_INVALID, 5013)       \
	ERROR(CU_FILE_CUDA_POINTER_RANGE_ERROR, 5014)       \
	ERROR(CU_FILE_CUDA_CONTEXT_MISMATCH, 5015)          \
	ERROR(CU_FILE_INVALID_MAPPING_SIZE, 5016)           \
	ERROR(CU_FILE_INVALID_MAPPING_RANGE, 5017)          \
	ERROR(CU_FILE_INVALID_FILE_TYPE, 5018)              \
	ERROR(CU_FILE_INVALID_FILE_OPEN_FLAG, 5019)         \
	ERROR(CU_FILE_DIO_NOT_SET, 5020)                    \
	ERROR(CU_FILE_INVALID_VALUE, 5022)                  \
	ERROR(CU_FILE_MEMORY_ALREADY_REGISTERED, 5023)      \
	ERROR(CU_FILE_MEMORY_NOT_REGISTERED, 5024)          \
	ERROR(CU_FILE_PERMISSION_DENIED, 5025)              \
	ERROR(CU_FILE_DRIVER_ALREADY_OPEN, 5026)            \
	ERROR(CU_FILE_HANDLE_NOT_REGISTERED, 5027)          \
	ERROR(CU_FILE_HANDLE_ALREADY_REGISTERED, 5028)      \
	ERROR(CU_FILE_DEVICE_NOT_FOUND, 5029)               \
	ERROR(CU_FILE_INTERNAL_ERROR, 5030)                 \
	ERROR(CU_FILE_GETNEWFD_FAILED, 5031)                \
	ERROR(CU_FILE_NVFS_SETUP_ERROR, 5033)               \
	ERROR(CU_FILE_IO_DISABLED, 5034)                    \
	ERROR(CU_FILE_BATCH_SUBMIT_FAILED, 5035)            \
	ERROR(CU_FILE_GPU_MEMORY_PINNING_FAILED, 5036)      \
	ERROR(CU_FILE_BATCH_FULL, 5037)                     \
	ERROR(CU_FILE_ASYNC_NOT_SUPPORTED, 5038)            \
	ERROR(CU_FILE_INTERNAL_BATCH_SETUP_ERROR, 5039)     \
	ERROR(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR, 5040)    \
	ERROR(CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR, 5041) \
	ERROR(CU_FILE_INTERNAL_BATCH_CANCEL_ERROR, 5042)    \
	ERROR(CU_FILE_NOMEM_ERROR, 5043)                    \
	ERROR(CU_FILE_IO_ERROR, 5044)                       \
	ERROR(CU_FILE_INTERNAL_BUF_REGISTER_ERROR, 5045)    \
	ERROR(CU_FILE_HASH_OPR_ERROR, 5046)                 \
	ERROR(CU_FILE_INVALID_CONTEXT_ERROR, 5047)          \
	ERROR(CU_FILE_NVFS_INTERNAL_DRIVER_ERROR, 5048)     \
	ERROR(CU_FILE_BATCH_NOCOMPAT_ERROR, 5049)           \
	ERROR(CU_FILE_IO_MAX_ERROR, 5050)

#ifndef CUFILEOP_BASE_ERR /* only the test that compares both has the vendor's header, too */
#define CUFILE_ENUMERATOR(name, value) name = (value),
typedef enum CUfileOpError { CUFILE_ERRORS(CUFILE_ENUMERATOR) } CUfileOpError;

typedef struct CUfileError {
	CUfileOpError err;
	CUresult cu_err; /* of err CU_FILE_CUDA_DRIVER_ERROR */
} CUfileError_t;

typedef enum CUfileFeatureFlags {
	CU_FILE_P2P_SUPPORTED = 4, /* a bit of fflags: PCI P2PDMA, without nvidia-fs */
} CUfileFeatureFlags_t;

typedef struct CUfileDrvProps {
	struct {
		unsigned int major_version; /* of nvidia-fs; both 0: it is not loaded */
		unsigned int minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned int dstatusflags;
		unsigned int dcontrolflags;
	} nvfs;
	unsigned int fflags;
	unsigned int max_device_cache_size;
	unsigned int per_buffer_cache_size;
	unsigned int max_device_pinned_mem_size;
	unsigned int max_batch_io_size;
	unsigned int max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

typedef void *CUfileHandle_t;
enum CUfileFileHandleType {
	CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1,
};
typedef struct CUfileDescr_t {
	enum CUfileFileHandleType type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops; /* a table of functions, of file systems in user space */
} CUfileDescr_t;
#endif

#define CUFILE_LIBRARY "libcufile.so.0" /* as the toolkit's packages install it */

/* FUNCTION(result, name, parameters) */
#define CUFILE_FUNCTIONS(FUNCTION)                                    \
	FUNCTION(CUfileError_t, cuFileDriverOpen, (void))             \
	FUNCTION(CUfileError_t, cuFileGetVersion, (int *ret_version)) \
	FUNCTION(CUfileError_t, cuFileDriverGetProperties, (CUfileDrvProps_t * ret_props))

/* Those of a process that moves bytes.  A result below -1 is a negative CUfileOpError; -1 sets errno. */
#define CUFILE_MOVE_FUNCTIONS(FUNCTION)                                                         \
	FUNCTION(CUfileError_t, cuFileHandleRegister,                                           \
		 (CUfileHandle_t * ret_handle, CUfileDescr_t * description))                    \
	FUNCTION(void, cuFileHandleDeregister, (CUfileHandle_t handle))                         \
	FUNCTION(CUfileError_t, cuFileDriverClose_v2, (void)) /* as cufile.h renames it */      \
	FUNCTION(CUfileError_t, cuFileBufRegister, (const void *base, size_t bytes, int flags)) \
	FUNCTION(CUfileError_t, cuFileBufDeregister, (const void *base))                        \
	FUNCTION(ssize_t, cuFileRead,                                                           \
		 (CUfileHandle_t handle, void *base, size_t bytes, off_t off, off_t base_off))  \
	FUNCTION(ssize_t, cuFileWrite,                                                          \
		 (CUfileHandle_t handle, const void *base, size_t bytes, off_t off,             \
		  off_t base_off))

#endif
