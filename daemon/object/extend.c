#include "daemon/object/extend.h"

#include <errno.h>
#include <fcntl.h>

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct extend_step extend_step(const struct split *split, uint32_t block, uint64_t off,
			       uint64_t grow_end)
{
	const uint64_t part_bytes = split_part_bytes(split);
	uint64_t row = block / split->n_parts, from = row * split->block_size;
	uint64_t rows = EXTEND_BYTES / split->block_size / split->n_parts, next_block;
	struct extend_step step = { .off = off, .n_ranges = 1, .n_extended = UINT32_MAX };

	if (split->len <= EXTEND_BYTES) {
		step.len = min(grow_end - off, EXTEND_BYTES);
		step.own_len = split->len;
		step.end = off + step.len;
		return step;
	}
	rows = rows ? rows : 1;
	step.off = off + from;
	step.end = off + split->len;
	step.len = min(min(rows * split->block_size, part_bytes - from), step.end - step.off);
	step.own_len = step.len;
	step.stride = part_bytes;
	step.n_ranges = split->n_parts;
	next_block = (row + rows) * split->n_parts;
	if (next_block < split_n_blocks(split))
		step.n_extended = (uint32_t)next_block;
	return step;
}

static int allocate(int fd, uint64_t off, uint64_t len)
{
	int r;

	do
		r = fallocate(fd, 0, (off_t)off, (off_t)len) < 0 ? errno : 0;
	while (r == EINTR);
	return r;
}

static bool is_for_want_of_room(int error)
{
	return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

int extend_step_do(int fd, struct extend_step *step)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < step->n_ranges; i++) {
		uint64_t start = step->off + i * step->stride;

		if (start >= step->end)
			break;
		r = allocate(fd, start, min(step->len, step->end - start));
	}
	if (is_for_want_of_room(r) && step->own_len < step->len) {
		step->len = step->own_len;
		r = allocate(fd, step->off, step->len);
	}
	return r;
}

bool extension_has(const struct extension *extension, const struct extend_step *step)
{
	return step->n_ranges == 1 && step->off >= extension->from &&
	       step->off + step->own_len <= extension->to;
}

void extension_note(struct extension *extension, const struct extend_step *step)
{
	const uint64_t end = step->off + step->len;

	if (step->n_ranges > 1)
		return;
	if (step->off < extension->from || step->off > extension->to) {
		extension->from = step->off;
		extension->to = end;
	} else if (end > extension->to) {
		extension->to = end;
	}
}

void extension_add_op(struct extension *extension)
{
	extension->n_ops++;
}

void extension_remove_op(struct extension *extension)
{
	/* A process may truncate the file unnoticed, so the remembered range must not last. */
	if (--extension->n_ops == 0)
		extension->from = extension->to = 0;
}
