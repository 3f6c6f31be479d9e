/*
 * The stand-in for libcufile, for tests that load it: a look inside.
 */
#ifndef DSAIO_TESTS_GPU_LIBCUFILE_H
#define DSAIO_TESTS_GPU_LIBCUFILE_H

#include "daemon/engine/cufile.h"
#include "tests/gpu/libcuda.h"

struct standin_cufile {
	unsigned n_files, n_buffers; /* registered now */
	unsigned n_running;	     /* transfers, now */
	uint64_t n_reads, n_writes;
	uint64_t
		n_unaligned_writes; /* which changed bytes outside of their range, if another wrote there */
	uint64_t n_unregistered; /* transfers from or to memory that is not registered */
};
STANDIN_EXPORT struct standin_cufile standin_cufile_counts(void);

/* The vendor's functions: LIST(a list of them, the field that has them, library). */
#define GPU_LISTS(LIST)                            \
	LIST(CUDA_FUNCTIONS, find, cuda)           \
	LIST(CUDA_COPY_FUNCTIONS, copy, cuda)      \
	LIST(CUDA_EXPORT_FUNCTIONS, export, cuda)  \
	LIST(CUDA_IMPORT_FUNCTIONS, map, cuda)     \
	LIST(STANDIN_PROGRAM_FUNCTIONS, own, cuda) \
	LIST(CUFILE_FUNCTIONS, driver, cufile)     \
	LIST(CUFILE_MOVE_FUNCTIONS, move, cufile)

#endif
