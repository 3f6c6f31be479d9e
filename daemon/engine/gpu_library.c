#include "daemon/engine/gpu_library.h"

#include <errno.h>
#include <stddef.h>

#define CUDA_FUNCTION(result, name, parameters) { #name, offsetof(struct gpu_cuda, name) },
static const struct function cuda_functions[] = { CUDA_FUNCTIONS(CUDA_FUNCTION)
							  CUDA_IMPORT_FUNCTIONS(CUDA_FUNCTION) };
#define CUFILE_FUNCTION(result, name, parameters) { #name, offsetof(struct gpu_cufile, name) },
static const struct function cufile_functions[] = { CUFILE_FUNCTIONS(
	CUFILE_FUNCTION) CUFILE_MOVE_FUNCTIONS(CUFILE_FUNCTION) };

/* RTLD_GLOBAL: libcufile looks for libcuda by itself. */
static int library_open(const char *path, const struct function *functions, size_t n,
			void *ret_functions, struct error *error)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	const char *missing;

	if (!library)
		return error_set_plain(error, -EOPNOTSUPP, "%s", dlerror());
	missing = functions_find(library, functions, n, ret_functions);
	if (missing)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"%.200s has no %s: it is no library of that kind, or too old", path,
			missing);
	return 0;
}

int gpu_library_cuda(const char *path, struct gpu_cuda *ret_cuda, struct error *error)
{
	return library_open(path ? path : CUDA_LIBRARY, cuda_functions,
			    sizeof(cuda_functions) / sizeof(*cuda_functions), ret_cuda, error);
}

int gpu_library_cufile(const char *path, struct gpu_cufile *ret_cufile, struct error *error)
{
	return library_open(path ? path : CUFILE_LIBRARY, cufile_functions,
			    sizeof(cufile_functions) / sizeof(*cufile_functions), ret_cufile,
			    error);
}
