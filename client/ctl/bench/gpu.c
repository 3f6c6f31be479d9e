#include "client/ctl/bench/gpu.h"

#include "client/ctl/bench/process.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/cuda.h"
#include "proto/util/size.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>

struct bench_gpu {
	CUDA_MEMORY_FUNCTIONS(FUNCTION_POINTER)
};

#define GPU_FUNCTION(result, name, parameters) { #name, offsetof(struct bench_gpu, name) },
static const struct function functions[] = { CUDA_MEMORY_FUNCTIONS(GPU_FUNCTION) };

int bench_gpu_check_args(const struct ctl *ctl, const struct bench_gpu_options *options)
{
	uint64_t number;

	if (ctl->n_args == 0)
		return CTL_OK;
	if (options->gpu.is_given && !options->gpu.has_number &&
	    size_parse(flags_gpu_number(ctl->args[0]), &number) == 0)
		return ctl_usage(ctl,
				 "--gpu %s: the number goes with an equals sign: write --gpu=%s",
				 ctl->args[0], ctl->args[0]);
	return ctl_usage(ctl, "%s: takes no arguments: see dsaioctl %s --help", ctl->args[0],
			 ctl->command);
}

int bench_gpu_check(const struct ctl *ctl, const struct bench_gpu_options *options,
		    const char *gds_flag)
{
	void *library;

	if (options->gds && !options->gpu.is_given)
		return ctl_usage(ctl, "--%s: moves bytes to and from a GPU: give --gpu, too",
				 gds_flag);
	if (!options->gpu.is_given)
		return CTL_OK;
	library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return ctl_fail(ctl,
				"--gpu: cannot open NVIDIA's driver library: %s: measure on a "
				"machine with a GPU, or with CPU memory, without --gpu",
				dlerror());
	(void)dlclose(library); /* cannot fail: it was just opened */
	return CTL_OK;
}

int bench_gpu_number(const struct bench_gpu_options *options)
{
	return options->gpu.has_number ? (int)options->gpu.number : BENCH_GPU_SPREAD;
}

struct json_object *bench_gpu_json(const struct bench_gpu_options *options)
{
	if (!options->gpu.is_given)
		return NULL;
	return options->gpu.has_number ? json_object_new_int64(options->gpu.number)
				       : json_object_new_string("each");
}

void bench_gpu_add(struct json_object *array, const char *text)
{
	if (!text[0])
		return;
	for (size_t i = 0; i < json_object_array_length(array); i++)
		if (strcmp(json_object_get_string(json_object_array_get_idx(array, i)), text) == 0)
			return;
	(void)json_object_array_add(array, json_object_new_string(text));
}

void bench_gpu_sum_paths(struct bench_gpu_paths *sum, const struct bench_gpu_paths *paths)
{
	sum->n_direct += paths->n_direct;
	sum->n_copied += paths->n_copied;
	if (paths->n_copied)
		memcpy(sum->why, paths->why, sizeof(sum->why));
}

const char *bench_gpu_paths_text(const struct bench_gpu_paths *paths, const char *cufile,
				 char *text)
{
	const uint64_t n = paths->n_direct + paths->n_copied;
	char direct[BENCH_GPU_WHY_BYTES];

	(void)snprintf(direct, sizeof(direct), "direct%s%.200s%s", cufile[0] ? " (" : "", cufile,
		       cufile[0] ? ")" : "");
	if (!n)
		(void)snprintf(text, BENCH_GPU_PATHS_BYTES, "no op has ended");
	else if (!paths->n_copied)
		(void)snprintf(text, BENCH_GPU_PATHS_BYTES, "%s", direct);
	else if (!paths->n_direct)
		(void)snprintf(text, BENCH_GPU_PATHS_BYTES, "copied: %s", paths->why);
	else
		(void)snprintf(text, BENCH_GPU_PATHS_BYTES,
			       "%" PRIu64 " of %" PRIu64 " ops %s, %" PRIu64 " copied: %s",
			       paths->n_direct, n, direct, paths->n_copied, paths->why);
	return text;
}

const char *bench_gpu_list(struct json_object *array, char *text)
{
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < json_object_array_length(array) && n < BENCH_TEXT_BYTES; i++)
		n += (size_t)snprintf(text + n, BENCH_TEXT_BYTES - n, "%s%s", i ? ", " : "",
				      json_object_get_string(json_object_array_get_idx(array, i)));
	return text;
}

/* ---- in a process ---- */

static int fail(struct bench_process *process, const struct bench_gpu *gpu, const char *call,
		CUresult result)
{
	return bench_process_fail(process, "--gpu: %s: %s (%d)", call,
				  cuda_error_name(gpu->cuGetErrorName, result), (int)result);
}

/* The GPU's primary context is current from here on. */
static int take_device(struct bench_process *process, struct bench_gpu *gpu, int number)
{
	CUcontext context;
	CUdevice device;
	char name[64] = "";
	int n = 0;
	CUresult result = gpu->cuInit(0);

	if (result == CUDA_SUCCESS)
		result = gpu->cuDeviceGetCount(&n);
	if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && n == 0))
		return bench_process_fail(process,
					  "--gpu: this machine has no GPU that CUDA may use: "
					  "measure with CPU memory, without --gpu");
	if (result != CUDA_SUCCESS)
		return fail(process, gpu, "cuInit()", result);
	if (number == BENCH_GPU_SPREAD)
		number = (int)process->id % n;
	if (number >= n)
		return bench_process_fail(process,
					  "--gpu: there is no GPU %d: this machine has %d, from 0 "
					  "on",
					  number, n);
	result = gpu->cuDeviceGet(&device, number);
	if (result == CUDA_SUCCESS)
		result = gpu->cuDeviceGetName(name, sizeof(name), device);
	if (result != CUDA_SUCCESS)
		return fail(process, gpu, "cuDeviceGet()", result);
	(void)snprintf(process->memory.gpu, sizeof(process->memory.gpu), "GPU %d (%s)", number,
		       name);
	result = gpu->cuDevicePrimaryCtxRetain(&context, device);
	if (result == CUDA_SUCCESS)
		result = gpu->cuCtxPushCurrent_v2(context);
	if (result != CUDA_SUCCESS)
		return fail(process, gpu, "cuDevicePrimaryCtxRetain()", result);
	return 0;
}

/* Fails if ops cannot go directly, before anything is measured.  So does each op: DSAIO_GPU_DIRECT. */
static int demand_direct(struct bench_process *process)
{
	struct dsaio_memory memory = DSAIO_MEMORY_INIT;

	memory.kind = DSAIO_MEMORY_CUDA;
	memory.start = process->buffer;
	memory.bytes = process->buffer_bytes;
	if (dsaio_memory_register(process->client, &memory) == 0)
		return 0;
	return bench_process_fail(process,
				  "--gds: the bytes would be copied through memory of the host: "
				  "%s: measure that, without --gds",
				  dsaio_error());
}

int bench_gpu_open(struct bench_process *process, int number, bool is_direct_only)
{
	_cleanup_(freep) struct bench_gpu *gpu = NEW_ARRAY(struct bench_gpu, 1);
	char text[UNITS_TEXT_BYTES];
	CUdeviceptr memory = 0;
	void *library;
	const char *missing;
	CUresult result;
	int r;

	library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL); /* for the rest of the process */
	if (!library)
		return bench_process_fail(process, "--gpu: %s", dlerror());
	missing = functions_find(library, functions, sizeof(functions) / sizeof(*functions), gpu);
	if (missing)
		return bench_process_fail(process,
					  "--gpu: %s has no %s(): it is too old: update NVIDIA's "
					  "driver",
					  CUDA_LIBRARY, missing);
	r = take_device(process, gpu, number);
	if (r < 0)
		return r;
	result = gpu->cuMemAlloc_v2(&memory, process->buffer_bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return bench_process_fail(
			process,
			"--gpu: %s has no room for %s: use a smaller --io_size, or fewer processes",
			process->memory.gpu, units_format_size(text, process->buffer_bytes));
	if (result != CUDA_SUCCESS)
		return fail(process, gpu, "cuMemAlloc()", result);
	process->buffer = (void *)(uintptr_t)memory;
	process->gpu = TAKE_PTR(gpu);
	return is_direct_only ? demand_direct(process) : 0;
}

void bench_gpu_note(struct bench_process *process, const struct dsaio_op *op)
{
	struct bench_gpu_paths *paths = &process->memory.paths;

	if (!process->gpu)
		return;
	if (dsaio_op_path(op) != DSAIO_PATH_COPIED) {
		paths->n_direct++;
		return;
	}
	paths->n_copied++;
	(void)snprintf(paths->why, sizeof(paths->why), "%s", dsaio_op_why(op));
}

/* A copy to the GPU may return before its end.  Ops wait for no stream. */
int bench_gpu_put(struct bench_process *process, uint64_t off, const void *from, size_t len)
{
	const struct bench_gpu *gpu = process->gpu;
	CUresult result = gpu->cuMemcpyHtoD_v2((uintptr_t)process->buffer + off, from, len);

	if (result == CUDA_SUCCESS)
		result = gpu->cuStreamSynchronize(NULL);
	return result == CUDA_SUCCESS ? 0 : fail(process, gpu, "cuMemcpyHtoD()", result);
}

int bench_gpu_get(struct bench_process *process, uint64_t off, void *to, size_t len)
{
	const struct bench_gpu *gpu = process->gpu;
	CUresult result = gpu->cuMemcpyDtoH_v2(to, (uintptr_t)process->buffer + off, len);

	return result == CUDA_SUCCESS ? 0 : fail(process, gpu, "cuMemcpyDtoH()", result);
}
