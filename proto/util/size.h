/*
 * Sizes as people write them: bytes, or with K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024; any
 * case).  KB and the like are refused: they are ambiguous, some people mean 1000.
 */
#ifndef DSAIO_PROTO_UTIL_SIZE_H
#define DSAIO_PROTO_UTIL_SIZE_H

#include <stdint.h>

/* "400M" -> 419430400.  Returns 0, -EINVAL (no number, or no such suffix) or -ERANGE. */
int size_parse(const char *text, uint64_t *ret_bytes);

#define SIZE_TEXT_BYTES 32

/* Writes into text, of SIZE_TEXT_BYTES, and returns it: "512 B", "1.50 GiB".  behind: follows the unit, as "/s"
   of a rate. */
const char *size_format(char *text, double bytes, const char *behind);

/* The same as an argument of a message; valid up to the end of the block. */
#define SIZE_TEXT(bytes) size_format((char[SIZE_TEXT_BYTES]){ "" }, (double)(bytes), "")

/* The decimals with which a number has three digits that count: 1.23, 12.3, 123. */
static inline int size_decimals(double value)
{
	return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

#endif
