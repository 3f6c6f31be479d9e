#include "daemon/lane/piece.h"

#include "daemon/object/unaligned.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * Transfers len bytes as far as it goes.  A short transfer is continued from the boundary at or
 * below its end (xfs refuses another); one that gets no further is at the end of the file.  Takes
 * and returns in *done how far it came; returns 0 or a positive errno.
 */
static int transfer(const struct piece *piece, char *memory, uint64_t off, uint64_t len,
		    uint64_t align, uint64_t *done)
{
	while (*done < len) {
		uint64_t from = *done & ~(align - 1);
		/*
		 * Vectors of one, since a race detector looks at the memory of pread(2); a client
		 * may well let two of its ops use the same.
		 */
		struct iovec range = { .iov_base = memory + from, .iov_len = len - from };
		off_t at = (off_t)(off + from);
		ssize_t n = piece->is_write ? pwritev2(piece->fd, &range, 1, at, 0)
					    : preadv2(piece->fd, &range, 1, at, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (from + (uint64_t)n <= *done)
			return piece->is_write ? EIO : 0; /* a write that stands still */
		*done = from + (uint64_t)n;
	}
	return 0;
}

static void read_bounced(struct piece *piece)
{
	uint32_t unit = unaligned_unit(piece->offset_align);
	struct unaligned_cover cover = unaligned_cover(piece->off, piece->len, unit);
	uint32_t align = piece->memory_align > unit ? piece->memory_align : unit;
	_cleanup_(freep) void *memory = NULL;
	uint64_t before = piece->off - cover.off, n = 0, got;
	size_t copied;

	if (posix_memalign(&memory, align, cover.len)) {
		piece->error = ENOMEM;
		return;
	}
	piece->error = transfer(piece, memory, cover.off, cover.len, align, &n);
	got = n > before ? n - before : 0;
	if (got > piece->len)
		got = piece->len;
	if (got == piece->len)
		piece->error = 0; /* what failed lies behind */
	if (got) {
		int r = bounce_copy(piece->memory, (char *)memory + before, got, &copied);

		piece->done = (uint32_t)copied;
		if (r)
			piece->error = r;
	}
}

static int sync_file(const struct piece *piece)
{
	int r = piece->way == PIECE_SYNC ? fsync(piece->fd) : fdatasync(piece->fd);

	return r < 0 ? errno : 0;
}

void piece_do(struct piece *piece)
{
	uint64_t done = piece->done;
	uint64_t align = 1;

	if (piece->way == PIECE_BOUNCE) {
		read_bounced(piece);
		return;
	}
	if (piece->way == PIECE_SYNC || piece->way == PIECE_DATASYNC) {
		piece->error = sync_file(piece);
		return;
	}
	if (piece->way == PIECE_EXTEND) {
		piece->error = extend_step_do(piece->fd, &piece->step);
		return;
	}
	if (piece->way == PIECE_DIRECT)
		align = piece->offset_align > piece->memory_align ? piece->offset_align
								  : piece->memory_align;
	piece->error = transfer(piece, piece->memory, piece->off, piece->len, align, &done);
	piece->done = (uint32_t)done;
}
