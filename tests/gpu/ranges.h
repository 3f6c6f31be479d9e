/*
 * Ranges of a file and of GPU memory, which tests read and write by each path.
 */
#ifndef DSAIO_TESTS_GPU_RANGES_H
#define DSAIO_TESTS_GPU_RANGES_H

#include "tests/harness.h"

static const struct {
	const char *what;
	uint64_t off, len, misalign;
} ranges[] = {
	{ "a byte", 0, 1, 0 },
	{ "an aligned block", 4096, 4096, 0 },
	{ "an aligned block at an odd address", 8192, 65536, 7 },
	{ "odd offset, length and address", 12345, 54321, 7 },
	{ "1 MiB", 0, MIB, 0 },
	{ "many blocks, more than all slots, odd", 511, 40 * MIB + 13, 3 },
};

#endif
