/*
 * A stand-in for libcuda: a host with simulated GPUs, loaded by path where the driver would be.
 *
 * GPU memory is shared memory (cuda_memory.c), and copies take simulated time (cuda_streams.c).
 *
 * It checks the order of calls, that devices, contexts, streams, events and allocations exist, and that
 * a context of the right GPU is current.  STANDIN makes calls fail.
 */
#include "tests/gpu/cuda_parts.h"
#include "tests/gpu/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>

#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED 712
#define CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED 713

#define STACK_MAX 8

/* The declarations are those of the daemon and the library: another prototype does not compile. */
CUDA_FUNCTIONS(STANDIN_DECLARE)
CUDA_COPY_FUNCTIONS(STANDIN_DECLARE)
CUDA_IMPORT_FUNCTIONS(STANDIN_DECLARE)
CUDA_MEMORY_FUNCTIONS(STANDIN_DECLARE)

struct CUctx_st {
	unsigned n_retained;
};

static bool is_initialized;
pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
struct standin_cuda cuda_counts;
/* All below under the lock. */
static struct CUctx_st contexts[GPUS_MAX_HERE];
static struct allocation registered[ALLOCATIONS_MAX]; /* host memory */
static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local unsigned n_stack;

CUresult cuda_call(const char *name)
{
	int error = standin_call(name);

	if (error)
		return (CUresult)error;
	return is_initialized ? CUDA_SUCCESS : (CUresult)CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuda_device_call(const char *name, CUdevice device)
{
	CUresult result = cuda_call(name);

	if (result == CUDA_SUCCESS && (device < 0 || device >= standin_number("gpus", 1)))
		return (CUresult)CUDA_ERROR_INVALID_DEVICE;
	return result;
}

CUresult cuInit(unsigned int flags)
{
	int error = standin_call("cuInit");

	if (error)
		return (CUresult)error;
	if (flags)
		return (CUresult)CUDA_ERROR_INVALID_VALUE;
	is_initialized = true;
	return CUDA_SUCCESS;
}

/* It needs no cuInit(). */
CUresult cuDriverGetVersion(int *ret_version)
{
	int error = standin_call("cuDriverGetVersion");

	*ret_version = 13020;
	return (CUresult)error;
}

CUresult cuDeviceGetCount(int *ret_count)
{
	CUresult result = cuda_call("cuDeviceGetCount");

	if (result == CUDA_SUCCESS)
		*ret_count = standin_number("gpus", 1);
	return result;
}

CUresult cuDeviceGet(CUdevice *ret_device, int ordinal)
{
	CUresult result = cuda_device_call("cuDeviceGet", ordinal);

	if (result == CUDA_SUCCESS)
		*ret_device = ordinal;
	return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
	CUresult result = cuda_device_call("cuDeviceGetName", device);

	if (result == CUDA_SUCCESS)
		(void)snprintf(name, (size_t)len, "Stand-in GPU %d", device);
	return result;
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
	CUresult result = cuda_device_call("cuDeviceGetUuid_v2", device);

	for (unsigned i = 0; result == CUDA_SUCCESS && i < sizeof(ret_uuid->bytes); i++)
		ret_uuid->bytes[i] = (char)(0xa0 + i + (unsigned)device);
	return result;
}

CUresult cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice device)
{
	CUresult result = cuda_device_call("cuDeviceTotalMem_v2", device);

	if (result == CUDA_SUCCESS)
		*ret_bytes = (size_t)80 << 30;
	return result;
}

CUresult cuGetErrorName(CUresult error, const char **ret_name)
{
	*ret_name = NULL;
	if ((int)error != CUDA_ERROR_NOT_INITIALIZED)
		return (CUresult)CUDA_ERROR_INVALID_VALUE;
	*ret_name = "CUDA_ERROR_NOT_INITIALIZED";
	return CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device)
{
	CUresult result = cuda_device_call("cuDevicePrimaryCtxRetain", device);

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	contexts[device].n_retained++;
	cuda_counts.n_contexts++;
	(void)pthread_mutex_unlock(&cuda_lock);
	*ret_context = &contexts[device];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult result = cuda_device_call("cuDevicePrimaryCtxRelease_v2", device);

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (!contexts[device].n_retained)
		result = (CUresult)CUDA_ERROR_INVALID_CONTEXT;
	else {
		contexts[device].n_retained--;
		cuda_counts.n_contexts--;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	CUresult result = cuda_call("cuCtxPushCurrent_v2");
	bool is_retained;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	is_retained = context->n_retained;
	(void)pthread_mutex_unlock(&cuda_lock);
	if (!is_retained || n_stack == STACK_MAX)
		return (CUresult)CUDA_ERROR_INVALID_CONTEXT;
	stack[n_stack++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret_context)
{
	CUresult result = cuda_call("cuCtxPopCurrent_v2");

	if (result != CUDA_SUCCESS)
		return result;
	if (!n_stack)
		return (CUresult)CUDA_ERROR_INVALID_CONTEXT;
	*ret_context = stack[--n_stack];
	return CUDA_SUCCESS;
}

int standin_current(void)
{
	return n_stack ? (int)(stack[n_stack - 1] - contexts) : -1;
}

CUresult cuda_context_call(const char *name)
{
	CUresult result = cuda_call(name);

	return result == CUDA_SUCCESS && standin_current() < 0
		       ? (CUresult)CUDA_ERROR_INVALID_CONTEXT
		       : result;
}

struct standin_cuda standin_counts(void)
{
	struct standin_cuda now;

	(void)pthread_mutex_lock(&cuda_lock);
	now = cuda_counts;
	(void)pthread_mutex_unlock(&cuda_lock);
	now.n_current = n_stack;
	return now;
}

/* ---- host memory ---- */

bool cuda_is_registered(const void *memory, size_t bytes)
{
	return cuda_find(registered, memory, bytes);
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	CUresult result = cuda_context_call("cuMemHostRegister_v2");
	unsigned i = 0;

	if (result != CUDA_SUCCESS || flags != CU_MEMHOSTREGISTER_PORTABLE)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&cuda_lock);
	if (cuda_find(registered, memory, 1)) {
		result = (CUresult)CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	} else {
		while (registered[i].address)
			i++;
		registered[i] = (struct allocation){ .address = memory, .size = bytes };
		cuda_counts.n_registered++;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemHostUnregister(void *memory)
{
	CUresult result = cuda_context_call("cuMemHostUnregister");
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find(registered, memory, 1);
	if (!allocation || allocation->address != memory) {
		result = (CUresult)CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	} else {
		allocation->address = NULL;
		cuda_counts.n_registered--;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}
