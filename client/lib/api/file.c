/*
 * Public calls on files: they check the arguments.  file_open.c opens, file.c closes.
 */
#include "client/lib/base/cancel.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/inode.h"

#include <inttypes.h>

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

int dsaio_file_from_fd(struct dsaio_client *client, int fd, struct dsaio_file **ret_file)
{
	CANCEL_DISABLE();
	int r = client_check(client, "file_from_fd");

	if (r < 0)
		return r;
	if (!ret_file)
		return client_null("file_from_fd", "place for the file");
	r = client_check_alive(client, "file_from_fd");
	if (r < 0)
		return r;
	return file_open_fd(client, fd, ret_file);
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

size_t dsaio_alignment(const struct dsaio_file *file)
{
	uint32_t align;

	if (!file)
		return 0;
	align = file->can_write ? file_write_align(file) : file->session.offset_align;
	return align > file->session.memory_align ? align : file->session.memory_align;
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
