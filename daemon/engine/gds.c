#include "daemon/engine/gds.h"

#include "daemon/base/log.h"
#include "daemon/engine/gds_driver.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/list.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Drivers round allocations up to a multiple of this.  So an allocation may be longer than a client says, by
   less than this. */
#define ROUNDED_BYTES (UINT64_C(2) << 20)

/*
 * A mapped allocation.  An import by IPC handle is in the list, so that the next import of the handle
 * finds it.  The thread that opens or closes it holds no lock; others that want it wait.
 */
struct gds_memory {
	struct list_node node;
	struct gds_handle handle;
	const struct gds_gpu *gpu; /* whose context has it mapped */
	enum { MEMORY_CHANGES, MEMORY_IS_OPEN } state;
	unsigned n_imports;
	CUdeviceptr base;
	uint64_t bytes;			     /* from base on */
	uint64_t reserved_bytes;	     /* by a descriptor: of the address range; 0: none */
	CUmemGenericAllocationHandle shared; /* the same, while it is mapped */
	bool is_mapped, is_registered;
};

static struct {
	pthread_mutex_t lock; /* not held during calls of the libraries */
	pthread_cond_t changed;
	/* under lock */
	struct list memories; /* by IPC handles */
} gds = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void gds_init(const char *cuda_library, const char *cufile_library)
{
	gds_driver_init(cuda_library, cufile_library, GDS_START_MSEC);
}

bool gds_end(void)
{
	struct error error;
	int r = gds_driver_close(&error);

	if (r < 0)
		log_warning("dsaiod: stopping although cuFile is not closed: %s", error.text);
	return r != -ETIMEDOUT;
}

/* Only the log has it: the client is gone, or can do nothing about it. */
static void log_release(const struct error *error)
{
	static struct log_limit log_limit;

	log_client(&log_limit, "dsaiod: a release of GPU memory: %s", error->text);
}

static void *pointer(CUdeviceptr memory)
{
	return (void *)(uintptr_t)memory;
}

/* ---- mapping, in the GPU's context ---- */

static int open_ipc(struct gds_memory *memory, struct error *error)
{
	CUipcMemHandle handle;
	int r;

	memcpy(handle.reserved, memory->handle.ipc, sizeof(handle.reserved));
	r = GDS_CUDA(error, cuIpcOpenMemHandle_v2, &memory->base, handle,
		     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	memory->is_mapped = r == 0;
	return r;
}

/* Only as many bytes as the client says can be mapped, since nothing says how many there are. */
static int open_fd(struct gds_memory *memory, struct error *error)
{
	const CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, memory->gpu->ordinal },
					 CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const uint64_t bytes = memory->handle.size_bytes;
	int r = GDS_CUDA(error, cuMemAddressReserve, &memory->base, bytes, 0, 0, 0);

	if (r == 0) {
		memory->reserved_bytes = bytes;
		r = GDS_CUDA(error, cuMemMap, memory->base, bytes, 0, memory->shared, 0);
		memory->is_mapped = r == 0;
	}
	if (r == 0)
		r = GDS_CUDA(error, cuMemSetAccess, memory->base, bytes, &access, 1);
	return r;
}

/* Checks that the memory is on the GPU that the client names.  Sets bytes to what the driver says. */
static int memory_check(struct gds_memory *memory, struct error *error)
{
	CUmemorytype type = (CUmemorytype)0;
	CUdeviceptr start;
	int ordinal;
	size_t bytes;
	int r = GDS_CUDA(error, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			 memory->base);

	if (r == 0)
		r = GDS_CUDA(error, cuPointerGetAttribute, &ordinal,
			     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory->base);
	if (r == 0)
		r = GDS_CUDA(error, cuMemGetAddressRange_v2, &start, &bytes, memory->base);
	if (r < 0)
		return r;
	if (type != CU_MEMORYTYPE_DEVICE || ordinal != memory->gpu->ordinal)
		return error_set_plain(error, -ENODEV,
				       "GPU memory: the allocation is not on the GPU whose UUID "
				       "the client names");
	memory->bytes = bytes - (memory->base - start);
	return 0;
}

/* Memory that cuFile cannot pin for want of room works unregistered: cuFile then copies through its own. */
static int memory_register(struct gds_memory *memory, struct error *error)
{
	int r = GDS_CUFILE(error, cuFileBufRegister, pointer(memory->base), memory->bytes, 0);

	memory->is_registered = r == 0;
	return r == -ENOMEM ? 0 : r;
}

static void memory_unmap(struct gds_memory *memory)
{
	struct error error;
	int r = 0;

	if (memory->is_registered)
		r |= GDS_CUFILE(&error, cuFileBufDeregister, pointer(memory->base));
	if (memory->is_mapped && memory->handle.is_ipc)
		r |= GDS_CUDA(&error, cuIpcCloseMemHandle, memory->base);
	if (memory->is_mapped && !memory->handle.is_ipc)
		r |= GDS_CUDA(&error, cuMemUnmap, memory->base, memory->reserved_bytes);
	if (memory->reserved_bytes)
		r |= GDS_CUDA(&error, cuMemAddressFree, memory->base, memory->reserved_bytes);
	if (r)
		log_release(&error);
}

static int memory_map(struct gds_memory *memory, struct error *error)
{
	int r = gds_enter_first(memory->gpu, error);

	if (r < 0)
		return r;
	r = memory->handle.is_ipc ? open_ipc(memory, error) : open_fd(memory, error);
	if (r == 0)
		r = memory_check(memory, error);
	if (r == 0)
		r = memory_register(memory, error);
	if (r < 0)
		memory_unmap(memory);
	gds_leave();
	return r;
}

/* ---- imports ---- */

static bool is_same(const struct gds_handle *a, const struct gds_handle *b)
{
	return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
	       memcmp(a->ipc, b->ipc, sizeof(a->ipc)) == 0 && a->buffer_id == b->buffer_id;
}

/* Under the lock. */
static struct gds_memory *memory_find(const struct gds_handle *handle)
{
	LIST_EACH(struct gds_memory, memory, &gds.memories, node)
		if (is_same(&memory->handle, handle))
			return memory;
	return NULL;
}

/* Under the lock: waits while another thread opens or closes the handle's memory.  Returns 0 and the
   memory, or NULL; or -ETIMEDOUT. */
static int memory_await(const struct gds_handle *handle, struct gds_memory **ret_memory,
			struct error *error)
{
	const uint64_t until_nsec = clock_nsec() + GDS_START_MSEC * UINT64_C(1000000);
	const struct timespec until = { .tv_sec = (time_t)(until_nsec / 1000000000u),
					.tv_nsec = (long)(until_nsec % 1000000000u) };
	int r = 0;

	while ((*ret_memory = memory_find(handle)) && (*ret_memory)->state == MEMORY_CHANGES &&
	       r != ETIMEDOUT)
		r = pthread_cond_clockwait(&gds.changed, &gds.lock, CLOCK_MONOTONIC, &until);
	if (!*ret_memory || (*ret_memory)->state == MEMORY_IS_OPEN)
		return 0;
	return error_set_plain(error, -ETIMEDOUT,
			       "GPU memory: the driver has not returned within %u s from the "
			       "same handle: see whether nvidia-smi returns",
			       GDS_START_MSEC / 1000);
}

static struct gds_memory *memory_new(const struct gds_handle *handle, const struct gds_gpu *gpu)
{
	struct gds_memory *memory = calloc(1, sizeof(*memory));

	if (memory) {
		memory->handle = *handle;
		memory->gpu = gpu;
		memory->n_imports = 1;
	}
	return memory;
}

static CUresult shared_open(struct gds_memory *memory)
{
	return gds_cuda.cuMemImportFromShareableHandle(&memory->shared,
						       (void *)(intptr_t)memory->handle.fd,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/* Before there is a context, so that a descriptor that is none of the driver's makes none.  The documentation names
   no need for one; a driver that needs it gets it. */
static int shared_look(struct gds_memory *memory, struct error *error)
{
	CUresult result = shared_open(memory);
	int r;

	if (result == CUDA_ERROR_INVALID_CONTEXT) {
		r = gds_enter_first(memory->gpu, error);
		if (r < 0)
			return r;
		result = shared_open(memory);
		gds_leave();
	}
	return gds_cuda_result("cuMemImportFromShareableHandle()", result, error);
}

static int import_fd(const struct gds_handle *handle, const struct gds_gpu *gpu,
		     struct gds_memory **ret_memory, struct error *error)
{
	struct gds_memory *memory = memory_new(handle, gpu);
	int r = memory ? shared_look(memory, error) : error_set(error, -ENOMEM, "GPU memory");

	if (r == 0) {
		r = memory_map(memory, error);
		(void)gds_cuda.cuMemRelease(memory->shared); /* the mapping keeps the memory */
	}
	if (r < 0)
		free(memory);
	else
		*ret_memory = memory;
	return r;
}

/* Under the lock: an open memory of the same handle has one more import. */
static int memory_share(struct gds_memory *memory, uint64_t bytes, struct error *error)
{
	if (bytes != memory->handle.size_bytes)
		return error_set_plain(error, -ERANGE,
				       "GPU memory: %" PRIu64
				       " bytes: the same handle has been imported with %" PRIu64,
				       bytes, memory->handle.size_bytes);
	memory->n_imports++;
	return 0;
}

static int import_ipc(const struct gds_handle *handle, const struct gds_gpu *gpu,
		      struct gds_memory **ret_memory, struct error *error)
{
	struct gds_memory *memory = NULL;
	int r;

	(void)pthread_mutex_lock(&gds.lock);
	r = memory_await(handle, &memory, error);
	if (r == 0 && memory)
		r = memory_share(memory, handle->size_bytes, error);
	if (r < 0 || memory) {
		(void)pthread_mutex_unlock(&gds.lock);
		if (r == 0)
			*ret_memory = memory;
		return r;
	}
	memory = memory_new(handle, gpu);
	if (memory)
		list_push(&gds.memories, &memory->node);
	(void)pthread_mutex_unlock(&gds.lock);
	if (!memory)
		return error_set(error, -ENOMEM, "GPU memory");

	r = memory_map(memory, error);
	(void)pthread_mutex_lock(&gds.lock);
	memory->state = MEMORY_IS_OPEN;
	if (r < 0)
		list_remove(&gds.memories, &memory->node);
	(void)pthread_cond_broadcast(&gds.changed);
	(void)pthread_mutex_unlock(&gds.lock);
	if (r < 0)
		free(memory);
	else
		*ret_memory = memory;
	return r;
}

/* A client is charged with what it says, and all of the allocation is pinned. */
static int size_check(const struct gds_memory *memory, uint64_t bytes, struct error *error)
{
	if (bytes <= memory->bytes && memory->bytes - bytes < ROUNDED_BYTES)
		return 0;
	return error_set_plain(error, -ERANGE,
			       "GPU memory: %" PRIu64 " bytes: the allocation has %" PRIu64, bytes,
			       memory->bytes);
}

int gds_import(const struct gds_handle *handle, struct gds_memory **ret_memory,
	       struct region *ret_region, struct error *error)
{
	const struct gds_gpu *gpu;
	struct gds_memory *memory = NULL;
	int r = gds_driver_gpu(handle->uuid, &gpu, error);

	if (r == 0)
		r = handle->is_ipc ? import_ipc(handle, gpu, &memory, error)
				   : import_fd(handle, gpu, &memory, error);
	if (!handle->is_ipc)
		(void)close(handle->fd); /* the mapping keeps the memory */
	if (r < 0)
		return r;
	r = size_check(memory, handle->size_bytes, error);
	if (r < 0) {
		gds_release(memory);
		return r;
	}
	*ret_memory = memory;
	*ret_region = (struct region){ .kind = REGION_GPU,
				       .base = pointer(memory->base),
				       .owner = memory };
	return 0;
}

const struct gds_gpu *gds_memory_gpu(const struct gds_memory *memory)
{
	return memory->gpu;
}

/* True: the caller unmaps it, and others wait for that. */
static bool memory_is_last(struct gds_memory *memory)
{
	LOCKED(&gds.lock);
	if (--memory->n_imports)
		return false;
	memory->state = MEMORY_CHANGES;
	return true;
}

void gds_release(struct gds_memory *memory)
{
	struct error error;

	if (!memory_is_last(memory))
		return;
	if (gds_enter(memory->gpu, &error) < 0) {
		log_release(&error);
	} else {
		memory_unmap(memory);
		gds_leave();
	}
	(void)pthread_mutex_lock(&gds.lock);
	if (memory->handle.is_ipc)
		list_remove(&gds.memories, &memory->node);
	(void)pthread_cond_broadcast(&gds.changed);
	(void)pthread_mutex_unlock(&gds.lock);
	free(memory);
}
