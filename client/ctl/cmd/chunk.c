#include "client/ctl/cmd/chunk.h"

#include "client/ctl/ui/stop.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#define PAGE 4096u
#define LOOK_USEC 200000 /* interval at which a wait looks for a signal */

void chunk_place(struct chunk *chunk, size_t memory_bytes, uint64_t off, uint64_t end)
{
	size_t skip = off % PAGE, room = memory_bytes - skip;

	chunk->data = chunk->memory + skip;
	chunk->off = off;
	chunk->len = end - off < room ? (size_t)(end - off) : room;
}

/*
 * Without the daemon.  A read ends early at the end of the file or stream.  That of a file asks for whole pages, as
 * O_DIRECT requires; the buffer has room for them.
 */
static int64_t move(const struct side *side, const struct chunk *chunk, bool is_write)
{
	struct pollfd p = { .fd = side->fd, .events = is_write ? POLLOUT : POLLIN };
	const bool is_whole = is_write || side->is_stream;
	size_t len = is_whole ? chunk->len : (chunk->len + PAGE - 1) & ~(size_t)(PAGE - 1);
	size_t done = 0;

	while (done < chunk->len) {
		const struct iovec rest = { chunk->data + done, len - done };
		const off_t off = side->is_stream ? -1 : (off_t)(chunk->off + done);
		ssize_t n;

		/* The process at the other end may never read or write. */
		if (side->is_stream && poll(&p, 1, LOOK_USEC / 1000) <= 0) {
			if (stop_signal())
				return -EINTR;
			continue;
		}
		n = is_write ? pwritev2(side->fd, &rest, 1, off, 0)
			     : preadv2(side->fd, &rest, 1, off, 0);
		if (n < 0 && (errno == EAGAIN || (errno == EINTR && !stop_signal())))
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)(done < chunk->len ? done : chunk->len);
}

int chunk_start(struct chunk *chunk, struct dsaio_handle *handle, const struct side *side,
		bool is_write)
{
	if (!side->file) {
		chunk->done = move(side, chunk, is_write);
		return 0;
	}
	return is_write ? dsaio_pwrite_async(handle, side->file, chunk->data, chunk->len,
					     chunk->off, &chunk->op)
			: dsaio_pread_async(handle, side->file, chunk->data, chunk->len, chunk->off,
					    &chunk->op);
}

/* Returns 0 when the op has ended, or -EINTR. */
static int await_op(const struct chunk *chunk)
{
	while (chunk->op && dsaio_op_wait(chunk->op, LOOK_USEC, NULL) == -ETIMEDOUT)
		if (stop_signal())
			return -EINTR;
	return 0;
}

int chunk_finish(struct chunk *chunk, const struct side *side, bool is_write, size_t *ret_done,
		 char *text)
{
	int64_t done = chunk->done;

	if (await_op(chunk) < 0)
		return -EINTR;
	if (chunk->op) {
		done = dsaio_op_result(chunk->op);
		if (done < 0)
			(void)snprintf(text, CHUNK_TEXT_BYTES, "%s: %s", side->path,
				       dsaio_op_error(chunk->op));
		/* The errnos with a meaning of their own are the stream's. */
		if (done == -EINTR || done == -EPIPE)
			done = -EIO;
		dsaio_op_free(chunk->op);
		chunk->op = NULL;
	} else if (done < 0) {
		(void)snprintf(text, CHUNK_TEXT_BYTES, "%s: %s at byte %" PRIu64 ": %s", side->path,
			       is_write ? "write" : "read", chunk->off, strerror((int)-done));
	}
	if (done < 0)
		return (int)done;
	*ret_done = (size_t)done;
	return 0;
}

int chunk_drop(struct chunk *chunk)
{
	if (await_op(chunk) < 0)
		return -EINTR;
	dsaio_op_free(chunk->op);
	chunk->op = NULL;
	return 0;
}
