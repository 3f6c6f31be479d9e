/*
 * A stand-in for libcuda: a host with simulated GPUs, loaded by path where the driver would be.
 *
 * GPU memory is a memfd.  Its address is a range that nobody can access, so a wrong access of the host's
 * is -EFAULT or a signal, as with a real one.  A copy happens when its stream is synchronized, and takes
 * the simulated time that STANDIN says (standin.h): nsec_per_kib=N for each direction of a GPU.  So a
 * caller that does not wait finds old bytes.
 *
 * It checks the order of calls, that devices, contexts, streams and allocations exist, and that a
 * context of the right GPU is current.  STANDIN makes calls fail.
 */
#include "tests/gpu/libcuda.h"

#include "tests/gpu/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_INVALID_DEVICE 101
#define CUDA_ERROR_INVALID_CONTEXT 201
#define CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED 712
#define CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED 713
#define CUDA_ERROR_INVALID_HANDLE 400

#define GPUS_MAX_HERE 128
#define ALLOCATIONS_MAX 64
#define STREAMS_MAX 64
#define COPIES_MAX 64
#define STACK_MAX 8

/* The declarations are those of the daemon and the library: another prototype does not compile. */
#define DECLARE(result, name, parameters) \
	__attribute__((visibility("default"))) result name parameters;
CUDA_FUNCTIONS(DECLARE)
CUDA_COPY_FUNCTIONS(DECLARE)

struct CUctx_st {
	unsigned n_retained;
};

struct allocation {
	char *address; /* PROT_NONE; NULL: free */
	char *bytes;
	size_t size;
	int device;
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
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct CUctx_st contexts[GPUS_MAX_HERE];
static struct allocation allocations[ALLOCATIONS_MAX];
static struct CUstream_st streams[STREAMS_MAX];
static struct allocation registered[ALLOCATIONS_MAX]; /* host memory */
static struct standin_cuda counts;
static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local unsigned n_stack;

static CUresult call(const char *name)
{
	int error = standin_call(name);

	if (error)
		return (CUresult)error;
	return is_initialized ? CUDA_SUCCESS : (CUresult)CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult device_call(const char *name, CUdevice device)
{
	CUresult result = call(name);

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
	CUresult result = call("cuDeviceGetCount");

	if (result == CUDA_SUCCESS)
		*ret_count = standin_number("gpus", 1);
	return result;
}

CUresult cuDeviceGet(CUdevice *ret_device, int ordinal)
{
	CUresult result = device_call("cuDeviceGet", ordinal);

	if (result == CUDA_SUCCESS)
		*ret_device = ordinal;
	return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
	CUresult result = device_call("cuDeviceGetName", device);

	if (result == CUDA_SUCCESS)
		(void)snprintf(name, (size_t)len, "Stand-in GPU %d", device);
	return result;
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
	CUresult result = device_call("cuDeviceGetUuid_v2", device);

	for (unsigned i = 0; result == CUDA_SUCCESS && i < sizeof(ret_uuid->bytes); i++)
		ret_uuid->bytes[i] = (char)(0xa0 + i + (unsigned)device);
	return result;
}

CUresult cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice device)
{
	CUresult result = device_call("cuDeviceTotalMem_v2", device);

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
	CUresult result = device_call("cuDevicePrimaryCtxRetain", device);

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	contexts[device].n_retained++;
	counts.n_contexts++;
	(void)pthread_mutex_unlock(&lock);
	*ret_context = &contexts[device];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult result = device_call("cuDevicePrimaryCtxRelease_v2", device);

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	if (!contexts[device].n_retained)
		result = (CUresult)CUDA_ERROR_INVALID_CONTEXT;
	else {
		contexts[device].n_retained--;
		counts.n_contexts--;
	}
	(void)pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	CUresult result = call("cuCtxPushCurrent_v2");

	if (result != CUDA_SUCCESS)
		return result;
	if (!context->n_retained || n_stack == STACK_MAX)
		return (CUresult)CUDA_ERROR_INVALID_CONTEXT;
	stack[n_stack++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret_context)
{
	CUresult result = call("cuCtxPopCurrent_v2");

	if (result != CUDA_SUCCESS)
		return result;
	if (!n_stack)
		return (CUresult)CUDA_ERROR_INVALID_CONTEXT;
	*ret_context = stack[--n_stack];
	return CUDA_SUCCESS;
}

/* The GPU of the current context, or -1. */
static int current(void)
{
	return n_stack ? (int)(stack[n_stack - 1] - contexts) : -1;
}

static CUresult context_call(const char *name)
{
	CUresult result = call(name);

	return result == CUDA_SUCCESS && current() < 0 ? (CUresult)CUDA_ERROR_INVALID_CONTEXT
						       : result;
}

/* ---- memory ---- */

/* The allocation that has all bytes; NULL: none.  Under the lock. */
static struct allocation *find(struct allocation *list, const char *address, size_t bytes)
{
	for (unsigned i = 0; i < ALLOCATIONS_MAX; i++)
		if (list[i].address && address >= list[i].address &&
		    address + bytes <= list[i].address + list[i].size)
			return &list[i];
	return NULL;
}

static char *pointer(CUdeviceptr memory)
{
	return (char *)(uintptr_t)memory;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret_memory, size_t bytes)
{
	CUresult result = context_call("cuMemAlloc_v2");
	int fd = result == CUDA_SUCCESS ? memfd_create("gpu", MFD_CLOEXEC) : -1;
	unsigned i = 0;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&lock);
	while (allocations[i].address)
		i++;
	allocations[i] = (struct allocation){
		.address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		.bytes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
		.size = bytes,
		.device = current(),
	};
	*ret_memory = (uintptr_t)allocations[i].address;
	(void)pthread_mutex_unlock(&lock);
	(void)close(fd);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr memory)
{
	CUresult result = context_call("cuMemFree_v2");
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	allocation = find(allocations, pointer(memory), 1);
	if (!allocation || allocation->address != pointer(memory)) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		(void)munmap(allocation->address, allocation->size);
		(void)munmap(allocation->bytes, allocation->size);
		allocation->address = NULL;
	}
	(void)pthread_mutex_unlock(&lock);
	return result;
}

char *standin_bytes(CUdeviceptr memory)
{
	struct allocation *allocation;
	char *bytes;

	(void)pthread_mutex_lock(&lock);
	allocation = find(allocations, pointer(memory), 1);
	bytes = allocation ? allocation->bytes + (pointer(memory) - allocation->address) : NULL;
	(void)pthread_mutex_unlock(&lock);
	return bytes;
}

struct standin_cuda standin_counts(void)
{
	struct standin_cuda now;

	(void)pthread_mutex_lock(&lock);
	now = counts;
	(void)pthread_mutex_unlock(&lock);
	now.n_current = n_stack;
	return now;
}

CUresult cuPointerGetAttribute(void *ret_value, CUpointer_attribute attribute, CUdeviceptr memory)
{
	CUresult result = call("cuPointerGetAttribute");
	const struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	allocation = find(allocations, pointer(memory), 1);
	if (allocation && attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned *)ret_value = CU_MEMORYTYPE_DEVICE;
	else if (allocation && attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		*(int *)ret_value = allocation->device;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	CUresult result = context_call("cuMemHostRegister_v2");
	unsigned i = 0;

	if (result != CUDA_SUCCESS || flags != CU_MEMHOSTREGISTER_PORTABLE)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&lock);
	if (find(registered, memory, 1)) {
		result = (CUresult)CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	} else {
		while (registered[i].address)
			i++;
		registered[i] = (struct allocation){ .address = memory, .size = bytes };
		counts.n_registered++;
	}
	(void)pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuMemHostUnregister(void *memory)
{
	CUresult result = context_call("cuMemHostUnregister");
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	allocation = find(registered, memory, 1);
	if (!allocation || allocation->address != memory) {
		result = (CUresult)CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	} else {
		allocation->address = NULL;
		counts.n_registered--;
	}
	(void)pthread_mutex_unlock(&lock);
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
	CUresult result = context_call("cuStreamCreate");
	unsigned i = 0;

	if (result != CUDA_SUCCESS || flags != CU_STREAM_NON_BLOCKING)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&lock);
	while (streams[i].is_there)
		i++;
	streams[i] = (struct CUstream_st){ .is_there = true, .device = current() };
	counts.n_streams++;
	(void)pthread_mutex_unlock(&lock);
	*ret_stream = &streams[i];
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUresult result = context_call("cuStreamDestroy_v2");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	if (!stream->is_there || stream->n_copies)
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	else
		counts.n_streams--;
	stream->is_there = false;
	(void)pthread_mutex_unlock(&lock);
	return result;
}

/* Copies in order, when they would have ended. */
CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult result = context_call("cuStreamSynchronize");
	uint64_t now, end;
	struct timespec rest;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	end = stream->end_nsec;
	(void)pthread_mutex_unlock(&lock);
	while ((now = now_nsec()) < end) {
		rest = (struct timespec){ .tv_sec = (time_t)((end - now) / 1000000000),
					  .tv_nsec = (long)((end - now) % 1000000000) };
		(void)nanosleep(&rest, NULL);
	}
	(void)pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < stream->n_copies; i++)
		memcpy(stream->copies[i].to, stream->copies[i].from, stream->copies[i].bytes);
	stream->n_copies = 0;
	(void)pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static CUresult copy_add(const char *name, CUdeviceptr memory, const char *host, size_t bytes,
			 bool is_to_device, CUstream stream)
{
	CUresult result = context_call(name);
	uint64_t nsec = (uint64_t)standin_number("nsec_per_kib", 0) * bytes / 1024,
		 now = now_nsec();
	struct allocation *allocation;
	char *place;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&lock);
	allocation = find(allocations, pointer(memory), bytes);
	if (!stream->is_there || stream->device != current() || stream->n_copies == COPIES_MAX) {
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	} else if (!allocation || allocation->device != current()) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		place = allocation->bytes + (pointer(memory) - allocation->address);
		stream->copies[stream->n_copies++] =
			is_to_device ? (struct copy){ place, host, bytes }
				     : (struct copy){ (char *)(uintptr_t)host, place, bytes };
		stream->end_nsec = (stream->end_nsec > now ? stream->end_nsec : now) + nsec;
		counts.n_copies++;
		counts.copied_bytes += bytes;
		if (!find(registered, host, bytes))
			counts.n_pageable++;
	}
	(void)pthread_mutex_unlock(&lock);
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
