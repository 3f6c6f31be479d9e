/*
 * The request of a block that is back: whether it goes on, and the copy of an unaligned read.
 */
#include "daemon/engine/engine.h"
#include "daemon/object/unaligned.h"

#include <errno.h>

/* A block that comes back with -EINTR or -EAGAIN is tried again so often: a guess. */
#define BLOCK_RETRIES 16u

bool block_must_continue(struct block *block)
{
	/* xfs refuses a direct transfer that continues elsewhere. */
	const uint32_t align = block->is_buffered ? 1 : target_align(block->target);
	uint32_t end, boundary;

	if (block->result == -EINTR || block->result == -EAGAIN)
		return block->n_retries++ < BLOCK_RETRIES;
	if (block->result <= 0)
		return false;
	end = block->before + (uint32_t)block->result;
	if (end <= block->best || end >= block->bytes) {
		block->best = end > block->best ? end : block->best;
		return false; /* no more than before: the end of the file; or whole */
	}
	block->best = end;
	boundary = end & ~(align - 1);
	block->off += boundary - block->before;
	block->region_off += boundary - block->before;
	block->len = block->bytes - boundary;
	block->before = boundary;
	return true;
}

void block_copy_out(struct block *block, const struct block *cover)
{
	const uint64_t lead = block->off - block_start(cover); /* bytes before the range */
	const char *from = cover->region->base + (cover->region_off - cover->before) + lead;
	uint64_t n = cover->best > lead ? cover->best - lead : 0;
	size_t copied;
	int r;

	if (n > block->bytes)
		n = block->bytes;
	/* An error behind the range is not its error. */
	block->result = n < block->bytes && cover->result < 0 ? cover->result : 0;
	r = bounce_copy(block->region->base + block->region_off, from, n, &copied);
	if (r)
		block->result = -r;
	block->best = (uint32_t)copied;
}
