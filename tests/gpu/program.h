/*
 * A program with GPUs: what tests of the library on the stand-in for libcuda share.
 */
#ifndef DSAIO_TESTS_GPU_PROGRAM_H
#define DSAIO_TESTS_GPU_PROGRAM_H

#include "tests/gpu/program_gpu.h"

static struct standin_cuda start_counts;

/* Opens libcuda on a host with such GPUs. */
static inline void gpu_open_as(const char *standin)
{
	CHECK_SYS(setenv("STANDIN", standin, 1));
	gpu_open();
}

static inline void rig_gpu(struct rig *rig, const char *standin)
{
	gpu_open_as(standin);
	rig_open(rig, NULL);
	start_counts = gpu.look.standin_counts();
}

/* No context, stream, event or registration of the library's is left when the client is gone. */
static inline void rig_gone(struct rig *rig)
{
	struct standin_cuda now;

	rig_close(rig);
	*rig = (struct rig)RIG_NONE;
	now = gpu.look.standin_counts();
	CHECK_EQ(now.n_contexts, atomic_load(&n_own));
	CHECK_EQ(now.n_streams, 0);
	CHECK_EQ(now.n_events, 0);
	CHECK_EQ(now.n_races, 0);
	CHECK_EQ(now.n_registered, 0);
	CHECK_EQ(now.n_current, start_counts.n_current);
}

#endif
