#include "client/lib/io/slice.h"

#include "client/lib/memory/slots.h"

/* Shorter ones cost more than they hide: 1 MiB in slices of 128 KiB is no faster. */
#define SLICE_BYTES_MIN (256u << 10)
#define QUEUED_SLICES 32u /* so a slice is 3 percent of its op */
#define PAGE 4096u

static uint64_t round_down(uint64_t n, uint64_t align)
{
	return n & ~(align - 1);
}

/* A slot starts at a multiple of this in the file. */
static uint64_t slice_unit(struct slice_align align)
{
	uint64_t unit = align.offset > align.memory ? align.offset : align.memory;

	return unit > PAGE ? unit : PAGE;
}

uint64_t slice_bytes(uint64_t off, uint64_t end, struct slice_align align)
{
	return end - round_down(off, slice_unit(align));
}

uint64_t slice_wish(uint64_t off, uint64_t next, uint64_t end, bool is_write)
{
	uint64_t beside = (is_write ? 2 * (next - off) : end - next) / 4, bytes = SLICE_BYTES_MIN;

	while (bytes < SLOT_BYTES_MAX && bytes < beside)
		bytes *= 2;
	return bytes;
}

uint64_t slice_wish_queued(uint64_t len)
{
	uint64_t bytes = SLICE_BYTES_MIN;

	while (bytes < SLOT_BYTES_MAX && bytes * QUEUED_SLICES < len)
		bytes *= 2;
	return bytes;
}

struct slice slice_cut(uint64_t off, uint64_t end, uint64_t slot_bytes, struct slice_align align,
		       bool is_write)
{
	uint64_t start = round_down(off, slice_unit(align));
	uint64_t stop = end - start > slot_bytes ? start + slot_bytes : end;
	struct slice slice = { .len = stop - off, .slot_off = off - start };
	uint64_t io_end = round_down(stop + align.offset - 1, align.offset);

	slice.io_off = off;
	if (!is_write && io_end <= INT64_MAX) { /* no file has a block that passes that */
		slice.io_off = round_down(off, align.offset);
		stop = io_end;
	}
	slice.io_len = stop - slice.io_off;
	slice.io_slot_off = slice.io_off - start;
	return slice;
}
