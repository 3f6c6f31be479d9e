#include "client/lib/api/sized.h"

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* No version's structs are larger: a guess.  A size that was not set must not be believed. */
#define SIZED_MAX_BYTES 4096u

/*
 * The first version's last field and size never change.  Its layout had no holes.  Where a later version adds a
 * field, the assertion of sizeof needs that version's.
 */
#define BYTES_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)NULL)->last))
#define SIZED(kind, type, last, bytes)                                                             \
	static_assert(sizeof(struct type) == (bytes) && BYTES_UP_TO(struct type, last) == (bytes), \
		      #type);                                                                      \
	const struct sized kind = { "struct " #type, sizeof(struct type), (bytes) }
SIZED(SIZED_CONNECT_OPTIONS, dsaio_connect_options, flags, 40);
SIZED(SIZED_PROFILE, dsaio_profile, zero, 32);
SIZED(SIZED_HANDLE_OPTIONS, dsaio_handle_options, spin_usec, 48);
SIZED(SIZED_GRANTED, dsaio_granted, queue_depth, 16);
SIZED(SIZED_ALLOC_OPTIONS, dsaio_alloc_options, wait_usec, 24);
SIZED(SIZED_MEMORY, dsaio_memory, fd_off, 40);
SIZED(SIZED_OPEN_OPTIONS, dsaio_open_options, mode, 16);
SIZED(SIZED_CREATE_OPTIONS, dsaio_create_options, zero, 32);
SIZED(SIZED_STAT, dsaio_stat, zero, 48);
SIZED(SIZED_IO, dsaio_io, zero, 80);
SIZED(SIZED_COMPLETION, dsaio_completion, zero, 40);

int sized_check(const char *function, const struct sized *kind, size_t bytes)
{
	if (bytes < kind->first_bytes || bytes > SIZED_MAX_BYTES)
		return error_fail(-EINVAL,
				  "%s: the size of the %s is %zu: set it to sizeof(%s), in this "
				  "version %zu",
				  function, kind->name, bytes, kind->name, kind->size_bytes);
	return 0;
}

static bool is_zero(const void *bytes, size_t len)
{
	const unsigned char *b = bytes;

	for (size_t i = 0; i < len; i++)
		if (b[i])
			return false;
	return true;
}

int element_read(const char *function, const struct sized *kind, const void *given, size_t bytes,
		 void *ret)
{
	const char *from = given;

	if (bytes > kind->size_bytes && !is_zero(from + kind->size_bytes, bytes - kind->size_bytes))
		return error_fail(-E2BIG,
				  "%s: the %s has %zu bytes, and fields behind the %zu bytes that "
				  "this library (version %s) knows are set: leave them zero, or "
				  "install a newer library",
				  function, kind->name, bytes, kind->size_bytes, DSAIO_VERSION);
	memcpy(ret, given, bytes < kind->size_bytes ? bytes : kind->size_bytes);
	return 0;
}

void element_write(const struct sized *kind, const void *ours, void *ret_given, size_t bytes)
{
	size_t known = bytes < kind->size_bytes ? bytes : kind->size_bytes;

	memcpy(ret_given, ours, known);
	memset((char *)ret_given + known, 0, bytes - known);
}

int sized_read(const char *function, const struct sized *kind, const void *given, void *ret)
{
	const size_t bytes = *(const size_t *)given; /* each begins with it */
	int r = sized_check(function, kind, bytes);

	if (r == 0)
		r = element_read(function, kind, given, bytes, ret);
	if (r == 0)
		*(size_t *)ret = kind->size_bytes;
	return r;
}

int sized_write(const char *function, const struct sized *kind, const void *ours, void *ret_given)
{
	const size_t bytes = *(const size_t *)ret_given;
	int r = sized_check(function, kind, bytes);

	if (r < 0)
		return r;
	element_write(kind, ours, ret_given, bytes);
	*(size_t *)ret_given = bytes; /* its own stays */
	return 0;
}

int fail_unknown(const char *function, const char *field, uint64_t bits)
{
	return error_fail(-E2BIG,
			  "%s: %s: %#" PRIx64 " is not possible here in this version (%s) of the "
			  "library: leave it out",
			  function, field, bits, DSAIO_VERSION);
}
