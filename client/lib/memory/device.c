#include "client/lib/memory/device.h"

#include "client/lib/base/debug.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A wait begins with as much looking: a guess.  A GPU copies 512 KiB meanwhile, and a wake-up takes as long. */
#define SPIN_NSEC 20000u

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

static CUresult streams_create(struct device *device)
{
	CUresult result = libcuda()->cuCtxPushCurrent_v2(device->context);

	if (result != CUDA_SUCCESS)
		return result;
	result = libcuda()->cuStreamCreate(&device->fill.stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS) {
		result = libcuda()->cuStreamCreate(&device->empty.stream, CU_STREAM_NON_BLOCKING);
		if (result != CUDA_SUCCESS) /* just made */
			(void)libcuda()->cuStreamDestroy_v2(device->fill.stream);
	}
	(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	return result;
}

static int device_open(int number, struct device **ret_device, char **ret_why)
{
	_cleanup_(freep) struct device *device = calloc(1, sizeof(*device));
	CUresult result;

	if (!device)
		return -ENOMEM;
	result = libcuda()->cuDeviceGet(&device->device, number);
	if (result != CUDA_SUCCESS)
		return fail("cuDeviceGet()", result, ret_why);
	result = libcuda()->cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result != CUDA_SUCCESS)
		return fail("cuDevicePrimaryCtxRetain()", result, ret_why);
	result = streams_create(device);
	if (result != CUDA_SUCCESS) {
		(void)libcuda()->cuDevicePrimaryCtxRelease_v2(device->device); /* just retained */
		return fail("cuStreamCreate()", result, ret_why);
	}
	(void)pthread_mutex_init(&device->lock, NULL); /* default attributes: cannot fail */
	*ret_device = TAKE_PTR(device);
	return 0;
}

static int device_get(struct devices *devices, int number, struct device **ret_device,
		      char **ret_why)
{
	int r = 0;

	(void)pthread_mutex_lock(&devices->lock);
	if (!devices->devices[number])
		r = device_open(number, &devices->devices[number], ret_why);
	*ret_device = devices->devices[number];
	(void)pthread_mutex_unlock(&devices->lock);
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

/* ---- a copy.  Its GPU's context is current. ---- */

static CUresult event_take(struct device *device, CUevent *ret_event)
{
	CUevent event = NULL;

	(void)pthread_mutex_lock(&device->lock); /* a plain mutex: cannot fail */
	if (device->n_events)
		event = device->events[--device->n_events];
	(void)pthread_mutex_unlock(&device->lock);
	*ret_event = event;
	if (event)
		return CUDA_SUCCESS;
	return libcuda()->cuEventCreate(ret_event,
					CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
}

/* No copy before it is queued. */
static void event_give(struct device *device, CUevent event)
{
	bool is_kept;

	(void)pthread_mutex_lock(&device->lock);
	is_kept = device->n_events < DEVICE_EVENTS_MAX;
	if (is_kept)
		device->events[device->n_events++] = event;
	(void)pthread_mutex_unlock(&device->lock);
	if (!is_kept)
		(void)libcuda()->cuEventDestroy_v2(event); /* ours */
}

static int queue(const struct device_copy *copy, const struct slot *slot, uint64_t off,
		 CUdeviceptr memory, uint64_t len, char **ret_why)
{
	const bool is_fill = copy->stream == &copy->device->fill;
	CUstream stream = copy->stream->stream;
	char *place = place_of(slot, off);
	CUresult result;

	if (!place)
		return -errno;
	if (is_fill)
		result = libcuda()->cuMemcpyDtoHAsync_v2(place, memory, len, stream);
	else
		result = libcuda()->cuMemcpyHtoDAsync_v2(memory, place, len, stream);
	if (result != CUDA_SUCCESS)
		return fail(is_fill ? "cuMemcpyDtoHAsync()" : "cuMemcpyHtoDAsync()", result,
			    ret_why);
	result = libcuda()->cuEventRecord(copy->event, stream);
	if (result == CUDA_SUCCESS)
		return 0;
	/* The copy is queued, and its slot in use until it is over.  If this fails, too, the context is
	   broken, and the GPU does no more work in it. */
	(void)libcuda()->cuStreamSynchronize(stream);
	return fail("cuEventRecord()", result, ret_why);
}

static int copy_start(struct devices *devices, int number, bool is_fill, const struct slot *slot,
		      uint64_t off, CUdeviceptr memory, uint64_t len, struct device_copy *ret_copy,
		      char **ret_why)
{
	struct device *device;
	CUresult result;
	int r = device_get(devices, number, &device, ret_why);

	if (r < 0)
		return r;
	*ret_copy = (struct device_copy){ .device = device,
					  .stream = is_fill ? &device->fill : &device->empty };
	result = libcuda()->cuCtxPushCurrent_v2(device->context);
	if (result != CUDA_SUCCESS)
		return fail("cuCtxPushCurrent()", result, ret_why);
	result = event_take(device, &ret_copy->event);
	if (result == CUDA_SUCCESS) {
		r = queue(ret_copy, slot, off, memory, len, ret_why);
		if (r < 0)
			event_give(device, ret_copy->event);
	} else {
		r = fail("cuEventCreate()", result, ret_why);
	}
	(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	return r;
}

int devices_fill(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		 const void *from, uint64_t len, struct device_copy *ret_copy, char **ret_why)
{
	return copy_start(devices, number, true, slot, off, address(from), len, ret_copy, ret_why);
}

int devices_empty(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		  void *to, uint64_t len, struct device_copy *ret_copy, char **ret_why)
{
	return copy_start(devices, number, false, slot, off, address(to), len, ret_copy, ret_why);
}

/* The result of the event; with must_wait never CUDA_ERROR_NOT_READY. */
static CUresult event_look(CUevent event, bool must_wait, const char **ret_call)
{
	const uint64_t end = must_wait ? clock_nsec() + SPIN_NSEC : 0;
	CUresult result;

	*ret_call = "cuEventQuery()";
	do
		result = libcuda()->cuEventQuery(event);
	while (must_wait && result == CUDA_ERROR_NOT_READY && clock_nsec() < end);
	if (must_wait && result == CUDA_ERROR_NOT_READY) {
		*ret_call = "cuEventSynchronize()";
		result = libcuda()->cuEventSynchronize(event);
	}
	return result;
}

static int look(struct device_copy *copy, bool must_wait, char **ret_why)
{
	CUresult pushed = libcuda()->cuCtxPushCurrent_v2(copy->device->context), result;
	const char *call;

	result = event_look(copy->event, must_wait || pushed != CUDA_SUCCESS, &call);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) /* as for cuEventRecord() */
		(void)libcuda()->cuStreamSynchronize(copy->stream->stream);
	if (result != CUDA_ERROR_NOT_READY)
		event_give(copy->device, copy->event);
	if (pushed == CUDA_SUCCESS)
		(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
	if (result == CUDA_ERROR_NOT_READY)
		return -EAGAIN;
	return result == CUDA_SUCCESS ? 0 : fail(call, result, ret_why);
}

int device_copy_look(struct device_copy *copy, char **ret_why)
{
	return look(copy, false, ret_why);
}

int device_copy_await(struct device_copy *copy, char **ret_why)
{
	return look(copy, true, ret_why);
}

/* ---- all of a client ---- */

void devices_init(struct devices *devices)
{
	*devices = (struct devices){ .devices = { NULL } };
	(void)pthread_mutex_init(&devices->lock, NULL); /* default attributes: cannot fail */
}

/* At the program's end libcuda may have gone before: all calls then fail, and nothing is left to do. */
static void device_close(struct device *device)
{
	if (libcuda()->cuCtxPushCurrent_v2(device->context) == CUDA_SUCCESS) {
		while (device->n_events)
			(void)libcuda()->cuEventDestroy_v2(device->events[--device->n_events]);
		(void)libcuda()->cuStreamDestroy_v2(device->fill.stream);
		(void)libcuda()->cuStreamDestroy_v2(device->empty.stream);
		(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		(void)libcuda()->cuDevicePrimaryCtxRelease_v2(device->device);
	}
	(void)pthread_mutex_destroy(&device->lock);
	free(device);
}

void devices_deinit(struct devices *devices)
{
	for (int i = 0; i < DEVICES_MAX; i++)
		if (devices->devices[i])
			device_close(devices->devices[i]);
	(void)pthread_mutex_destroy(&devices->lock);
}

void devices_forget(struct devices *devices, void *map)
{
	(void)pthread_mutex_lock(&devices->lock);
	for (int i = 0; i < DEVICES_MAX; i++) {
		const struct device *device = devices->devices[i];

		if (!device || libcuda()->cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		(void)libcuda()->cuMemHostUnregister(map); /* fails if it could not be registered */
		(void)libcuda()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		break; /* it is registered for all GPUs */
	}
	(void)pthread_mutex_unlock(&devices->lock);
}
