#include "client/lib/memory/buffer.h"

#include "client/lib/io/bounce.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BUFFER_BYTES_MAX ((size_t)1 << 46) /* what the daemon takes as a slab's size at most */

struct slab {
	uint32_t id;
	bool is_imported; /* the memory is the caller's; one used piece */
	char *memory;
	size_t bytes;
	struct cut cut;
};

struct client_buffers {
	struct client_object object;
	struct dsaio_client *client;
	pthread_mutex_t grow_lock; /* one new slab at a time: a second thread uses the first's */
	pthread_rwlock_t lock;	   /* of all below; ops look up under a read lock */
	struct slab **slabs;	   /* by address */
	size_t n, n_allocated;
};

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

static void slab_free(struct slab *slab)
{
	if (!slab)
		return;
	if (slab->memory && !slab->is_imported)
		(void)munmap(slab->memory, slab->bytes); /* our own mapping: can not fail */
	cut_deinit(&slab->cut);
	free(slab);
}

static void slab_freep(struct slab **slab)
{
	slab_free(*slab);
}

void buffer_slab_give_back(struct dsaio_client *client, uint32_t id)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabFree body = WIRE__SLAB_FREE__INIT;

	body.slab = id;
	request.body_case = WIRE__REQUEST__BODY_SLAB_FREE;
	request.slab_free = &body;
	/* fails if the daemon is gone: then so is its pool */
	(void)conn_call(client->conn, "free", &request, NULL, 0, NULL, NULL, NULL);
}

static int slab_map(struct slab *slab, int fd)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size < slab->bytes)
		return -EPROTO; /* touching what is not there would be a SIGBUS */
	map = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	slab->memory = map;
	/* A core dump of gigabytes would hold up the end of this process. Only a wish. */
	(void)madvise(map, slab->bytes, MADV_DONTDUMP);
	return 0;
}

int buffer_slab_ask(struct dsaio_client *client, const char *what, uint64_t bytes,
		    uint32_t *ret_slab, int *ret_fd)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabNew body = WIRE__SLAB_NEW__INIT;
	int fds[FRAME_FDS_MAX];
	unsigned n_fds = 0;
	int r;

	body.size_bytes = bytes;
	request.body_case = WIRE__REQUEST__BODY_SLAB_NEW;
	request.slab_new = &body;
	r = conn_call(client->conn, what, &request, NULL, 0, &reply, fds, &n_fds);
	if (r < 0)
		return r;
	if (n_fds != 1) {
		for (unsigned i = 0; i < n_fds; i++)
			(void)close(fds[i]); /* not ours to use */
		conn_break(client->conn);
		return error_fail(-ENOTCONN,
				  "%s: the daemon sent %u descriptors, not a slab's: it is broken",
				  what, n_fds);
	}
	*ret_slab = reply->slab_new->slab;
	*ret_fd = fds[0];
	return 0;
}

static int slab_new(struct dsaio_client *client, size_t bytes, struct slab **ret_slab)
{
	_cleanup_(slab_freep) struct slab *slab = calloc(1, sizeof(*slab));
	_cleanup_(closep) int fd = -1;
	int r;

	if (!slab)
		return error_fail_errno(-ENOMEM, "alloc");
	r = buffer_slab_ask(client, "alloc", bytes, &slab->id, &fd);
	if (r < 0)
		return r;
	slab->bytes = bytes;	/* the daemon may have rounded it up */
	r = slab_map(slab, fd); /* the mapping holds it */
	if (r == -EPROTO)
		conn_break(client->conn);
	if (r == 0)
		r = cut_init(&slab->cut, bytes);
	if (r < 0) {
		buffer_slab_give_back(client, slab->id);
		return error_fail_errno(
			r, "alloc: a slab of %zu bytes was made, but can not be mapped", bytes);
	}
	*ret_slab = TAKE_PTR(slab);
	return 0;
}

static void buffers_free(struct client_buffers *buffers)
{
	for (size_t i = 0; i < buffers->n; i++)
		slab_free(buffers->slabs[i]);
	free(buffers->slabs);
	(void)pthread_rwlock_destroy(&buffers->lock);
	(void)pthread_mutex_destroy(&buffers->grow_lock);
	free(buffers);
}

static void buffers_on_disconnect(struct client_object *object)
{
	buffers_free(container_of(object, struct client_buffers, object));
}

/* The client's buffers, made at the first use. */
static struct client_buffers *buffers_get(struct dsaio_client *client)
{
	struct client_buffers *fresh, *seen = NULL;
	struct client_buffers *buffers = atomic_load_explicit(&client->buffers,
							      memory_order_acquire);

	if (buffers)
		return buffers;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NULL;
	fresh->client = client;
	fresh->object.kind = CLIENT_BUFFERS;
	fresh->object.on_disconnect = buffers_on_disconnect;
	(void)pthread_mutex_init(&fresh->grow_lock, NULL); /* default attributes: can not fail */
	(void)pthread_rwlock_init(&fresh->lock, NULL);
	if (!atomic_compare_exchange_strong(&client->buffers, &seen, fresh)) {
		buffers_free(fresh);
		return seen;
	}
	client_add(client, &fresh->object);
	return fresh;
}

/* Index of the slab that the address lies in, else n.  Under the lock. */
static size_t buffers_find(const struct client_buffers *buffers, const char *address)
{
	size_t low = 0, high = buffers->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct slab *slab = buffers->slabs[middle];

		if ((uintptr_t)address < (uintptr_t)slab->memory)
			high = middle;
		else if ((uintptr_t)address - (uintptr_t)slab->memory >= slab->bytes)
			low = middle + 1;
		else
			return middle;
	}
	return buffers->n;
}

static int buffers_add(struct client_buffers *buffers, struct slab *slab)
{
	size_t i = 0;

	if (buffers->n == buffers->n_allocated) {
		size_t n = buffers->n_allocated ? 2 * buffers->n_allocated : 8;
		struct slab **slabs = reallocarray(buffers->slabs, n, sizeof(*slabs));

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

static void buffers_remove(struct client_buffers *buffers, size_t i)
{
	buffers->n--;
	memmove(&buffers->slabs[i], &buffers->slabs[i + 1],
		(buffers->n - i) * sizeof(buffers->slabs[0]));
}

/* A piece of any slab; -ENOSPC if none has room.  *ret_last: bytes of the largest slab. */
static int buffers_take(struct client_buffers *buffers, size_t bytes, char **ret_memory,
			bool *ret_is_dirty, size_t *ret_last)
{
	int r = -ENOSPC;

	(void)pthread_rwlock_wrlock(&buffers->lock); /* taken nowhere above: can not fail */
	*ret_last = 0;
	for (size_t i = 0; i < buffers->n && r == -ENOSPC; i++) {
		struct slab *slab = buffers->slabs[i];
		struct cut_piece *piece;

		if (slab->is_imported)
			continue;
		if (slab->bytes > *ret_last)
			*ret_last = slab->bytes;
		r = cut_take(&slab->cut, bytes, &piece);
		if (r == 0) {
			*ret_memory = slab->memory + piece->off;
			*ret_is_dirty = piece->is_dirty;
		}
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return r;
}

/* A new slab, and a piece of it for the caller before anybody else comes. */
static int buffers_grow(struct client_buffers *buffers, size_t bytes, size_t last,
			char **ret_memory)
{
	struct dsaio_client *client = buffers->client;
	_cleanup_(slab_freep) struct slab *slab = NULL;
	struct cut_piece *piece;
	uint32_t id;
	size_t want = buffer_slab_bytes(bytes, last);
	size_t least = (bytes + CUT_PAGE - 1) & ~(size_t)(CUT_PAGE - 1);
	int r = slab_new(client, want, &slab);

	if (r == -ENOMEM && want > least) /* near the bound: no more than is needed */
		r = slab_new(client, least, &slab);
	if (r == -ENOMEM && bounce_trim(client))
		r = slab_new(client, least, &slab);
	if (r < 0)
		return r;
	id = slab->id;
	r = cut_take(&slab->cut, bytes, &piece);
	if (r == 0) {
		*ret_memory = slab->memory + piece->off;
		(void)pthread_rwlock_wrlock(&buffers->lock);
		r = buffers_add(buffers, slab);
		(void)pthread_rwlock_unlock(&buffers->lock);
	}
	if (r < 0) {
		buffer_slab_give_back(client, id);
		return error_fail_errno(r, "alloc of %zu bytes", bytes);
	}
	debug_log("alloc: slab %u of %zu bytes", id, slab->bytes);
	(void)TAKE_PTR(slab); /* the list has it */
	return 0;
}

int dsaio_alloc(struct dsaio_client *client, size_t bytes, void **ret_memory)
{
	CANCEL_DISABLE();
	_cleanup_(unlockp) pthread_mutex_t *locked = NULL;
	struct client_buffers *buffers;
	char *memory = NULL;
	bool is_dirty = false;
	size_t last;
	int r = client_check(client, "alloc");

	if (r < 0)
		return r;
	if (!ret_memory)
		return client_null("alloc", "place for the memory");
	if (!bytes)
		return error_fail(-EINVAL, "alloc: 0 bytes: ask for at least 1");
	r = client_check_alive(client, "alloc");
	if (r < 0)
		return r;
	if (bytes > BUFFER_BYTES_MAX)
		return error_fail(-ENOMEM,
				  "alloc of %zu bytes: this client may have %" PRIu64 " bytes: ask "
				  "for less, or raise the daemon's client_pool_max",
				  bytes, client->conn->client_pool_max);
	buffers = buffers_get(client);
	if (!buffers)
		return error_fail_errno(-ENOMEM, "alloc");
	r = buffers_take(buffers, bytes, &memory, &is_dirty, &last);
	if (r == -ENOSPC) {
		(void)pthread_mutex_lock(&buffers->grow_lock);
		locked = &buffers->grow_lock;
		r = buffers_take(buffers, bytes, &memory, &is_dirty, &last);
	}
	if (r == -ENOSPC)
		r = buffers_grow(buffers, bytes, last, &memory);
	else if (r < 0)
		r = error_fail_errno(r, "alloc of %zu bytes", bytes);
	if (r < 0)
		return r;
	if (is_dirty)
		memset(memory, 0, (bytes + CUT_PAGE - 1) & ~(size_t)(CUT_PAGE - 1));
	*ret_memory = memory;
	return 0;
}

/* Is this entirely free slab one too many?  One that is small is kept.  Under the lock. */
static bool buffers_spare(const struct client_buffers *buffers, size_t index)
{
	if (buffers->slabs[index]->bytes > BUFFER_SLAB_FIRST)
		return true;
	for (size_t i = 0; i < buffers->n; i++)
		if (i != index && !buffers->slabs[i]->cut.used_bytes)
			return true;
	return false;
}

int dsaio_free(struct dsaio_client *client, void *memory)
{
	CANCEL_DISABLE();
	_cleanup_(slab_freep) struct slab *spare = NULL;
	struct client_buffers *buffers;
	struct slab *slab = NULL;
	struct cut_piece *piece;
	size_t i, p;
	int r = 0;

	if (!client)
		return client_null("free", "client");
	if (!memory || client_is_forked(client))
		return 0;
	buffers = atomic_load_explicit(&client->buffers, memory_order_acquire);
	if (!buffers)
		return error_fail(-EINVAL, "free: %p does not come from dsaio_alloc()", memory);

	(void)pthread_rwlock_wrlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i == buffers->n) {
		r = -EINVAL;
	} else {
		slab = buffers->slabs[i];
		p = cut_find(&slab->cut, (size_t)((char *)memory - slab->memory));
		piece = slab->cut.pieces[p];
		if (slab->is_imported || piece->is_free ||
		    slab->memory + piece->off != (char *)memory)
			r = -EINVAL;
		else if (atomic_load_explicit(&piece->n_ops, memory_order_acquire)) /* drop */
			r = -EBUSY;
		else
			cut_give(&slab->cut, p);
		if (r == 0 && !slab->cut.used_bytes && buffers_spare(buffers, i)) {
			spare = slab;
			buffers_remove(buffers, i);
		}
	}
	(void)pthread_rwlock_unlock(&buffers->lock);

	if (r == -EINVAL)
		return error_fail(r,
				  "free: %p is not the start of memory of dsaio_alloc(), or was "
				  "freed before",
				  memory);
	if (r == -EBUSY)
		return error_fail(r, "free: an open op uses the memory at %p: wait for its end",
				  memory);
	if (spare) {
		uint32_t id = spare->id;

		slab_free(TAKE_PTR(spare)); /* unmapped first: the pool punches it quicker */
		buffer_slab_give_back(client, id);
	}
	return 0;
}

bool buffer_trim(struct dsaio_client *client)
{
	struct client_buffers *buffers = atomic_load_explicit(&client->buffers,
							      memory_order_acquire);
	struct slab *spare = NULL;
	uint32_t id;

	if (!buffers)
		return false;
	(void)pthread_rwlock_wrlock(&buffers->lock);
	for (size_t i = 0; i < buffers->n && !spare; i++) {
		if (buffers->slabs[i]->cut.used_bytes)
			continue;
		spare = buffers->slabs[i];
		buffers_remove(buffers, i);
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	if (!spare)
		return false;
	id = spare->id;
	slab_free(spare);
	buffer_slab_give_back(client, id);
	return true;
}

/* ---- imported memory ---- */

/* Under the lock. */
static bool buffers_touch(const struct client_buffers *buffers, const void *memory, size_t bytes)
{
	uintptr_t start = (uintptr_t)memory;

	for (size_t i = 0; i < buffers->n; i++) {
		uintptr_t other = (uintptr_t)buffers->slabs[i]->memory;

		if (start < other + buffers->slabs[i]->bytes && other < start + bytes)
			return true;
	}
	return false;
}

bool buffer_is_known(struct dsaio_client *client, const void *memory, size_t bytes)
{
	struct client_buffers *buffers = atomic_load_explicit(&client->buffers,
							      memory_order_acquire);
	bool is_known;

	if (!buffers)
		return false;
	(void)pthread_rwlock_rdlock(&buffers->lock);
	is_known = buffers_touch(buffers, memory, bytes);
	(void)pthread_rwlock_unlock(&buffers->lock);
	return is_known;
}

int buffer_import(struct dsaio_client *client, void *memory, size_t bytes, uint32_t id)
{
	_cleanup_(slab_freep) struct slab *slab = calloc(1, sizeof(*slab));
	struct client_buffers *buffers = buffers_get(client);
	struct cut_piece *piece;
	int r;

	if (!slab || !buffers)
		return -ENOMEM;
	slab->is_imported = true;
	slab->id = id;
	slab->memory = memory;
	slab->bytes = bytes;
	r = cut_init(&slab->cut, (bytes + CUT_PAGE - 1) & ~(size_t)(CUT_PAGE - 1));
	if (r == 0)
		r = cut_take(&slab->cut, bytes, &piece);
	if (r < 0)
		return r;
	piece->len = bytes; /* not to the page's end: the daemon takes no more */
	(void)pthread_rwlock_wrlock(&buffers->lock);
	r = buffers_touch(buffers, memory, bytes) ? -EEXIST : buffers_add(buffers, slab);
	(void)pthread_rwlock_unlock(&buffers->lock);
	if (r == 0)
		(void)TAKE_PTR(slab); /* the list has it */
	return r;
}

int buffer_unimport(struct dsaio_client *client, const void *memory, uint32_t *ret_slab)
{
	struct client_buffers *buffers = atomic_load_explicit(&client->buffers,
							      memory_order_acquire);
	_cleanup_(slab_freep) struct slab *slab = NULL;
	int r = -EINVAL;
	size_t i;

	if (!buffers)
		return r;
	(void)pthread_rwlock_wrlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i < buffers->n && buffers->slabs[i]->is_imported &&
	    buffers->slabs[i]->memory == memory) {
		r = 0;
		if (atomic_load_explicit(&buffers->slabs[i]->cut.pieces[0]->n_ops,
					 memory_order_acquire)) /* drop */
			r = -EBUSY;
	}
	if (r == 0) {
		slab = buffers->slabs[i];
		*ret_slab = slab->id;
		buffers_remove(buffers, i);
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return r;
}

bool dsaio_is_pinned(struct dsaio_client *client, const void *memory, size_t bytes)
{
	struct client_buffers *buffers;
	size_t i, p, off;
	bool is_pinned = false;

	if (client_check(client, "is_pinned") < 0 || !memory)
		return false;
	buffers = atomic_load_explicit(&client->buffers, memory_order_acquire);
	if (!buffers)
		return false;
	(void)pthread_rwlock_rdlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i < buffers->n) {
		const struct slab *slab = buffers->slabs[i];

		off = (size_t)((const char *)memory - slab->memory);
		p = cut_find(&slab->cut, off);
		if (bytes <= slab->bytes - off) {
			while (p < slab->cut.n && !slab->cut.pieces[p]->is_free &&
			       slab->cut.pieces[p]->off + slab->cut.pieces[p]->len < off + bytes)
				p++;
			is_pinned = p < slab->cut.n && !slab->cut.pieces[p]->is_free;
		}
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return is_pinned;
}

bool buffer_hold(struct dsaio_client *client, const void *memory, size_t len,
		 struct buffer_place *ret_place)
{
	struct client_buffers *buffers = atomic_load_explicit(&client->buffers,
							      memory_order_acquire);
	bool is_held = false;
	size_t i;

	if (!buffers)
		return false;
	(void)pthread_rwlock_rdlock(&buffers->lock);
	i = buffers_find(buffers, memory);
	if (i < buffers->n) {
		const struct slab *slab = buffers->slabs[i];
		size_t off = (size_t)((const char *)memory - slab->memory);
		struct cut_piece *piece = slab->cut.pieces[cut_find(&slab->cut, off)];

		if (!piece->is_free && len <= piece->off + piece->len - off) {
			/* relaxed: dsaio_free() looks under the write lock */
			(void)atomic_fetch_add_explicit(&piece->n_ops, 1, memory_order_relaxed);
			*ret_place = (struct buffer_place){ slab->id, off, piece,
							    slab->is_imported };
			is_held = true;
		}
	}
	(void)pthread_rwlock_unlock(&buffers->lock);
	return is_held;
}
