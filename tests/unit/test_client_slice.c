#include "client/lib/io/slice.h"

#include "tests/unit/suite.h"

#define MIB UINT64_C(1048576)

static const struct {
	const char *what;
	uint64_t off, end, slot;
	uint32_t offset_align, memory_align;
	bool is_write;
	struct slice slice; /* len, slot_off, io_off, io_len, io_slot_off */
} cuts[] = {
	{ "aligned", 0, 4 * MIB, MIB, 512, 4, false, { MIB, 0, 0, MIB, 0 } },
	{ "a read in a block", 100, 150, 65536, 512, 4, false, { 50, 100, 0, 512, 0 } },
	{ "a read over two blocks",
	  1000,
	  1100,
	  65536,
	  512,
	  4,
	  false,
	  { 100, 1000, 512, 1024, 512 } },
	{ "a write sends no more", 100, 150, 65536, 512, 4, true, { 50, 100, 100, 50, 100 } },
	{ "an odd start", 13, 4 * MIB, MIB, 512, 4, false, { MIB - 13, 13, 0, MIB, 0 } },
	{ "an odd start, written",
	  13,
	  4 * MIB,
	  MIB,
	  512,
	  4,
	  true,
	  { MIB - 13, 13, 13, MIB - 13, 13 } },
	{ "behind it", MIB, 4 * MIB, MIB, 512, 4, true, { MIB, 0, MIB, MIB, 0 } },
	{ "an odd end", 4 * MIB, 4 * MIB + 77, MIB, 512, 4, false, { 77, 0, 4 * MIB, 512, 0 } },
	{ "a start in a page",
	  4096 + 512,
	  MIB,
	  MIB,
	  512,
	  4,
	  false,
	  { MIB - 4608, 512, 4608, MIB - 4608, 512 } },
	{ "blocks of 64 KiB",
	  70000,
	  80000,
	  65536,
	  65536,
	  65536,
	  false,
	  { 10000, 4464, 65536, 65536, 0 } },
	{ "a small slot", 13, 4 * MIB, 65536, 512, 4, false, { 65523, 13, 0, 65536, 0 } },
	{ "the last byte",
	  INT64_MAX - 1,
	  INT64_MAX,
	  65536,
	  512,
	  4,
	  false,
	  { 1, 4094, INT64_MAX - 1, 1, 4094 } },
};

TEST_TABLE(a_slice_is_what_a_slot_holds, cuts)
{
	struct slice_align align = { cuts[_i].offset_align, cuts[_i].memory_align };
	struct slice slice = slice_cut(cuts[_i].off, cuts[_i].end, cuts[_i].slot, align,
				       cuts[_i].is_write);

	ck_assert_msg(slice.len == cuts[_i].slice.len && slice.slot_off == cuts[_i].slice.slot_off,
		      "%s: %llu at %llu", cuts[_i].what, (unsigned long long)slice.len,
		      (unsigned long long)slice.slot_off);
	ck_assert_msg(slice.io_off == cuts[_i].slice.io_off &&
			      slice.io_len == cuts[_i].slice.io_len &&
			      slice.io_slot_off == cuts[_i].slice.io_slot_off,
		      "%s: reads or writes %llu at %llu", cuts[_i].what,
		      (unsigned long long)slice.io_len, (unsigned long long)slice.io_off);
}

TEST_LOOP(slices_cover_an_op_and_lie_as_the_file_does, 3)
{
	static const struct slice_align aligns[] = { { 512, 4 }, { 4096, 512 }, { 65536, 4096 } };
	struct slice_align align = aligns[_i];
	uint64_t random = 1;

	for (unsigned round = 0; round < rounds(1000); round++) {
		uint64_t off = (random = random * 6364136223846793005u + 1) >> 40;
		uint64_t end = off + 1 + ((random = random * 6364136223846793005u + 1) >> 41);
		uint64_t next = off;

		while (next < end) {
			uint64_t slot = 65536u << (random >> 60) % 5;
			struct slice slice = slice_cut(next, end, slot, align, round % 2);

			ck_assert_uint_gt(slice.len, 0);
			ck_assert_uint_le(slice.slot_off + slice.len, slot);
			ck_assert_uint_le(slice.io_slot_off + slice.io_len, slot);
			ck_assert_uint_le(slice.len, slice_bytes(next, end, align));
			ck_assert_uint_eq((slice.io_off - slice.io_slot_off) % align.memory, 0);
			ck_assert_uint_le(slice.io_off, next);
			ck_assert_uint_ge(slice.io_off + slice.io_len, next + slice.len);
			if (round % 2 == 0)
				ck_assert_uint_eq((slice.io_off | slice.io_len) % align.offset, 0);
			next += slice.len;
			ck_assert(next >= end || next % align.offset == 0);
		}
		ck_assert_uint_eq(next, end);
	}
}

static const struct {
	const char *what;
	uint64_t next, end;
	bool is_write;
	uint64_t bytes;
} wishes[] = {
	{ "a write's first", 0, 400 * MIB, true, MIB / 4 },
	{ "its second", MIB / 4, 400 * MIB, true, MIB / 4 },
	{ "behind 1 MiB", MIB, 400 * MIB, true, MIB / 2 },
	{ "in a write", 2 * MIB, 400 * MIB, true, MIB },
	{ "a write's last", 399 * MIB, 400 * MIB, true, MIB },
	{ "a read's first", 0, 400 * MIB, false, MIB },
	{ "with 2 MiB to come", 398 * MIB, 400 * MIB, false, MIB / 2 },
	{ "a read's last", 399 * MIB, 400 * MIB, false, MIB / 4 },
	{ "a short read", 0, 4096, false, MIB / 4 },
};

TEST_TABLE(slices_are_short_where_nothing_else_is_in_flight, wishes)
{
	ck_assert_msg(slice_wish(13, 13 + wishes[_i].next, 13 + wishes[_i].end,
				 wishes[_i].is_write) == wishes[_i].bytes,
		      "%s", wishes[_i].what);
}

static const struct {
	uint64_t len, bytes;
} queued[] = {
	{ 1, MIB / 4 },	       { 8 * MIB, MIB / 4 },  { 8 * MIB + 1, MIB / 2 },
	{ 16 * MIB, MIB / 2 }, { 16 * MIB + 1, MIB }, { 400 * MIB, MIB },
};

TEST_TABLE(slices_beside_queued_copies_are_a_small_part_of_the_op, queued)
{
	ck_assert_uint_eq(slice_wish_queued(queued[_i].len), queued[_i].bytes);
}

TEST_MAIN
