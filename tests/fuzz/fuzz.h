/*
 * Shared by the fuzz targets.  Each calls the one function that reads what a stranger sent; what
 * must hold whatever comes is asserted, memory and arithmetic errors are the sanitizers' to find.
 */
#ifndef DSAIO_TESTS_FUZZ_FUZZ_H
#define DSAIO_TESTS_FUZZ_FUZZ_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The next n bytes, or zeros behind the end. */
static inline void take_bytes(const uint8_t **data, size_t *size, void *ret_bytes, size_t n)
{
	size_t have = n < *size ? n : *size;

	memset(ret_bytes, 0, n);
	memcpy(ret_bytes, *data, have);
	*data += have;
	*size -= have;
}

static inline uint32_t take_u32(const uint8_t **data, size_t *size)
{
	uint32_t value;

	take_bytes(data, size, &value, sizeof(value));
	return value;
}

#endif
