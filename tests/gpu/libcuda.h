/*
 * The stand-in for libcuda, for tests that load it: calls of programs with GPU memory, and a look inside.
 */
#ifndef DSAIO_TESTS_GPU_LIBCUDA_H
#define DSAIO_TESTS_GPU_LIBCUDA_H

#include "proto/util/cuda.h"

#include <stdint.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))

/* The program's own. */
STANDIN_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ret_memory, size_t bytes);
STANDIN_EXPORT CUresult cuMemFree_v2(CUdeviceptr memory);

struct standin_cuda {
	unsigned n_contexts, n_streams, n_registered; /* now */
	unsigned n_current;			      /* contexts on this thread's stack */
	uint64_t n_copies, copied_bytes;
	uint64_t n_pageable; /* copies whose host memory was not registered */
};
STANDIN_EXPORT struct standin_cuda standin_counts(void);

/* The bytes of GPU memory, for the host; NULL: no such memory. */
STANDIN_EXPORT char *standin_bytes(CUdeviceptr memory);

#endif
