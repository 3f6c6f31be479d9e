/*
 * Transfers between files and GPU memory by cuFile (GPUDirect Storage).
 *
 * A client exports an allocation by an IPC handle or a descriptor.  The daemon maps it on the GPU that the
 * client names by its UUID, registers it with cuFile once, and never accesses its bytes itself.  The
 * mapping is a region of the kind REGION_GPU.  Handles that are sent twice, by one client or
 * by several, are one mapping.  No documentation says that the driver never gives the bytes of a handle to
 * another allocation, while the memory of the first one is still mapped here.  So handles are the same only
 * if the client names the same buffer id, too.
 *
 * libcuda and libcufile are opened at the first import (gds_driver.h).  Any of their calls may hang.  So
 * all calls are for worker threads, hold no lock, and a call that hangs holds its worker only.
 *
 * A transfer is cuFileRead() or cuFileWrite() of a part of the block, and short ones are continued.
 * cuFile does writes of parts of 4 KiB by writing whole ones, with what it has read before around the
 * range.  That would undo what others write there meanwhile.  So such parts are copied from the GPU,
 * and written by pwrite(2): those of a buffered block to the buffered description.
 *
 * A descriptor that a client sends as GPU memory goes to the driver as it is.  CUDA documents no type of
 * file for it.  So a check by fstat(2) or by the link of /proc/self/fd could refuse what a driver exports, and
 * the driver has to refuse what it did not export, which it does by an error.  Its call, and the close,
 * may hang in a file system of the client's, as calls on files may: on worker threads of its user.
 *
 * A client asks before the first transfer of a file whether cuFile takes it (gds_register()), and else copies by
 * itself.  Blocks of a file that is not registered fail before any byte is copied.
 */
#ifndef DSAIO_DAEMON_ENGINE_GDS_H
#define DSAIO_DAEMON_ENGINE_GDS_H

#include "daemon/base/error.h"
#include "daemon/object/region.h"
#include "proto/util/cuda.h"

#include <stdbool.h>
#include <stdint.h>

struct block;
struct gds_gpu;
struct gds_memory;
struct target;

/* How a client names an allocation. */
struct gds_handle {
	char uuid[sizeof(CUuuid)]; /* of its GPU */
	bool is_ipc;
	char ipc[CU_IPC_HANDLE_SIZE]; /* is_ipc: of cuIpcGetMemHandle() */
	int fd;			      /* else: of cuMemExportToShareableHandle() */
	uint64_t size_bytes;	      /* as the client says; checked against the allocation */
	/* is_ipc: libcuda's number of it in the client's process, as the client says; 0: not known */
	uint64_t buffer_id;
};

/* Paths of the libraries, borrowed; NULL: the loader finds them.  Call it once, before any thread. */
void gds_init(const char *cuda_library, const char *cufile_library);

/* At the daemon's exit, when no import and no transfer is left: closes cuFile, and logs a failure.  Returns
   false if that hangs. */
bool gds_end(void);

/*
 * Maps an allocation.  Takes the handle's descriptor, also on error.  Call it only after a probe has
 * found the GPU and cuFile usable (gpu_probe.h).  Worker threads.  Returns 0 or
 *   -EOPNOTSUPP  the libraries do not work (the same message each time), or cuFile refuses the memory
 *   -ETIMEDOUT   the driver does not answer
 *   -ENODEV      no GPU has this UUID, or the memory is on another one
 *   -EFAULT      the handle does not open: it is forged, or the memory is no longer there
 *   -EACCES      it may not be opened
 *   -ERANGE      the allocation is shorter, or much longer, or was imported with another size
 *   -ENOMEM, -EIO
 */
int gds_import(const struct gds_handle *handle, struct gds_memory **ret_memory,
	       struct region *ret_region, struct error *error);
/* No block uses it any more.  The last one of several imports unmaps it.  Worker threads. */
void gds_release(struct gds_memory *memory);
/* The GPU that the memory is on, and whose context has it mapped. */
const struct gds_gpu *gds_memory_gpu(const struct gds_memory *memory);

/*
 * Registers a file with cuFile, until it is closed (target->on_close).  Fine if it is registered already.  One
 * thread at a time for one file.
 * uuid: of any GPU: the call needs a context.  As gds_import(), only after a probe.  Worker threads.
 * Returns 0, -EOPNOTSUPP (cuFile does not take the file, or the libraries do not work), -ETIMEDOUT, -ENODEV,
 * -ENOMEM or -EIO.
 */
int gds_register(struct target *target, const char uuid[sizeof(CUuuid)], struct error *error);

/* Carries out a read or write of the block, whose region is a REGION_GPU.  Worker threads. */
void gds_transfer(struct block *block);

#endif
