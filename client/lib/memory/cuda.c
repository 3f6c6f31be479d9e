#include "client/lib/memory/cuda.h"

#include "proto/util/cleanup.h"

#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA_FUNCTION(result, name, parameters) { #name, offsetof(struct cuda, name) },
static const struct function copy_functions[] = { CUDA_COPY_FUNCTIONS(CUDA_FUNCTION) };
static const struct function exporter_functions[] = { CUDA_EXPORTER_FUNCTIONS(CUDA_FUNCTION) };

/* Made once and never freed.  Release; others acquire. */
static struct cuda *_Atomic found;
/* How many libraries the process had opened when none of them was libcuda.  Relaxed, because nothing goes
   with it: a thread that reads an older count looks again. */
static _Atomic unsigned long long looked_adds;

/*
 * dl_iterate_phdr(3) takes a lock of glibc's that stays taken in a child which is forked meanwhile.  Threads
 * of this library take this one first, and so does fork.
 */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

static void fork_begin(void)
{
	(void)pthread_mutex_lock(&looking); /* a plain mutex: cannot fail */
}

static void fork_end(void)
{
	(void)pthread_mutex_unlock(&looking);
}

/* No memory for it, as a program begins: then children have what glibc gives them. */
__attribute__((constructor)) static void fork_handlers_set(void)
{
	(void)pthread_atfork(fork_begin, fork_end, fork_end);
}

struct dl_scan {
	bool is_new; /* a library has been opened since the last look */
	bool has_cuda;
	unsigned long long adds;
};

/* Looks at one library.  Ends the iteration where there is no more to see. */
static int scan_library(struct dl_phdr_info *info, size_t size, void *ret_scan)
{
	static const char prefix[] = "libcuda.so"; /* with or without a version */
	struct dl_scan *scan = ret_scan;

	(void)size; /* glibc has had the fields since 2.4 */
	scan->adds = info->dlpi_adds;
	scan->is_new = scan->adds != atomic_load_explicit(&looked_adds, memory_order_relaxed);
	scan->has_cuda = scan->is_new &&
			 strncmp(basename(info->dlpi_name), prefix, sizeof(prefix) - 1) == 0;
	return !scan->is_new || scan->has_cuda;
}

/* Whether the program's libcuda has all functions that copy. */
static bool cuda_find(struct cuda *ret_cuda)
{
	void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);

	/* The handle is never closed: the program may close its own. */
	if (!library || functions_find(library, copy_functions,
				       sizeof(copy_functions) / sizeof(*copy_functions), ret_cuda))
		return false;
	ret_cuda->lacking = functions_find(library, exporter_functions,
					   sizeof(exporter_functions) / sizeof(*exporter_functions),
					   ret_cuda);
	return true;
}

/*
 * dlopen(3) and dlsym(3) wait for the loader's lock, which a thread that opens a library holds while that
 * library's constructors run.  dl_iterate_phdr(3) does not wait for it, so it looks whether libcuda is
 * there, and only then the others are called.  They are called without a lock, because fork(2) would wait
 * for a thread that waits in them.
 */
const struct cuda *cuda_get(void)
{
	_cleanup_(freep) struct cuda *cuda = NULL;
	struct cuda *others = atomic_load_explicit(&found, memory_order_acquire);
	struct dl_scan scan = { 0 };

	if (others)
		return others;
	(void)pthread_mutex_lock(&looking);
	(void)dl_iterate_phdr(scan_library, &scan); /* returns what scan_library() does */
	(void)pthread_mutex_unlock(&looking);
	if (!scan.is_new)
		return NULL;
	if (scan.has_cuda) {
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
	atomic_store_explicit(&looked_adds, scan.adds, memory_order_relaxed);
	return NULL;
}

char *cuda_why(const char *call, CUresult result)
{
	const char *name = cuda_error_name(cuda_get()->cuGetErrorName, result);
	char *why;

	return asprintf(&why, "%s: %s (%d)", call, name, (int)result) < 0 ? NULL : why;
}

CUresult cuda_enter(int number, CUdevice *ret_device, CUcontext *ret_context, const char **ret_call)
{
	const struct cuda *cuda = cuda_get();
	CUresult result = cuda->cuDeviceGet(ret_device, number);

	*ret_call = "cuDeviceGet()";
	if (result != CUDA_SUCCESS)
		return result;
	*ret_call = "cuDevicePrimaryCtxRetain()";
	result = cuda->cuDevicePrimaryCtxRetain(ret_context, *ret_device);
	if (result != CUDA_SUCCESS)
		return result;
	*ret_call = "cuCtxPushCurrent()";
	result = cuda->cuCtxPushCurrent_v2(*ret_context);
	if (result != CUDA_SUCCESS)
		(void)cuda->cuDevicePrimaryCtxRelease_v2(*ret_device); /* just retained */
	return result;
}

void cuda_leave(CUdevice device)
{
	(void)cuda_get()->cuCtxPopCurrent_v2(&(CUcontext){ NULL }); /* the one pushed above */
	(void)cuda_get()->cuDevicePrimaryCtxRelease_v2(device);
}
