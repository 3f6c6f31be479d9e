#include "client/lib/api/sized.h"

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"

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
	BYTES_UP_TO(struct dsaio_granted, zero),
};
const struct sized SIZED_CONNECT_OPTIONS = {
	"struct dsaio_connect_options",
	sizeof(struct dsaio_connect_options),
	BYTES_UP_TO(struct dsaio_connect_options, reconnect_timeout_usec),
};
const struct sized SIZED_OPEN_OPTIONS = {
	"struct dsaio_open_options",
	sizeof(struct dsaio_open_options),
	BYTES_UP_TO(struct dsaio_open_options, zero),
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

/* The size that the program has set. */
static int size_get(const char *function, const struct sized *kind, const void *given,
		    size_t *ret_bytes)
{
	size_t bytes;

	memcpy(&bytes, given, sizeof(bytes)); /* each begins with it */
	if (bytes < kind->first_bytes || bytes > SIZED_MAX_BYTES)
		return error_fail(-EINVAL,
				  "%s: the size in the %s is %zu: set it to sizeof(%s), in this "
				  "version %zu, or start from the struct's _INIT",
				  function, kind->name, bytes, kind->name, kind->size_bytes);
	*ret_bytes = bytes;
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

int sized_read(const char *function, const struct sized *kind, const void *given, void *ret)
{
	const char *bytes = given;
	size_t size = 0;
	int r = size_get(function, kind, given, &size);

	if (r < 0)
		return r;
	if (size > kind->size_bytes && !is_zero(bytes + kind->size_bytes, size - kind->size_bytes))
		return error_fail(-E2BIG,
				  "%s: the %s has %zu bytes, and fields behind the %zu bytes that "
				  "this library (version %s) knows are set: leave them zero, or "
				  "install a newer library",
				  function, kind->name, size, kind->size_bytes, DSAIO_VERSION);
	memcpy(ret, given, size < kind->size_bytes ? size : kind->size_bytes);
	memcpy(ret, &kind->size_bytes, sizeof(kind->size_bytes));
	return 0;
}

int sized_write(const char *function, const struct sized *kind, const void *ours, void *ret_given)
{
	char *to = ret_given;
	const char *from = ours;
	size_t size = 0, known;
	int r = size_get(function, kind, ret_given, &size);

	if (r < 0)
		return r;
	known = size < kind->size_bytes ? size : kind->size_bytes;
	memset(to + sizeof(size), 0, size - sizeof(size));
	memcpy(to + sizeof(size), from + sizeof(size), known - sizeof(size));
	return 0;
}
