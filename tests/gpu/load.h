/*
 * Loads the stand-ins for libcuda and libcufile into a test, and finds their functions.
 */
#ifndef DSAIO_TESTS_GPU_LOAD_H
#define DSAIO_TESTS_GPU_LOAD_H

#include "tests/gpu/libcufile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define STANDIN_CUDA_LOOK_FUNCTIONS(FUNCTION)                 \
	FUNCTION(struct standin_cuda, standin_counts, (void)) \
	FUNCTION(void, standin_let, (uint64_t n))             \
	FUNCTION(char *, standin_bytes, (CUdeviceptr memory))
#define STANDIN_CUFILE_LOOK_FUNCTIONS(FUNCTION) \
	FUNCTION(struct standin_cufile, standin_cufile_counts, (void))

#define STANDIN_LISTS(LIST)                           \
	GPU_LISTS(LIST)                               \
	LIST(STANDIN_CUDA_LOOK_FUNCTIONS, look, cuda) \
	LIST(STANDIN_CUFILE_LOOK_FUNCTIONS, see, cufile)

#define STANDIN_FIELD(list, field, library) \
	struct standin_##field {            \
		list(FUNCTION_POINTER)      \
	} field;
struct standins {
	void *cuda, *cufile;
	STANDIN_LISTS(STANDIN_FIELD)
};

static inline const char *standins_path(const char *name, char path[PATH_MAX])
{
	const char *build = getenv("BUILD");

	(void)snprintf(path, PATH_MAX, "%s/tests/gpu/%s.so", build && *build ? build : "build",
		       name);
	return path;
}

/* NULL, or what is missing. */
static inline const char *standins_load(struct standins *ret_standins)
{
	const char *missing = NULL;
	char path[PATH_MAX];
	void *address;

	ret_standins->cuda = dlopen(standins_path("libcuda", path), RTLD_NOW | RTLD_GLOBAL);
	ret_standins->cufile = dlopen(standins_path("libcufile", path), RTLD_NOW | RTLD_GLOBAL);
	if (!ret_standins->cuda || !ret_standins->cufile)
		return dlerror();
#define STANDIN_FIND(result, name, parameters) \
	address = dlsym(library, #name);       \
	missing = address ? missing : #name;   \
	memcpy(&fields->name, &address, sizeof(fields->name));
#define STANDIN_FIND_ALL(list, field, from)                            \
	{                                                              \
		struct standin_##field *fields = &ret_standins->field; \
		void *library = ret_standins->from;                    \
		list(STANDIN_FIND)                                     \
	}
	STANDIN_LISTS(STANDIN_FIND_ALL)
	return missing;
}

/* ---- what a program does with them: the first error ---- */

/* The primary context of that GPU becomes current, until standins_leave(). */
static inline CUresult standins_enter(const struct standins *gpu, int number)
{
	CUcontext context;
	CUresult result = gpu->copy.cuDevicePrimaryCtxRetain(&context, number);

	return result != CUDA_SUCCESS ? result : gpu->copy.cuCtxPushCurrent_v2(context);
}

static inline CUresult standins_leave(const struct standins *gpu)
{
	return gpu->copy.cuCtxPopCurrent_v2(&(CUcontext){ NULL });
}

/* Memory of the GPU whose context is current. */
static inline CUresult standins_alloc(const struct standins *gpu, size_t bytes, char **ret_memory)
{
	CUdeviceptr memory = 0;
	CUresult result = gpu->own.cuMemAlloc_v2(&memory, bytes);

	*ret_memory = (char *)(uintptr_t)memory;
	return result;
}

/* Maps new memory of GPU 0 there; what was mapped there before goes. */
static inline CUresult standins_map(const struct standins *gpu, const char *memory, size_t bytes,
				    bool may_export)
{
	const CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = may_export ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						   : (CUmemAllocationHandleType)0,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	const CUmemAccessDesc access = { properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUresult result;

	(void)gpu->map.cuMemUnmap(at, bytes); /* fails the first time */
	result = gpu->own.cuMemCreate(&handle, bytes, &properties, 0);
	if (result == CUDA_SUCCESS)
		result = gpu->map.cuMemMap(at, bytes, 0, handle, 0);
	if (result == CUDA_SUCCESS)
		result = gpu->map.cuMemSetAccess(at, bytes, &access, 1);
	return result != CUDA_SUCCESS ? result : gpu->map.cuMemRelease(handle);
}

#endif
