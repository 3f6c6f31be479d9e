/*
 * Slices: how a range of a file is cut into pieces that each fit into a slot (slots.h).
 *
 * The file is cut where a slot's end is at a multiple of the file's alignment, and a slot's bytes lie
 * at the same distance from a page's start as the file's.  So all but the range's ends is aligned.  A
 * read covers whole aligned blocks.  A write sends only the wanted bytes; the daemon takes care of
 * its unaligned head and tail.
 *
 * Pure functions.
 */
#ifndef DSAIO_CLIENT_LIB_IO_SLICE_H
#define DSAIO_CLIENT_LIB_IO_SLICE_H

#include <stdbool.h>
#include <stdint.h>

struct slice_align {
	uint32_t offset, memory; /* as a file's; powers of two */
};

struct slice {
	uint64_t len;			      /* wanted bytes, from the offset where it was cut */
	uint64_t slot_off;		      /* place of the first of them in the slot */
	uint64_t io_off, io_len, io_slot_off; /* what is read or written, and its place */
};

/* The first slice of the bytes from off to end, in a slot of slot_bytes. */
struct slice slice_cut(uint64_t off, uint64_t end, uint64_t slot_bytes, struct slice_align align,
		       bool is_write);

/* Bytes of a slot that takes all from off to end. */
uint64_t slice_bytes(uint64_t off, uint64_t end, struct slice_align align);

/*
 * Limit on the slot of a blocking op's next slice.  No I/O goes on while a write's first slice is
 * copied, nor while a read's last one is, so these are short.
 */
uint64_t slice_wish(uint64_t off, uint64_t next, uint64_t end, bool is_write);

/*
 * The same for slices of an op of len bytes whose copies are queued beside the I/O.  Where both are as
 * fast, the op takes as long as one of them and one slice.
 */
uint64_t slice_wish_queued(uint64_t len);

#endif
