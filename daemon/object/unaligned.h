/*
 * The unaligned head and tail of an op: the parts that cannot be transferred direct, because offset,
 * length or memory is not aligned.
 *
 *     op      |----------------------------------------|
 *     unit  +-------+-------+-------+-------+-------+-------+     unit: max(offset_align, 4096)
 *             head  |            middle             | tail
 *
 * The middle is transferred direct.  For the unaligned head and tail, a read fetches whole units into
 * a page of the lane (struct bounces) and copies the wanted bytes with process_vm_writev to the daemon
 * itself, so that only the kernel touches a client's memory.  A write sends them through the file's
 * buffered description, on a worker thread.  A unit is at least a page, so that the page cache and a
 * direct write of the op never have the same page.
 *
 * A short range has only a head and no middle: a read whose units all fit into a bounce page, or a write
 * without any aligned unit.  A long range whose memory is not aligned like its offset is misaligned:
 * worker threads transfer it, in bounded blocks.
 *
 * bounce_copy(), bounce_fetch(): any thread; struct bounces: one thread; the cut is a pure function.
 */
#ifndef DSAIO_DAEMON_OBJECT_UNALIGNED_H
#define DSAIO_DAEMON_OBJECT_UNALIGNED_H

#include "daemon/base/error.h"
#include "daemon/object/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size of a bounce page: the largest alignment that is probed for.  Unused memory costs nothing. */
#define BOUNCE_BYTES ((uint32_t)64 << 10)
/* Bounce pages of a lane.  One client may use half of them: at 4 KiB each, more than a device needs
   to be busy (a guess). */
#define BOUNCES 256u

struct unaligned_range {
	uint64_t off, len;		     /* in the file; len > 0 */
	uint64_t slab_off;		     /* where its memory starts; slabs start at pages */
	uint32_t offset_align, memory_align; /* powers of two */
	bool is_write;
};

struct unaligned_cut {
	uint32_t head, tail; /* bytes; the middle is the rest */
	bool is_misaligned;  /* no head, no tail, and the middle cannot be transferred direct */
};

struct unaligned_cut unaligned_cut(const struct unaligned_range *range);

/* The unit at whose multiples a range is cut. */
static inline uint32_t unaligned_unit(uint32_t offset_align)
{
	return offset_align > 4096 ? offset_align : 4096;
}

/* The whole units around a range. */
struct unaligned_cover {
	uint64_t off, len;
};
struct unaligned_cover unaligned_cover(uint64_t off, uint64_t len, uint32_t unit);

/* Bounce pages.  All are mapped at the start; the kernel allocates a page at its first use. */
struct bounces {
	struct region region;
	uint32_t n_free;
	uint8_t free[BOUNCES]; /* last in, first out: it is in the cache */
};
int bounces_init(struct bounces *bounces);    /* 0 or -errno */
void bounces_deinit(struct bounces *bounces); /* zeroes are fine */
/* The offset of a page in the region.  One must be free. */
uint64_t bounce_take(struct bounces *bounces);
void bounce_release(struct bounces *bounces, uint64_t page_off);

/*
 * Copies to memory that a client may unmap or shrink at any time, by a system call.  Returns 0 or a
 * positive errno (EFAULT); *ret_done is the number of bytes copied.
 */
int bounce_copy(char *to, const char *from, size_t len, size_t *ret_done);
/* Copies from such memory: likewise. */
int bounce_fetch(char *to, const char *from, size_t len);

#endif
