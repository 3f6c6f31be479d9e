#include "daemon/object/unaligned.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static_assert(BOUNCES <= UINT8_MAX + 1, "their numbers fit into a byte");

struct unaligned_cover unaligned_cover(uint64_t off, uint64_t len, uint32_t unit)
{
	uint64_t mask = unit - 1;
	struct unaligned_cover cover = { .off = off & ~mask };

	cover.len = ((off + len + mask) & ~mask) - cover.off;
	return cover;
}

struct unaligned_cut unaligned_cut(const struct unaligned_range *range)
{
	uint32_t unit = unaligned_unit(range->offset_align);
	uint64_t mask = unit - 1, end = range->off + range->len;
	uint64_t start = (range->off + mask) & ~mask, stop = end & ~mask;
	struct unaligned_cover cover = unaligned_cover(range->off, range->len, unit);
	bool has_middle, is_short = cover.len <= BOUNCE_BYTES;
	struct unaligned_cut cut = { 0 };

	if (!((range->off | range->len) & (range->offset_align - 1)) &&
	    !(range->slab_off & (range->memory_align - 1)))
		return cut;
	has_middle = start < stop &&
		     !((range->slab_off + (start - range->off)) & (range->memory_align - 1));
	if (is_short && !(range->is_write && has_middle)) {
		cut.head = (uint32_t)range->len;
	} else if (unit <= BOUNCE_BYTES && (has_middle || start == stop)) {
		/* Without a middle: two units that do not fit into one bounce page. */
		cut.head = (uint32_t)(start - range->off);
		cut.tail = (uint32_t)(end - stop);
	} else {
		cut.is_misaligned = true;
	}
	return cut;
}

int bounces_init(struct bounces *bounces)
{
	size_t bytes = (size_t)BOUNCES * BOUNCE_BYTES;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	/* Users' data in a dump helps nobody, and a long dump delays the end of file.  Small pages,
	   or the first use of one would clear 2 MiB.  Both are only advice. */
	(void)madvise(memory, bytes, MADV_DONTDUMP);
	(void)madvise(memory, bytes, MADV_NOHUGEPAGE);
	bounces->region = (struct region){ .kind = REGION_HOST, .base = memory };
	bounces->n_free = BOUNCES;
	for (uint32_t i = 0; i < BOUNCES; i++)
		bounces->free[i] = (uint8_t)(BOUNCES - 1 - i);
	return 0;
}

void bounces_deinit(struct bounces *bounces)
{
	if (!bounces->region.base)
		return;
	assert(bounces->n_free == BOUNCES);
	(void)munmap(bounces->region.base,
		     (size_t)BOUNCES * BOUNCE_BYTES); /* our own mapping: cannot fail */
	bounces->region.base = NULL;
}

uint64_t bounce_take(struct bounces *bounces)
{
	assert(bounces->n_free > 0);
	return (uint64_t)bounces->free[--bounces->n_free] * BOUNCE_BYTES;
}

void bounce_release(struct bounces *bounces, uint64_t page_off)
{
	assert(bounces->n_free < BOUNCES);
	bounces->free[bounces->n_free++] = (uint8_t)(page_off / BOUNCE_BYTES);
}

typedef ssize_t vm_call(pid_t pid, const struct iovec *local, unsigned long n_local,
			const struct iovec *remote, unsigned long n_remote, unsigned long flags);

static int vm_copy(vm_call *call, const char *mine, const char *theirs, size_t len,
		   size_t *ret_done)
{
	*ret_done = 0;
	while (*ret_done < len) {
		struct iovec local = { (char *)(uintptr_t)mine + *ret_done, len - *ret_done };
		struct iovec remote = { (char *)(uintptr_t)theirs + *ret_done, len - *ret_done };
		ssize_t n = call(getpid(), &local, 1, &remote, 1, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EFAULT;
		*ret_done += (size_t)n;
	}
	return 0;
}

int bounce_copy(char *to, const char *from, size_t len, size_t *ret_done)
{
	return vm_copy(process_vm_writev, from, to, len, ret_done);
}

int bounce_fetch(char *to, const char *from, size_t len)
{
	size_t done;

	return vm_copy(process_vm_readv, to, from, len, &done);
}
