/*
 * Public calls on views: they check the arguments; io/view.c does the work.
 */
#include "client/lib/io/view.h"
#include "client/lib/io/file.h"

#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"

int dsaio_view(struct dsaio_client *client, struct dsaio_file *file, uint64_t off, size_t len,
	       unsigned flags, void **ret_memory)
{
	CANCEL_DISABLE();
	int r = client_check_call(client, "view", ret_memory, "place for the memory");

	if (r < 0)
		return r;
	if (!file)
		return client_null("view", "file");
	if (flags & ~DSAIO_VIEW_WRITABLE)
		return fail_unknown("view", "flags", flags & ~DSAIO_VIEW_WRITABLE);
	if (file->client != client || !file->can_read)
		return error_fail(-EBADF,
				  "view of %s: must be a file of this client, open for reading: "
				  "open it with O_RDONLY or O_RDWR",
				  file->name);
	return view_open(client, file, off, len, flags & DSAIO_VIEW_WRITABLE, ret_memory);
}

int dsaio_view_wait(struct dsaio_handle *handle, const void *memory, size_t len)
{
	CANCEL_DISABLE();
	int r = handle_check(handle, "view_wait");

	return r < 0 ? r : view_wait(handle, memory, len);
}

int dsaio_view_free(struct dsaio_client *client, void *memory)
{
	CANCEL_DISABLE();
	int r;

	if (!client)
		return client_null("view_free", "client");
	if (!memory || client_is_forked(client))
		return 0;
	client_hold(client);
	r = view_free(client, memory);
	client_collect(client);
	if (r == 0)
		client_left(client);
	client_left(client);
	return r;
}
