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

/* LIST(a list of functions, the field that has them, library) */
#define STANDIN_LISTS(LIST)                           \
	LIST(CUDA_FUNCTIONS, find, cuda)              \
	LIST(CUDA_COPY_FUNCTIONS, copy, cuda)         \
	LIST(CUDA_EXPORT_FUNCTIONS, lend, cuda)       \
	LIST(CUDA_IMPORT_FUNCTIONS, map, cuda)        \
	LIST(STANDIN_PROGRAM_FUNCTIONS, own, cuda)    \
	LIST(STANDIN_CUDA_LOOK_FUNCTIONS, look, cuda) \
	LIST(CUFILE_FUNCTIONS, driver, cufile)        \
	LIST(CUFILE_MOVE_FUNCTIONS, move, cufile)     \
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

#endif
