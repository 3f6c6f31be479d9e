#include "client/lib/file.h"

#include "client/lib/fd.h"
#include "proto/cleanup.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

static void file_free(struct dsaio_file *file)
{
	if (!file)
		return;
	inode_drop(file->client, file->inode);
	if (file->fd >= 0)
		(void)close(file->fd); /* what has to last was synced */
	free(file->name);
	free(file);
}

static void file_freep(struct dsaio_file **file)
{
	file_free(*file);
}

static void daemon_remove(struct dsaio_client *client, uint32_t id)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileRemove body = WIRE__FILE_REMOVE__INIT;

	body.file = id;
	request.body_case = WIRE__REQUEST__BODY_FILE_REMOVE;
	request.file_remove = &body;
	/* fails if the daemon is gone: then it has closed the file, too */
	(void)conn_call(client->conn, "file close", &request, NULL, 0, NULL, NULL, NULL);
}

static void file_on_collect(struct client_object *object)
{
	struct dsaio_file *file = container_of(object, struct dsaio_file, object);

	client_remove(file->client, object);
	daemon_remove(file->client, file->id);
	file_free(file);
}

static void file_on_disconnect(struct client_object *object)
{
	file_free(container_of(object, struct dsaio_file, object));
}

void file_unref(struct dsaio_file *file)
{
	/* acq_rel: the last sees all use before */
	if (atomic_fetch_sub_explicit(&file->n_refs, 1, memory_order_acq_rel) == 1)
		client_leave_garbage(file->client, &file->object);
}

/* ---- the descriptor ---- */

int file_fd_take(struct dsaio_file *file)
{
	return file->fd;
}

void file_fd_give(struct dsaio_file *file)
{
	(void)file;
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
	int fd = file_fd_take(file);
	int64_t size;

	if (fd < 0)
		return fd;
	size = fd_size(file, fd);
	file_fd_give(file);
	return size;
}

int file_extend(struct dsaio_file *file, struct dsaio_op *op)
{
	int fd, r;

	if (inode_is_long(file->inode, op->off + op->len))
		return 0;
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	r = inode_extend(file->inode, fd, op);
	file_fd_give(file);
	return r;
}

void file_remove_op(struct dsaio_file *file, struct dsaio_op *op)
{
	int fd = inode_needs_fd(op) ? file_fd_take(file) : -1;

	inode_remove(op->inode, fd, op);
	if (fd >= 0)
		file_fd_give(file);
}

static int daemon_give_buffered(struct dsaio_file *file, int fd)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileBuffered body = WIRE__FILE_BUFFERED__INIT;

	body.file = file->id;
	request.body_case = WIRE__REQUEST__BODY_FILE_BUFFERED;
	request.file_buffered = &body;
	return conn_call(file->client->conn, "open", &request, &fd, 1, NULL, NULL, NULL);
}

int file_need_buffered(struct dsaio_file *file)
{
	int access_mode = !file->can_write ? O_RDONLY : file->can_read ? O_RDWR : O_WRONLY;
	int fd, buffered, r;
	char path[32];

	/* acquire: pairs with the store below */
	if (atomic_load_explicit(&file->has_buffered, memory_order_acquire))
		return 0;
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
	buffered = fd_above_stdio(open(path, access_mode | O_CLOEXEC));
	r = -errno;
	file_fd_give(file);
	if (buffered < 0)
		return error_fail_errno(r, "open %s anew, for what is not aligned", file->name);
	r = daemon_give_buffered(file, buffered);
	if (r < 0 && r != -EEXIST) /* another thread was first */
		return r;
	/* release: who sees it sends its ops after the daemon had the description */
	atomic_store_explicit(&file->has_buffered, true, memory_order_release);
	return 0;
}

/* ---- open ---- */

/* What stands between a descriptor and a file of ours. */
static int file_check_kind(struct dsaio_file *file, const struct stat *st)
{
	if (S_ISBLK(st->st_mode))
		file->is_block_device = true;
	else if (!S_ISREG(st->st_mode))
		return error_fail(-EOPNOTSUPP,
				  "open %s: it is neither a regular file nor a block device: only "
				  "these can be served",
				  file->name);
	return 0;
}

/*
 * The direct description of what fd has open, with the same access mode; -EACCES if the
 * kernel does not let us open it anew.
 */
static int open_direct(const char *name, int fd, int access_mode, int *ret_fd)
{
	struct statfs fs;
	char path[32];
	int direct;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	direct = fd_above_stdio(open(path, access_mode | O_DIRECT | O_CLOEXEC));
	if (direct < 0 && errno == EINVAL) {
		/* tmpfs before Linux 6.6 */
		if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
			return error_fail(-EOPNOTSUPP,
					  "open %s: its file system has no direct I/O (O_DIRECT): "
					  "put the file on one that has, such as ext4 or xfs",
					  name);
		direct = fd_above_stdio(open(path, access_mode | O_CLOEXEC));
	}
	if (direct < 0)
		return error_fail_errno(-errno, "open %s for direct I/O", name);
	*ret_fd = direct;
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
	r = conn_call(file->client->conn, "open", &request, &fd, 1, &reply, NULL, NULL);
	if (r < 0)
		return r;
	file->id = reply->file_add->file;
	file->store = reply->file_add->store;
	file->offset_align = reply->file_add->offset_align;
	file->memory_align = reply->file_add->memory_align;
	if (!file->offset_align || (file->offset_align & (file->offset_align - 1)) ||
	    !file->memory_align || (file->memory_align & (file->memory_align - 1))) {
		conn_break(file->client->conn);
		return error_fail(-ENOTCONN,
				  "open %s: the daemon tells alignments of %u and %u, which are no "
				  "powers of two: it is broken",
				  file->name, file->offset_align, file->memory_align);
	}
	return 0;
}

/*
 * Makes a file of fd, a description of our own (or, if it could not be opened anew, a duplicate
 * of the caller's).  Takes fd and name, also on error.
 */
static int file_new(struct dsaio_client *client, char *name_in, int fd_in, int access_mode,
		    bool is_shared, struct dsaio_file **ret_file)
{
	_cleanup_(freep) char *name = name_in;
	_cleanup_(closep) int fd = fd_in;
	_cleanup_(closep) int direct = -1;
	_cleanup_(file_freep) struct dsaio_file *file = calloc(1, sizeof(*file));
	struct stat st;
	int r;

	if (!file || !name) {
		free(TAKE_PTR(file)); /* file_free() needs a client and a descriptor */
		return error_fail_errno(-ENOMEM, "open");
	}
	file->client = client;
	file->object.kind = CLIENT_FILE;
	file->object.on_collect = file_on_collect;
	file->object.on_disconnect = file_on_disconnect;
	file->name = TAKE_PTR(name);
	file->fd = TAKE_FD(fd);
	file->can_read = access_mode != O_WRONLY;
	file->can_write = access_mode != O_RDONLY;
	file->is_shared = is_shared;
	atomic_init(&file->n_refs, 1);
	if (fstat(file->fd, &st) < 0)
		return error_fail_errno(-errno, "open %s: fstat", file->name);
	r = file_check_kind(file, &st);
	if (r < 0)
		return r;
	if (!is_shared) {
		r = open_direct(file->name, file->fd, access_mode, &direct);
		if (r == -EACCES || r == -EPERM || r == -ENOENT)
			file->is_shared = true;
		else if (r < 0)
			return r;
	}
	if (file->is_shared) {
		direct = fd_duplicate(file->fd);
		if (direct < 0)
			return error_fail_errno(-errno, "open %s", file->name);
		/* Our own, made by this process without a way back in: direct from now on. */
		if (!is_shared && fcntl(direct, F_SETFL, access_mode | O_DIRECT) < 0)
			return error_fail_errno(-EOPNOTSUPP, "open %s for direct I/O", file->name);
	}
	r = file->is_block_device ? inode_hold(client, st.st_rdev, 0, &file->inode)
				  : inode_hold(client, st.st_dev, st.st_ino, &file->inode);
	if (r < 0)
		return error_fail_errno(r, "open %s", file->name);
	r = daemon_add(file, TAKE_FD(direct));
	if (r < 0)
		return r;
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

int dsaio_file_open(struct dsaio_client *client, const char *path, int flags,
		    struct dsaio_file **ret_file)
{
	struct dsaio_file *file = NULL;
	int access_mode = flags & O_ACCMODE;
	int fd, r = client_check(client, "file_open");

	if (r < 0)
		return r;
	if (!path || !ret_file)
		return client_null("file_open", path ? "place for the file" : "path");
	r = check_flags(path, flags);
	if (r < 0)
		return r;
	r = client_check_alive(client, "file_open");
	if (r < 0)
		return r;
	/*
	 * O_TRUNC only when the file is known to be served: what is refused stays as it is.
	 * O_NONBLOCK so that a FIFO is refused, not waited for; regular files ignore it.
	 */
	fd = fd_above_stdio(open(
		path, (flags & (O_ACCMODE | O_CREAT | O_EXCL)) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
		0666));
	if (fd < 0)
		return error_fail_errno(-errno, "open %s", path);
	r = file_new(client, strdup(path), fd, access_mode, false, &file);
	if (r < 0)
		return r;
	if ((flags & O_TRUNC) && !file->is_block_device) {
		r = inode_truncate(file->inode, file->fd, 0);
		if (r < 0) {
			daemon_remove(client, file->id);
			file_free(file);
			return error_fail_errno(r, "open %s: O_TRUNC", path);
		}
	}
	client_add(client, &file->object);
	*ret_file = file;
	return 0;
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

int dsaio_file_from_fd(struct dsaio_client *client, int fd, struct dsaio_file **ret_file)
{
	_cleanup_(freep) char *name = NULL;
	struct dsaio_file *file = NULL;
	char path[32];
	bool is_shared = false;
	int flags, own, r = client_check(client, "file_from_fd");
	struct stat st;

	if (r < 0)
		return r;
	if (!ret_file)
		return client_null("file_from_fd", "place for the file");
	r = client_check_alive(client, "file_from_fd");
	if (r < 0)
		return r;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fstat(fd, &st) < 0)
		return error_fail_errno(-errno, "file descriptor %d", fd);
	name = fd_name(fd);
	if (!name)
		return error_fail_errno(-ENOMEM, "file descriptor %d", fd);
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
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) /* opening a FIFO anew would wait */
		return error_fail(-EOPNOTSUPP,
				  "file %s: it is neither a regular file nor a block device: only "
				  "these can be served",
				  name);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	own = fd_above_stdio(open(path, (flags & O_ACCMODE) | O_CLOEXEC));
	if (own < 0) {
		is_shared = true;
		if (!(flags & O_DIRECT))
			return error_fail_errno(-errno,
						"file %s: it can not be opened anew, and its "
						"descriptor is not for direct I/O: open it with "
						"O_DIRECT",
						name);
		own = fd_duplicate(fd);
	}
	if (own < 0)
		return error_fail_errno(-errno, "file %s", name);
	r = file_new(client, TAKE_PTR(name), own, flags & O_ACCMODE, is_shared, &file);
	if (r < 0)
		return r;
	client_add(client, &file->object);
	*ret_file = file;
	return 0;
}

/* ---- the rest ---- */

void dsaio_file_close(struct dsaio_file *file)
{
	struct dsaio_client *client;

	if (!file || client_is_forked(file->client))
		return;
	client = file->client;
	file_unref(file);
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
