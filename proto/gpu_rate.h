/*
 * Classes of ops on GPU memory by length, and the limits on their bytes per second and errnos: for GpuRate
 * (dsaio.proto).
 */
#ifndef DSAIO_PROTO_GPU_RATE_H
#define DSAIO_PROTO_GPU_RATE_H

#include <stdint.h>

/* The numbers are those of GpuRate. */
enum gpu_class { GPU_CLASS_1M, GPU_CLASS_16M, GPU_CLASS_LONGER, N_GPU_CLASSES };

static inline enum gpu_class gpu_class_of(uint64_t len)
{
	return len <= UINT64_C(1) << 20	  ? GPU_CLASS_1M
	       : len <= UINT64_C(1) << 24 ? GPU_CLASS_16M
					  : GPU_CLASS_LONGER;
}

/* A rate above it is nonsense: no memory is that fast. */
#define GPU_RATE_MAX (UINT64_C(1) << 50)
#define GPU_RATE_ERROR_MAX 4095u /* the kernel's errnos */

#endif
