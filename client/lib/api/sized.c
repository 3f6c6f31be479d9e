#include "client/lib/api/sized.h"

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* No version's structs are larger: a guess.  A size that was not set must not be believed. */
#define SIZED_MAX_BYTES 4096u

#define BYTES_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)NULL)->last))

/* The second number never changes: it names the first version's last field. */
const struct sized SIZED_PROFILE = {
	"struct dsaio_profile",
	sizeof(struct dsaio_profile),
	BYTES_UP_TO(struct dsaio_profile, zero),
};
const struct sized SIZED_GRANTED = {
	"struct dsaio_granted",
	sizeof(struct dsaio_granted),
	BYTES_UP_TO(struct dsaio_granted, queue_depth),
};
const struct sized SIZED_CONNECT_OPTIONS = {
	"struct dsaio_connect_options",
	sizeof(struct dsaio_connect_options),
	BYTES_UP_TO(struct dsaio_connect_options, flags),
};
const struct sized SIZED_OPEN_OPTIONS = {
	"struct dsaio_open_options",
	sizeof(struct dsaio_open_options),
	BYTES_UP_TO(struct dsaio_open_options, mode),
};
const struct sized SIZED_MEMORY = {
	"struct dsaio_memory",
	sizeof(struct dsaio_memory),
	BYTES_UP_TO(struct dsaio_memory, fd_off),
};
const struct sized SIZED_ALLOC_OPTIONS = {
	"struct dsaio_alloc_options",
	sizeof(struct dsaio_alloc_options),
	BYTES_UP_TO(struct dsaio_alloc_options, wait_usec),
};
const struct sized SIZED_HANDLE_OPTIONS = {
	"struct dsaio_handle_options",
	sizeof(struct dsaio_handle_options),
	BYTES_UP_TO(struct dsaio_handle_options, spin_usec),
};

const struct sized SIZED_IO = {
	"struct dsaio_io",
	sizeof(struct dsaio_io),
	BYTES_UP_TO(struct dsaio_io, zero),
};
const struct sized SIZED_COMPLETION = {
	"struct dsaio_completion",
	sizeof(struct dsaio_completion),
	BYTES_UP_TO(struct dsaio_completion, zero),
};

/* The layouts of the first version, without holes: a field that is added changes the first number alone. */
#define LAYOUT(type, bytes, last)                                                                  \
	static_assert(sizeof(struct type) == (bytes) && BYTES_UP_TO(struct type, last) == (bytes), \
		      #type)
LAYOUT(dsaio_connect_options, 40, flags);
LAYOUT(dsaio_profile, 32, zero);
LAYOUT(dsaio_handle_options, 48, spin_usec);
LAYOUT(dsaio_granted, 16, queue_depth);
LAYOUT(dsaio_alloc_options, 24, wait_usec);
LAYOUT(dsaio_memory, 40, fd_off);
LAYOUT(dsaio_open_options, 16, mode);
LAYOUT(dsaio_io, 80, zero);
LAYOUT(dsaio_completion, 40, zero);

int sized_check(const char *function, const struct sized *kind, size_t bytes)
{
	if (bytes < kind->first_bytes || bytes > SIZED_MAX_BYTES)
		return error_fail(-EINVAL,
				  "%s: the size of the %s is %zu: set it to sizeof(%s), in this "
				  "version %zu",
				  function, kind->name, bytes, kind->name, kind->size_bytes);
	return 0;
}

/* The size that the program has set: each begins with it. */
static size_t size_get(const void *given)
{
	size_t bytes;

	memcpy(&bytes, given, sizeof(bytes));
	return bytes;
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
	size_t bytes = size_get(given);
	int r = sized_check(function, kind, bytes);

	if (r == 0)
		r = element_read(function, kind, given, bytes, ret);
	if (r == 0)
		memcpy(ret, &kind->size_bytes, sizeof(kind->size_bytes));
	return r;
}

int sized_write(const char *function, const struct sized *kind, const void *ours, void *ret_given)
{
	size_t bytes = size_get(ret_given);
	int r = sized_check(function, kind, bytes);

	if (r < 0)
		return r;
	element_write(kind, ours, ret_given, bytes);
	memcpy(ret_given, &bytes, sizeof(bytes)); /* its own stays */
	return 0;
}
