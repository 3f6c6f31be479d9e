/*
 * Edges: what of an op can not go direct, because its offset, length or memory is not aligned.
 *
 *     op      |----------------------------------------|
 *     unit  +-------+-------+-------+-------+-------+-------+     unit: max(offset_align, 4096)
 *             head  |            middle             | tail
 *
 * The middle goes direct.  Head and tail are ragged: a read fetches whole units into a page of
 * the lane (struct bounces) and copies the wanted bytes with process_vm_writev to the daemon
 * itself, so that memory of a client is never touched but by the kernel; a write sends them
 * through the file's buffered description, on a worker thread.  The cut is at units of at least
 * a page, so that the page cache and a direct write never own the same one within an op.
 *
 * A short range is one ragged piece, the head, and has no middle: reads when all its units fit
 * into a bounce page, writes when nothing of it can go direct, either.  A long one whose memory is
 * at a wrong distance from its offset is misaligned: worker threads do it, in bounded pieces.
 *
 * bounce_copy(): any thread; struct bounces: one thread; the cut is a pure function.
 */
#ifndef DSAIO_DAEMON_LANE_UNALIGNED_H
#define DSAIO_DAEMON_LANE_UNALIGNED_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a bounce page: the largest alignment that is probed for.  Only what is used is touched. */
#define BOUNCE_BYTES ((uint32_t)64 << 10)
/* In one home lane, half of them at most for one client: at 4 KiB each, more than devices need to
   be busy (a guess). */
#define BOUNCES 256u

struct unaligned_range {
	uint64_t off, len;		     /* in the file; len > 0 */
	uint64_t slab_off;		     /* where its memory starts; slabs start at pages */
	uint32_t offset_align, memory_align; /* powers of two */
	bool is_write;
};

struct unaligned_cut {
	uint32_t head, tail; /* bytes; the middle is the rest */
	bool is_misaligned;  /* no head, no tail, and the middle can not go direct */
};

struct unaligned_cut unaligned_cut(const struct unaligned_range *range);

/* At what the file is cut. */
static inline uint32_t unaligned_unit(uint32_t offset_align)
{
	return offset_align > 4096 ? offset_align : 4096;
}

/* The whole units around a range. */
struct unaligned_cover {
	uint64_t off, len;
};
struct unaligned_cover unaligned_cover(uint64_t off, uint64_t len, uint32_t unit);

/* Bounce pages, made at once, in memory when they are first used. */
struct bounces {
	char *memory;
	uint32_t n_free;
	uint8_t free[BOUNCES]; /* last in, first out: it is in the cache */
};
int bounces_init(struct bounces *bounces);    /* 0 or -errno */
void bounces_deinit(struct bounces *bounces); /* zeroes are fine */
/* NULL: none is free. */
char *bounce_take(struct bounces *bounces);
void bounce_give(struct bounces *bounces, char *page);

/*
 * Copies to memory that a client may unmap or shrink at any time: the kernel does it.  Returns
 * 0 or a positive errno (EFAULT); *ret_done is how far it came.
 */
int bounce_copy(char *to, const char *from, size_t len, size_t *ret_done);

#endif
