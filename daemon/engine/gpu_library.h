/*
 * libcuda and libcufile: the functions that the daemon calls, and how it opens them.
 *
 * The process of the probe (gpu_probe.h) and the daemon itself (gds_driver.h) open them alike.  So a library that
 * lacks one of the functions is refused by the probe, and not by the first import.
 *
 * They are never closed, because they have threads.  A call may hang, also that which opens them.
 */
#ifndef DSAIO_DAEMON_ENGINE_GPU_LIBRARY_H
#define DSAIO_DAEMON_ENGINE_GPU_LIBRARY_H

#include "daemon/base/error.h"
#include "daemon/engine/cufile.h"
#include "proto/util/cuda.h"

struct gpu_cuda {
	CUDA_FUNCTIONS(FUNCTION_POINTER)
	CUDA_IMPORT_FUNCTIONS(FUNCTION_POINTER)
};
struct gpu_cufile {
	CUFILE_FUNCTIONS(FUNCTION_POINTER)
	CUFILE_MOVE_FUNCTIONS(FUNCTION_POINTER)
};

/* path: NULL: the loader finds it.  Return 0 or -EOPNOTSUPP: it is not there, or lacks a function. */
int gpu_library_cuda(const char *path, struct gpu_cuda *ret_cuda, struct error *error);
int gpu_library_cufile(const char *path, struct gpu_cufile *ret_cufile, struct error *error);

#endif
