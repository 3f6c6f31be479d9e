#include "client/lib/io/file.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_named.h"
#include "client/lib/io/inode.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* How long files_uncache() waits for the close of one file: local file systems need milliseconds. */
#define UNCACHE_MSEC 10000u

uint32_t files_max(const struct dsaio_client *client)
{
	uint32_t max = conn_facts(client->conn).max_files;

	return max - max / 8;
}

/* ---- in use, idle, gone ---- */

void file_free(struct dsaio_file *file)
{
	if (!file)
		return;
	inode_drop(file->client, file->inode);
	file_fds_closep(&file->fds);
	free(file->session.gpu_why);
	free(file->name);
	free(file);
}

/*
 * The daemon closes the file, which hangs if its mount is dead.  Waits until then, or until the deadline; 0:
 * not at all.
 */
static int daemon_remove(const struct dsaio_file *file, uint64_t deadline_nsec)
{
	struct dsaio_conn *conn = file->client->conn;
	Wire__FileRemove body = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_REMOVE, file_remove, &body);

	if (atomic_load(&file->session.error)) /* the daemon does not have it */
		return 0;
	body.file = file->session.id;
	if (deadline_nsec)
		return conn_call_in(conn, "file close", &request, file->session.number, false,
				    deadline_nsec);
	conn_post_in(conn, &request, file->session.number);
	return 0;
}

void file_set_temporary(struct dsaio_file *file, const char *name)
{
	char *copy = file->named.id ? NULL
				    : strdup(name); /* the daemon needs that of a RADOS store */

	file->is_temporary = true;
	if (!copy)
		return; /* only messages miss it */
	free(file->name);
	file->name = copy;
}

/*
 * Takes an idle file off the list of these; it is used, or to be freed.  false: the daemon has let
 * it go already.  Under files.lock.
 */
static bool file_wake(struct dsaio_file *file)
{
	cache_set_used(&file->client->files.cache, &file->entry);
	return conn_file_use(file->client->conn, file->session.id);
}

/*
 * Removes it from the cache and from the count of files.  file_close() has to follow, without the
 * lock.  Under files.lock.
 */
static void file_uncache(struct dsaio_file *file)
{
	cache_remove(&file->client->files.cache, &file->entry);
	file->client->files.n -= 1u + atomic_load(&file->session.has_buffered);
}

/* is_removed: the daemon has let it go.  Returns as daemon_remove(). */
static int file_close(struct dsaio_file *file, bool is_removed, uint64_t deadline_nsec)
{
	int r = 0;

	client_remove(file->client, &file->object);
	if (!is_removed)
		r = daemon_remove(file, deadline_nsec);
	file_free(file);
	return r;
}

bool files_evict(struct dsaio_client *client, uint32_t n_max)
{
	struct client_files *files = &client->files;
	struct dsaio_file *file = NULL;
	bool is_removed = false;

	(void)pthread_mutex_lock(&files->lock);
	if (files->n > n_max && files->cache.idle.first) {
		file = container_of(files->cache.idle.first, struct dsaio_file, entry.node);
		is_removed = !file_wake(file);
		file_uncache(file);
	}
	(void)pthread_mutex_unlock(&files->lock);
	if (!file)
		return false;
	debug_log("file %s: idle for longest: makes room", file->name);
	(void)file_close(file, is_removed, 0); /* cannot fail without waiting */
	return true;
}

bool files_make_room(struct dsaio_client *client, uint64_t n_answered)
{
	bool did = files_evict(client, 0);

	return conn_await_post(client->conn, n_answered) || did;
}

/*
 * No op and no open seems to use the file any more: keeps it in the cache, or closes it.  Without
 * may_wait it never sleeps, since the caller works on another file.
 */
static void file_settle(struct dsaio_file *file, bool may_wait)
{
	struct dsaio_client *client = file->client;
	bool is_kept;

	(void)pthread_mutex_lock(&client->files.lock);
	file->is_settling = false;
	if (atomic_load(&file->n_refs)) { /* opened again meanwhile */
		(void)pthread_mutex_unlock(&client->files.lock);
		return;
	}
	is_kept = file->entry.is_listed && !atomic_load(&file->session.error) &&
		  conn_is_of(client->conn, file->session.number) &&
		  conn_file_idle(client->conn, file->session.id);
	if (is_kept)
		cache_set_idle(&client->files.cache, &file->entry);
	else
		file_uncache(file);
	(void)pthread_mutex_unlock(&client->files.lock);
	if (!is_kept) /* fails only if the daemon is gone: then it has closed the file, too */
		(void)file_close(file, false, may_wait ? DEADLINE_NEVER : 0);
	while (files_evict(client, files_max(client)))
		;
}

void files_collect(struct dsaio_client *client)
{
	struct dsaio_file *file, *next;

	(void)pthread_mutex_lock(&client->files.lock);
	/* relaxed, as below: the lock orders */
	file = atomic_exchange_explicit(&client->files.garbage, NULL, memory_order_relaxed);
	(void)pthread_mutex_unlock(&client->files.lock);
	for (; file; file = next) {
		next = file->next_garbage;
		file_settle(file, false);
	}
}

int file_on_disconnect(struct client_object *object)
{
	struct dsaio_file *file = container_of(object, struct dsaio_file, object);

	/* Also if it is freed: what is removed later follows the links of the cache. */
	cache_remove(&file->client->files.cache, &file->entry);
	if (file->n_opens) { /* the program has it */
		file_fds_closep(&file->fds);
		file->fds = (struct file_fds){ -1, -1 };
		return 0;
	}
	client_remove(file->client, object);
	file_free(file);
	return 0;
}

struct dsaio_file *file_alloc(struct dsaio_client *client, char *name)
{
	struct dsaio_file *file = name ? calloc(1, sizeof(*file)) : NULL;

	if (!file) {
		free(name);
		return NULL;
	}
	file->client = client;
	file->object.kind = CLIENT_FILE;
	file->object.on_disconnect = file_on_disconnect;
	file->name = name;
	file->fds = (struct file_fds){ -1, -1 };
	file->n_opens = 1;
	atomic_init(&file->n_refs, 1);
	return file;
}

/* Drops a reference.  Returns true if it was the last: file_settle() has to follow.  Under files.lock. */
static bool file_drop(struct dsaio_file *file)
{
	/* acq_rel: the last sees all use before */
	if (atomic_fetch_sub_explicit(&file->n_refs, 1, memory_order_acq_rel) != 1 ||
	    file->is_settling)
		return false;
	file->is_settling = true;
	return true;
}

void file_drop_ref(struct dsaio_file *file)
{
	struct client_files *files;
	uint32_t n = atomic_load_explicit(&file->n_refs, memory_order_relaxed);

	/* release: the last, in file_drop(), sees all use before */
	while (n > 1)
		if (atomic_compare_exchange_weak_explicit(
			    &file->n_refs, &n, n - 1, memory_order_release, memory_order_relaxed))
			return;
	files = &file->client->files;
	LOCKED(&files->lock);
	if (file_drop(file)) {
		file->next_garbage = atomic_load_explicit(&files->garbage, memory_order_relaxed);
		atomic_store_explicit(&files->garbage, file, memory_order_relaxed);
	}
}

bool file_release(struct dsaio_file *file, bool may_wait)
{
	struct client_files *files = &file->client->files;
	_cleanup_(file_fds_closep) struct file_fds unwanted = { -1, -1 };
	bool is_last, is_closed;

	(void)pthread_mutex_lock(&files->lock);
	is_closed = !--file->n_opens;
	if (is_closed && !file->n_fd_users)
		unwanted = file_fd_give_up(file);
	is_last = file_drop(file);
	(void)pthread_mutex_unlock(&files->lock);
	if (is_last)
		file_settle(file, may_wait);
	return is_closed; /* the close is last, as it may hang, and files_uncache() waits for the settling */
}

/* ---- its size ---- */

int file_grow(struct dsaio_file *file, uint64_t end, uint64_t *ret_grow_end)
{
	struct rlimit limit;
	int64_t size;

	*ret_grow_end = 0;
	if (file->named.id)
		return file_named_grow(file, end);
	if (inode_is_long(file->inode, end))
		return 0;
	size = file_size_seen(file, AT_STATX_SYNC_AS_STAT); /* -1: the daemon does without */
	if (size >= 0 && (uint64_t)size >= end) {
		inode_know_size(file->inode, (uint64_t)size);
		return 0;
	}
	/* The kernel knows only the daemon's limit. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur)
		return -EFBIG;
	*ret_grow_end = end;
	return 0;
}

/* ---- the cache ---- */

/* May it be used again, if nobody uses it?  Not in another session than its own: its id may be another's there. */
static bool file_is_current(const struct dsaio_file *file)
{
	return !atomic_load(&file->session.error) &&
	       (atomic_load(&file->n_refs) || conn_is_of(file->client->conn, file->session.number));
}

/* A file that cache_find() finds, opened for the caller, whatever it is by now; or NULL. */
static struct dsaio_file *file_find(struct dsaio_client *client, const struct cache_key *key,
				    bool or_both)
{
	struct client_files *files = &client->files;
	struct dsaio_file *file = NULL, *gone = NULL;
	struct cache_entry *entry;

	(void)pthread_mutex_lock(&files->lock);
	entry = cache_find(&files->cache, key, or_both);
	if (entry) {
		file = container_of(entry, struct dsaio_file, entry);
		if (!entry->is_idle && !file_is_current(file)) { /* it is about to be settled */
			cache_remove(&files->cache, entry);
			file = NULL;
		} else if (entry->is_idle && (!file_is_current(file) || !file_wake(file))) {
			file_uncache(file);
			gone = TAKE_PTR(file);
		}
	}
	if (file) { /* may be its first: only under the lock */
		file_add_ref(file);
		file->n_opens++;
	}
	(void)pthread_mutex_unlock(&files->lock);
	if (gone)
		(void)file_close(gone, true, 0); /* only frees it */
	return file;
}

/* Its key names another file now.  No open finds it any more, and its last user frees it. */
static void file_forget(struct dsaio_file *file)
{
	LOCKED(&file->client->files.lock);

	cache_remove(&file->client->files.cache, &file->entry);
}

/*
 * May this thread open the path with that mode?  Checks the same directories and rights as
 * open(2), with the user that setfsuid(2) has set.  The file's mode and owner would say it without a
 * system call, but only setfsuid(2) tells which user that is, and filters of seccomp(2) kill
 * processes that call it.
 */
static bool may_access(const struct cache_key *key)
{
	int mode = (key->access_mode != O_WRONLY ? R_OK : 0) |
		   (key->access_mode != O_RDONLY ? W_OK : 0);

	/* a descriptor's access mode is in the key */
	return !key->path || faccessat(AT_FDCWD, key->path, mode, AT_EACCESS) == 0;
}

struct dsaio_file *file_cached(struct dsaio_client *client, const struct cache_key *key,
			       bool or_both)
{
	struct dsaio_file *file = file_find(client, key, or_both);
	struct statx stx;

	if (!file)
		return NULL;
	if (file_statx(key, AT_STATX_SYNC_AS_STAT, &stx) < 0 || !file_is_same(file, &stx)) {
		debug_log("file %s: is another one now, or gone", file->name);
		file_forget(file);
	} else if (may_access(key)) {
		inode_opened(file->inode, stx.stx_size);
		return file;
	}
	(void)file_release(file, false);
	return NULL;
}

/*
 * Moves idle files of that name (NULL: all) from the cache to `taken`.  Returns false if another thread is about to
 * settle one of them.  *ret_is_busy: one is in use.
 */
static bool idle_take(struct dsaio_client *client, const char *name, struct list *taken,
		      bool *ret_is_busy)
{
	bool is_settled = true;

	*ret_is_busy = false;
	(void)pthread_mutex_lock(&client->files.lock);
	(void)pthread_mutex_lock(&client->lock);
	LIST_EACH(struct dsaio_file, file, &client->objects[CLIENT_FILE], object.node) {
		if (name && strcmp(file->name, name) != 0)
			continue;
		if (file->entry.is_idle) {
			file_uncache(file);
			list_push(taken, &file->entry.node);
		} else if (atomic_load(&file->n_refs)) {
			*ret_is_busy = true;
		} else if (file->is_settling) {
			is_settled = false;
		}
	}
	(void)pthread_mutex_unlock(&client->lock);
	(void)pthread_mutex_unlock(&client->files.lock);
	return is_settled;
}

void files_forget_idle(struct dsaio_client *client)
{
	struct list taken = { NULL, NULL };
	bool is_busy;

	(void)idle_take(client, NULL, &taken, &is_busy);
	LIST_EACH(struct dsaio_file, file, &taken, entry.node)
		(void)file_close(file, true, 0); /* only frees it */
}

int files_uncache(struct dsaio_client *client, const char *name)
{
	struct list taken = { NULL, NULL };
	bool is_busy;
	int r = 0;

	client_collect(client);
	while (!idle_take(client, name, &taken, &is_busy)) {
		(void)sched_yield(); /* the other thread does not sleep before it has settled the file */
		client_collect(client);
	}
	LIST_EACH(struct dsaio_file, file, &taken, entry.node) {
		bool is_removed = !conn_file_use(client->conn, file->session.id);
		uint64_t deadline_nsec = r == 0 ? deadline_in_msec(UNCACHE_MSEC) : 0;
		int result;

		debug_log("file %s: leaves the cache", file->name);
		result = file_close(file, is_removed, deadline_nsec);
		if (result < 0)
			r = result;
	}
	if (r == -ETIMEDOUT)
		return error_fail(
			r,
			"file_drop %s: the daemon has not closed it for %u s: its file "
			"system does not answer (dsaioctl status shows it), or the daemon "
			"is stopped; it is closed when they go on",
			name ? name : "of all idle files", UNCACHE_MSEC / 1000);
	if (r == 0 && name && is_busy)
		return error_fail(-EBUSY,
				  "file_drop %s: it is open, or has ops: close it, and await its "
				  "ops, first",
				  name);
	return r;
}

void file_list(struct dsaio_file *file)
{
	struct dsaio_client *client = file->client;
	bool is_same = false;
	struct dsaio_file *other;

	while (!is_same && (other = file_find(client, &file->entry.key, false))) {
		is_same = cache_is_same(&other->identity, &file->identity);
		if (!is_same)
			file_forget(other);
		(void)file_release(other, false);
	}
	LOCKED(&client->files.lock);
	client->files.n++;
	/*
	 * Not kept are: what cannot be opened anew, since its description is the program's; and
	 * block devices, which must not look as if they were in use.
	 */
	if (!file->is_shared && !file->is_block_device)
		(void)cache_add(&client->files.cache, &file->entry);
}
