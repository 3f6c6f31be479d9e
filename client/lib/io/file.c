#include "client/lib/io/file.h"

#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "proto/util/cleanup.h"
#include "proto/file_board.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define LOOK_AT (STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BTIME)
#define SPARED_MAX 64 /* descriptors closed at a time: a guess */

/* Of so many files that the daemon lets us have, room is left for those in use. */
static uint32_t files_max(const struct dsaio_client *client)
{
	return client->link.conn->max_files - client->link.conn->max_files / 8;
}

/* ---- the descriptor ---- */

/* The caller's to close.  Under files.lock. */
static int fd_give_up(struct dsaio_file *file)
{
	if (file->fd >= 0)
		file->client->files.n_fds--;
	return TAKE_FD(file->fd);
}

/* Under files.lock; -1: not taken. */
static int fd_take_kept(struct dsaio_file *file)
{
	if (file->fd >= 0)
		file->n_fd_users++;
	return file->fd;
}

/*
 * This process has as many descriptors open as it may: closes some of ours, which can be got back.
 * false: there is none.  errno stays.
 */
static bool files_spare_fds(struct dsaio_client *client)
{
	int fds[SPARED_MAX], n = 0, error = errno;

	(void)pthread_mutex_lock(&client->files.lock); /* plain mutexes: can not fail */
	(void)pthread_mutex_lock(&client->lock);
	for (struct client_object *object = client->objects[CLIENT_FILE]; object && n < SPARED_MAX;
	     object = object->next) {
		struct dsaio_file *file = container_of(object, struct dsaio_file, object);

		if (file->fd >= 0 && !file->n_fd_users)
			fds[n++] = fd_give_up(file);
	}
	(void)pthread_mutex_unlock(&client->lock);
	(void)pthread_mutex_unlock(&client->files.lock);
	for (int i = 0; i < n; i++)
		(void)close(fds[i]); /* what has to last was synced */
	errno = error;
	return n;
}

/* Did it fail for want of descriptors, and is another try worth it?  fd: -1 with errno, or one. */
static bool may_try_again(struct dsaio_client *client, int fd)
{
	return fd < 0 && errno == EMFILE && files_spare_fds(client);
}

static int daemon_get(struct dsaio_file *file, int *ret_fd)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileGet body = WIRE__FILE_GET__INIT;
	int fds[FRAME_FDS_MAX], r;
	unsigned n_fds = 0;

	body.file = file->id;
	request.body_case = WIRE__REQUEST__BODY_FILE_GET;
	request.file_get = &body;
	do
		r = conn_call(file->client->link.conn, "file", &request, NULL, 0, NULL, fds,
			      &n_fds);
	while (r == -EMFILE && files_spare_fds(file->client));
	if (r < 0)
		return r;
	for (unsigned i = 1; i < n_fds; i++)
		closep(&fds[i]);
	if (!n_fds) {
		conn_break(file->client->link.conn);
		return error_fail(-ENOTCONN,
				  "file %s: the daemon does not give its descriptor back: it is "
				  "broken",
				  file->name);
	}
	*ret_fd = fds[0];
	return 0;
}

int file_fd_take(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	_cleanup_(closep) int got = -1;
	int fd, r;

	(void)pthread_mutex_lock(&files->lock);
	fd = fd_take_kept(file);
	(void)pthread_mutex_unlock(&files->lock);
	if (fd >= 0)
		return fd;
	r = daemon_get(file, &got);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&files->lock);
	if (file->fd < 0) { /* else another thread was first */
		file->fd = TAKE_FD(got);
		files->n_fds++;
	}
	fd = fd_take_kept(file);
	(void)pthread_mutex_unlock(&files->lock);
	return fd;
}

void file_fd_give(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	_cleanup_(closep) int unwanted = -1;

	(void)pthread_mutex_lock(&files->lock);
	if (!--file->n_fd_users && (!file->n_opens || files->n_fds > files->n_fds_wanted))
		unwanted = fd_give_up(file);
	(void)pthread_mutex_unlock(&files->lock);
}

/* Looks at what the key names now; sync: AT_STATX_...  Returns 0 or a negative errno. */
static int look(const struct cache_key *key, int sync, struct statx *ret_stx)
{
	int r = key->path ? statx(AT_FDCWD, key->path, sync, LOOK_AT, ret_stx)
			  : statx(key->fd, "", AT_EMPTY_PATH | sync, LOOK_AT, ret_stx);

	return r < 0 ? -errno : 0;
}

static bool is_file(const struct dsaio_file *file, const struct statx *stx)
{
	struct cache_identity identity = cache_identity_of(stx);

	return cache_is_same(&file->identity, &identity);
}

static int64_t fd_size(const struct dsaio_file *file, int fd)
{
	struct stat st;
	uint64_t bytes;

	if (file->is_block_device)
		return ioctl(fd, BLKGETSIZE64, &bytes) < 0 ? -errno : (int64_t)bytes;
	return fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_size;
}

int64_t file_size(struct dsaio_file *file)
{
	struct statx stx;
	int64_t size;
	int fd;

	(void)pthread_mutex_lock(&file->client->files.lock);
	fd = fd_take_kept(file);
	(void)pthread_mutex_unlock(&file->client->files.lock);
	if (fd < 0 && !file->is_block_device &&
	    look(&file->entry.key, AT_STATX_SYNC_AS_STAT, &stx) == 0 && is_file(file, &stx))
		return (int64_t)stx.stx_size;
	if (fd < 0)
		fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	size = fd_size(file, fd);
	file_fd_give(file);
	return size;
}

/* Looks at it without a message; sync: AT_STATX_...; -1: that does not tell. */
static int64_t size_look(struct dsaio_file *file, int sync)
{
	struct statx stx;
	int fd, r;

	(void)pthread_mutex_lock(&file->client->files.lock);
	fd = fd_take_kept(file);
	(void)pthread_mutex_unlock(&file->client->files.lock);
	if (fd < 0)
		return look(&file->entry.key, sync, &stx) == 0 && is_file(file, &stx)
			       ? (int64_t)stx.stx_size
			       : -1;
	r = statx(fd, "", AT_EMPTY_PATH | sync, LOOK_AT, &stx);
	file_fd_give(file);
	return r < 0 ? -1 : (int64_t)stx.stx_size;
}

int64_t file_size_seen(struct dsaio_file *file)
{
	return size_look(file, AT_STATX_DONT_SYNC);
}

int file_grow(struct dsaio_file *file, uint64_t end, uint64_t *ret_grow_end)
{
	struct rlimit limit;
	int64_t size;

	*ret_grow_end = 0;
	if (inode_is_long(file->inode, end))
		return 0;
	size = size_look(file, AT_STATX_SYNC_AS_STAT); /* -1: the daemon does without */
	if (size >= 0 && (uint64_t)size >= end) {
		inode_know_size(file->inode, (uint64_t)size);
		return 0;
	}
	/* The kernel knows only the daemon's limit. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur)
		return -EFBIG;
	/* A daemon of an earlier version lets the blocks extend the file, which is slower. */
	if (file->client->link.conn->features & RING_FEATURE_GROW)
		*ret_grow_end = end;
	return 0;
}

/* ---- in use, idle, gone ---- */

/* What the daemon and the client's list no longer have. */
static void file_free(struct dsaio_file *file)
{
	if (!file)
		return;
	inode_drop(file->client, file->inode);
	closep(&file->fd);
	free(file->name);
	free(file);
}

static void file_freep(struct dsaio_file **file)
{
	file_free(*file);
}

/*
 * The daemon closes the file, which hangs if its mount is dead.  may_wait: the caller wants it
 * closed when this returns.
 */
static void daemon_remove(struct dsaio_client *client, uint32_t id, bool may_wait)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileRemove body = WIRE__FILE_REMOVE__INIT;

	body.file = id;
	request.body_case = WIRE__REQUEST__BODY_FILE_REMOVE;
	request.file_remove = &body;
	/* Fails only if the daemon is gone: then it has closed the file, too. */
	if (may_wait)
		(void)conn_call(client->link.conn, "file close", &request, NULL, 0, NULL, NULL,
				NULL);
	else
		conn_post(client->link.conn, &request);
}

/*
 * Takes an idle file off the list of these; it is used, or to be freed.  false: the daemon has let
 * it go already.  Under files.lock.
 */
static bool file_wake(struct dsaio_file *file)
{
	_Atomic uint32_t *board = file->client->link.conn->file_board;

	cache_set_used(&file->client->files.cache, &file->entry);
	/* A word that makes no sense is the daemon's fault: then it still has the file. */
	return file_board_take(board, file->id, FILE_BOARD_USED) ||
	       !file_board_is_gone(board, file->id);
}

/* Takes it out of the account; file_bury() has to follow, without the lock.  Under files.lock. */
static void file_strike(struct dsaio_file *file)
{
	cache_remove(&file->client->files.cache, &file->entry);
	file->client->files.n -= 1u + atomic_load(&file->has_buffered);
}

/* is_removed: the daemon has let it go. */
static void file_bury(struct dsaio_file *file, bool is_removed, bool may_wait)
{
	client_remove(file->client, &file->object);
	if (!is_removed)
		daemon_remove(file->client, file->id, may_wait);
	file_free(file);
}

/* Are there more than n_max files?  Then the one that is idle longest goes; false: none did. */
static bool files_evict(struct dsaio_client *client, uint32_t n_max)
{
	struct client_files *files = &client->files;
	struct dsaio_file *file = NULL;
	bool is_removed = false;

	(void)pthread_mutex_lock(&files->lock);
	if (files->n > n_max && files->cache.oldest) {
		file = container_of(files->cache.oldest, struct dsaio_file, entry);
		is_removed = !file_wake(file);
		file_strike(file);
	}
	(void)pthread_mutex_unlock(&files->lock);
	if (!file)
		return false;
	debug_log("file %s: idle for longest: makes room", file->name);
	file_bury(file, is_removed, false);
	return true;
}

/*
 * The daemon had no room for one more file.  Lets an idle one go, and waits until the daemon has
 * closed some file since n_answered was read: this one, or another whose close did not hang.
 * false: there is none.
 */
static bool files_make_room(struct dsaio_client *client, uint64_t n_answered)
{
	bool did = files_evict(client, 0);

	return conn_await_post(client->link.conn, n_answered) || did;
}

/*
 * Nobody uses the file any more, it seems: keeps it in the cache, or lets it go.  Without may_wait
 * it never sleeps: whoever collects garbage is on another file's business.
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
	is_kept = file->entry.is_listed;
	if (is_kept) {
		cache_set_idle(&client->files.cache, &file->entry);
		file_board_set(client->link.conn->file_board, file->id, FILE_BOARD_IDLE);
	} else {
		file_strike(file);
	}
	(void)pthread_mutex_unlock(&client->files.lock);
	if (!is_kept)
		file_bury(file, false, may_wait);
	while (files_evict(client, files_max(client)))
		;
}

static void file_on_collect(struct client_object *object)
{
	file_settle(container_of(object, struct dsaio_file, object), false);
}

static void file_on_disconnect(struct client_object *object)
{
	file_free(container_of(object, struct dsaio_file, object));
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

void file_unref(struct dsaio_file *file)
{
	uint32_t n = atomic_load_explicit(&file->n_refs, memory_order_relaxed);

	/* release: the last, in file_drop(), sees all use before */
	while (n > 1)
		if (atomic_compare_exchange_weak_explicit(
			    &file->n_refs, &n, n - 1, memory_order_release, memory_order_relaxed))
			return;
	(void)pthread_mutex_lock(&file->client->files.lock);
	if (file_drop(file))
		client_leave_garbage(file->client, &file->object);
	(void)pthread_mutex_unlock(&file->client->files.lock);
}

/*
 * Ends an open of the file.  The last one closes the descriptor, which would keep the space of a
 * deleted file; so whoever settles the file later has nothing to close.
 */
static void file_release(struct dsaio_file *file, bool may_wait)
{
	struct client_files *files = &file->client->files;
	bool is_last;
	int fd = -1;

	(void)pthread_mutex_lock(&files->lock);
	if (!--file->n_opens && !file->n_fd_users)
		fd = fd_give_up(file);
	is_last = file_drop(file);
	(void)pthread_mutex_unlock(&files->lock);
	closep(&fd);
	if (is_last)
		file_settle(file, may_wait);
}

/* ---- the buffered description ---- */

static int daemon_give_buffered(struct dsaio_file *file, int fd)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileBuffered body = WIRE__FILE_BUFFERED__INIT;

	body.file = file->id;
	request.body_case = WIRE__REQUEST__BODY_FILE_BUFFERED;
	request.file_buffered = &body;
	return conn_call(file->client->link.conn, "open", &request, &fd, 1, NULL, NULL, NULL);
}

/* The same file, opened anew without O_DIRECT; or a negative errno with a sentence. */
static int open_buffered(struct dsaio_file *file)
{
	int fd, buffered, r;
	char path[32];

	if (file->is_shared)
		return error_fail(
			-EACCES,
			"%s: the file came as a descriptor that can not be opened anew, so only "
			"aligned ops are possible: use memory of dsaio_alloc() and multiples of "
			"dsaio_alignment(), or open the file by its path",
			file->name);
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	do
		buffered = fd_above_stdio(open(path, file->entry.key.access_mode | O_CLOEXEC));
	while (may_try_again(file->client, buffered));
	r = -errno;
	file_fd_give(file);
	/* Without /proc the path has to do; the daemon takes no other file. */
	if (buffered < 0 && r == -ENOENT && file->entry.key.path)
		buffered = fd_above_stdio(open(file->entry.key.path, file->entry.key.access_mode |
									     O_CLOEXEC | O_NOCTTY |
									     O_NONBLOCK));
	if (buffered < 0)
		return error_fail_errno(r, "open %s anew, for what is not aligned", file->name);
	return buffered;
}

int file_need_buffered(struct dsaio_file *file)
{
	uint64_t n_answered;
	int fd, r;

	/* acquire: pairs with the store below */
	if (atomic_load_explicit(&file->has_buffered, memory_order_acquire))
		return 0;
	do {
		n_answered = conn_posts_answered(file->client->link.conn);
		fd = open_buffered(file);
		if (fd < 0)
			return fd;
		r = daemon_give_buffered(file, fd);
	} while (r == -EMFILE && files_make_room(file->client, n_answered));
	if (r == -EEXIST) /* another thread was first */
		return 0;
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&file->client->files.lock);
	file->client->files.n++;
	(void)pthread_mutex_unlock(&file->client->files.lock);
	/* release: who sees it sends its ops after the daemon had the description */
	atomic_store_explicit(&file->has_buffered, true, memory_order_release);
	return 0;
}

/* ---- the cache ---- */

/* The file of that key, opened for the caller, whatever it is by now; or NULL. */
static struct dsaio_file *file_find(struct dsaio_client *client, const struct cache_key *key)
{
	struct client_files *files = &client->files;
	struct dsaio_file *file = NULL, *gone = NULL;
	struct cache_entry *entry;

	(void)pthread_mutex_lock(&files->lock);
	entry = cache_find(&files->cache, key);
	if (entry) {
		file = container_of(entry, struct dsaio_file, entry);
		if (entry->is_idle && !file_wake(file)) {
			file_strike(file);
			gone = TAKE_PTR(file);
		}
	}
	if (file) { /* may be its first: only under the lock */
		file_ref(file);
		file->n_opens++;
	}
	(void)pthread_mutex_unlock(&files->lock);
	if (gone)
		file_bury(gone, true, false);
	return file;
}

/* Its key names another file now: nobody will find it, and its last user lets it go. */
static void file_forget(struct dsaio_file *file)
{
	(void)pthread_mutex_lock(&file->client->files.lock);
	cache_remove(&file->client->files.cache, &file->entry);
	(void)pthread_mutex_unlock(&file->client->files.lock);
}

/* May this process open the path so?  Through the same directories and rights as open(2). */
static bool may_access(const struct cache_key *key)
{
	int mode = (key->access_mode != O_WRONLY ? R_OK : 0) |
		   (key->access_mode != O_RDONLY ? W_OK : 0);

	/* a descriptor's access mode is in the key */
	return !key->path || faccessat(AT_FDCWD, key->path, mode, AT_EACCESS) == 0;
}

/* The file of that key, opened for the caller, if it still is what the key names; or NULL. */
static struct dsaio_file *file_cached(struct dsaio_client *client, const struct cache_key *key)
{
	struct dsaio_file *file = file_find(client, key);
	struct statx stx;

	if (!file)
		return NULL;
	if (look(key, AT_STATX_SYNC_AS_STAT, &stx) < 0 || !is_file(file, &stx)) {
		debug_log("file %s: is another one now, or gone", file->name);
		file_forget(file);
	} else if (may_access(key)) {
		inode_opened(file->inode, stx.stx_size);
		return file;
	}
	file_release(file, false);
	return NULL;
}

/* A new file: from now on it is found by its key, if it can be kept and no other is there. */
static void file_list(struct dsaio_file *file)
{
	struct dsaio_client *client = file->client;
	bool is_same = false;
	struct dsaio_file *other;

	while (!is_same && (other = file_find(client, &file->entry.key))) {
		is_same = cache_is_same(&other->identity, &file->identity);
		if (!is_same)
			file_forget(other);
		file_release(other, false);
	}
	(void)pthread_mutex_lock(&client->files.lock);
	client->files.n++;
	/*
	 * Not kept are: what can not be opened anew, since its description is the program's; and
	 * block devices, which must not look as if they were in use.
	 */
	if (!file->is_shared && !file->is_block_device &&
	    file_board_index(file->id) <
		    file_board_bytes(client->link.conn->max_files) / sizeof(uint32_t))
		(void)cache_add(&client->files.cache, &file->entry);
	(void)pthread_mutex_unlock(&client->files.lock);
	client_add(client, &file->object);
}

/* ---- open ---- */

static int check_kind(const char *name, mode_t mode)
{
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	return error_fail(-EOPNOTSUPP,
			  "open %s: it is neither a regular file nor a block device: only these "
			  "can be served",
			  name);
}

/* On tmpfs before Linux 6.6 there is no direct I/O, and no need of it.  fd was opened without. */
static int check_undirect(const char *name, int fd)
{
	struct statfs fs;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return error_fail_errno(-errno, "open %s: fstat", name);
	r = check_kind(name, st.st_mode);
	if (r < 0)
		return r;
	if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return error_fail(-EOPNOTSUPP,
				  "open %s: its file system has no direct I/O (O_DIRECT): put the "
				  "file on one that has, such as ext4 or xfs",
				  name);
	return 0;
}

/*
 * Opens path, which for people is name, for direct I/O.  Returns 0 or a negative errno with a
 * sentence.
 *
 * O_NONBLOCK so that a FIFO is refused, not waited for; then it goes.
 */
static int open_direct(struct dsaio_client *client, const char *name, const char *path, int flags,
		       mode_t mode, int *ret_fd)
{
	int always = O_CLOEXEC | O_NOCTTY | O_NONBLOCK, direct = O_DIRECT, r;
	_cleanup_(closep) int fd = -1;

	do
		fd = fd_above_stdio(open(path, flags | always | O_DIRECT, mode));
	while (may_try_again(client, fd));
	if (fd < 0 && errno == EINVAL) {
		/* It may have been made before it was refused, so it may be there now. */
		direct = 0;
		do
			fd = fd_above_stdio(open(path, (flags & ~O_EXCL) | always, mode));
		while (may_try_again(client, fd));
	}
	if (fd < 0)
		return error_fail_errno(-errno, "open %s", name);
	r = direct ? 0 : check_undirect(name, fd);
	if (r < 0)
		return r;
	(void)fcntl(fd, F_SETFL, (flags & O_ACCMODE) | direct); /* as it was opened: can not fail */
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Hands fd over, which it takes, also on error. */
static int daemon_add(struct dsaio_file *file, int fd)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileAdd body = WIRE__FILE_ADD__INIT;
	int r;

	body.name = file->name;
	request.body_case = WIRE__REQUEST__BODY_FILE_ADD;
	request.file_add = &body;
	r = conn_call(file->client->link.conn, "open", &request, &fd, 1, &reply, NULL, NULL);
	if (r < 0)
		return r;
	file->id = reply->file_add->file;
	file->store = reply->file_add->store;
	file->offset_align = reply->file_add->offset_align;
	file->memory_align = reply->file_add->memory_align;
	if (!file->offset_align || (file->offset_align & (file->offset_align - 1)) ||
	    !file->memory_align || (file->memory_align & (file->memory_align - 1))) {
		conn_break(file->client->link.conn);
		return error_fail(-ENOTCONN,
				  "open %s: the daemon tells alignments of %u and %u, which are no "
				  "powers of two: it is broken",
				  file->name, file->offset_align, file->memory_align);
	}
	return 0;
}

/* The same with a duplicate; idle files make room. */
static int daemon_add_copy(struct dsaio_file *file, int fd)
{
	struct dsaio_client *client = file->client;
	uint64_t n_answered;
	int copy, r;

	while (files_evict(client, files_max(client) - 1))
		;
	do {
		n_answered = conn_posts_answered(client->link.conn);
		do
			copy = fd_duplicate(fd);
		while (may_try_again(client, copy));
		if (copy < 0)
			return error_fail_errno(-errno, "open %s", file->name);
		r = daemon_add(file, copy);
	} while (r == -EMFILE && files_make_room(client, n_answered));
	return r;
}

/* How many descriptors may be kept: few enough that the program doesn't miss them. */
static uint32_t fds_wanted(void)
{
	struct rlimit limit = { .rlim_cur = 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* can not fail */
	limit.rlim_cur /= 4;
	return limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
}

/*
 * Makes a file of fd: a direct description of our own or, if it could not be opened anew, a
 * duplicate of the caller's.  Takes fd and name, also on error.
 */
static int file_new(struct dsaio_client *client, const struct cache_key *key, char *name_in,
		    int fd_in, bool is_shared, struct dsaio_file **ret_file)
{
	_cleanup_(freep) char *name = name_in;
	_cleanup_(closep) int fd = fd_in;
	_cleanup_(file_freep) struct dsaio_file *file = calloc(1, sizeof(*file));
	struct statx stx;
	int r;

	if (!file || !name) {
		free(TAKE_PTR(file)); /* file_free() needs a client */
		return error_fail_errno(-ENOMEM, "open");
	}
	file->client = client;
	file->object.kind = CLIENT_FILE;
	file->object.on_collect = file_on_collect;
	file->object.on_disconnect = file_on_disconnect;
	file->name = TAKE_PTR(name);
	file->entry.key = *key;
	if (key->path)
		file->entry.key.path = file->name;
	file->fd = -1;
	file->can_read = key->access_mode != O_WRONLY;
	file->can_write = key->access_mode != O_RDONLY;
	file->is_shared = is_shared;
	atomic_init(&file->n_refs, 1);
	file->n_opens = 1;
	if (statx(fd, "", AT_EMPTY_PATH, LOOK_AT, &stx) < 0)
		return error_fail_errno(-errno, "open %s: statx", file->name);
	r = check_kind(file->name, stx.stx_mode);
	if (r < 0)
		return r;
	file->is_block_device = S_ISBLK(stx.stx_mode);
	file->identity = cache_identity_of(&stx);
	r = file->is_block_device
		    ? inode_hold(client, file->identity.rdev, 0, &file->inode)
		    : inode_hold(client, file->identity.dev, file->identity.ino, &file->inode);
	if (r < 0)
		return error_fail_errno(r, "open %s", file->name);
	if (!file->is_block_device)
		inode_opened(file->inode, stx.stx_size);
	r = daemon_add_copy(file, fd);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&client->files.lock);
	client->files.n_fds_wanted = fds_wanted();
	if (client->files.n_fds < client->files.n_fds_wanted) {
		client->files.n_fds++;
		file->fd = TAKE_FD(fd);
	}
	(void)pthread_mutex_unlock(&client->files.lock);
	file_list(file);
	debug_log("open %s: file %#x of store %u", file->name, file->id, file->store);
	*ret_file = TAKE_PTR(file);
	return 0;
}

static int check_flags(const char *path, int flags)
{
	int known = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_DIRECT;

	if (flags & O_APPEND)
		return error_fail(-EINVAL,
				  "open %s: O_APPEND: writes would land at the end, not at their "
				  "offset: leave it out",
				  path);
	if (flags & ~known)
		return error_fail(-EINVAL,
				  "open %s: flags 0%o: only O_RDONLY, O_WRONLY or O_RDWR, with "
				  "O_CREAT, O_EXCL and O_TRUNC, are possible",
				  path, (unsigned)(flags & ~known));
	if ((flags & O_ACCMODE) == O_ACCMODE)
		return error_fail(-EINVAL,
				  "open %s: the access mode must be O_RDONLY, O_WRONLY or O_RDWR",
				  path);
	if ((flags & O_TRUNC) && (flags & O_ACCMODE) == O_RDONLY)
		return error_fail(-EINVAL, "open %s: O_TRUNC needs O_WRONLY or O_RDWR", path);
	return 0;
}

/* O_TRUNC only here, when the file is known to be served: what is refused stays as it is. */
static int truncate_opened(struct dsaio_file *file)
{
	int fd, r;

	if (file->is_block_device)
		return 0;
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	r = inode_truncate(file->inode, fd, 0);
	file_fd_give(file);
	return r < 0 ? error_fail_errno(r, "open %s: O_TRUNC", file->name) : 0;
}

static int open_path(struct dsaio_client *client, const char *path, int flags, mode_t mode,
		     struct dsaio_file **ret_file)
{
	struct cache_key key = { .path = path, .fd = -1, .access_mode = flags & O_ACCMODE };
	struct dsaio_file *file = NULL;
	int fd, r = 0;

	if (!(flags & O_EXCL))
		file = file_cached(client, &key);
	if (!file) {
		r = open_direct(client, path, path, flags & (O_ACCMODE | O_CREAT | O_EXCL), mode,
				&fd);
		if (r < 0)
			return r;
		r = file_new(client, &key, strdup(path), fd, false, &file);
		if (r < 0)
			return r;
	}
	if (flags & O_TRUNC)
		r = truncate_opened(file);
	if (r < 0)
		file_release(file, false);
	else
		*ret_file = file;
	return r;
}

int file_open(struct dsaio_client *client, const char *path, int flags, mode_t mode,
	      struct dsaio_file **ret_file)
{
	int r = check_flags(path, flags);

	if (r == 0)
		r = client_check_alive(client, "file_open");
	if (r < 0)
		return r;
	r = open_path(client, path, flags, mode, ret_file);
	client_collect(client);
	return r;
}

int dsaio_file_open(struct dsaio_client *client, const char *path, int flags,
		    struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	int r = client_check(client, "file_open");

	if (r < 0)
		return r;
	if (!path || !ret_file)
		return client_null("file_open", path ? "place for the file" : "path");
	return file_open(client, path, flags, FILE_MODE_DEFAULT, ret_file);
}

/* "/x/y" if the kernel tells it, else "file descriptor 7". */
static char *fd_name(int fd)
{
	char link[32], path[PATH_MAX];
	char *name = NULL;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd); /* fits */
	n = readlink(link, path, sizeof(path) - 1);
	if (n > 0) {
		path[n] = '\0';
		return strdup(path);
	}
	return asprintf(&name, "file descriptor %d", fd) < 0 ? NULL : name;
}

/* A descriptor that can be served, and that the cache does not have. */
static int open_fd(struct dsaio_client *client, const struct cache_key *key, int flags,
		   struct dsaio_file **ret_file)
{
	_cleanup_(freep) char *name = fd_name(key->fd);
	bool is_shared = false;
	struct stat st;
	char path[32];
	int own, r;

	if (!name)
		return error_fail_errno(-ENOMEM, "file descriptor %d", key->fd);
	if (flags & O_PATH)
		return error_fail(-EBADF,
				  "file %s: the descriptor was opened with O_PATH: open it for "
				  "reading or writing",
				  name);
	if ((flags & O_APPEND) && (flags & O_ACCMODE) != O_RDONLY)
		return error_fail(
			-EINVAL,
			"file %s: the descriptor was opened with O_APPEND: its writes would "
			"land at the end, not at their offset: open it without",
			name);
	if (fstat(key->fd, &st) < 0)
		return error_fail_errno(-errno, "file descriptor %d", key->fd);
	r = check_kind(name, st.st_mode); /* opening a FIFO anew would wait */
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", key->fd); /* fits */
	r = open_direct(client, name, path, key->access_mode, 0, &own);
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EOPNOTSUPP)
		return r;
	if (r < 0) {
		is_shared = true;
		if (!(flags & O_DIRECT))
			return error_fail_errno(r,
						"file %s: it can not be opened anew, and its "
						"descriptor is not for direct I/O: open it with "
						"O_DIRECT",
						name);
		do
			own = fd_duplicate(key->fd);
		while (may_try_again(client, own));
		if (own < 0)
			return error_fail_errno(-errno, "file %s", name);
	}
	return file_new(client, key, TAKE_PTR(name), own, is_shared, ret_file);
}

int dsaio_file_from_fd(struct dsaio_client *client, int fd, struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	struct cache_key key = { .path = NULL, .fd = fd };
	struct dsaio_file *file = NULL;
	int flags, r = client_check(client, "file_from_fd");

	if (r < 0)
		return r;
	if (!ret_file)
		return client_null("file_from_fd", "place for the file");
	r = client_check_alive(client, "file_from_fd");
	if (r < 0)
		return r;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return error_fail_errno(-errno, "file descriptor %d", fd);
	key.access_mode = flags & O_ACCMODE;
	if (!(flags & (O_PATH | O_APPEND)))
		file = file_cached(client, &key);
	if (file)
		*ret_file = file;
	else
		r = open_fd(client, &key, flags, ret_file);
	client_collect(client);
	return r;
}

/* ---- the rest ---- */

void dsaio_file_close(struct dsaio_file *file)
{
	CANCEL_DISABLE();
	struct dsaio_client *client;

	if (!file || client_is_forked(file->client))
		return;
	client = file->client;
	file_release(file, true);
	client_collect(client);
}

size_t dsaio_alignment(const struct dsaio_file *file)
{
	if (!file)
		return 0;
	return file->offset_align > file->memory_align ? file->offset_align : file->memory_align;
}

int64_t dsaio_file_size(const struct dsaio_file *file)
{
	CANCEL_DISABLE();
	int64_t size;
	int r;

	if (!file)
		return client_null("file_size", "file");
	r = client_check(file->client, "file_size");
	if (r == 0)
		r = client_check_alive(file->client, "file_size");
	if (r < 0)
		return r;
	size = file_size((struct dsaio_file *)(uintptr_t)file); /* it may get a descriptor */
	return size < 0 ? error_fail_errno((int)size, "size of %s", file->name) : size;
}

int dsaio_truncate(struct dsaio_file *file, uint64_t size)
{
	CANCEL_DISABLE();
	int fd, r;

	if (!file)
		return client_null("truncate", "file");
	r = client_check(file->client, "truncate");
	if (r == 0)
		r = client_check_alive(file->client, "truncate");
	if (r < 0)
		return r;
	if (size > INT64_MAX)
		return error_fail(-EINVAL,
				  "truncate of %s to %" PRIu64 " bytes: at most 2^63 - 1 are "
				  "possible",
				  file->name, size);
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	r = inode_truncate(file->inode, fd, size);
	file_fd_give(file);
	if (r == -EINVAL && !file->can_write)
		return error_fail(r, "truncate of %s: it is not open for writing", file->name);
	if (r < 0)
		return error_fail_errno(r, "truncate of %s to %" PRIu64 " bytes", file->name, size);
	return 0;
}
