#include "client/lib/buffered.h"

#include "client/lib/wait.h"
#include "proto/cleanup.h"

#include <unistd.h>

#define CALL_BYTES_MAX (1u << 30) /* one call moves at most 2 GiB less a page (Linux) */

void buffered_await_earlier(struct dsaio_op *op)
{
	struct dsaio_op *earlier;

	while ((earlier = inode_conflict(op->inode, op))) {
		struct wait_for end = { .what = WAIT_OP, .op = earlier };

		(void)wait_until(earlier->handle, &end, UINT64_MAX); /* no time-out */
		handle_op_drop(earlier);
	}
}

/* Returns 0 when all is done, or at the end of a file; else a negative errno.  Counts done. */
static int transfer(struct dsaio_op *op, char *buf)
{
	_cleanup_(closep) int fd = file_open_buffered(op->file);

	if (fd < 0)
		return fd;

	while (op->done < op->len) {
		uint64_t left = op->len - op->done;
		size_t n = left < CALL_BYTES_MAX ? (size_t)left : CALL_BYTES_MAX;
		off_t off = (off_t)(op->off + op->done);
		ssize_t r = op->opcode == RING_OP_READ ? pread(fd, buf + op->done, n, off)
						       : pwrite(fd, buf + op->done, n, off);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return op->opcode == RING_OP_READ ? 0 : -EIO;
		op->done += (uint64_t)r;
	}
	return 0;
}

void buffered_run(struct dsaio_op *op, void *buf)
{
	int r;

	if (op->file->is_shared) {
		r = -EACCES;
		op->because = "the file came as a descriptor that can not be opened anew, so only "
			      "aligned ops are possible: use memory of dsaio_alloc() and multiples "
			      "of dsaio_alignment(), or open the file by its path";
	} else {
		buffered_await_earlier(op);
		/* What it waited for may have been lost with the daemon: so is this, which is open. */
		r = conn_was_gone(op->handle->client->conn) ? -ECONNRESET : transfer(op, buf);
	}
	op->result = r < 0 ? r : (int64_t)op->done;
	wait_end_op(op);
}
