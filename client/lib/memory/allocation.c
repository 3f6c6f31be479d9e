#include "client/lib/memory/allocation.h"

#include "client/lib/memory/cuda.h"
#include "client/lib/memory/gpu_copy.h"

#include <errno.h>
#include <stdio.h>

/* libcuda has been found where this is called. */
static int fail(const char *call, CUresult result, char **ret_why)
{
	*ret_why = cuda_why(call, result);
	return -EOPNOTSUPP;
}

static int context_enter(int number, CUdevice *ret_device, char **ret_why)
{
	const char *call;
	CUcontext context;
	CUresult result = cuda_enter(number, ret_device, &context, &call);

	return result == CUDA_SUCCESS ? 0 : fail(call, result, ret_why);
}

/* ---- one allocation ---- */

static CUresult get_id(const struct cuda *cuda, const void *memory, bool is_mapped,
		       unsigned long long *ret_id)
{
	return cuda->cuPointerGetAttribute(ret_id,
					   is_mapped ? CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
						     : CU_POINTER_ATTRIBUTE_BUFFER_ID,
					   cuda_address(memory));
}

int allocation_find(const void *memory, struct allocation *ret_allocation, char **ret_why)
{
	struct allocation allocation = { .number = gpus_find(memory) };
	unsigned long long is_legacy = 0; /* a truth value; its size is not documented */
	const struct cuda *cuda;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUresult result;
	CUdevice device;
	int r;

	*ret_why = NULL;
	if (allocation.number < 0)
		return -ENOENT;
	cuda = cuda_get(); /* gpus_find() has found it */
	if (cuda->lacking) {
		if (asprintf(ret_why, "the program's libcuda has no %s(): install a newer driver",
			     cuda->lacking) < 0)
			*ret_why = NULL;
		return -EOPNOTSUPP;
	}
	result = cuda->cuPointerGetAttribute(
		&is_legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, cuda_address(memory));
	allocation.is_mapped = !is_legacy;
	/* The number comes first: if the memory is another allocation's before its range is asked for,
	   then the number is that of the old one, which is not current. */
	if (result == CUDA_SUCCESS)
		result = get_id(cuda, memory, allocation.is_mapped, &allocation.id);
	if (result != CUDA_SUCCESS)
		return fail("cuPointerGetAttribute()", result, ret_why);
	r = context_enter(allocation.number, &device, ret_why);
	if (r < 0)
		return r;
	result = cuda->cuMemGetAddressRange_v2(&base, &bytes, cuda_address(memory));
	cuda_leave(device);
	if (result != CUDA_SUCCESS)
		return fail("cuMemGetAddressRange()", result, ret_why);
	allocation.base = (uintptr_t)base;
	allocation.bytes = bytes;
	*ret_allocation = allocation;
	return 0;
}

bool allocation_is_current(const struct allocation *allocation, const void *memory)
{
	const struct cuda *cuda = cuda_get();
	unsigned long long id = 0;

	return get_id(cuda, memory, allocation->is_mapped, &id) == CUDA_SUCCESS &&
	       id == allocation->id;
}

/* The descriptor of physical memory, which the caller gets. */
static int export_mapped(const struct allocation *allocation, int *ret_fd, char **ret_why)
{
	const struct cuda *cuda = cuda_get();
	CUmemGenericAllocationHandle handle;
	CUresult result = cuda->cuMemRetainAllocationHandle(&handle, (void *)allocation->base);

	if (result != CUDA_SUCCESS)
		return fail("cuMemRetainAllocationHandle()", result, ret_why);
	result = cuda->cuMemExportToShareableHandle(ret_fd, handle,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	(void)cuda->cuMemRelease(handle); /* just retained */
	return result == CUDA_SUCCESS ? 0 : fail("cuMemExportToShareableHandle()", result, ret_why);
}

int allocation_export(const struct allocation *allocation, struct allocation_handle *ret_handle,
		      char **ret_why)
{
	const struct cuda *cuda = cuda_get();
	struct allocation_handle handle = { .fd = -1 };
	CUresult result;
	CUdevice device;
	int r = context_enter(allocation->number, &device, ret_why);

	if (r < 0)
		return r;
	result = cuda->cuDeviceGetUuid_v2(&handle.uuid, device);
	if (result != CUDA_SUCCESS)
		r = fail("cuDeviceGetUuid()", result, ret_why);
	if (r == 0 && allocation->is_mapped) {
		r = export_mapped(allocation, &handle.fd, ret_why);
	} else if (r == 0) {
		handle.buffer_id = allocation->id;
		result = cuda->cuIpcGetMemHandle(&handle.ipc, allocation->base);
		if (result != CUDA_SUCCESS)
			r = fail("cuIpcGetMemHandle()", result, ret_why);
	}
	cuda_leave(device);
	if (r == 0)
		*ret_handle = handle;
	return r;
}
