/*
 * Public calls on files: they check the arguments.  file_open.c opens, file.c closes.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_named.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/inode.h"

#include <inttypes.h>

int dsaio_file_from_fd(struct dsaio_client *client, int fd, struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	int r = client_check_call(client, "file_from_fd", ret_file, "place for the file");

	return r < 0 ? r : file_open_fd(client, fd, ret_file);
}

void dsaio_file_close(struct dsaio_file *file)
{
	CANCEL_DISABLE();
	struct dsaio_client *client;
	bool is_closed;

	if (!file || client_is_forked(file->client))
		return;
	client = file->client;
	client_hold(client);
	is_closed = file_release(file, true);
	client_collect(client);
	if (is_closed)
		client_left(client);
	client_left(client);
}

int dsaio_file_drop(struct dsaio_client *client, const char *path)
{
	CANCEL_DISABLE();
	int r = client_check_call(client, "file_drop", client, "client");

	return r < 0 ? r : files_uncache(client, path);
}

size_t dsaio_file_alignment(const struct dsaio_file *file)
{
	uint32_t align;

	if (!file)
		return 0;
	align = file->can_write ? file_write_align(file) : file->session.offset_align;
	return align > file->session.memory_align ? align : file->session.memory_align;
}

static int file_check(const struct dsaio_file *file, const char *function)
{
	return file ? client_check_call(file->client, function, file, "file")
		    : client_null(function, "file");
}

int64_t dsaio_file_size(const struct dsaio_file *file)
{
	CANCEL_DISABLE();
	int64_t size;
	int r = file_check(file, "file_size");

	if (r < 0)
		return r;
	size = file_size((struct dsaio_file *)(uintptr_t)file); /* it may get a descriptor */
	return size < 0 ? error_fail_errno((int)size, "size of %s", file->name) : size;
}

/* Borrows the descriptor of a file that a call makes that long, perhaps, for file_fd_release(). */
static int file_change(struct dsaio_file *file, const char *function, uint64_t end)
{
	uint64_t grow_end;
	int r = file_check(file, function);

	if (r < 0)
		return r;
	if (file->named.id)
		return error_fail(-EOPNOTSUPP,
				  "%s of %s: a file of a RADOS store gets its size when it is "
				  "created or committed",
				  function, file->name);
	if (!file->can_write)
		return error_fail(-EBADF, "%s of %s: it is not open for writing", function,
				  file->name);
	r = end > INT64_MAX ? -EINVAL : file_grow(file, end, &grow_end);
	if (r < 0) /* -EFBIG: the kernel would send a SIGXFSZ */
		return error_fail_errno(r, "%s of %s to %" PRIu64 " bytes", function, file->name,
					end);
	return file_fd_take(file);
}

int dsaio_file_truncate(struct dsaio_file *file, uint64_t size)
{
	CANCEL_DISABLE();
	int r, fd = file_change(file, "file_truncate", size);

	if (fd < 0)
		return fd;
	r = inode_truncate(file->inode, fd, size);
	file_fd_release(file);
	if (r < 0)
		return error_fail_errno(r, "file_truncate of %s to %" PRIu64 " bytes", file->name,
					size);
	return 0;
}

int dsaio_file_allocate(struct dsaio_file *file, uint64_t off, uint64_t len, unsigned flags)
{
	CANCEL_DISABLE();
	uint64_t end;
	int r, fd;

	if (flags)
		return fail_unknown("file_allocate", "flags", flags);
	if (__builtin_add_overflow(off, len, &end))
		end = UINT64_MAX;
	fd = file_change(file, "file_allocate", end);
	if (fd < 0)
		return fd;
	r = inode_allocate(file->inode, fd, off, len);
	file_fd_release(file);
	if (r < 0)
		return error_fail_errno(r, "file_allocate of %s: %" PRIu64 " bytes at %" PRIu64,
					file->name, len, off);
	return 0;
}

uint64_t dsaio_file_token(const struct dsaio_file *file)
{
	return file && file->named.is_created ? file->named.id : 0;
}

int dsaio_file_commit(struct dsaio_file *file, uint64_t size)
{
	CANCEL_DISABLE();
	int r = file_check(file, "file_commit");

	return r < 0 ? r : file_named_end(file, "file_commit", true, size);
}

int dsaio_file_abandon(struct dsaio_file *file)
{
	CANCEL_DISABLE();
	int r = file_check(file, "file_abandon");

	return r < 0 ? r : file_named_end(file, "file_abandon", false, 0);
}
