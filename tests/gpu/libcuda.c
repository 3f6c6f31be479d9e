/*
 * A stand-in for libcuda: a host with simulated GPUs, loaded by path where the driver would be.
 *
 * GPU memory is shared memory (cuda_memory.c).  A copy happens when its stream is synchronized, and takes
 * the simulated time that STANDIN says (standin.h): nsec_per_kib=N for each direction of a GPU.  So a
 * caller that does not wait finds old bytes.
 *
 * It checks the order of calls, that devices, contexts, streams and allocations exist, and that a
 * context of the right GPU is current.  STANDIN makes calls fail.
 */
#include "tests/gpu/cuda_parts.h"
#include "tests/gpu/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED 712
#define CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED 713

#define STREAMS_MAX 64
#define COPIES_MAX 64
#define STACK_MAX 8

/* The declarations are those of the daemon and the library: another prototype does not compile. */
CUDA_FUNCTIONS(STANDIN_DECLARE)
CUDA_COPY_FUNCTIONS(STANDIN_DECLARE)
CUDA_IMPORT_FUNCTIONS(STANDIN_DECLARE)
CUDA_MEMORY_FUNCTIONS(STANDIN_DECLARE)

struct CUctx_st {
	unsigned n_retained;
};

struct copy {
	char *to;
	const char *from;
	size_t bytes;
};

struct CUstream_st {
	bool is_there;
	int device;
	struct copy copies[COPIES_MAX];
	unsigned n_copies;
	uint64_t end_nsec; /* of its copies, simulated */
};

static bool is_initialized;
pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
struct standin_cuda cuda_counts;
/* All below under the lock. */
static struct CUctx_st contexts[GPUS_MAX_HERE];
static struct CUstream_st streams[STREAMS_MAX], default_streams[GPUS_MAX_HERE];
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

	if (result != CUDA_SUCCESS)
		return result;
	if (!context->n_retained || n_stack == STACK_MAX)
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

/* ---- streams ---- */

static uint64_t now_nsec(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

CUresult cuStreamCreate(CUstream *ret_stream, unsigned int flags)
{
	CUresult result = cuda_context_call("cuStreamCreate");
	unsigned i = 0;

	if (result != CUDA_SUCCESS || flags != CU_STREAM_NON_BLOCKING)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&cuda_lock);
	while (streams[i].is_there)
		i++;
	streams[i] = (struct CUstream_st){ .is_there = true, .device = standin_current() };
	cuda_counts.n_streams++;
	(void)pthread_mutex_unlock(&cuda_lock);
	*ret_stream = &streams[i];
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUresult result = cuda_context_call("cuStreamDestroy_v2");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (!stream->is_there || stream->n_copies)
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	else
		cuda_counts.n_streams--;
	stream->is_there = false;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

/* NULL, 1 and 2 name the default stream of the current context.  Under the lock. */
static CUstream stream_of(CUstream stream)
{
	CUstream usual;

	if ((uintptr_t)stream > 2)
		return stream;
	usual = &default_streams[standin_current()];
	usual->is_there = true;
	usual->device = standin_current();
	return usual;
}

/* Copies in order, when they would have ended. */
CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult result = cuda_context_call("cuStreamSynchronize");
	uint64_t now, end;
	struct timespec rest;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	stream = stream_of(stream);
	end = stream->end_nsec;
	(void)pthread_mutex_unlock(&cuda_lock);
	while ((now = now_nsec()) < end) {
		rest = (struct timespec){ .tv_sec = (time_t)((end - now) / 1000000000),
					  .tv_nsec = (long)((end - now) % 1000000000) };
		(void)nanosleep(&rest, NULL);
	}
	(void)pthread_mutex_lock(&cuda_lock);
	for (unsigned i = 0; i < stream->n_copies; i++)
		memcpy(stream->copies[i].to, stream->copies[i].from, stream->copies[i].bytes);
	stream->n_copies = 0;
	(void)pthread_mutex_unlock(&cuda_lock);
	return CUDA_SUCCESS;
}

static CUresult copy_add(const char *name, CUdeviceptr memory, const char *host, size_t bytes,
			 bool is_to_device, CUstream stream)
{
	CUresult result = cuda_context_call(name);
	uint64_t nsec = (uint64_t)standin_number("nsec_per_kib", 0) * bytes / 1024,
		 now = now_nsec();
	struct allocation *allocation;
	char *place;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	stream = stream_of(stream);
	allocation = cuda_find_memory(memory, bytes);
	if (!stream->is_there || stream->device != standin_current() ||
	    stream->n_copies == COPIES_MAX) {
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	} else if (!allocation || allocation->device != standin_current()) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		place = allocation->bytes + (cuda_pointer(memory) - allocation->address);
		stream->copies[stream->n_copies++] =
			is_to_device ? (struct copy){ place, host, bytes }
				     : (struct copy){ (char *)(uintptr_t)host, place, bytes };
		stream->end_nsec = (stream->end_nsec > now ? stream->end_nsec : now) + nsec;
		cuda_counts.n_copies++;
		cuda_counts.copied_bytes += bytes;
		if (!cuda_find(registered, host, bytes))
			cuda_counts.n_pageable++;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return copy_add("cuMemcpyHtoDAsync_v2", to, from, bytes, true, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_add("cuMemcpyDtoHAsync_v2", from, to, bytes, false, stream);
}

/* A copy on the default stream that waits. */
static CUresult copy_now(const char *name, CUdeviceptr memory, char *host, size_t bytes,
			 bool is_to_device)
{
	CUresult result = cuda_context_call(name);
	const struct allocation *allocation;
	char *place;

	if (result == CUDA_SUCCESS)
		result = cuStreamSynchronize(NULL);
	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_memory(memory, bytes);
	if (allocation && allocation->device == standin_current()) {
		place = allocation->bytes + (cuda_pointer(memory) - allocation->address);
		memcpy(is_to_device ? place : host, is_to_device ? host : place, bytes);
	} else {
		result = CUDA_ERROR_INVALID_VALUE;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_now("cuMemcpyHtoD_v2", to, (char *)(uintptr_t)from, bytes, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	return copy_now("cuMemcpyDtoH_v2", from, to, bytes, false);
}
