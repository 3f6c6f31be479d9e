#include "client/lib/memory/device.h"

#include "client/lib/base/debug.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- the program's libcuda ---- */

struct cuda {
	CUDA_COPY_FUNCTIONS(FUNCTION_POINTER)
};

#define CUDA_FUNCTION(result, name, parameters) { #name, offsetof(struct cuda, name) },
static const struct function functions[] = { CUDA_COPY_FUNCTIONS(CUDA_FUNCTION) };

static pthread_mutex_t look_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda found;		       /* written under the lock, before is_found */
static _Atomic bool is_found;		       /* release; others acquire */
static _Atomic unsigned long long looked_adds; /* how many libraries there were at the last look */

/* How many libraries the process has opened so far.  Ends the iteration at the first. */
static int count_adds(struct dl_phdr_info *info, size_t size, void *ret_adds)
{
	(void)size; /* glibc has had the field since 2.4 */
	*(unsigned long long *)ret_adds = info->dlpi_adds;
	return 1;
}

/* NULL: the program has not opened it. */
static const struct cuda *cuda_get(void)
{
	unsigned long long adds = 0;
	void *library;

	if (atomic_load_explicit(&is_found, memory_order_acquire))
		return &found;
	(void)dl_iterate_phdr(count_adds, &adds); /* returns 1 */
	if (adds == atomic_load_explicit(&looked_adds, memory_order_relaxed))
		return NULL;
	(void)pthread_mutex_lock(&look_lock);
	library = atomic_load(&is_found) ? NULL : dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
	/* The handle is never closed: the program may close its own. */
	if (library &&
	    !functions_find(library, functions, sizeof(functions) / sizeof(*functions), &found))
		atomic_store_explicit(&is_found, true, memory_order_release);
	atomic_store(&looked_adds, adds);
	(void)pthread_mutex_unlock(&look_lock);
	return atomic_load_explicit(&is_found, memory_order_acquire) ? &found : NULL;
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

	if (found.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
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
	CUresult result = found.cuDeviceGet(&device->device, number);

	if (result != CUDA_SUCCESS)
		return fail("cuDeviceGet()", result, ret_why);
	result = found.cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result != CUDA_SUCCESS)
		return fail("cuDevicePrimaryCtxRetain()", result, ret_why);
	result = found.cuCtxPushCurrent_v2(device->context);
	if (result == CUDA_SUCCESS) {
		result = found.cuStreamCreate(&device->fill, CU_STREAM_NON_BLOCKING);
		if (result == CUDA_SUCCESS) {
			result = found.cuStreamCreate(&device->empty, CU_STREAM_NON_BLOCKING);
			if (result != CUDA_SUCCESS)
				(void)found.cuStreamDestroy_v2(device->fill); /* just made */
		}
		(void)found.cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one just pushed */
	}
	if (result != CUDA_SUCCESS) {
		(void)found.cuDevicePrimaryCtxRelease_v2(device->device); /* just retained */
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
		result = found.cuMemHostRegister_v2(map, slot_map_bytes(slot),
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
	result = found.cuCtxPushCurrent_v2(device->context);
	if (result != CUDA_SUCCESS)
		return fail("cuCtxPushCurrent()", result, ret_why);
	place = place_of(slot, off);
	stream = is_fill ? device->fill : device->empty;
	if (!place)
		r = -errno;
	else if (is_fill)
		result = found.cuMemcpyDtoHAsync_v2(place, memory, len, stream);
	else
		result = found.cuMemcpyHtoDAsync_v2(memory, place, len, stream);
	if (place && result != CUDA_SUCCESS)
		r = fail(is_fill ? "cuMemcpyDtoHAsync()" : "cuMemcpyHtoDAsync()", result, ret_why);
	if (r == 0) {
		result = found.cuStreamSynchronize(stream);
		if (result != CUDA_SUCCESS)
			r = fail("cuStreamSynchronize()", result, ret_why);
	}
	(void)found.cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
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

		if (!device->is_open || found.cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		(void)found.cuStreamDestroy_v2(device->fill);
		(void)found.cuStreamDestroy_v2(device->empty);
		(void)found.cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		(void)found.cuDevicePrimaryCtxRelease_v2(device->device);
	}
	(void)pthread_mutex_destroy(&devices->lock);
}

void devices_forget(struct devices *devices, void *map)
{
	(void)pthread_mutex_lock(&devices->lock);
	for (int i = 0; i < DEVICES_MAX; i++) {
		struct device *device = &devices->devices[i];

		if (!device->is_open || found.cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		(void)found.cuMemHostUnregister(map); /* fails if it could not be registered */
		(void)found.cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		break; /* it is registered for all GPUs */
	}
	(void)pthread_mutex_unlock(&devices->lock);
}
