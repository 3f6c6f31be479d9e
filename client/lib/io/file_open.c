#include "client/lib/io/file_open.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/inode.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>

static int check_kind(const char *name, mode_t mode)
{
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	return error_fail(-EOPNOTSUPP,
			  "open %s: it is neither a regular file nor a block device: only these "
			  "can be served",
			  name);
}

/* On tmpfs before Linux 6.6 there is no direct I/O, and no need of it. */
static int check_direct(const char *name, int fd)
{
	struct statfs fs;

	if ((fcntl(fd, F_GETFL) & O_DIRECT) || (fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC))
		return 0;
	return error_fail(-EOPNOTSUPP,
			  "open %s: its file system has no direct I/O (O_DIRECT): put the file on "
			  "one that has, such as ext4 or xfs",
			  name);
}

/* As open(2).  If the process has too many descriptors, it lets go of some that are kept for files. */
static int open_retry(struct dsaio_client *client, const char *path, int flags, mode_t mode)
{
	int fd;

	do
		fd = fd_above_stdio(open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode));
	while (file_fd_may_retry(client, fd));
	return fd;
}

/*
 * Opens path, which for people is name, for direct I/O where there is any.  Returns the descriptor, or
 * a negative errno with a message.
 *
 * O_NONBLOCK so that a FIFO is refused, not waited for; then it goes.
 */
static int open_direct(struct dsaio_client *client, const char *name, const char *path, int flags,
		       mode_t mode)
{
	int direct = O_DIRECT, fd = open_retry(client, path, flags | O_DIRECT, mode);

	if (fd < 0 && errno == EINVAL) {
		/* It may have been made before it was refused, so it may be there now. */
		direct = 0;
		fd = open_retry(client, path, flags & ~O_EXCL, mode);
	}
	if (fd < 0)
		return error_fail_errno(-errno, "open %s", name);
	(void)fcntl(fd, F_SETFL, (flags & O_ACCMODE) | direct); /* as it was opened: cannot fail */
	return fd;
}

/* Hands fd over, which it takes, also on error. */
static int daemon_add(struct dsaio_file *file, int fd)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__FileAdd body = WIRE__FILE_ADD__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_ADD, file_add, &body);
	int r;

	body.name = file->name;
	r = conn_call(file->client->conn, "open", &request, &fd, 1, &reply, NULL);
	if (r < 0)
		return r;
	file->session.id = reply->file_add->file;
	file->session.number = conn_answered_in();
	file->session.store = reply->file_add->store;
	file->session.offset_align = reply->file_add->offset_align;
	file->session.memory_align = reply->file_add->memory_align;
	if (__builtin_popcount(file->session.offset_align) != 1 ||
	    __builtin_popcount(file->session.memory_align) != 1) {
		conn_break(file->client->conn);
		return error_fail(-ENOTCONN,
				  "open %s: the daemon tells alignments of %u and %u, which are no "
				  "powers of two: it is broken",
				  file->name, file->session.offset_align,
				  file->session.memory_align);
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
		n_answered = conn_posts_answered(client->conn);
		do
			copy = fd_duplicate(fd);
		while (file_fd_may_retry(client, copy));
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

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail */
	limit.rlim_cur /= 4;
	return limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
}

/*
 * Makes a file of fd: a direct description of our own or, if it could not be opened anew, a
 * duplicate of the caller's.  Takes fd and name, also on error.
 */
static int file_new(struct dsaio_client *client, const struct cache_key *key, char *name, int fd_in,
		    bool is_shared, struct dsaio_file **ret_file)
{
	_cleanup_(closep) int fd = fd_in;
	_cleanup_(file_freep) struct dsaio_file *file = file_alloc(client, name);
	struct statx stx;
	int r;

	if (!file)
		return error_fail_errno(-ENOMEM, "open");
	file->entry.key = *key;
	if (key->path)
		file->entry.key.path = file->name;
	file->can_read = key->access_mode != O_WRONLY;
	file->can_write = key->access_mode != O_RDONLY;
	file->is_shared = is_shared;
	if (statx(fd, "", AT_EMPTY_PATH, FILE_STATX_MASK, &stx) < 0)
		return error_fail_errno(-errno, "open %s: statx", file->name);
	r = check_kind(file->name, stx.stx_mode);
	if (r == 0)
		r = check_direct(file->name, fd);
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
	do {
		r = daemon_add_copy(file, fd);
		if (r < 0)
			return r;
	} while (!client_add_of(client, &file->object, file->session.number));
	(void)pthread_mutex_lock(&client->files.lock);
	client->files.n_fds_wanted = fds_wanted();
	if (client->files.n_fds < client->files.n_fds_wanted) {
		client->files.n_fds++;
		file->fds.direct = TAKE_FD(fd);
	}
	(void)pthread_mutex_unlock(&client->files.lock);
	file_list(file);
	debug_log("open %s: file %#x of store %u", file->name, file->session.id,
		  file->session.store);
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
	file_fd_release(file);
	return r < 0 ? error_fail_errno(r, "open %s: O_TRUNC", file->name) : 0;
}

/* A file that the cache does not have. */
static int open_new(struct dsaio_client *client, const char *path, int flags, mode_t mode,
		    struct dsaio_file **ret_file)
{
	struct cache_key key = { .path = path, .fd = -1, .access_mode = flags & O_ACCMODE };
	int fd = open_direct(client, path, path, flags & (O_ACCMODE | O_CREAT | O_EXCL), mode);

	return fd < 0 ? fd : file_new(client, &key, strdup(path), fd, false, ret_file);
}

static int open_path(struct dsaio_client *client, const char *path, int flags, mode_t mode,
		     struct dsaio_file **ret_file)
{
	struct cache_key key = { .path = path, .fd = -1, .access_mode = flags & O_ACCMODE };
	struct dsaio_file *file = NULL;
	int r = 0;

	if (!(flags & O_EXCL))
		file = file_cached(client, &key, false);
	if (!file) {
		r = open_new(client, path, flags, mode, &file);
		if (r < 0)
			return r;
	}
	if (flags & O_TRUNC)
		r = truncate_opened(file);
	if (r < 0)
		(void)file_release(file, false);
	else
		*ret_file = file;
	return r;
}

int file_open(struct dsaio_client *client, const char *path, int flags, mode_t mode,
	      struct dsaio_file **ret_file)
{
	int r = check_flags(path, flags);

	if (r < 0)
		return r;
	r = open_path(client, path, flags, mode, ret_file);
	client_collect(client);
	return r;
}

int file_open_for(struct dsaio_client *client, const char *path, bool is_write,
		  struct dsaio_file **ret_file)
{
	struct cache_key key = { .path = path,
				 .fd = -1,
				 .access_mode = is_write ? O_WRONLY : O_RDONLY };
	struct dsaio_file *file;
	int r = client_check_alive(client, "file_open");

	if (r < 0)
		return r;
	file = file_cached(client, &key, true);
	if (file) {
		*ret_file = file;
	} else if (!is_write) {
		r = open_new(client, path, O_RDONLY, 0, ret_file);
	} else {
		r = open_new(client, path, O_RDWR | O_CREAT, FILE_MODE_DEFAULT, ret_file);
		if (r == -EACCES) /* it may be writable alone */
			r = open_new(client, path, O_WRONLY | O_CREAT, FILE_MODE_DEFAULT, ret_file);
	}
	client_collect(client);
	return r;
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
	own = open_direct(client, name, path, key->access_mode, 0);
	if (own == -EMFILE || own == -ENFILE || own == -ENOMEM)
		return own;
	if (own < 0) {
		is_shared = true;
		if (!(flags & O_DIRECT))
			return error_fail_errno(own,
						"file %s: it cannot be reopened, and its "
						"descriptor is not for direct I/O: open it with "
						"O_DIRECT",
						name);
		do
			own = fd_duplicate(key->fd);
		while (file_fd_may_retry(client, own));
		if (own < 0)
			return error_fail_errno(-errno, "file %s", name);
	}
	return file_new(client, key, TAKE_PTR(name), own, is_shared, ret_file);
}

int file_open_fd(struct dsaio_client *client, int fd, struct dsaio_file **ret_file)
{
	struct cache_key key = { .path = NULL, .fd = fd };
	struct dsaio_file *file = NULL;
	int flags = fcntl(fd, F_GETFL), r = 0;

	if (flags < 0)
		return error_fail_errno(-errno, "file descriptor %d", fd);
	key.access_mode = flags & O_ACCMODE;
	if (!(flags & (O_PATH | O_APPEND)))
		file = file_cached(client, &key, false);
	if (file)
		*ret_file = file;
	else
		r = open_fd(client, &key, flags, ret_file);
	client_collect(client);
	return r;
}

/* ---- the buffered description ---- */

static int daemon_give_buffered(struct dsaio_file *file, int fd)
{
	Wire__FileBuffered body = WIRE__FILE_BUFFERED__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_BUFFERED, file_buffered, &body);

	body.file = file->session.id;
	return conn_call(file->client->conn, "open", &request, &fd, 1, NULL, NULL);
}

int file_open_buffered(const struct dsaio_file *file, int fd)
{
	char path[32];
	int buffered, r;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	buffered = open_retry(file->client, path, file->entry.key.access_mode, 0);
	r = -errno;
	/* Without /proc the path has to do; the daemon takes no other file. */
	if (buffered < 0 && r == -ENOENT && file->entry.key.path)
		buffered = open_retry(file->client, file->entry.key.path,
				      file->entry.key.access_mode, 0);
	if (buffered < 0)
		return error_fail_errno(r, "open %s anew, for what is not aligned", file->name);
	return buffered;
}

/* The same, or a negative errno with a message. */
static int open_buffered(struct dsaio_file *file)
{
	int fd, buffered;

	if (file->is_shared)
		return error_fail(
			-EACCES,
			"%s: the file came as a descriptor that cannot be reopened, so only "
			"aligned ops are possible: use memory of dsaio_alloc() and multiples of "
			"dsaio_file_alignment(), or open the file by its path",
			file->name);
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	buffered = file_open_buffered(file, fd);
	file_fd_release(file);
	return buffered;
}

int file_open_again(const struct dsaio_file *file)
{
	const struct cache_key *key = &file->entry.key;
	struct statx stx;
	int fd;

	if (!key->path)
		return error_fail(-ESTALE,
				  "open %s again: it came as a descriptor, which is not kept open",
				  file->name);
	fd = open_direct(file->client, key->path, key->path, key->access_mode, 0);
	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	if (statx(fd, "", AT_EMPTY_PATH, FILE_STATX_MASK, &stx) == 0 && file_is_same(file, &stx))
		return fd;
	(void)close(fd); /* nothing was written to it */
	return error_fail(-ESTALE, "open %s again: the path names another file by now", file->name);
}

/* False: the session that this thread has just given it to is over. */
static bool note_buffered(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	bool is_of;
	LOCKED(&files->lock);

	is_of = conn_is_of(file->client->conn, conn_answered_in());
	files->n += is_of;
	/* release: who sees it sends its ops after the daemon had the description */
	if (is_of)
		atomic_store_explicit(&file->session.has_buffered, true, memory_order_release);
	return is_of;
}

int file_need_buffered(struct dsaio_file *file)
{
	uint64_t n_answered;
	bool is_of;
	int fd, r;

	/* acquire: pairs with note_buffered() */
	if (atomic_load_explicit(&file->session.has_buffered, memory_order_acquire))
		return 0;
	do {
		n_answered = conn_posts_answered(file->client->conn);
		fd = open_buffered(file);
		if (fd < 0)
			return fd;
		r = daemon_give_buffered(file, fd);
		is_of = r == 0 && note_buffered(file);
	} while ((r == -EMFILE && files_make_room(file->client, n_answered)) || (r == 0 && !is_of));
	return r == -EEXIST ? 0 : r; /* another thread was first */
}
