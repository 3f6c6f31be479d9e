/*
 * libcuda and libcufile in the daemon, which the engine's calls on GPU memory use (gds.h).
 *
 * They are opened once, at the first use, by a thread of their own with a large stack.  Workers wait for
 * that thread, at most GDS_START_MSEC.  If a library fails or does not return, each later caller gets the
 * same message at once.  Only after -ENOMEM is it tried again.  The same holds for the context of each
 * GPU, which takes some of the GPU's memory and is made when its first memory is imported.  So made-up handles make
 * at most the contexts that a program with memory on each GPU makes.
 *
 * After that the daemon makes no process: the libraries do not survive fork(2).
 *
 * Worker threads, except gds_driver_init() and gds_driver_close().
 */
#ifndef DSAIO_DAEMON_ENGINE_GDS_DRIVER_H
#define DSAIO_DAEMON_ENGINE_GDS_DRIVER_H

#include "daemon/base/error.h"
#include "daemon/engine/gpu_library.h"

#include <stdbool.h>
#include <stdint.h>

#define GDS_START_MSEC 30000u /* as of the probe, which has seen that they work */
#define GDS_END_MSEC 2000u    /* the daemon's exit waits so long: a guess */

/* A GPU.  Its context exists once gds_enter_first() has succeeded. */
struct gds_gpu {
	CUuuid uuid;
	int ordinal;
	CUcontext context;
};

/* Paths, borrowed; NULL: the loader finds them.  limit_msec: GDS_START_MSEC.  Before any thread. */
void gds_driver_init(const char *cuda_library, const char *cufile_library, uint32_t limit_msec);

/*
 * Starts the libraries, if they are not there, and finds the GPU.  Returns 0, -EOPNOTSUPP (they do
 * not work), -ETIMEDOUT (they do not return), -ENODEV (no such GPU) or -ENOMEM.
 */
int gds_driver_gpu(const char uuid[sizeof(CUuuid)], const struct gds_gpu **ret_gpu,
		   struct error *error);

/* Valid after gds_driver_gpu() has succeeded once. */
extern struct gpu_cuda gds_cuda;
extern struct gpu_cufile gds_cufile;

/*
 * Closes cuFile, if it was opened: memory and files have been released, and no call is under way.  Call it
 * last, in the main thread.  Returns 0, -ETIMEDOUT (it does not return within GDS_END_MSEC) or the error.
 */
int gds_driver_close(struct error *error);

/* Makes the GPU's context that of the thread.  Returns 0 or the error. */
int gds_enter(const struct gds_gpu *gpu, struct error *error);
/* The same, and makes the context if it is not there.  Returns 0, -ETIMEDOUT, -ENOMEM or the driver's error. */
int gds_enter_first(const struct gds_gpu *gpu, struct error *error);
void gds_leave(void);

/* Fill in the error of a call, such as "cuMemMap()", and return its code, or 0 for a success. */
int gds_cuda_result(const char *call, CUresult result, struct error *error);
int gds_cufile_result(const char *call, CUfileError_t result, struct error *error);
/* The same for a call of that function. */
#define GDS_CUDA(error, name, ...) gds_cuda_result(#name "()", gds_cuda.name(__VA_ARGS__), error)
#define GDS_CUFILE(error, name, ...) \
	gds_cufile_result(#name "()", gds_cufile.name(__VA_ARGS__), error)
/* The errno, negative, and the name of a CUfileOpError. */
int gds_cufile_errno(CUfileOpError result);
const char *gds_cufile_name(CUfileOpError result);

#endif
