#include "daemon/object/extend.h"

#include <errno.h>
#include <fcntl.h>

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct extend_step extend_step(uint64_t len, uint32_t block_bytes, uint64_t next, uint64_t off,
			       uint64_t grow_end)
{
	const uint64_t n_blocks = EXTEND_BYTES / block_bytes;
	const uint64_t start = next - next % block_bytes;
	const uint64_t end = start + (n_blocks ? n_blocks : 1) * block_bytes;
	struct extend_step step = { .off = off, .extended = UINT64_MAX };

	if (len <= EXTEND_BYTES) {
		step.len = min(grow_end - off, EXTEND_BYTES);
		step.own_len = len;
		return step;
	}
	step.off = off + start;
	step.len = step.own_len = min(end, len) - start;
	if (end < len)
		step.extended = end;
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
	int r = allocate(fd, step->off, step->len);

	if (is_for_want_of_room(r) && step->own_len < step->len) {
		step->len = step->own_len;
		r = allocate(fd, step->off, step->len);
	}
	return r;
}

bool extension_has(const struct extension *extension, const struct extend_step *step)
{
	return step->off >= extension->from && step->off + step->own_len <= extension->to;
}

void extension_note(struct extension *extension, const struct extend_step *step)
{
	const uint64_t end = step->off + step->len;

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
