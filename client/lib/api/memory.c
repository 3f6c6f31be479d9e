/*
 * Public calls on memory: dsaio_alloc() and dsaio_memory_register(), and their opposites.
 *
 * They check the arguments and make the messages; memory/ does the work.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/io/client.h"
#include "client/lib/memory/gpu_copy.h"
#include "client/lib/memory/import.h"
#include "client/lib/memory/slab.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

/* Interval of the requests while the pool has no room: a guess. */
#define ALLOC_PAUSE_MIN_NSEC UINT64_C(1000000)
#define ALLOC_PAUSE_MAX_NSEC UINT64_C(32000000)

static int check_alloc_options(const struct dsaio_alloc_options *o)
{
	const uint32_t known = DSAIO_ALLOC_NO_ZERO | DSAIO_ALLOC_HUGE | DSAIO_ALLOC_SMALL |
			       DSAIO_ALLOC_NODE;

	if (o->flags & ~known)
		return fail_unknown("alloc", "flags", o->flags & ~known);
	if ((o->flags & DSAIO_ALLOC_HUGE) && (o->flags & DSAIO_ALLOC_SMALL))
		return error_fail(-EINVAL, "alloc: DSAIO_ALLOC_HUGE and DSAIO_ALLOC_SMALL exclude "
					   "each other: set one, or neither");
	if (o->numa_node && !(o->flags & DSAIO_ALLOC_NODE))
		return error_fail(-EINVAL,
				  "alloc: numa_node is %u, but the flag DSAIO_ALLOC_NODE is not "
				  "set: set both",
				  o->numa_node);
	if (o->wait_usec < -1)
		return error_fail(-EINVAL,
				  "alloc: wait_usec %" PRId64 ": must be -1 (forever), 0 (do not "
				  "wait) or positive",
				  o->wait_usec);
	return 0;
}

/*
 * Repeats the request while the pool has no room.  The daemon has no queue for these, so other
 * clients may be served first.
 */
static int alloc_wait(struct dsaio_client *client, size_t bytes,
		      const struct dsaio_alloc_options *o, void **ret_memory)
{
	struct slab_placement place = { .has_node = o->flags & DSAIO_ALLOC_NODE,
					.node = o->numa_node };
	uint64_t deadline = deadline_in_usec(o->wait_usec), pause_nsec = ALLOC_PAUSE_MIN_NSEC;
	uint64_t client_max = conn_facts(client->conn).client_pool_max;
	bool can_be = bytes <= client_max || !client_max;

	if (o->flags & DSAIO_ALLOC_HUGE)
		place.pages = WIRE__PAGES__PAGES_HUGE;
	if (o->flags & DSAIO_ALLOC_SMALL)
		place.pages = WIRE__PAGES__PAGES_SMALL;
	for (;;) {
		struct timespec pause = { .tv_nsec = (long)pause_nsec };
		int r = client_check_alive(client, "alloc");

		if (r == 0)
			r = buffers_alloc(&client->buffers, bytes, &place,
					  !(o->flags & DSAIO_ALLOC_NO_ZERO), ret_memory);
		if (r != -ENOMEM || !can_be || !o->wait_usec || deadline_is_over(deadline))
			return r;
		(void)nanosleep(&pause, NULL); /* EINTR: an earlier request */
		if (pause_nsec < ALLOC_PAUSE_MAX_NSEC)
			pause_nsec *= 2;
	}
}

int dsaio_alloc(struct dsaio_client *client, size_t bytes,
		const struct dsaio_alloc_options *options, void **ret_memory)
{
	CANCEL_DISABLE();
	struct dsaio_alloc_options o = DSAIO_ALLOC_OPTIONS_INIT;
	int r = client_check_call(client, "alloc", ret_memory, "place for the memory");

	if (r < 0)
		return r;
	if (!bytes)
		return error_fail(-EINVAL, "alloc: 0 bytes: ask for at least 1");
	if (options)
		r = sized_read("alloc", &SIZED_ALLOC_OPTIONS, options, &o);
	if (r == 0)
		r = check_alloc_options(&o);
	return r < 0 ? r : alloc_wait(client, bytes, &o, ret_memory);
}

int64_t dsaio_client_pool_max(struct dsaio_client *client)
{
	CANCEL_DISABLE();
	uint64_t max;
	int r = client_check(client, "client_pool_max");

	if (r < 0)
		return r;
	max = conn_facts(client->conn).client_pool_max;
	return max && max < INT64_MAX ? (int64_t)max : INT64_MAX;
}

int dsaio_client_is_locked(struct dsaio_client *client)
{
	CANCEL_DISABLE();
	int r = client_check(client, "client_is_locked");

	/* relaxed: of a slab that this thread has got, it was set before */
	return r < 0 ? r : !atomic_load_explicit(&client->conn->has_unlocked, memory_order_relaxed);
}

/*
 * The end of a call that lets go of memory, after client_hold(): the result, with a message.  what: the
 * memory that the call is for; is_last: as of buffers_free().
 */
static int let_go(struct dsaio_client *client, const char *function, const void *memory,
		  const char *what, bool is_last, int r)
{
	if (is_last)
		client_left(client);
	client_left(client);
	if (r == -EBUSY)
		return error_fail(r, "%s: an open op uses the memory at %p: wait for its end",
				  function, memory);
	if (r < 0)
		return error_fail(r,
				  "%s: %p is not the start of %s, or was passed to this call "
				  "before",
				  function, memory, what);
	return 0;
}

int dsaio_free(struct dsaio_client *client, void *memory)
{
	CANCEL_DISABLE();
	bool is_last;
	int r;

	if (!client)
		return client_null("free", "client");
	if (!memory || client_is_forked(client))
		return 0;
	client_hold(client);
	r = buffers_free(&client->buffers, memory, false, &is_last);
	return let_go(client, "free", memory, "memory of dsaio_alloc()", is_last, r);
}

int dsaio_memory_kind(struct dsaio_client *client, const void *memory, size_t bytes)
{
	CANCEL_DISABLE();
	bool is_imported;
	int r = client_check(client, "memory_kind");

	if (r < 0)
		return r;
	if (!memory)
		return DSAIO_MEMORY_NONE;
	if (buffers_have(&client->buffers, memory, bytes, &is_imported))
		return is_imported ? DSAIO_MEMORY_FD : DSAIO_MEMORY_POOL;
	return gpu_memory_has(&client->gpu, memory, bytes) ? DSAIO_MEMORY_CUDA : DSAIO_MEMORY_NONE;
}

int dsaio_memory_gpu(struct dsaio_client *client, const void *memory)
{
	CANCEL_DISABLE();
	int number, r = client_check(client, "memory_gpu");

	if (r < 0)
		return r;
	number = gpus_find(memory);
	if (number < 0)
		return error_fail(-ENOENT,
				  "memory_gpu: %p is not GPU memory that the program's CUDA has "
				  "allocated",
				  memory);
	return number;
}

static int fail_registered(const void *memory, size_t bytes)
{
	return error_fail(-EEXIST,
			  "memory_register: %zu bytes at %p: part of it is registered, or of "
			  "dsaio_alloc(), already",
			  bytes, memory);
}

/* Memory of a descriptor: the client was checked, and that there are bytes. */
static int import(struct dsaio_client *client, int fd, uint64_t fd_off, size_t bytes, void *memory)
{
	struct import_range range = { .start = (uintptr_t)memory, .off = fd_off };
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool is_imported;
	struct slab_name slab = { 0 };
	struct stat st;
	int copy, kept, r;

	if (fd_off % page || range.start % page ||
	    __builtin_add_overflow(range.start, bytes, &range.end))
		return error_fail(-EINVAL,
				  "memory_register: %zu bytes at %p, %" PRIu64
				  " in the file: both must be multiples of %" PRIu64
				  ", as mmap(2) gives them",
				  bytes, memory, fd_off, page);
	if (fstat(fd, &st) < 0)
		return error_fail_errno(-errno, "memory_register: file descriptor %d", fd);
	if (st.st_size < 0 || fd_off > (uint64_t)st.st_size ||
	    bytes > (uint64_t)st.st_size - fd_off)
		return error_fail(-ERANGE,
				  "memory_register: %zu bytes from %" PRIu64
				  " on: the file has only %jd: "
				  "make it longer first (ftruncate)",
				  bytes, fd_off, (intmax_t)st.st_size);
	range.dev = st.st_dev;
	range.ino = st.st_ino;
	r = import_check(&range);
	if (r == -EINVAL)
		return error_fail(
			r,
			"memory_register: %zu bytes: at %p this process has not mapped that file "
			"from byte %" PRIu64 " on with MAP_SHARED: give the address that "
			"mmap(2) returned for it",
			bytes, memory, fd_off);
	if (r < 0)
		return error_fail_errno(r, "memory_register: /proc/self/maps");
	/* Before it is charged: the daemon's bound is no answer. */
	if (buffers_have(&client->buffers, memory, bytes, &is_imported))
		return fail_registered(memory, bytes);
	do {
		kept = fd_duplicate(fd);
		copy = fd_duplicate(fd);
		if (kept < 0 || copy < 0)
			r = error_fail_errno(-errno, "memory_register: file descriptor %d", fd);
		else
			r = slab_import_fd(client->conn, TAKE_FD(copy), fd_off, bytes, &slab);
		closep(&copy);
		if (r < 0) {
			closep(&kept);
			return r;
		}
		r = buffers_import(&client->buffers, memory, bytes, &slab, kept, fd_off);
		if (r < 0)
			closep(&kept);
	} while (r == -ESTALE); /* the daemon has gone away: once more with the next one */
	if (r < 0)
		slab_release(client->conn, &slab, true);
	if (r == -EEXIST)
		return fail_registered(memory, bytes);
	if (r < 0)
		return error_fail_errno(r, "memory_register: %zu bytes at %p", bytes, memory);
	debug_log("memory_register: slab %u: %zu bytes of the program's own", slab.id, bytes);
	return 0;
}

int dsaio_memory_register(struct dsaio_client *client, const struct dsaio_memory *memory)
{
	CANCEL_DISABLE();
	struct dsaio_memory m = DSAIO_MEMORY_INIT;
	int r = client_check_call(client, "memory_register", memory, "description");

	if (r == 0)
		r = sized_read("memory_register", &SIZED_MEMORY, memory, &m);
	if (r < 0)
		return r;
	if (m.kind == DSAIO_MEMORY_PRIVATE)
		return error_fail(
			-EOPNOTSUPP,
			"memory_register: kind %u: private memory needs no registration: ops "
			"take it as it is, and copy it; use dsaio_alloc() to spare the copy",
			m.kind);
	if (m.kind != DSAIO_MEMORY_FD && m.kind != DSAIO_MEMORY_CUDA)
		return error_fail(
			m.kind == DSAIO_MEMORY_VIEW ? -EOPNOTSUPP : -EINVAL,
			"memory_register: kind %u: set DSAIO_MEMORY_FD (%d) or "
			"DSAIO_MEMORY_CUDA (%d), the kinds that this library (version %s) "
			"registers",
			m.kind, DSAIO_MEMORY_FD, DSAIO_MEMORY_CUDA, dsaio_version());
	if (!m.start)
		return client_null("memory_register", "memory");
	if (!m.bytes)
		return error_fail(-EINVAL, "memory_register: 0 bytes: there must be at least 1");
	return m.kind == DSAIO_MEMORY_FD ? import(client, m.fd, m.fd_off, m.bytes, m.start)
					 : gpu_memory_register(&client->gpu, m.start, m.bytes);
}

int dsaio_memory_unregister(struct dsaio_client *client, void *memory)
{
	CANCEL_DISABLE();
	bool is_last;
	int r;

	if (!client)
		return client_null("memory_unregister", "client");
	if (!memory || client_is_forked(client))
		return 0;
	client_hold(client);
	r = buffers_free(&client->buffers, memory, true, &is_last);
	if (r == -EINVAL)
		r = gpu_memory_unregister(&client->gpu, memory, &is_last);
	return let_go(client, "memory_unregister", memory, "registered memory", is_last, r);
}
