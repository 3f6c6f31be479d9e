#include "client/lib/memory/import.h"

#include "client/lib/memory/buffer.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

bool import_look(const struct import_range *range, const char *line, uint64_t *reached)
{
	uint64_t start, end, off, ino;
	unsigned major_, minor_;
	char perms[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &start, &end,
		   perms, &off, &major_, &minor_, &ino) != 7)
		return true; /* no line of ours */
	if (end <= *reached || start >= range->end || *reached >= range->end)
		return true;
	if (start > *reached || perms[3] != 's' || makedev(major_, minor_) != range->dev ||
	    ino != range->ino || off + (*reached - start) != range->off + (*reached - range->start))
		return false;
	*reached = end;
	return true;
}

/* Is the range that mapping?  Returns 0, -EINVAL or what opening the list of mappings says. */
static int check_mapping(const struct import_range *range)
{
	_cleanup_(fclosep) FILE *maps = fopen("/proc/self/maps", "re");
	_cleanup_(freep) char *line = NULL;
	uint64_t reached = range->start;
	size_t size = 0;

	if (!maps)
		return -errno;
	while (getline(&line, &size, maps) > 0)
		if (!import_look(range, line, &reached))
			return -EINVAL;
	return reached >= range->end ? 0 : -EINVAL;
}

/* Takes fd. */
static int daemon_import(struct dsaio_client *client, int fd, uint64_t off, uint64_t bytes,
			 uint32_t *ret_slab)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabImport body = WIRE__SLAB_IMPORT__INIT;
	int r;

	body.off = off;
	body.size_bytes = bytes;
	request.body_case = WIRE__REQUEST__BODY_SLAB_IMPORT;
	request.slab_import = &body;
	r = conn_call(client->conn, "import", &request, &fd, 1, &reply, NULL, NULL);
	if (r == 0)
		*ret_slab = reply->slab_import->slab;
	return r;
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
	r = check_mapping(&range);
	if (r == -EINVAL)
		return error_fail(
			r,
			"import of %zu bytes: at %p this process has not mapped that file "
			"from byte %" PRIu64 " on with MAP_SHARED: give the address that "
			"mmap(2) returned for it",
			bytes, memory, fd_off);
	if (r < 0)
		return error_fail_errno(r, "import: /proc/self/maps");
	if (buffer_is_known(client, memory, bytes))
		return error_fail(-EEXIST,
				  "import of %zu bytes at %p: part of it is imported, or of "
				  "dsaio_alloc(), already",
				  bytes, memory);
	copy = fd_duplicate(fd);
	if (copy < 0)
		return error_fail_errno(-errno, "import: file descriptor %d", fd);
	r = daemon_import(client, copy, fd_off, bytes, &slab);
	if (r < 0)
		return r;
	r = buffer_import(client, memory, bytes, slab);
	if (r < 0) {
		buffer_slab_give_back(client, slab);
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
	r = buffer_unimport(client, memory, &slab);
	if (r == -EBUSY)
		return error_fail(r, "unimport: an open op uses the memory at %p: wait for its end",
				  memory);
	if (r < 0)
		return error_fail(
			r,
			"unimport: %p is not the start of memory of dsaio_import(), or was "
			"forgotten before",
			memory);
	buffer_slab_give_back(client, slab);
	return 0;
}
