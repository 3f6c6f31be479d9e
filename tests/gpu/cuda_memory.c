/*
 * The memory of the stand-in for libcuda, and how processes export it to each other.
 *
 * The address of GPU memory is a range that nobody can access, so a wrong access of the host's is -EFAULT
 * or a signal, as with a real one.  The bytes are shared memory with a page at the end that says what it is.
 * Word reuse=1: an allocation gets the address of the last one that was freed, if it is as large.
 *
 * Memory of cuMemAlloc() is a segment of System V: it goes with the last process that has it mapped, and a
 * process of any user finds it by the number that the IPC handle has.  The handle opens while the process
 * that made it is there and has not freed the memory, and only in other processes.  A process that has it
 * open keeps the bytes.
 */
#include "tests/gpu/cuda_parts.h"
#include "tests/gpu/standin.h"

#include <assert.h>
#include <errno.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/shm.h>
#include <sys/stat.h>

CUDA_EXPORT_FUNCTIONS(STANDIN_DECLARE)
CUDA_IMPORT_FUNCTIONS(STANDIN_DECLARE)

/* The 64 bytes of an IPC handle. */
struct ipc {
	uint64_t magic, tag, size;
	int segment, pid;
};
static_assert(sizeof(struct ipc) <= CU_IPC_HANDLE_SIZE, "it fits");

struct allocation cuda_allocations[ALLOCATIONS_MAX];
unsigned long long cuda_last_id;
static struct allocation freed; /* address and size, for reuse=1 */

/* ---- allocations ---- */

struct allocation *cuda_find(struct allocation *list, const char *address, size_t bytes)
{
	for (unsigned i = 0; i < ALLOCATIONS_MAX; i++)
		if (list[i].address && address >= list[i].address &&
		    address < list[i].address + list[i].size &&
		    bytes <= list[i].size - (size_t)(address - list[i].address))
			return &list[i];
	return NULL;
}

struct allocation *cuda_find_memory(CUdeviceptr memory, size_t bytes)
{
	struct allocation *allocation = cuda_find(cuda_allocations, cuda_pointer(memory), bytes);

	return allocation && allocation->bytes &&
			       (allocation->kind != RESERVED || allocation->is_accessible)
		       ? allocation
		       : NULL;
}

struct allocation *cuda_find_start(CUdeviceptr memory, enum allocation_kind kind)
{
	struct allocation *allocation = cuda_find(cuda_allocations, cuda_pointer(memory), 1);

	return allocation && allocation->kind == kind && allocation->address == cuda_pointer(memory)
		       ? allocation
		       : NULL;
}

static char *address_take(size_t bytes)
{
	char *address = freed.address;

	if (address && freed.size == bytes) {
		freed.address = NULL;
		return address;
	}
	address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return address == MAP_FAILED ? NULL : address;
}

static void address_release(char *address, size_t bytes)
{
	if (standin_number("reuse", 0) && !freed.address)
		freed = (struct allocation){ .address = address, .size = bytes };
	else
		(void)munmap(address, bytes);
}

struct allocation *cuda_allocation_add(const struct allocation *wanted)
{
	for (unsigned i = 0; i < ALLOCATIONS_MAX; i++)
		if (!cuda_allocations[i].address) {
			cuda_allocations[i] = *wanted;
			cuda_allocations[i].address = address_take(wanted->size);
			cuda_allocations[i].id = ++cuda_last_id;
			if (!cuda_allocations[i].address)
				return NULL;
			cuda_counts.n_allocations += wanted->kind == ALLOCATED;
			cuda_counts.n_imported += wanted->kind == IMPORTED;
			cuda_counts.n_reserved += wanted->kind == RESERVED;
			return &cuda_allocations[i];
		}
	return NULL;
}

void cuda_must_be_unused(const struct allocation *allocation)
{
	if (allocation->n_pins)
		standin_misused("GPU memory ends while libcufile uses it");
}

void cuda_allocation_remove(struct allocation *allocation)
{
	cuda_must_be_unused(allocation);
	if (allocation->bytes)
		(void)munmap(allocation->bytes, allocation->size + PAGE);
	address_release(allocation->address, allocation->size);
	allocation->address = NULL;
	cuda_counts.n_allocations -= allocation->kind == ALLOCATED;
	cuda_counts.n_imported -= allocation->kind == IMPORTED;
	cuda_counts.n_reserved -= allocation->kind == RESERVED;
}

static size_t pages(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static struct label *label_of(const struct allocation *allocation)
{
	return (struct label *)(void *)(allocation->bytes + pages(allocation->size));
}

static uint64_t new_tag(void)
{
	uint64_t tag = 0;

	return getrandom(&tag, sizeof(tag), 0) == sizeof(tag) ? tag : 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret_memory, size_t bytes)
{
	CUresult result = cuda_context_call("cuMemAlloc_v2");
	struct allocation wanted = { .size = pages(bytes),
				     .device = standin_current(),
				     .kind = ALLOCATED };
	struct allocation *allocation;

	if (result != CUDA_SUCCESS || !bytes)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	wanted.segment = shmget(IPC_PRIVATE, wanted.size + PAGE, IPC_CREAT | 0666);
	if (wanted.segment < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wanted.bytes = shmat(wanted.segment, NULL, 0);
	(void)shmctl(wanted.segment, IPC_RMID, NULL); /* it goes with its last user */
	if (wanted.bytes == (void *)-1)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wanted.size = bytes;
	*label_of(&wanted) = (struct label){
		.magic = MAGIC, .tag = new_tag(), .size = bytes, .device = wanted.device
	};
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_allocation_add(&wanted);
	if (allocation)
		*ret_memory = (uintptr_t)allocation->address;
	(void)pthread_mutex_unlock(&cuda_lock);
	if (!allocation)
		(void)shmdt(wanted.bytes);
	return allocation ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree_v2(CUdeviceptr memory)
{
	CUresult result = cuda_context_call("cuMemFree_v2");
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_start(memory, ALLOCATED);
	if (allocation) {
		label_of(allocation)->is_freed = true;
		cuda_allocation_remove(allocation);
	} else {
		result = CUDA_ERROR_INVALID_VALUE;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

char *standin_bytes(CUdeviceptr memory)
{
	struct allocation *allocation;
	char *bytes;

	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_memory(memory, 1);
	bytes = allocation ? allocation->bytes + (cuda_pointer(memory) - allocation->address)
			   : NULL;
	(void)pthread_mutex_unlock(&cuda_lock);
	return bytes;
}

char *standin_pin(CUdeviceptr memory, size_t bytes, int *ret_device, bool *ret_is_imported)
{
	struct allocation *allocation;
	char *place = NULL;

	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_memory(memory, bytes);
	if (allocation) {
		allocation->n_pins++;
		place = allocation->bytes + (cuda_pointer(memory) - allocation->address);
		*ret_device = allocation->device;
		*ret_is_imported = allocation->kind == IMPORTED;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return place;
}

void standin_unpin(CUdeviceptr memory)
{
	struct allocation *allocation;

	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_memory(memory, 1);
	if (!allocation || !allocation->n_pins)
		standin_misused("standin_unpin() of memory that is not pinned");
	allocation->n_pins--;
	(void)pthread_mutex_unlock(&cuda_lock);
}

/* ---- what memory is ---- */

CUresult cuPointerGetAttribute(void *ret_value, CUpointer_attribute attribute, CUdeviceptr memory)
{
	CUresult result = cuda_call("cuPointerGetAttribute");
	const struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	cuda_counts.n_asked++;
	allocation = cuda_find_memory(memory, 1);
	if (!allocation)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned *)ret_value = CU_MEMORYTYPE_DEVICE;
	else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		*(int *)ret_value = allocation->device;
	else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
		*(unsigned long long *)ret_value = allocation->id;
	else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
		*(bool *)ret_value = allocation->kind == ALLOCATED;
	else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
		*(unsigned long long *)ret_value = cuda_block_id(allocation);
	else
		result = CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr memory)
{
	CUresult result = cuda_context_call("cuMemGetAddressRange_v2");
	const struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_memory(memory, 1);
	if (allocation && ret_base)
		*ret_base = (uintptr_t)allocation->address;
	if (allocation && ret_bytes)
		*ret_bytes = allocation->size;
	(void)pthread_mutex_unlock(&cuda_lock);
	return allocation ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ---- IPC handles ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr base)
{
	CUresult result = cuda_context_call("cuIpcGetMemHandle");
	const struct allocation *allocation;
	struct ipc ipc = { .magic = MAGIC, .pid = getpid() };

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_start(base, ALLOCATED);
	if (allocation) {
		ipc.tag = label_of(allocation)->tag;
		ipc.size = allocation->size;
		ipc.segment = allocation->segment;
		*ret_handle = (CUipcMemHandle){ 0 };
		memcpy(ret_handle->reserved, &ipc, sizeof(ipc));
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return allocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The bytes of the handle's memory, or NULL: it is no handle, or the memory is no longer there. */
static char *segment_open(const struct ipc *ipc, struct allocation *wanted)
{
	struct shmid_ds about;
	const struct label *label;

	if (ipc->magic != MAGIC || shmctl(ipc->segment, IPC_STAT, &about) < 0 ||
	    about.shm_cpid != ipc->pid || (kill(ipc->pid, 0) < 0 && errno == ESRCH) || !ipc->size ||
	    ipc->size > SIZE_MAX - 2 * PAGE || about.shm_segsz != pages(ipc->size) + PAGE)
		return NULL;
	wanted->bytes = shmat(ipc->segment, NULL, 0);
	if (wanted->bytes == (void *)-1)
		return NULL;
	wanted->size = ipc->size;
	wanted->segment = ipc->segment;
	label = label_of(wanted);
	if (label->magic == MAGIC && label->tag == ipc->tag && label->size == ipc->size &&
	    !label->is_freed) {
		wanted->device = label->device;
		return wanted->bytes;
	}
	(void)shmdt(wanted->bytes);
	return NULL;
}

/* Opened once more: the same memory, as the documentation says. */
static struct allocation *find_open(const struct ipc *ipc)
{
	for (unsigned i = 0; i < ALLOCATIONS_MAX; i++)
		if (cuda_allocations[i].address && cuda_allocations[i].kind == IMPORTED &&
		    label_of(&cuda_allocations[i])->tag == ipc->tag)
			return &cuda_allocations[i];
	return NULL;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret_memory, CUipcMemHandle handle, unsigned int flags)
{
	CUresult result = cuda_context_call("cuIpcOpenMemHandle_v2");
	struct allocation wanted = { .kind = IMPORTED };
	struct allocation *allocation;
	struct ipc ipc;

	if (result != CUDA_SUCCESS || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	memcpy(&ipc, handle.reserved, sizeof(ipc));
	if (ipc.magic == MAGIC && ipc.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!segment_open(&ipc, &wanted))
		return CUDA_ERROR_INVALID_HANDLE;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = find_open(&ipc);
	if (allocation) {
		(void)shmdt(wanted.bytes);
	} else {
		allocation = cuda_allocation_add(&wanted);
		if (!allocation)
			(void)shmdt(wanted.bytes);
	}
	if (allocation) {
		allocation->n_opened++;
		*ret_memory = (uintptr_t)allocation->address;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return allocation ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr memory)
{
	CUresult result = cuda_context_call("cuIpcCloseMemHandle");
	struct allocation *allocation;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_start(memory, IMPORTED);
	if (!allocation)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (--allocation->n_opened == 0)
		cuda_allocation_remove(allocation);
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}
