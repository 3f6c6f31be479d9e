#include "client/lib/memory/gpu_copy.h"

#include "client/lib/base/debug.h"
#include "client/lib/memory/cuda.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int gpus_find(const void *memory)
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

static CUresult streams_create(struct gpu *gpu)
{
	CUresult result = cuda_get()->cuStreamCreate(&gpu->fill.stream, CU_STREAM_NON_BLOCKING);

	if (result == CUDA_SUCCESS) {
		result = cuda_get()->cuStreamCreate(&gpu->empty.stream, CU_STREAM_NON_BLOCKING);
		if (result != CUDA_SUCCESS) /* just made */
			(void)cuda_get()->cuStreamDestroy_v2(gpu->fill.stream);
	}
	return result;
}

static int gpu_open(int number, struct gpu **ret_gpu, char **ret_why)
{
	_cleanup_(freep) struct gpu *gpu = calloc(1, sizeof(*gpu));
	const char *call;
	CUresult result;

	if (!gpu)
		return -ENOMEM;
	result = cuda_enter(number, &gpu->device, &gpu->context, &call);
	if (result != CUDA_SUCCESS)
		return fail(call, result, ret_why);
	result = streams_create(gpu);
	if (result != CUDA_SUCCESS) {
		cuda_leave(gpu->device);
		return fail("cuStreamCreate()", result, ret_why);
	}
	(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* it stays retained */
	(void)pthread_mutex_init(&gpu->lock, NULL); /* default attributes: cannot fail */
	*ret_gpu = TAKE_PTR(gpu);
	return 0;
}

static int gpu_get(struct gpus *gpus, int number, struct gpu **ret_gpu, char **ret_why)
{
	int r = 0;
	LOCKED(&gpus->lock);

	if (!gpus->all[number])
		r = gpu_open(number, &gpus->all[number], ret_why);
	*ret_gpu = gpus->all[number];
	return r;
}

/* Where the bytes of the slot are.  Its GPU's context is current. */
static char *place_of(const struct slot *slot, uint64_t off)
{
	struct mapped_slab *mapped = slot->slab->mapped;
	CUresult result;

	if (!atomic_exchange_explicit(&slot->slab->is_registered, true, memory_order_relaxed)) {
		result = cuda_get()->cuMemHostRegister_v2(mapped->memory, mapped->bytes,
							  CU_MEMHOSTREGISTER_PORTABLE);
		if (result != CUDA_SUCCESS)
			debug_log("GPU memory: cuMemHostRegister(): error %d: copies are slower",
				  (int)result);
	}
	return slot_memory(slot, off);
}

/* ---- a copy.  Its GPU's context is current. ---- */

static CUresult event_take(struct gpu *gpu, CUevent *ret_event)
{
	CUevent event = NULL;

	(void)pthread_mutex_lock(&gpu->lock); /* a plain mutex: cannot fail */
	if (gpu->n_events)
		event = gpu->events[--gpu->n_events];
	(void)pthread_mutex_unlock(&gpu->lock);
	*ret_event = event;
	if (event)
		return CUDA_SUCCESS;
	return cuda_get()->cuEventCreate(ret_event, CU_EVENT_DISABLE_TIMING);
}

/* No copy before it is queued. */
static void event_release(struct gpu *gpu, CUevent event)
{
	bool is_kept;

	(void)pthread_mutex_lock(&gpu->lock);
	is_kept = gpu->n_events < GPU_EVENTS_MAX;
	if (is_kept)
		gpu->events[gpu->n_events++] = event;
	(void)pthread_mutex_unlock(&gpu->lock);
	if (!is_kept)
		(void)cuda_get()->cuEventDestroy_v2(event); /* ours */
}

static int queue(const struct gpu_copy *copy, const struct slot *slot, uint64_t off, void *memory,
		 uint64_t len, char **ret_why)
{
	const bool is_fill = copy->stream == &copy->gpu->fill;
	CUstream stream = copy->stream->stream;
	char *place = place_of(slot, off);
	CUresult result;

	if (is_fill)
		result = cuda_get()->cuMemcpyDtoHAsync_v2(place, cuda_address(memory), len, stream);
	else
		result = cuda_get()->cuMemcpyHtoDAsync_v2(cuda_address(memory), place, len, stream);
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

int gpus_copy(struct gpus *gpus, int number, bool is_fill, const struct slot *slot, uint64_t off,
	      void *memory, uint64_t len, struct gpu_copy *ret_copy, char **ret_why)
{
	struct gpu *gpu;
	CUresult result;
	int r = gpu_get(gpus, number, &gpu, ret_why);

	if (r < 0)
		return r;
	*ret_copy = (struct gpu_copy){ .gpu = gpu, .stream = is_fill ? &gpu->fill : &gpu->empty };
	result = cuda_get()->cuCtxPushCurrent_v2(gpu->context);
	if (result != CUDA_SUCCESS)
		return fail("cuCtxPushCurrent()", result, ret_why);
	result = event_take(gpu, &ret_copy->event);
	if (result == CUDA_SUCCESS) {
		r = queue(ret_copy, slot, off, memory, len, ret_why);
		if (r < 0)
			event_release(gpu, ret_copy->event);
	} else {
		r = fail("cuEventCreate()", result, ret_why);
	}
	(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	return r;
}

int gpu_copy_look(struct gpu_copy *copy, char **ret_why)
{
	const char *call = "cuCtxPushCurrent()";
	CUresult result = cuda_get()->cuCtxPushCurrent_v2(copy->gpu->context);
	const bool is_current = result == CUDA_SUCCESS;

	if (is_current) {
		call = "cuEventQuery()";
		result = cuda_get()->cuEventQuery(copy->event);
	}
	if (result != CUDA_ERROR_NOT_READY) {
		if (result != CUDA_SUCCESS) /* as for cuEventRecord() */
			(void)cuda_get()->cuStreamSynchronize(copy->stream->stream);
		event_release(copy->gpu, copy->event);
	}
	if (is_current)
		(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
	if (result == CUDA_ERROR_NOT_READY)
		return -EAGAIN;
	return result == CUDA_SUCCESS ? 0 : fail(call, result, ret_why);
}

/* ---- all of a client ---- */

void gpus_init(struct gpus *gpus)
{
	*gpus = (struct gpus){ .all = { NULL } };
	(void)pthread_mutex_init(&gpus->lock, NULL); /* default attributes: cannot fail */
}

/* At the program's end libcuda may have gone before: all calls then fail, and nothing is left to do. */
static void gpu_close(struct gpu *gpu)
{
	if (cuda_get()->cuCtxPushCurrent_v2(gpu->context) == CUDA_SUCCESS) {
		while (gpu->n_events)
			(void)cuda_get()->cuEventDestroy_v2(gpu->events[--gpu->n_events]);
		(void)cuda_get()->cuStreamDestroy_v2(gpu->fill.stream);
		(void)cuda_get()->cuStreamDestroy_v2(gpu->empty.stream);
		cuda_leave(gpu->device);
	}
	(void)pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

void gpus_deinit(struct gpus *gpus)
{
	for (int i = 0; i < GPUS_MAX; i++)
		if (gpus->all[i])
			gpu_close(gpus->all[i]);
	(void)pthread_mutex_destroy(&gpus->lock);
}

void gpus_forget(struct gpus *gpus, void *map)
{
	LOCKED(&gpus->lock);

	for (int i = 0; i < GPUS_MAX; i++) {
		const struct gpu *gpu = gpus->all[i];

		if (!gpu || cuda_get()->cuCtxPushCurrent_v2(gpu->context) != CUDA_SUCCESS)
			continue;
		/* Fails if it could not be registered. */
		(void)cuda_get()->cuMemHostUnregister(map);
		(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL });
		break; /* it is registered for all GPUs */
	}
}
