/*
 * A stand-in for libcufile, loaded by path where the toolkit's would be.
 *
 * As libcufile 1.20 does, cuFileDriverOpen() never returns where the process has no libcuda.  STANDIN
 * (standin.h) makes calls fail; nvfs=2.24 is the version of nvidia-fs, p2pdma=1 is P2PDMA.
 */
#include "daemon/engine/cufile.h"
#include "tests/gpu/standin.h"

#include <dlfcn.h>
#include <stdbool.h>

/* The declarations are those of the daemon: another prototype does not compile. */
#define DECLARE(result, name, parameters) \
	__attribute__((visibility("default"))) result name parameters;
CUFILE_FUNCTIONS(DECLARE)

static bool is_open;

static CUfileError_t call(const char *name, bool needs_open)
{
	int error = standin_call(name);

	if (!error && needs_open && !is_open)
		error = CU_FILE_DRIVER_NOT_INITIALIZED;
	return (CUfileError_t){ .err = (CUfileOpError)error,
				.cu_err = error == CU_FILE_CUDA_DRIVER_ERROR ? (CUresult)999
									     : CUDA_SUCCESS };
}

CUfileError_t cuFileDriverOpen(void)
{
	CUfileError_t error = call("cuFileDriverOpen", false);
	CUresult (*count)(int *) = NULL;
	void *address = dlsym(RTLD_DEFAULT, "cuDeviceGetCount");
	int n = 0;

	memcpy(&count, &address, sizeof(address));
	while (!count || count(&n) != CUDA_SUCCESS || n == 0)
		(void)pause();
	is_open = error.err == CU_FILE_SUCCESS;
	return error;
}

CUfileError_t cuFileGetVersion(int *ret_version)
{
	*ret_version = 1170;
	return call("cuFileGetVersion", false);
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *ret_props)
{
	CUfileError_t error = call("cuFileDriverGetProperties", true);
	const char *nvfs = standin_word("nvfs");

	if (error.err != CU_FILE_SUCCESS)
		return error;
	*ret_props = (CUfileDrvProps_t){ .max_batch_io_size = 128 };
	if (nvfs) {
		ret_props->nvfs.major_version = (unsigned)atoi(nvfs);
		ret_props->nvfs.minor_version = (unsigned)atoi(strchr(nvfs, '.') + 1);
	}
	if (standin_number("p2pdma", 0))
		ret_props->fflags |= 1u << CU_FILE_P2P_SUPPORTED;
	return error;
}
