#include "client/lib/memory/device.h"

#include "client/lib/base/debug.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the program's libcuda ---- */

struct cuda {
	CUDA_COPY_FUNCTIONS(FUNCTION_POINTER)
};

#define CUDA_FUNCTION(result, name, parameters) { #name, offsetof(struct cuda, name) },
static const struct function functions[] = { CUDA_COPY_FUNCTIONS(CUDA_FUNCTION) };

/* Made once and never freed.  Release; others acquire. */
static struct cuda *_Atomic found;
/* How many libraries the process had opened when none of them was libcuda.  Relaxed, because nothing goes
   with it: a thread that reads an older count looks again. */
static _Atomic unsigned long long looked_adds;

/* NULL: not found yet. */
static const struct cuda *libcuda(void)
{
	return atomic_load_explicit(&found, memory_order_acquire);
}

struct look {
	bool is_new; /* a library has been opened since the last look */
	bool has_cuda;
	unsigned long long adds;
};

/* Looks at one library.  Ends the iteration where there is no more to see. */
static int look_at(struct dl_phdr_info *info, size_t size, void *ret_look)
{
	static const char prefix[] = "libcuda.so"; /* with or without a version */
	struct look *look = ret_look;

	(void)size; /* glibc has had the fields since 2.4 */
	look->adds = info->dlpi_adds;
	look->is_new = look->adds != atomic_load_explicit(&looked_adds, memory_order_relaxed);
	look->has_cuda = look->is_new &&
			 strncmp(basename(info->dlpi_name), prefix, sizeof(prefix) - 1) == 0;
	return !look->is_new || look->has_cuda;
}

/* Whether the program's libcuda has all functions. */
static bool cuda_find(struct cuda *ret_cuda)
{
	void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);

	/* The handle is never closed: the program may close its own. */
	return library && !functions_find(library, functions,
					  sizeof(functions) / sizeof(*functions), ret_cuda);
}

/*
 * NULL: the program has not opened it.
 *
 * dlopen(3) and dlsym(3) wait for the loader's lock, which a thread that opens a library holds while that
 * library's constructors run.  dl_iterate_phdr(3) does not wait for it, so it looks whether libcuda is
 * there, and only then the others are called.  There is no lock here: a child of fork(2) would inherit
 * it from a thread that waits in them.
 */
static const struct cuda *cuda_get(void)
{
	_cleanup_(freep) struct cuda *cuda = NULL;
	struct cuda *others = NULL;
	struct look look = { 0 };

	if (libcuda())
		return libcuda();
	(void)dl_iterate_phdr(look_at, &look); /* returns what look_at() does */
	if (!look.is_new)
		return NULL;
	if (look.has_cuda) {
		cuda = calloc(1, sizeof(*cuda));
		if (!cuda)
			return NULL; /* the next op looks again */
		if (cuda_find(cuda)) {
			/* The first of several threads that are here stores its own. */
			if (atomic_compare_exchange_strong_explicit(&found, &others, cuda,
								    memory_order_release,
								    memory_order_acquire))
				return TAKE_PTR(cuda);
			return others;
		}
	}
	atomic_store_explicit(&looked_adds, look.adds, memory_order_relaxed);
	return NULL;
}

static CUdeviceptr address(const void *memory)
{
	return (CUdeviceptr)(uintptr_t)memory;
}

int devices_find(const void *memory)
{
	const struct cuda *cuda = cuda_get();
	unsigned type = 0;
	int number = -1;

	/* Memory that libcuda does not know is an error of the first call. */
	if (!cuda ||
	    cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(memory)) !=
		    CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE ||
	    cuda->cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					address(memory)) != CUDA_SUCCESS)
		return -1;
	return number < DEVICES_MAX ? number : -1;
}

/* ---- one GPU ---- */

static int fail(const char *call, CUresult result, char **ret_why)
{
	const char *name = NULL;

	if (libcuda()->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown error";
	if (asprintf(ret_why, "%s: %s (%d)", call, name, (int)result) < 0)
		*ret_why = NULL;
	if (result == CUDA_ERROR_INVALID_VALUE)
		return -EFAULT;
	return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

/* Under the lock. */
static int device_open(struct device *device, int number, char **ret_why)
{
	CUresult result = libcuda()->cuDeviceGet(&device->device, number);

	if (result != CUDA_SUCCESS)
		return fail("cuDeviceGet()", result, ret_why);
	result = libcuda()->cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result != CUDA_SUCCESS)
		return fail("cuDevicePrimaryCtxRetain()", result, ret_why);
	result = libcuda()->cuCtxPushCurrent_v2(device->context);
	if (result == CUDA_SUCCESS) {
		result = libcuda()->cuStreamCreate(&device->fill, CU_STREAM_NON_BLOCKING);
		if (result == CUDA_SUCCESS) {
			result = libcuda()->cuStreamCreate(&device->empty, CU_STREAM_NON_BLOCKING);
			if (result != CUDA_SUCCESS)
				(void)libcuda()->cuStreamDestroy_v2(device->fill); /* just made */
		}
		(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one just pushed */
	}
	if (result != CUDA_SUCCESS) {
		(void)libcuda()->cuDevicePrimaryCtxRelease_v2(device->device); /* just retained */
		return fail("cuStreamCreate()", result, ret_why);
	}
	device->is_open = true;
	return 0;
}

static int device_get(struct devices *devices, int number, struct device **ret_device,
		      char **ret_why)
{
	struct device *device = &devices->devices[number];
	int r = 0;

	(void)pthread_mutex_lock(&devices->lock);
	if (!device->is_open)
		r = device_open(device, number, ret_why);
	(void)pthread_mutex_unlock(&devices->lock);
	*ret_device = device;
	return r;
}

/* Where the bytes of the slot are.  Its GPU's context is current. */
static char *place_of(const struct slot *slot, uint64_t off)
{
	bool is_new;
	char *map = slot_map(slot, &is_new);
	CUresult result;

	if (!map)
		return NULL;
	if (is_new) {
		result = libcuda()->cuMemHostRegister_v2(map, slot_map_bytes(slot),
							 CU_MEMHOSTREGISTER_PORTABLE);
		if (result != CUDA_SUCCESS)
			debug_log("GPU memory: cuMemHostRegister(): error %d: copies are slower",
				  (int)result);
	}
	return map + slot_off(slot) + off;
}

static int copy(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		CUdeviceptr memory, uint64_t len, bool is_fill, char **ret_why)
{
	struct device *device;
	CUresult result;
	CUstream stream;
	char *place;
	int r = device_get(devices, number, &device, ret_why);

	if (r < 0)
		return r;
	result = libcuda()->cuCtxPushCurrent_v2(device->context);
	if (result != CUDA_SUCCESS)
		return fail("cuCtxPushCurrent()", result, ret_why);
	place = place_of(slot, off);
	stream = is_fill ? device->fill : device->empty;
	if (!place)
		r = -errno;
	else if (is_fill)
		result = libcuda()->cuMemcpyDtoHAsync_v2(place, memory, len, stream);
	else
		result = libcuda()->cuMemcpyHtoDAsync_v2(memory, place, len, stream);
	if (place && result != CUDA_SUCCESS)
		r = fail(is_fill ? "cuMemcpyDtoHAsync()" : "cuMemcpyHtoDAsync()", result, ret_why);
	if (r == 0) {
		result = libcuda()->cuStreamSynchronize(stream);
		if (result != CUDA_SUCCESS)
			r = fail("cuStreamSynchronize()", result, ret_why);
	}
	(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	return r;
}

int devices_fill(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		 const void *from, uint64_t len, char **ret_why)
{
	return copy(devices, number, slot, off, address(from), len, true, ret_why);
}

int devices_empty(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		  void *to, uint64_t len, char **ret_why)
{
	return copy(devices, number, slot, off, address(to), len, false, ret_why);
}

/* ---- all of a client ---- */

void devices_init(struct devices *devices)
{
	*devices = (struct devices){ .devices = { { .is_open = false } } };
	(void)pthread_mutex_init(&devices->lock, NULL); /* default attributes: cannot fail */
}

/* At the program's end libcuda may have gone before: all calls then fail, and nothing is left to do. */
void devices_deinit(struct devices *devices)
{
	for (int i = 0; i < DEVICES_MAX; i++) {
		struct device *device = &devices->devices[i];

		if (!device->is_open ||
		    libcuda()->cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		(void)libcuda()->cuStreamDestroy_v2(device->fill);
		(void)libcuda()->cuStreamDestroy_v2(device->empty);
		(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		(void)libcuda()->cuDevicePrimaryCtxRelease_v2(device->device);
	}
	(void)pthread_mutex_destroy(&devices->lock);
}

void devices_forget(struct devices *devices, void *map)
{
	(void)pthread_mutex_lock(&devices->lock);
	for (int i = 0; i < DEVICES_MAX; i++) {
		struct device *device = &devices->devices[i];

		if (!device->is_open ||
		    libcuda()->cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		(void)libcuda()->cuMemHostUnregister(map); /* fails if it could not be registered */
		(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		break; /* it is registered for all GPUs */
	}
	(void)pthread_mutex_unlock(&devices->lock);
}
