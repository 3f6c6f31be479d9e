/*
 * Sizes as people write them: bytes, or with K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024; any
 * case).  KB and the like are refused: they are ambiguous, some people mean 1000.
 */
#ifndef DSAIO_PROTO_UTIL_SIZE_H
#define DSAIO_PROTO_UTIL_SIZE_H

#include <stdint.h>

/* "400M" -> 419430400.  Returns 0, -EINVAL (no number, or no such suffix) or -ERANGE. */
int size_parse(const char *text, uint64_t *ret_bytes);

#endif
