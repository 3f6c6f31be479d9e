#include "client/lib/memory/device.h"

#include "client/lib/base/debug.h"
#include "client/lib/memory/cuda.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A wait begins with as much looking: a guess.  A GPU copies 512 KiB meanwhile, and a wake-up takes as long. */
#define SPIN_NSEC 20000u

int devices_find(const void *memory)
{
	const struct cuda *cuda = cuda_get();
	unsigned type = 0;
	int number = -1;

	/* Memory that libcuda does not know is an error of the first call. */
	if (!cuda ||
	    cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					cuda_address(memory)) != CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE ||
	    cuda->cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					cuda_address(memory)) != CUDA_SUCCESS)
		return -1;
	return number < GPUS_MAX ? number : -1;
}

/* ---- one GPU.  libcuda has been found, here and below. ---- */

static int fail(const char *call, CUresult result, char **ret_why)
{
	*ret_why = cuda_why(call, result);
	if (result == CUDA_ERROR_INVALID_VALUE)
		return -EFAULT;
	return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

static CUresult streams_create(struct device *device)
{
	CUresult result = cuda_get()->cuCtxPushCurrent_v2(device->context);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda_get()->cuStreamCreate(&device->fill.stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS) {
		result = cuda_get()->cuStreamCreate(&device->empty.stream, CU_STREAM_NON_BLOCKING);
		if (result != CUDA_SUCCESS) /* just made */
			(void)cuda_get()->cuStreamDestroy_v2(device->fill.stream);
	}
	(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	return result;
}

static int device_open(int number, struct device **ret_device, char **ret_why)
{
	_cleanup_(freep) struct device *device = calloc(1, sizeof(*device));
	CUresult result;

	if (!device)
		return -ENOMEM;
	result = cuda_get()->cuDeviceGet(&device->device, number);
	if (result != CUDA_SUCCESS)
		return fail("cuDeviceGet()", result, ret_why);
	result = cuda_get()->cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result != CUDA_SUCCESS)
		return fail("cuDevicePrimaryCtxRetain()", result, ret_why);
	result = streams_create(device);
	if (result != CUDA_SUCCESS) {
		(void)cuda_get()->cuDevicePrimaryCtxRelease_v2(device->device); /* just retained */
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
		result = cuda_get()->cuMemHostRegister_v2(map, slot_map_bytes(slot),
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
	return cuda_get()->cuEventCreate(ret_event,
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
		(void)cuda_get()->cuEventDestroy_v2(event); /* ours */
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
		result = cuda_get()->cuMemcpyDtoHAsync_v2(place, memory, len, stream);
	else
		result = cuda_get()->cuMemcpyHtoDAsync_v2(memory, place, len, stream);
	if (result != CUDA_SUCCESS)
		return fail(is_fill ? "cuMemcpyDtoHAsync()" : "cuMemcpyHtoDAsync()", result,
			    ret_why);
	result = cuda_get()->cuEventRecord(copy->event, stream);
	if (result == CUDA_SUCCESS)
		return 0;
	/* The copy is queued, and its slot in use until it is over.  If this fails, too, the context is
	   broken, and the GPU does no more work in it. */
	(void)cuda_get()->cuStreamSynchronize(stream);
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
	result = cuda_get()->cuCtxPushCurrent_v2(device->context);
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
	(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	return r;
}

int devices_fill(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		 const void *from, uint64_t len, struct device_copy *ret_copy, char **ret_why)
{
	return copy_start(devices, number, true, slot, off, cuda_address(from), len, ret_copy,
			  ret_why);
}

int devices_empty(struct devices *devices, int number, const struct slot *slot, uint64_t off,
		  void *to, uint64_t len, struct device_copy *ret_copy, char **ret_why)
{
	return copy_start(devices, number, false, slot, off, cuda_address(to), len, ret_copy,
			  ret_why);
}

/* The result of the event; with must_wait never CUDA_ERROR_NOT_READY. */
static CUresult event_look(CUevent event, bool must_wait, const char **ret_call)
{
	const uint64_t end = must_wait ? clock_nsec() + SPIN_NSEC : 0;
	CUresult result;

	*ret_call = "cuEventQuery()";
	do
		result = cuda_get()->cuEventQuery(event);
	while (must_wait && result == CUDA_ERROR_NOT_READY && clock_nsec() < end);
	if (must_wait && result == CUDA_ERROR_NOT_READY) {
		*ret_call = "cuEventSynchronize()";
		result = cuda_get()->cuEventSynchronize(event);
	}
	return result;
}

static int look(struct device_copy *copy, bool must_wait, char **ret_why)
{
	CUresult pushed = cuda_get()->cuCtxPushCurrent_v2(copy->device->context), result;
	const char *call;

	result = event_look(copy->event, must_wait || pushed != CUDA_SUCCESS, &call);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) /* as for cuEventRecord() */
		(void)cuda_get()->cuStreamSynchronize(copy->stream->stream);
	if (result != CUDA_ERROR_NOT_READY)
		event_give(copy->device, copy->event);
	if (pushed == CUDA_SUCCESS)
		(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
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
	if (cuda_get()->cuCtxPushCurrent_v2(device->context) == CUDA_SUCCESS) {
		while (device->n_events)
			(void)cuda_get()->cuEventDestroy_v2(device->events[--device->n_events]);
		(void)cuda_get()->cuStreamDestroy_v2(device->fill.stream);
		(void)cuda_get()->cuStreamDestroy_v2(device->empty.stream);
		(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		(void)cuda_get()->cuDevicePrimaryCtxRelease_v2(device->device);
	}
	(void)pthread_mutex_destroy(&device->lock);
	free(device);
}

void devices_deinit(struct devices *devices)
{
	for (int i = 0; i < GPUS_MAX; i++)
		if (devices->devices[i])
			device_close(devices->devices[i]);
	(void)pthread_mutex_destroy(&devices->lock);
}

void devices_forget(struct devices *devices, void *map)
{
	(void)pthread_mutex_lock(&devices->lock);
	for (int i = 0; i < GPUS_MAX; i++) {
		const struct device *device = devices->devices[i];

		if (!device || cuda_get()->cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		/* Fails if it could not be registered. */
		(void)cuda_get()->cuMemHostUnregister(map);
		(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		break; /* it is registered for all GPUs */
	}
	(void)pthread_mutex_unlock(&devices->lock);
}
