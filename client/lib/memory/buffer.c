#include "client/lib/memory/buffer.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "client/lib/base/fd.h"
#include "client/lib/dsaio.h"
#include "proto/util/cleanup.h"
#include "proto/util/map.h"
#include "proto/util/size.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BUFFER_BYTES_MAX ((size_t)1 << 46) /* what the daemon takes as a slab's size at most */

/*
 * Forks of this process.  A buffer that exists while one begins may be used in the child.  Relaxed: a call
 * that runs while another thread forks is in no order with the fork.
 */
static _Atomic uint32_t n_forks_begun, n_forks_ended;

static void fork_begin(void)
{
	(void)atomic_fetch_add_explicit(&n_forks_begun, 1, memory_order_relaxed);
}

static void fork_end(void)
{
	(void)atomic_fetch_add_explicit(&n_forks_ended, 1, memory_order_relaxed);
}

/* Forks that other threads of the parent have begun end only there. */
static void fork_end_in_child(void)
{
	atomic_store_explicit(&n_forks_ended, n_forks_begun, memory_order_relaxed);
}

/* No memory for it, as a program begins: then a child may see what the parent's next buffer holds. */
__attribute__((constructor)) static void fork_handlers_set(void)
{
	(void)pthread_atfork(fork_begin, fork_end, fork_end_in_child);
}

size_t buffer_slab_bytes(size_t bytes, size_t last)
{
	size_t size = 2 * last;

	if (size < BUFFER_SLAB_FIRST)
		size = BUFFER_SLAB_FIRST;
	if (size > BUFFER_SLAB_MAX)
		size = BUFFER_SLAB_MAX;
	if (size < bytes)
		size = (bytes + BUFFER_SLAB_STEP - 1) & ~(size_t)(BUFFER_SLAB_STEP - 1);
	return size;
}

static void slab_free(struct mapped_slab *slab)
{
	if (!slab)
		return;
	if (slab->memory && !slab->slab.is_imported)
		(void)munmap(slab->memory, slab->bytes); /* our own mapping: cannot fail */
	closep(&slab->fd);
	cut_deinit(&slab->cut);
	free(slab);
}

CLEANUP_FUNCTION(struct mapped_slab, slab_free)

/* A slab that is in no list any more.  Unmapped first: the pool punches it quicker. */
static void slab_return(struct dsaio_conn *conn, struct mapped_slab *slab)
{
	const struct slab_name name = slab->slab;

	slab_free(slab);
	slab_release(conn, &name, true);
}

static int slab_map(struct mapped_slab *slab)
{
	struct stat st;
	void *map;

	if (fstat(slab->fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size < slab->bytes)
		return -EPROTO; /* pages behind its end would raise SIGBUS */
	/* Else each 4 KiB of memory on huge pages would cost a page fault here. */
	map = map_aligned(slab->fd, slab->bytes);
	if (map == MAP_FAILED)
		return -errno;
	slab->memory = map;
	/* A core dump of gigabytes would delay the end of this process.  A failure does not matter. */
	(void)madvise(map, slab->bytes, MADV_DONTDUMP);
	return 0;
}

static int slab_new(struct dsaio_conn *conn, const char *what, size_t bytes,
		    const struct slab_placement *place, struct mapped_slab **ret_slab)
{
	_cleanup_(slab_freep) struct mapped_slab *slab = calloc(1, sizeof(*slab));
	int r;

	if (!slab)
		return error_fail_errno(-ENOMEM, "%s", what);
	slab->fd = -1;
	r = slab_ask(conn, what, bytes, place, &slab->slab, &slab->fd);
	if (r < 0)
		return r;
	slab->place = *place;
	slab->bytes = bytes; /* the daemon may have rounded it up */
	r = slab_map(slab);
	if (r == -EPROTO)
		conn_break(conn);
	if (r == 0)
		r = cut_init(&slab->cut, bytes);
	if (r < 0) {
		slab_release(conn, &slab->slab, true);
		return error_fail_errno(r, "%s: a slab of %s was made, but cannot be mapped", what,
					SIZE_TEXT(bytes));
	}
	*ret_slab = TAKE_PTR(slab);
	return 0;
}

void buffers_init(struct buffers *buffers, struct dsaio_conn *conn,
		  bool (*trim)(struct buffers *buffers))
{
	*buffers = (struct buffers){ .conn = conn, .trim = trim };
	(void)pthread_mutex_init(&buffers->grow_lock, NULL); /* default attributes: cannot fail */
	(void)pthread_rwlock_init(&buffers->lock, NULL);
}

void buffers_deinit(struct buffers *buffers)
{
	for (size_t i = 0; i < buffers->n; i++)
		slab_free(buffers->slabs[i]);
	free(buffers->slabs);
	(void)pthread_rwlock_destroy(&buffers->lock);
	(void)pthread_mutex_destroy(&buffers->grow_lock);
}

/* Index of the slab that the address lies in, else n.  Under the lock. */
static size_t buffers_find(const struct buffers *buffers, const char *address)
{
	size_t low = 0, high = buffers->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct mapped_slab *slab = buffers->slabs[middle];

		if ((uintptr_t)address < (uintptr_t)slab->memory)
			high = middle;
		else if ((uintptr_t)address - (uintptr_t)slab->memory >= slab->bytes)
			low = middle + 1;
		else
			return middle;
	}
	return buffers->n;
}

/* -ESTALE: its session is over. */
static int buffers_add(struct buffers *buffers, struct mapped_slab *slab)
{
	size_t i = 0;

	if (!conn_is_of(buffers->conn, slab->slab.session))
		return -ESTALE;
	if (buffers->n == buffers->n_allocated) {
		size_t n = buffers->n_allocated ? 2 * buffers->n_allocated : 8;
		struct mapped_slab **slabs = reallocarray(buffers->slabs, n, sizeof(*slabs));

		if (!slabs)
			return -ENOMEM;
		buffers->slabs = slabs;
		buffers->n_allocated = n;
	}
	while (i < buffers->n && (uintptr_t)buffers->slabs[i]->memory < (uintptr_t)slab->memory)
		i++;
	memmove(&buffers->slabs[i + 1], &buffers->slabs[i],
		(buffers->n - i) * sizeof(buffers->slabs[0]));
	buffers->slabs[i] = slab;
	buffers->n++;
	return 0;
}

static void buffers_remove(struct buffers *buffers, size_t i)
{
	buffers->n--;
	memmove(&buffers->slabs[i], &buffers->slabs[i + 1],
		(buffers->n - i) * sizeof(buffers->slabs[0]));
}

/* cut_take() of a buffer. */
static int slab_take(struct mapped_slab *slab, size_t bytes, char **ret_memory, bool *ret_is_dirty)
{
	struct cut_piece *piece;
	int r = cut_take(&slab->cut, bytes, &piece);

	if (r < 0)
		return r;
	piece->n_forks = atomic_load_explicit(&n_forks_ended, memory_order_relaxed);
	*ret_memory = slab->memory + piece->off;
	*ret_is_dirty = piece->is_dirty;
	return 0;
}

/* A piece of a slab there; -ENOSPC if none has room.  *ret_last: bytes of the largest such slab. */
static int buffers_take(struct buffers *buffers, size_t bytes, const struct slab_placement *place,
			char **ret_memory, bool *ret_is_dirty, size_t *ret_last)
{
	int r = -ENOSPC;

	(void)pthread_rwlock_wrlock(&buffers->lock); /* taken nowhere above: cannot fail */
	*ret_last = 0;
	for (size_t i = 0; i < buffers->n && r == -ENOSPC; i++) {
		struct mapped_slab *slab = buffers->slabs[i];

		if (slab->slab.is_imported || slab->is_own ||
		    !slab_placement_is(&slab->place, place) || atomic_load(&slab->slab.error))
			continue;
		if (slab->bytes > *ret_last)
			*ret_last = slab->bytes;
		r = slab_take(slab, bytes, ret_memory, ret_is_dirty);
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return r;
}

/* Takes a piece of a new slab before anybody else comes, and lists it.  -ESTALE: the daemon has gone away with it. */
static int slab_enter(struct buffers *buffers, struct mapped_slab *slab, size_t bytes,
		      char **ret_memory)
{
	bool is_dirty;
	int r = slab_take(slab, bytes, ret_memory, &is_dirty); /* it is not */

	if (r == 0) {
		(void)pthread_rwlock_wrlock(&buffers->lock);
		r = buffers_add(buffers, slab);
		(void)pthread_rwlock_unlock(&buffers->lock);
	}
	if (r == 0 || r == -ESTALE)
		return r;
	slab_release(buffers->conn, &slab->slab, true);
	return error_fail_errno(r, "alloc of %s", SIZE_TEXT(bytes));
}

/* A new slab, as slab_enter(). */
static int buffers_grow(struct buffers *buffers, size_t bytes, const struct slab_placement *place,
			size_t last, char **ret_memory)
{
	struct dsaio_conn *conn = buffers->conn;
	_cleanup_(slab_freep) struct mapped_slab *slab = NULL;
	size_t want = buffer_slab_bytes(bytes, last);
	size_t page = place->pages == WIRE__PAGES__PAGES_HUGE ? MAP_HUGE_BYTES : CUT_PAGE;
	size_t least = (bytes + page - 1) / page * page;
	int r = slab_new(conn, "alloc", want, place, &slab);

	if (r == -ENOMEM && want > least) /* near the bound: no more than is needed */
		r = slab_new(conn, "alloc", least, place, &slab);
	if (r == -ENOMEM && buffers->trim && buffers->trim(buffers))
		r = slab_new(conn, "alloc", least, place, &slab);
	if (r == 0)
		r = slab_enter(buffers, slab, bytes, ret_memory);
	if (r < 0)
		return r;
	debug_log("alloc: slab %u of %s", slab->slab.id, SIZE_TEXT(slab->bytes));
	(void)TAKE_PTR(slab); /* the list has it */
	return 0;
}

/* Retired memory of all slabs is free.  Returns whether there was any. */
static bool buffers_revive(struct buffers *buffers)
{
	bool has_retired = false;

	(void)pthread_rwlock_wrlock(&buffers->lock);
	for (size_t i = 0; i < buffers->n; i++)
		has_retired |= cut_revive(&buffers->slabs[i]->cut);
	(void)pthread_rwlock_unlock(&buffers->lock);
	return has_retired;
}

int buffers_alloc(struct buffers *buffers, size_t bytes, const struct slab_placement *place,
		  bool wants_zeroes, void **ret_memory)
{
	_cleanup_(unlockp) pthread_mutex_t *locked = NULL;
	char *memory = NULL;
	bool is_dirty = false;
	size_t last;
	int r;

	if (bytes > BUFFER_BYTES_MAX)
		return error_fail(-ENOMEM,
				  "alloc of %s: this client may have %s: ask for less, or raise "
				  "the daemon's client_pool_max",
				  SIZE_TEXT(bytes),
				  SIZE_TEXT(conn_facts(buffers->conn).client_pool_max));
	r = buffers_take(buffers, bytes, place, &memory, &is_dirty, &last);
	if (r == -ENOSPC) {
		(void)pthread_mutex_lock(&buffers->grow_lock);
		locked = &buffers->grow_lock;
		r = buffers_take(buffers, bytes, place, &memory, &is_dirty, &last);
	}
	if (r == -ENOSPC) {
		do
			r = buffers_grow(buffers, bytes, place, last, &memory);
		while (r == -ESTALE);
	} else if (r < 0) {
		r = error_fail_errno(r, "alloc of %s", SIZE_TEXT(bytes));
	}
	/* Children may see their parent's data rather than the parent fail. */
	if (r == -ENOMEM && buffers_revive(buffers) &&
	    buffers_take(buffers, bytes, place, &memory, &is_dirty, &last) == 0)
		r = 0;
	if (r < 0)
		return r;
	if (is_dirty && wants_zeroes)
		memset(memory, 0, (bytes + CUT_PAGE - 1) & ~(size_t)(CUT_PAGE - 1));
	*ret_memory = memory;
	return 0;
}

/* Is this entirely free slab one too many?  A small one of the pool is kept.  Under the lock. */
static bool buffers_spare(const struct buffers *buffers, size_t index)
{
	const struct mapped_slab *slab = buffers->slabs[index];

	if (buffers->is_left || slab->slab.is_imported || slab->bytes > BUFFER_SLAB_FIRST ||
	    slab->cut.retired_bytes || !slab_placement_is(&slab->place, &SLAB_ANYWHERE))
		return true;
	for (size_t i = 0; i < buffers->n; i++)
		if (i != index && !buffers->slabs[i]->cut.used_bytes)
			return true;
	return false;
}

bool buffers_leave(struct buffers *buffers)
{
	size_t n = 0;

	(void)pthread_rwlock_wrlock(&buffers->lock);
	buffers->is_left = true;
	for (size_t i = 0; i < buffers->n; i++)
		if (buffers->slabs[i]->cut.used_bytes && !buffers->slabs[i]->is_own)
			buffers->slabs[n++] = buffers->slabs[i];
		else
			slab_free(buffers->slabs[i]);
	buffers->n = n;
	(void)pthread_rwlock_unlock(&buffers->lock);
	return n;
}

int buffers_free(struct buffers *buffers, void *memory, bool is_imported, bool *ret_is_last)
{
	struct mapped_slab *slab, *spare = NULL;
	struct cut_piece *piece;
	size_t i, p;
	int r = -EINVAL;

	*ret_is_last = false;
	(void)pthread_rwlock_wrlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i < buffers->n && buffers->slabs[i]->slab.is_imported == is_imported) {
		slab = buffers->slabs[i];
		p = cut_find(&slab->cut, (size_t)((char *)memory - slab->memory));
		piece = slab->cut.pieces[p];
		if (!piece->is_free && slab->memory + piece->off == (char *)memory)
			r = 0;
		if (r == 0 && !buffers->is_left && /* else it was given up */
		    atomic_load_explicit(&piece->n_ops, memory_order_acquire)) /* unref */
			r = -EBUSY;
		if (r == 0)
			cut_release(&slab->cut, p,
				    piece->n_forks != atomic_load_explicit(&n_forks_begun,
									   memory_order_relaxed));
		if (r == 0 && !slab->cut.used_bytes && buffers_spare(buffers, i)) {
			spare = slab;
			buffers_remove(buffers, i);
			*ret_is_last = buffers->is_left && !buffers->n;
		}
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	if (spare && buffers->is_left)
		slab_free(spare);
	else if (spare)
		slab_return(buffers->conn, spare);
	return r;
}

bool buffers_trim(struct buffers *buffers)
{
	struct mapped_slab *spare = NULL;

	(void)pthread_rwlock_wrlock(&buffers->lock);
	for (size_t i = 0; i < buffers->n && !spare; i++) {
		if (buffers->slabs[i]->cut.used_bytes)
			continue;
		spare = buffers->slabs[i];
		buffers_remove(buffers, i);
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	if (spare)
		slab_return(buffers->conn, spare);
	return spare;
}

int buffers_own_new(struct buffers *buffers, size_t bytes, struct mapped_slab **ret_slab)
{
	_cleanup_(slab_freep) struct mapped_slab *slab = NULL;
	char *memory;
	int r = slab_new(buffers->conn, "private memory", bytes, &SLAB_ANYWHERE, &slab);

	if (r < 0)
		return r;
	slab->is_own = true;
	r = slab_enter(buffers, slab, bytes, &memory);
	if (r == 0)
		*ret_slab = TAKE_PTR(slab);
	return r;
}

void buffers_own_free(struct buffers *buffers, struct mapped_slab *slab)
{
	(void)pthread_rwlock_wrlock(&buffers->lock);
	buffers_remove(buffers, buffers_find(buffers, slab->memory));
	(void)pthread_rwlock_unlock(&buffers->lock);
	slab_return(buffers->conn, slab);
}

/* ---- the next session ---- */

/* The first slab behind that address, with a descriptor for the caller; -1 and errno: there is none to be had. */
static struct mapped_slab *next_slab(struct buffers *buffers, const char *address, int *ret_fd)
{
	for (size_t i = 0; i < buffers->n; i++)
		if ((uintptr_t)buffers->slabs[i]->memory > (uintptr_t)address) {
			*ret_fd = fd_duplicate(buffers->slabs[i]->fd);
			return buffers->slabs[i];
		}
	return NULL;
}

/* The slab that begins there could not be handed over, if it still is that one. */
static void note_refused(struct buffers *buffers, char *address, uint32_t id, int error)
{
	size_t i;

	(void)pthread_rwlock_wrlock(&buffers->lock);
	i = buffers_find(buffers, address);
	if (i < buffers->n && buffers->slabs[i]->slab.id == id)
		atomic_store(&buffers->slabs[i]->slab.error, error);
	(void)pthread_rwlock_unlock(&buffers->lock);
	debug_log("memory at %p cannot be handed over: %s", (void *)address, dsaio_error());
}

struct hand_over buffers_hand_over(struct buffers *buffers, struct dsaio_conn *next)
{
	struct hand_over done = { 0 };
	char *at = NULL;

	for (;;) {
		struct mapped_slab *slab, copy;
		struct stat st = { .st_size = 0 };
		int fd = -1, r;

		(void)pthread_rwlock_wrlock(&buffers->lock);
		slab = next_slab(buffers, at, &fd);
		if (slab) {
			r = fd < 0 ? -errno : 0;
			slab->slab.session = conn_attempt(buffers->conn);
			/* The next daemon may have room for what this one has refused. */
			atomic_store(&slab->slab.error, 0);
			copy = *slab;
		}
		(void)pthread_rwlock_unlock(&buffers->lock);
		if (!slab)
			return done;
		at = copy.memory;
		if (r == -EMFILE) /* another try */
			r = error_fail_errno(-ENOTCONN, "memory: no descriptor is free");
		if (r == 0 && !copy.slab.is_imported)
			r = fstat(fd, &st) < 0 ? -errno : 0; /* the daemon may have rounded it up */
		if (r == 0)
			r = slab_hand_over(next, &copy.slab, fd, copy.off,
					   copy.slab.is_imported ? copy.bytes
								 : (uint64_t)st.st_size);
		done.must_retry = r == -ENOTCONN;
		if (done.must_retry)
			return done;
		if (r < 0)
			note_refused(buffers, at, copy.slab.id, r);
		done.n_refused += r < 0;
		done.n += r == 0;
		done.bytes += r == 0 ? copy.bytes : 0;
	}
}

/* ---- imported memory ---- */

int buffers_import(struct buffers *buffers, void *memory, size_t bytes,
		   const struct slab_name *name, int fd, uint64_t off)
{
	_cleanup_(slab_freep) struct mapped_slab *slab = calloc(1, sizeof(*slab));
	const uintptr_t start = (uintptr_t)memory;
	struct cut_piece *piece;
	int r;

	if (!slab)
		return -ENOMEM;
	slab->fd = -1;
	slab->slab = *name;
	slab->slab.is_imported = true;
	slab->off = off;
	slab->memory = memory;
	slab->bytes = bytes;
	r = cut_init(&slab->cut, (bytes + CUT_PAGE - 1) & ~(size_t)(CUT_PAGE - 1));
	if (r == 0)
		r = cut_take(&slab->cut, bytes, &piece);
	if (r < 0)
		return r;
	/* Not to the page's end: the daemon takes no more. */
	piece->len = slab->cut.used_bytes = bytes;
	(void)pthread_rwlock_wrlock(&buffers->lock);
	for (size_t i = 0; i < buffers->n; i++) {
		uintptr_t other = (uintptr_t)buffers->slabs[i]->memory;

		if (start < other + buffers->slabs[i]->bytes && other < start + bytes)
			r = -EEXIST;
	}
	if (r == 0)
		slab->fd = fd;
	if (r == 0)
		r = buffers_add(buffers, slab);
	if (r < 0)
		slab->fd = -1; /* the caller's */
	(void)pthread_rwlock_unlock(&buffers->lock);
	if (r == 0)
		(void)TAKE_PTR(slab); /* the list has it */
	return r;
}

bool buffers_have(struct buffers *buffers, const void *memory, size_t bytes, bool *ret_is_imported)
{
	bool is_there = false;
	size_t i;

	(void)pthread_rwlock_rdlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i < buffers->n) {
		const struct mapped_slab *slab = buffers->slabs[i];
		const size_t off = (size_t)((const char *)memory - slab->memory);
		size_t p = cut_find(&slab->cut, off);

		while (p < slab->cut.n && !slab->cut.pieces[p]->is_free &&
		       slab->cut.pieces[p]->off + slab->cut.pieces[p]->len < off + bytes)
			p++;
		is_there = bytes <= slab->bytes - off && p < slab->cut.n &&
			   !slab->cut.pieces[p]->is_free;
		*ret_is_imported = slab->slab.is_imported;
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return is_there;
}

bool buffers_ref(struct buffers *buffers, const void *memory, size_t len,
		 struct buffer_place *ret_place)
{
	bool is_held = false;
	size_t i;

	(void)pthread_rwlock_rdlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i < buffers->n) {
		const struct mapped_slab *slab = buffers->slabs[i];
		size_t off = (size_t)((const char *)memory - slab->memory);
		struct cut_piece *piece = slab->cut.pieces[cut_find(&slab->cut, off)];

		if (!piece->is_free && len <= piece->off + piece->len - off) {
			/* relaxed: dsaio_free() looks under the write lock */
			(void)atomic_fetch_add_explicit(&piece->n_ops, 1, memory_order_relaxed);
			*ret_place = (struct buffer_place){ &slab->slab, off, piece };
			is_held = true;
		}
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return is_held;
}
