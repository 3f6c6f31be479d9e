#include "daemon/engine/gds.h"

#include "daemon/base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/gds_driver.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* cuFile writes whole ones: see gds.h. */
#define CUFILE_UNIT 4096u
/* The most bytes that are copied at once: bounds memory. */
#define COPY_BYTES (1u << 20)

/* ---- files ---- */

/* No transfer of the file is under way. */
static void file_deregister(struct target *target)
{
	gds_cufile.cuFileHandleDeregister(atomic_exchange(&target->cufile, NULL));
}

/* In a GPU's context. */
static int file_register(struct target *target, struct error *error)
{
	CUfileDescr_t description = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD,
				      .handle = { .fd = target->fd } };
	CUfileHandle_t handle;
	int r = GDS_CUFILE(error, cuFileHandleRegister, &handle, &description);

	if (r < 0)
		return r;
	target->on_close = file_deregister;
	atomic_store(&target->cufile, handle);
	return 0;
}

int gds_register(struct target *target, const char uuid[sizeof(CUuuid)], struct error *error)
{
	const struct gds_gpu *gpu;
	int r = gds_driver_gpu(uuid, &gpu, error);

	if (r == 0)
		r = gds_enter_first(gpu, error);
	if (r < 0)
		return r;
	r = atomic_load(&target->cufile) ? 0 : file_register(target, error);
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

static uint32_t piece_of(const struct block *block)
{
	return block->len < COPY_BYTES ? block->len : COPY_BYTES;
}

static int64_t read_once(const struct block *block, CUfileHandle_t handle, struct error *error)
{
	ssize_t n;

	errno = 0;
	n = gds_cufile.cuFileRead(handle, block->region->base, block->len, (off_t)block->off,
				  (off_t)block->region_off);
	return cufile_result("cuFileRead()", block, n, errno, error);
}

static int64_t write_copied(const struct block *block, int fd, uint32_t len, struct error *error)
{
	const uint32_t align = block->target->memory_align;
	const CUdeviceptr from = (uintptr_t)block->region->base + block->region_off;
	_cleanup_(freep) void *memory = NULL;
	ssize_t n;
	int r;

	if (posix_memalign(&memory, align > CUFILE_UNIT ? align : CUFILE_UNIT, len))
		return error_set(error, -ENOMEM, "a copy of %" PRIu32 " bytes", len);
	r = GDS_CUDA(error, cuMemcpyDtoH_v2, memory, from, len);
	if (r < 0)
		return r;
	n = pwrite(fd, memory, len, (off_t)block->off);
	return n < 0 ? error_set(error, -errno, "pwrite()") : n;
}

static int64_t write_once(const struct block *block, CUfileHandle_t handle, struct error *error)
{
	const uint32_t lead = (uint32_t)(block->off % CUFILE_UNIT);
	const uint32_t to_unit = lead ? CUFILE_UNIT - lead : block->len;
	const uint32_t head = to_unit < block->len ? to_unit : block->len;
	ssize_t n;

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
	const CUfileHandle_t handle = atomic_load(&block->target->cufile);
	int64_t result;
	int r;

	if (!handle)
		return error_set_plain(error, -EOPNOTSUPP,
				       "the client has not asked whether cuFile takes the file");
	r = gds_enter(gds_memory_gpu(block->region->owner), error);
	if (r < 0)
		return r;
	result = block_is_write(block) ? write_once(block, handle, error)
				       : read_once(block, handle, error);
	gds_leave();
	return result;
}

void gds_transfer(struct block *block)
{
	static struct log_limit log_limit;
	struct error error;

	do
		block->result = transfer_once(block, &error);
	while (block_must_continue(block));
	if (block->result >= 0)
		return;
	/* The client gets only the errno. */
	log_client(&log_limit, "file %s: %s of %" PRIu32 " bytes at %" PRIu64 ": %s",
		   block->target->about.file, block_is_write(block) ? "write" : "read", block->len,
		   block->off, error.text);
}
