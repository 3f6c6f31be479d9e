/*
 * Public calls on memory: dsaio_alloc() and dsaio_import(), and what undoes them.
 *
 * They check the arguments and make the sentences; memory/ does the work.
 */
#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/io/client.h"
#include "client/lib/memory/import.h"
#include "client/lib/memory/slab.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <sys/stat.h>

int dsaio_alloc(struct dsaio_client *client, size_t bytes, void **ret_memory)
{
	CANCEL_DISABLE();
	int r = client_check(client, "alloc");

	if (r < 0)
		return r;
	if (!ret_memory)
		return client_null("alloc", "place for the memory");
	if (!bytes)
		return error_fail(-EINVAL, "alloc: 0 bytes: ask for at least 1");
	r = client_check_alive(client, "alloc");
	return r < 0 ? r : buffers_alloc(&client->buffers, bytes, ret_memory);
}

int dsaio_free(struct dsaio_client *client, void *memory)
{
	CANCEL_DISABLE();
	int r;

	if (!client)
		return client_null("free", "client");
	if (!memory || client_is_forked(client))
		return 0;
	r = buffers_free(&client->buffers, memory);
	if (r == -EINVAL)
		return error_fail(r,
				  "free: %p is not the start of memory of dsaio_alloc(), or was "
				  "freed before",
				  memory);
	if (r == -EBUSY)
		return error_fail(r, "free: an open op uses the memory at %p: wait for its end",
				  memory);
	return r;
}

bool dsaio_is_pinned(struct dsaio_client *client, const void *memory, size_t bytes)
{
	if (client_check(client, "is_pinned") < 0 || !memory)
		return false;
	return buffers_have(&client->buffers, memory, bytes);
}

int dsaio_import(struct dsaio_client *client, int fd, uint64_t fd_off, size_t bytes, void *memory)
{
	CANCEL_DISABLE();
	struct import_range range = { .start = (uintptr_t)memory, .off = fd_off };
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint32_t slab = 0;
	struct stat st;
	int copy, r = client_check(client, "import");

	if (r < 0)
		return r;
	if (!memory)
		return client_null("import", "memory");
	if (!bytes)
		return error_fail(-EINVAL, "import: 0 bytes: there must be at least 1");
	if (fd_off % page || range.start % page ||
	    __builtin_add_overflow(range.start, bytes, &range.end))
		return error_fail(-EINVAL,
				  "import of %zu bytes at %p, %" PRIu64
				  " in the file: both must be "
				  "multiples of %" PRIu64 ", as mmap(2) gives them",
				  bytes, memory, fd_off, page);
	r = client_check_alive(client, "import");
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return error_fail_errno(-errno, "import: file descriptor %d", fd);
	if (st.st_size < 0 || fd_off > (uint64_t)st.st_size ||
	    bytes > (uint64_t)st.st_size - fd_off)
		return error_fail(-ERANGE,
				  "import of %zu bytes from %" PRIu64 " on: the file has only %jd: "
				  "make it longer first (ftruncate)",
				  bytes, fd_off, (intmax_t)st.st_size);
	range.dev = st.st_dev;
	range.ino = st.st_ino;
	r = import_check(&range);
	if (r == -EINVAL)
		return error_fail(
			r,
			"import of %zu bytes: at %p this process has not mapped that file "
			"from byte %" PRIu64 " on with MAP_SHARED: give the address that "
			"mmap(2) returned for it",
			bytes, memory, fd_off);
	if (r < 0)
		return error_fail_errno(r, "import: /proc/self/maps");
	if (buffers_overlap(&client->buffers, memory, bytes))
		return error_fail(-EEXIST,
				  "import of %zu bytes at %p: part of it is imported, or of "
				  "dsaio_alloc(), already",
				  bytes, memory);
	copy = fd_duplicate(fd);
	if (copy < 0)
		return error_fail_errno(-errno, "import: file descriptor %d", fd);
	r = slab_import_fd(&client->link, copy, fd_off, bytes, &slab);
	if (r < 0)
		return r;
	r = buffers_import(&client->buffers, memory, bytes, slab);
	if (r < 0) {
		slab_give_back(&client->link, slab);
		return error_fail_errno(r, "import of %zu bytes at %p", bytes, memory);
	}
	debug_log("import: slab %u: %zu bytes of the program's own", slab, bytes);
	return 0;
}

int dsaio_unimport(struct dsaio_client *client, void *memory)
{
	CANCEL_DISABLE();
	uint32_t slab = 0;
	int r;

	if (!client)
		return client_null("unimport", "client");
	if (!memory || client_is_forked(client))
		return 0;
	r = buffers_unimport(&client->buffers, memory, &slab);
	if (r == -EBUSY)
		return error_fail(r, "unimport: an open op uses the memory at %p: wait for its end",
				  memory);
	if (r < 0)
		return error_fail(
			r,
			"unimport: %p is not the start of memory of dsaio_import(), or was "
			"forgotten before",
			memory);
	slab_give_back(&client->link, slab);
	return 0;
}
