/*
 * A stand-in for libcuda: a host with simulated GPUs, loaded by path where the driver would be.
 *
 * It checks the order of calls, and that devices exist.  STANDIN (standin.h) makes calls fail.
 */
#include "daemon/engine/cuda.h"
#include "tests/gpu/standin.h"

#include <stdbool.h>
#include <stdio.h>

#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_INVALID_DEVICE 101

/* The declarations are those of the daemon: another prototype does not compile. */
#define DECLARE(result, name, parameters) \
	__attribute__((visibility("default"))) result name parameters;
CUDA_FUNCTIONS(DECLARE)

static bool is_initialized;

static CUresult call(const char *name)
{
	int error = standin_call(name);

	if (error)
		return (CUresult)error;
	return is_initialized ? CUDA_SUCCESS : (CUresult)CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult device_call(const char *name, CUdevice device)
{
	CUresult result = call(name);

	if (result == CUDA_SUCCESS && (device < 0 || device >= standin_number("gpus", 1)))
		return (CUresult)CUDA_ERROR_INVALID_DEVICE;
	return result;
}

CUresult cuInit(unsigned int flags)
{
	int error = standin_call("cuInit");

	if (error)
		return (CUresult)error;
	if (flags)
		return (CUresult)CUDA_ERROR_INVALID_VALUE;
	is_initialized = true;
	return CUDA_SUCCESS;
}

/* It needs no cuInit(). */
CUresult cuDriverGetVersion(int *ret_version)
{
	int error = standin_call("cuDriverGetVersion");

	*ret_version = 13020;
	return (CUresult)error;
}

CUresult cuDeviceGetCount(int *ret_count)
{
	CUresult result = call("cuDeviceGetCount");

	if (result == CUDA_SUCCESS)
		*ret_count = standin_number("gpus", 1);
	return result;
}

CUresult cuDeviceGet(CUdevice *ret_device, int ordinal)
{
	CUresult result = device_call("cuDeviceGet", ordinal);

	if (result == CUDA_SUCCESS)
		*ret_device = ordinal;
	return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
	CUresult result = device_call("cuDeviceGetName", device);

	if (result == CUDA_SUCCESS)
		(void)snprintf(name, (size_t)len, "Stand-in GPU %d", device);
	return result;
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
	CUresult result = device_call("cuDeviceGetUuid_v2", device);

	for (unsigned i = 0; result == CUDA_SUCCESS && i < sizeof(ret_uuid->bytes); i++)
		ret_uuid->bytes[i] = (char)(0xa0 + i + (unsigned)device);
	return result;
}

CUresult cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice device)
{
	CUresult result = device_call("cuDeviceTotalMem_v2", device);

	if (result == CUDA_SUCCESS)
		*ret_bytes = (size_t)80 << 30;
	return result;
}

CUresult cuGetErrorName(CUresult error, const char **ret_name)
{
	*ret_name = NULL;
	if ((int)error != CUDA_ERROR_NOT_INITIALIZED)
		return (CUresult)CUDA_ERROR_INVALID_VALUE;
	*ret_name = "CUDA_ERROR_NOT_INITIALIZED";
	return CUDA_SUCCESS;
}
