#include "daemon/engine/gds.h"

#include "daemon/base/hung.h"
#include "daemon/base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/gds_driver.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* cuFile writes whole ones: see gds.h. */
#define CUFILE_UNIT 4096u
/* The most bytes that are copied at once: bounds memory. */
#define COPY_BYTES (1u << 20)

static struct {
	pthread_mutex_t lock; /* held for no call */
	pthread_cond_t registered;
	struct log_limit log_limit; /* under lock */
} files = { .lock = PTHREAD_MUTEX_INITIALIZER, .registered = PTHREAD_COND_INITIALIZER };

/* target->cufile is its address while a thread registers the file. */
static char is_registering;

/* ---- files ---- */

/* No transfer of the file is under way. */
static void file_deregister(struct target *target)
{
	/* relaxed: the last unreference of the file comes behind all use of it */
	CUfileHandle_t handle = atomic_exchange_explicit(&target->cufile, NULL,
							 memory_order_relaxed);

	if (handle)
		gds_cufile.cuFileHandleDeregister(handle);
}

/* The handle; NULL: the file is not registered. */
static CUfileHandle_t file_registered(const struct target *target)
{
	/* acquire: pairs with the release in file_set() */
	void *handle = atomic_load_explicit(&target->cufile, memory_order_acquire);

	return handle == &is_registering ? NULL : handle;
}

/*
 * The handle, or NULL if the caller has to register the file.  Waits while another thread does; that
 * is of the same client.
 */
static CUfileHandle_t file_handle(struct target *target)
{
	void *handle = file_registered(target);

	if (handle)
		return handle;
	(void)pthread_mutex_lock(&files.lock);
	/* relaxed, as all below: it changes under the lock */
	while ((handle = atomic_load_explicit(&target->cufile, memory_order_relaxed)) ==
	       &is_registering)
		(void)pthread_cond_wait(&files.registered, &files.lock);
	if (!handle)
		atomic_store_explicit(&target->cufile, (void *)&is_registering,
				      memory_order_relaxed);
	(void)pthread_mutex_unlock(&files.lock);
	return handle;
}

static void file_set(struct target *target, CUfileHandle_t handle)
{
	(void)pthread_mutex_lock(&files.lock);
	/* release: pairs with the acquire in file_registered(): a thread that sees the handle may use it */
	atomic_store_explicit(&target->cufile, handle, memory_order_release);
	(void)pthread_cond_broadcast(&files.registered);
	(void)pthread_mutex_unlock(&files.lock);
}

/* In a GPU's context. */
static int file_register(struct target *target, CUfileHandle_t *ret_handle, struct error *error)
{
	CUfileDescr_t description = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD,
				      .handle = { .fd = target->fd } };
	CUfileHandle_t handle = file_handle(target);
	int r = 0;

	if (!handle) {
		r = gds_cufile_result("cuFileHandleRegister()",
				      gds_cufile.cuFileHandleRegister(&handle, &description),
				      error);
		if (r < 0)
			handle = NULL;
		else
			target->on_close = file_deregister;
		file_set(target, handle);
	}
	*ret_handle = handle;
	return r;
}

int gds_register(struct target *target, const char uuid[sizeof(CUuuid)], struct error *error)
{
	const struct gds_gpu *gpu;
	CUfileHandle_t handle;
	int r = gds_driver_gpu(uuid, &gpu, error);

	if (r == 0)
		r = gds_enter_first(gpu, error);
	if (r < 0)
		return r;
	r = file_register(target, &handle, error);
	gds_leave();
	/* Errors of the driver and lack of memory may pass.  All others are the file's. */
	return r == 0 || r == -ENOMEM || r == -EIO ? r : (error->code = -EOPNOTSUPP);
}

/* ---- transfers, in the GPU's context ---- */

/* The result of cuFileRead() or cuFileWrite(): bytes, or an errno.  error_number: errno behind it. */
static int64_t cufile_result(const char *call, const struct block *block, ssize_t n,
			     int error_number, struct error *error)
{
	if (n >= 0 && (size_t)n <= block->len)
		return n;
	if (n == -1 && error_number > 0 && error_number < 4096)
		return error_set(error, -error_number, "%s", call);
	if (n < -1 && n >= -(ssize_t)INT32_MAX)
		return error_set_plain(error, gds_cufile_errno((CUfileOpError)-n), "%s: %s (%d)",
				       call, gds_cufile_name((CUfileOpError)-n), (int)-n);
	return error_set_plain(error, -EIO, "%s: returned %zd for %" PRIu32 " bytes", call, n,
			       block->len);
}

static CUdeviceptr memory_of(const struct block *block)
{
	return (uintptr_t)block->region->base + block->region_off;
}

static uint32_t piece_of(const struct block *block)
{
	return block->len < COPY_BYTES ? block->len : COPY_BYTES;
}

/* A registration within a transfer moves no bytes: it is another call for reports. */
static int block_register(const struct block *block, CUfileHandle_t *ret_handle,
			  struct error *error)
{
	struct target *target = (struct target *)(uintptr_t)block->target; /* gets its handle */
	const char *was;
	int r;

	*ret_handle = file_registered(target);
	if (*ret_handle)
		return 0;
	was = hung_next("cuFileHandleRegister", false);
	r = file_register(target, ret_handle, error);
	if (was)
		(void)hung_next(was, true);
	return r;
}

static int64_t read_once(const struct block *block, struct error *error)
{
	CUfileHandle_t handle;
	ssize_t n;
	int r = block_register(block, &handle, error);

	if (r < 0)
		return r;
	errno = 0;
	n = gds_cufile.cuFileRead(handle, block->region->base, block->len, (off_t)block->off,
				  (off_t)block->region_off);
	return cufile_result("cuFileRead()", block, n, errno, error);
}

static int64_t write_copied(const struct block *block, int fd, uint32_t len, struct error *error)
{
	const uint32_t align = block->target->memory_align;
	_cleanup_(freep) void *memory = NULL;
	ssize_t n;
	int r;

	if (posix_memalign(&memory, align > CUFILE_UNIT ? align : CUFILE_UNIT, len))
		return error_set(error, -ENOMEM, "a copy of %" PRIu32 " bytes", len);
	r = gds_cuda_result("cuMemcpyDtoH()",
			    gds_cuda.cuMemcpyDtoH_v2(memory, memory_of(block), len), error);
	if (r < 0)
		return r;
	n = pwrite(fd, memory, len, (off_t)block->off);
	return n < 0 ? error_set(error, -errno, "pwrite()") : n;
}

static int64_t write_once(const struct block *block, struct error *error)
{
	const uint32_t lead = (uint32_t)(block->off % CUFILE_UNIT);
	const uint32_t to_unit = lead ? CUFILE_UNIT - lead : block->len;
	const uint32_t head = to_unit < block->len ? to_unit : block->len;
	CUfileHandle_t handle;
	ssize_t n;
	int r;

	/* Before anything is written: a write to a file that cuFile refuses changes none of its bytes. */
	r = block_register(block, &handle, error);
	if (r < 0)
		return r;
	if (block->is_buffered)
		return write_copied(block, target_buffered_fd(block->target), piece_of(block),
				    error);
	if (lead || block->len < CUFILE_UNIT)
		return write_copied(block, block->target->fd, head, error);
	errno = 0;
	n = gds_cufile.cuFileWrite(handle, block->region->base, block->len & ~(CUFILE_UNIT - 1),
				   (off_t)block->off, (off_t)block->region_off);
	return cufile_result("cuFileWrite()", block, n, errno, error);
}

static int64_t transfer_once(const struct block *block, struct error *error)
{
	int64_t result;
	int r = gds_enter(gds_memory_gpu(block->region->owner), error);

	if (r < 0)
		return r;
	result = block_is_write(block) ? write_once(block, error) : read_once(block, error);
	gds_leave();
	return result;
}

void gds_transfer(struct block *block)
{
	struct error error;

	do
		block->result = transfer_once(block, &error);
	while (block_must_continue(block));
	if (block->result >= 0)
		return;
	/* The client gets only the errno. */
	(void)pthread_mutex_lock(&files.lock);
	log_client(&files.log_limit, "file %s: %s of %" PRIu32 " bytes at %" PRIu64 ": %s",
		   block->target->about.file, block_is_write(block) ? "write" : "read", block->len,
		   block->off, error.text);
	(void)pthread_mutex_unlock(&files.lock);
}
