/*
 * The memory of the stand-in for libcuda that programs map by themselves.  Memory of cuMemCreate() is a
 * memfd, and its shareable handle is a descriptor of it.
 */
#include "tests/gpu/cuda_parts.h"
#include "tests/gpu/standin.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define HANDLES_MAX 64

CUDA_EXPORT_FUNCTIONS(STANDIN_DECLARE)
CUDA_IMPORT_FUNCTIONS(STANDIN_DECLARE)

static struct {
	unsigned n_refs; /* of the program, and mappings */
	int fd;
	uint64_t size;
	int device;
	bool may_export;
	unsigned long long id;
} handles[HANDLES_MAX + 1]; /* by number, from 1 on; under the lock */

unsigned long long cuda_block_id(const struct allocation *allocation)
{
	return allocation->kind == RESERVED ? handles[allocation->handle].id : allocation->id;
}

static bool is_handle(CUmemGenericAllocationHandle handle)
{
	return handle && handle <= HANDLES_MAX && handles[handle].n_refs;
}

/* Takes fd.  0: no room.  Under the lock. */
static unsigned handle_add(int fd, uint64_t size, int device, bool may_export)
{
	for (unsigned i = 1; i <= HANDLES_MAX; i++)
		if (!handles[i].n_refs) {
			handles[i].n_refs = 1;
			handles[i].fd = fd;
			handles[i].size = size;
			handles[i].device = device;
			handles[i].may_export = may_export;
			handles[i].id = ++cuda_last_id;
			cuda_counts.n_handles++;
			return i;
		}
	(void)close(fd);
	return 0;
}

static void handle_unref(unsigned handle)
{
	if (--handles[handle].n_refs)
		return;
	(void)close(handles[handle].fd);
	cuda_counts.n_handles--;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
		     const CUmemAllocationProp *properties, unsigned long long flags)
{
	CUresult result = cuda_device_call("cuMemCreate", properties->location.id);
	struct label label = { .magic = MAGIC, .size = bytes, .device = properties->location.id };
	int fd;

	if (result != CUDA_SUCCESS)
		return result;
	if (flags || !bytes || bytes % STANDIN_GRANULARITY ||
	    properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	fd = memfd_create("gpu", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)(bytes + PAGE)) < 0 ||
	    pwrite(fd, &label, sizeof(label), (off_t)bytes) != sizeof(label))
		return CUDA_ERROR_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&cuda_lock);
	*ret_handle = handle_add(fd, bytes, label.device,
				 properties->requestedHandleTypes ==
					 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	(void)pthread_mutex_unlock(&cuda_lock);
	return *ret_handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = cuda_call("cuMemRelease");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (is_handle(handle))
		handle_unref((unsigned)handle);
	else
		result = CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *memory)
{
	CUresult result = cuda_call("cuMemRetainAllocationHandle");
	const struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find(cuda_allocations, memory, 1);
	if (allocation && allocation->kind == RESERVED && allocation->bytes) {
		handles[allocation->handle].n_refs++;
		*ret_handle = allocation->handle;
	} else {
		result = CUDA_ERROR_INVALID_VALUE;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemExportToShareableHandle(void *ret_fd, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult result = cuda_call("cuMemExportToShareableHandle");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !is_handle(handle) ||
	    !handles[handle].may_export)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		*(int *)ret_fd = fcntl(handles[handle].fd, F_DUPFD_CLOEXEC, 0);
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

/* The descriptor stays the caller's. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *fd,
					CUmemAllocationHandleType type)
{
	CUresult result = cuda_call("cuMemImportFromShareableHandle");
	const int shared = (int)(intptr_t)fd;
	struct label label = { 0 };
	struct stat st;
	int own;

	if (result != CUDA_SUCCESS)
		return result;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(shared, &st) < 0 ||
	    !S_ISREG(st.st_mode) || st.st_size < (off_t)PAGE ||
	    pread(shared, &label, sizeof(label), st.st_size - (off_t)PAGE) != sizeof(label) ||
	    label.magic != MAGIC || label.size != (uint64_t)st.st_size - PAGE)
		return CUDA_ERROR_INVALID_VALUE;
	own = fcntl(shared, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&cuda_lock);
	*ret_handle = handle_add(own, label.size, label.device, true);
	(void)pthread_mutex_unlock(&cuda_lock);
	return *ret_handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret_memory, size_t bytes, size_t alignment,
			     CUdeviceptr wanted, unsigned long long flags)
{
	CUresult result = cuda_call("cuMemAddressReserve");
	const struct allocation reserved = { .size = bytes, .device = -1, .kind = RESERVED };
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	if (!bytes || bytes % STANDIN_GRANULARITY || alignment || wanted || flags)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_allocation_add(&reserved);
	if (allocation)
		*ret_memory = (uintptr_t)allocation->address;
	(void)pthread_mutex_unlock(&cuda_lock);
	return allocation ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ends a whole range that is reserved, or what is mapped there. */
static CUresult range_end(const char *call, CUdeviceptr memory, size_t bytes, bool is_mapped,
			  void (*end)(struct allocation *allocation))
{
	CUresult result = cuda_call(call);
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_start(memory, RESERVED);
	if (!allocation || !allocation->bytes != !is_mapped || allocation->size != bytes)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		end(allocation);
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemAddressFree(CUdeviceptr memory, size_t bytes)
{
	return range_end("cuMemAddressFree", memory, bytes, false, cuda_allocation_remove);
}

CUresult cuMemMap(CUdeviceptr memory, size_t bytes, size_t off, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult result = cuda_call("cuMemMap");
	struct allocation *allocation;
	char *place;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_start(memory, RESERVED);
	if (flags || off || bytes % STANDIN_GRANULARITY || !allocation || allocation->bytes ||
	    allocation->size != bytes || !is_handle(handle) || bytes > handles[handle].size) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		place = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
			     handles[handle].fd, 0);
		if (place == MAP_FAILED) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			allocation->bytes = place;
			allocation->handle = (unsigned)handle;
			allocation->device = handles[handle].device;
			allocation->is_accessible = false;
			handles[handle].n_refs++;
		}
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

static void unmap(struct allocation *allocation)
{
	cuda_must_be_unused(allocation);
	(void)munmap(allocation->bytes, allocation->size + PAGE);
	allocation->bytes = NULL;
	handle_unref(allocation->handle);
}

CUresult cuMemUnmap(CUdeviceptr memory, size_t bytes)
{
	return range_end("cuMemUnmap", memory, bytes, true, unmap);
}

CUresult cuMemSetAccess(CUdeviceptr memory, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	CUresult result = n ? cuda_device_call("cuMemSetAccess", access->location.id)
			    : CUDA_ERROR_INVALID_VALUE;
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_start(memory, RESERVED);
	if (n != 1 || !allocation || !allocation->bytes || allocation->size != bytes ||
	    access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		allocation->is_accessible = true;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}
