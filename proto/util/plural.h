/*
 * "1 file", "2 files": the "s" behind a noun in a message.
 */
#ifndef DSAIO_PROTO_UTIL_PLURAL_H
#define DSAIO_PROTO_UTIL_PLURAL_H

#include <stdint.h>

static inline const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

#endif
