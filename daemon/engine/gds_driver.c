#include "daemon/engine/gds_driver.h"

#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct gpu_cuda gds_cuda;
struct gpu_cufile gds_cufile;

/* Work that a thread does once, and that may not return. */
struct once {
	void (*run)(struct once *once);
	enum { ONCE_NEW, ONCE_RUNS, ONCE_IS_DONE } state;
	uint32_t limit_msec; /* workers wait so long, */
	uint64_t until_nsec; /* until then */
	const char *call;    /* in progress */
	struct error error;  /* of the work; code 0: it has succeeded */
};

struct driver_gpu {
	struct gds_gpu gpu;
	struct once once; /* its context */
};

static struct {
	const char *cuda_library, *cufile_library;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under lock */
	struct once start, end;
	int n_gpus;
	struct driver_gpu gpus[GPUS_MAX]; /* uuid and ordinal are constant once start is done */
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- errors ---- */

static int cuda_errno(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return -ENODEV;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_MAP_FAILED:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_NOT_FOUND:
		return -EFAULT;
	case CUDA_ERROR_NOT_PERMITTED:
		return -EACCES;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	case CUDA_ERROR_NOT_READY: /* none of its calls has this */
		break;
	}
	return -EIO;
}

int gds_cuda_result(const char *call, CUresult result, struct error *error)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return error_set_plain(error, cuda_errno(result), "GPU memory: %s: %s (%d)", call,
			       cuda_error_name(gds_cuda.cuGetErrorName, result), (int)result);
}

int gds_cufile_errno(CUfileOpError result)
{
	switch (result) {
	case CU_FILE_SUCCESS:
		return 0;
	case CU_FILE_CUDA_POINTER_INVALID:
	case CU_FILE_CUDA_POINTER_RANGE_ERROR:
	case CU_FILE_INVALID_MAPPING_RANGE:
		return -EFAULT;
	case CU_FILE_INVALID_VALUE:
		return -EINVAL;
	case CU_FILE_PERMISSION_DENIED:
		return -EACCES;
	case CU_FILE_PLATFORM_NOT_SUPPORTED:
	case CU_FILE_IO_NOT_SUPPORTED:
	case CU_FILE_DEVICE_NOT_SUPPORTED:
	case CU_FILE_CUDA_MEMORY_TYPE_INVALID:
	case CU_FILE_INVALID_FILE_TYPE:
	case CU_FILE_INVALID_FILE_OPEN_FLAG:
	case CU_FILE_DIO_NOT_SET:
	case CU_FILE_IO_DISABLED:
		return -EOPNOTSUPP;
	case CU_FILE_INVALID_MAPPING_SIZE:
	case CU_FILE_GPU_MEMORY_PINNING_FAILED:
	case CU_FILE_NOMEM_ERROR:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

const char *gds_cufile_name(CUfileOpError result)
{
	switch (result) {
#define NAME(name, value) \
	case name:        \
		return #name;
		CUFILE_ERRORS(NAME)
	}
	return "unknown error";
}

int gds_cufile_result(const char *call, CUfileError_t result, struct error *error)
{
	if (result.err == CU_FILE_SUCCESS)
		return 0;
	if (result.err == CU_FILE_CUDA_DRIVER_ERROR)
		return gds_cuda_result(call, result.cu_err, error);
	return error_set_plain(error, gds_cufile_errno(result.err), "GPU memory: %s: %s (%d)", call,
			       gds_cufile_name(result.err), (int)result.err);
}

/* ---- work that is done once ---- */

static void call_begins(struct once *once, const char *call)
{
	LOCKED(&driver.lock);
	once->call = call;
}

static void *once_main(void *arg)
{
	struct once *once = arg;

	(void)pthread_setname_np(pthread_self(), "gpu once"); /* a name is for people only */
	once->run(once);
	LOCKED(&driver.lock);
	/* Memory may be there later. */
	once->state = once->error.code == -ENOMEM ? ONCE_NEW : ONCE_IS_DONE;
	(void)pthread_cond_broadcast(&driver.changed);
	return NULL;
}

/* Under the lock.  The main thread handles all signals: a worker has them blocked, and so have all
   threads that the libraries start. */
static int once_start(struct once *once)
{
	pthread_t thread;
	int r;

	once->until_nsec = clock_nsec() + (uint64_t)once->limit_msec * 1000000u;
	once->call = "a new thread";
	once->error.code = 0;
	r = pthread_create(&thread, NULL, once_main, once);
	if (r)
		return -r;
	(void)pthread_detach(thread); /* ours */
	once->state = ONCE_RUNS;
	return 0;
}

static int once_do(struct once *once, struct error *error)
{
	struct timespec until;
	int r = 0;

	LOCKED(&driver.lock);
	if (once->state == ONCE_NEW && once_start(once) < 0)
		return error_set(error, -ENOMEM, "GPU memory: no thread can start");
	until = (struct timespec){ .tv_sec = (time_t)(once->until_nsec / 1000000000u),
				   .tv_nsec = (long)(once->until_nsec % 1000000000u) };
	while (once->state == ONCE_RUNS && r != ETIMEDOUT)
		r = pthread_cond_clockwait(&driver.changed, &driver.lock, CLOCK_MONOTONIC, &until);
	if (once->state == ONCE_RUNS)
		return error_set_plain(
			error, -ETIMEDOUT,
			"GPU memory: %s has not returned within %.3g s: see whether nvidia-smi "
			"returns, and restart the daemon to try again",
			once->call, once->limit_msec / 1000.0);
	if (once->error.code < 0)
		*error = once->error;
	return once->error.code;
}

/* ---- the libraries ---- */

#define CUDA_CALL(once, name, ...) \
	(call_begins(once, #name "()"), GDS_CUDA(&(once)->error, name, __VA_ARGS__))

static int gpus_find(struct once *once)
{
	int n, r = CUDA_CALL(once, cuInit, 0);

	if (r == 0)
		r = CUDA_CALL(once, cuDeviceGetCount, &n);
	driver.n_gpus = 0;
	for (int i = 0; r == 0 && i < n && i < GPUS_MAX; i++) {
		struct driver_gpu *gpu = &driver.gpus[i];
		CUdevice device;

		gpu->gpu.ordinal = i;
		r = CUDA_CALL(once, cuDeviceGet, &device, i);
		if (r == 0)
			r = CUDA_CALL(once, cuDeviceGetUuid_v2, &gpu->gpu.uuid, device);
		if (r == 0)
			driver.n_gpus++;
	}
	return r;
}

static void start_run(struct once *once)
{
	struct error error;
	int r;

	call_begins(once, "dlopen() of libcuda");
	r = gpu_library_cuda(driver.cuda_library, &gds_cuda, &error);
	if (r == 0 && gpus_find(once) < 0)
		return;
	if (r == 0) {
		call_begins(once, "dlopen() of libcufile");
		r = gpu_library_cufile(driver.cufile_library, &gds_cufile, &error);
	}
	if (r < 0) {
		(void)error_set_plain(&once->error, r, "GPU memory: %s", error.text);
		return;
	}
	call_begins(once, "cuFileDriverOpen()");
	(void)GDS_CUFILE(&once->error, cuFileDriverOpen);
}

/* Whatever the call's errno is, the memory of this GPU cannot be used. */
static void context_run(struct once *once)
{
	struct driver_gpu *gpu = container_of(once, struct driver_gpu, once);
	CUdevice device;
	int r = CUDA_CALL(once, cuDeviceGet, &device, gpu->gpu.ordinal);

	if (r == 0)
		(void)CUDA_CALL(once, cuDevicePrimaryCtxRetain, &gpu->gpu.context, device);
}

static void end_run(struct once *once)
{
	call_begins(once, "cuFileDriverClose()");
	(void)GDS_CUFILE(&once->error, cuFileDriverClose_v2);
}

void gds_driver_init(const char *cuda_library, const char *cufile_library, uint32_t limit_msec)
{
	driver.cuda_library = cuda_library;
	driver.cufile_library = cufile_library;
	driver.start.run = start_run;
	driver.start.limit_msec = limit_msec;
	driver.end.run = end_run;
	driver.end.limit_msec = GDS_END_MSEC;
	for (int i = 0; i < GPUS_MAX; i++) {
		driver.gpus[i].once.run = context_run;
		driver.gpus[i].once.limit_msec = limit_msec;
	}
	/* Else libcufile writes a file into the working directory. */
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
}

int gds_driver_gpu(const char uuid[sizeof(CUuuid)], const struct gds_gpu **ret_gpu,
		   struct error *error)
{
	struct driver_gpu *gpu = NULL;
	int r = once_do(&driver.start, error);

	if (r < 0)
		return r == -ETIMEDOUT || r == -ENOMEM ? r : (error->code = -EOPNOTSUPP);
	for (int i = 0; i < driver.n_gpus; i++)
		if (memcmp(driver.gpus[i].gpu.uuid.bytes, uuid, sizeof(CUuuid)) == 0)
			gpu = &driver.gpus[i];
	if (!gpu)
		return error_set_plain(error, -ENODEV,
				       "GPU memory: the daemon's host has no GPU with the UUID "
				       "that the client names: both need the same "
				       "CUDA_VISIBLE_DEVICES");
	*ret_gpu = &gpu->gpu;
	return 0;
}

int gds_driver_close(struct error *error)
{
	bool is_open;

	(void)pthread_mutex_lock(&driver.lock);
	is_open = driver.start.state == ONCE_IS_DONE && !driver.start.error.code;
	(void)pthread_mutex_unlock(&driver.lock);
	return is_open ? once_do(&driver.end, error) : 0;
}

/* ---- contexts ---- */

int gds_enter(const struct gds_gpu *gpu, struct error *error)
{
	return GDS_CUDA(error, cuCtxPushCurrent_v2, gpu->context);
}

int gds_enter_first(const struct gds_gpu *gpu, struct error *error)
{
	struct driver_gpu *of = container_of((struct gds_gpu *)(uintptr_t)gpu, struct driver_gpu,
					     gpu);
	int r = once_do(&of->once, error);

	return r < 0 ? r : gds_enter(gpu, error);
}

void gds_leave(void)
{
	CUcontext context;

	(void)gds_cuda.cuCtxPopCurrent_v2(&context); /* as many as were pushed */
}
