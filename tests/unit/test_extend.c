/*
 * Steps of an extension: which ranges, how far ahead, and what is remembered; no thread, no disk.
 */
#include "daemon/object/extend.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* ---- the kernel's part: a file system with so many bytes free ---- */

static struct {
	uint64_t room, n_calls, off[64], len[64];
	int n_interrupts, error;
} fs;

/* In place of the C library's: the linker takes the first. */
int fallocate(int fd, int mode, off_t off, off_t len)
{
	ck_assert(fd == 7 && !mode && len > 0);
	if (fs.n_interrupts-- > 0) {
		errno = EINTR;
		return -1;
	}
	fs.off[fs.n_calls] = (uint64_t)off;
	fs.len[fs.n_calls++] = (uint64_t)len;
	if (fs.error || (uint64_t)len > fs.room) {
		errno = fs.error ? fs.error : ENOSPC;
		return -1;
	}
	fs.room -= (uint64_t)len;
	return 0;
}

static void fs_reset(uint64_t room)
{
	memset(&fs, 0, sizeof(fs));
	fs.room = room;
}

/* ---- cutting ---- */

static const struct {
	const char *what;
	struct split split;
	uint32_t block;
	uint64_t off, grow_end;
	struct extend_step want;
} steps[] = {
	{ "an op of less than a step, as a whole",
	  { 8 * MIB, 1, MIB, 4096 },
	  0,
	  4096,
	  8 * MIB + 4096,
	  { .off = 4096,
	    .len = 8 * MIB,
	    .own_len = 8 * MIB,
	    .end = 8 * MIB + 4096,
	    .n_ranges = 1,
	    .n_extended = UINT32_MAX } },
	{ "its parts, too",
	  { 8 * MIB, 4, MIB, 4096 },
	  0,
	  0,
	  8 * MIB,
	  { .len = 8 * MIB,
	    .own_len = 8 * MIB,
	    .end = 8 * MIB,
	    .n_ranges = 1,
	    .n_extended = UINT32_MAX } },
	{ "a part of a larger write: up to that one's end",
	  { MIB, 1, MIB, 4096 },
	  0,
	  8 * MIB,
	  20 * MIB + 77,
	  { .off = 8 * MIB,
	    .len = 12 * MIB + 77,
	    .own_len = MIB,
	    .end = 20 * MIB + 77,
	    .n_ranges = 1,
	    .n_extended = UINT32_MAX } },
	{ "but not further ahead than a step",
	  { MIB, 1, MIB, 4096 },
	  0,
	  8 * MIB,
	  400 * MIB,
	  { .off = 8 * MIB,
	    .len = 64 * MIB,
	    .own_len = MIB,
	    .end = 72 * MIB,
	    .n_ranges = 1,
	    .n_extended = UINT32_MAX } },
	{ "the first step of a large op",
	  { 400 * MIB, 1, MIB, 4096 },
	  0,
	  MIB,
	  401 * MIB,
	  { .off = MIB,
	    .len = 64 * MIB,
	    .own_len = 64 * MIB,
	    .end = 401 * MIB,
	    .stride = 400 * MIB,
	    .n_ranges = 1,
	    .n_extended = 64 } },
	{ "its second",
	  { 400 * MIB, 1, MIB, 4096 },
	  64,
	  MIB,
	  401 * MIB,
	  { .off = 65 * MIB,
	    .len = 64 * MIB,
	    .own_len = 64 * MIB,
	    .end = 401 * MIB,
	    .stride = 400 * MIB,
	    .n_ranges = 1,
	    .n_extended = 128 } },
	{ "its last: to the op's end, and no further",
	  { 400 * MIB + 8192, 1, MIB, 4096 },
	  384,
	  0,
	  500 * MIB,
	  { .off = 384 * MIB,
	    .len = 16 * MIB + 8192,
	    .own_len = 16 * MIB + 8192,
	    .end = 400 * MIB + 8192,
	    .stride = 400 * MIB + 8192,
	    .n_ranges = 1,
	    .n_extended = UINT32_MAX } },
	{ "four parts: each its own range, together a step",
	  { 400 * MIB, 4, MIB, 4096 },
	  64,
	  0,
	  400 * MIB,
	  { .off = 16 * MIB,
	    .len = 16 * MIB,
	    .own_len = 16 * MIB,
	    .end = 400 * MIB,
	    .stride = 100 * MIB,
	    .n_ranges = 4,
	    .n_extended = 128 } },
	{ "the last blocks of the parts are shorter",
	  { 400 * MIB, 3, 64 * MIB, 4096 },
	  6,
	  0,
	  400 * MIB,
	  { .off = 128 * MIB,
	    .len = (400 * MIB + 3 * 4096 - 1) / 3 / 4096 * 4096 - 128 * MIB,
	    .own_len = (400 * MIB + 3 * 4096 - 1) / 3 / 4096 * 4096 - 128 * MIB,
	    .end = 400 * MIB,
	    .stride = (400 * MIB + 3 * 4096 - 1) / 3 / 4096 * 4096,
	    .n_ranges = 3,
	    .n_extended = UINT32_MAX } },
	{ "blocks of a step's size: one of each part",
	  { 400 * MIB, 2, 64 * MIB, 4096 },
	  2,
	  0,
	  400 * MIB,
	  { .off = 64 * MIB,
	    .len = 64 * MIB,
	    .own_len = 64 * MIB,
	    .end = 400 * MIB,
	    .stride = 200 * MIB,
	    .n_ranges = 2,
	    .n_extended = 4 } },
};

TEST_TABLE(a_step_is_what_the_next_blocks_need, steps)
{
	struct extend_step step = extend_step(&steps[_i].split, steps[_i].block, steps[_i].off,
					      steps[_i].grow_end);
	const struct extend_step *want = &steps[_i].want;

	ck_assert_msg(
		step.off == want->off && step.len == want->len && step.own_len == want->own_len &&
			step.stride == want->stride && step.end == want->end &&
			step.n_ranges == want->n_ranges && step.n_extended == want->n_extended,
		"%s: off %ju len %ju own %ju stride %ju end %ju, %u ranges, %u blocks",
		steps[_i].what, (uintmax_t)step.off, (uintmax_t)step.len, (uintmax_t)step.own_len,
		(uintmax_t)step.stride, (uintmax_t)step.end, step.n_ranges, step.n_extended);
}

static const struct split splits[] = {
	{ 400 * MIB, 1, MIB, 4096 },	      { 400 * MIB + 4096, 3, 1 << 16, 4096 },
	{ 65 * MIB, 64, 64 * MIB, 4096 },     { 1000 * MIB, 7, 5 * 4096, 4096 },
	{ 64 * MIB + 512, 5, 1 << 20, 4096 }, { 64 * MIB, 64, 4096, 4096 },
};

/* As the lane goes: a step when the blocks of the one before have started. */
TEST_TABLE(each_block_is_allocated_before_it_starts_and_few_before_they_do, splits)
{
	const struct split *split = &splits[_i];
	const uint64_t most = (uint64_t)split->n_parts * split->block_size;
	struct extend_step step = { 0 };
	uint64_t n_started = 0, n_allocated = 0;

	fs_reset(UINT64_MAX);
	for (uint32_t i = 0; i < split_n_blocks(split); i++) {
		struct split_block block = split_block(split, i);
		bool is_within = false;

		if (!block.len)
			continue;
		if (i >= step.n_extended) {
			step = extend_step(split, i, 8192, split->len + 8192);
			fs.n_calls = 0;
			ck_assert_int_eq(extend_step_do(7, &step), 0);
			for (uint64_t k = 0; k < fs.n_calls; k++)
				n_allocated += fs.len[k];
			ck_assert_uint_le(n_allocated - n_started,
					  most > EXTEND_BYTES ? most : EXTEND_BYTES);
			ck_assert_uint_gt(step.n_extended, i);
		}
		for (uint64_t k = 0; k < fs.n_calls; k++)
			is_within |= block.off + 8192 >= fs.off[k] &&
				     block.off + 8192 + block.len <= fs.off[k] + fs.len[k];
		ck_assert(is_within);
		n_started += block.len;
	}
	ck_assert_uint_eq(n_started, split->len);
	ck_assert_uint_eq(n_allocated, split->len);
}

/* ---- allocating ---- */

TEST(a_step_stops_at_the_first_failure)
{
	struct extend_step step = extend_step(&splits[1], 0, 0, splits[1].len);

	fs_reset(step.len);
	ck_assert_int_eq(extend_step_do(7, &step), ENOSPC);
	ck_assert_uint_eq(fs.n_calls, 2);
}

TEST(an_interrupted_step_goes_on)
{
	struct extend_step step = extend_step(&splits[0], 0, 0, splits[0].len);

	fs_reset(UINT64_MAX);
	fs.n_interrupts = 3;
	ck_assert_int_eq(extend_step_do(7, &step), 0);
	ck_assert_uint_eq(fs.n_calls, 1);
}

TEST(where_there_is_no_room_for_what_follows_an_op_gets_its_own)
{
	const struct split split = { MIB, 1, MIB, 4096 };
	struct extend_step step = extend_step(&split, 0, 0, 8 * MIB);

	fs_reset(2 * MIB);
	ck_assert_int_eq(extend_step_do(7, &step), 0);
	ck_assert_uint_eq(fs.n_calls, 2);
	ck_assert_uint_eq(fs.len[1], MIB);
	ck_assert_uint_eq(step.len, MIB);
	fs_reset(MIB - 1);
	step = extend_step(&split, 0, 0, 8 * MIB);
	ck_assert_int_eq(extend_step_do(7, &step), ENOSPC);
	fs_reset(8 * MIB);
	fs.error = EIO;
	step = extend_step(&split, 0, 0, 8 * MIB);
	ck_assert_int_eq(extend_step_do(7, &step), EIO);
	ck_assert_uint_eq(fs.n_calls, 1);
}

/* ---- remembering ---- */

TEST(parts_that_follow_find_their_range_while_one_is_open)
{
	const struct split split = { MIB, 1, MIB, 4096 };
	struct extension extension = { 0 };
	struct extend_step step;

	extension_add_op(&extension);
	step = extend_step(&split, 0, 8 * MIB, 200 * MIB);
	ck_assert(!extension_has(&extension, &step));
	extension_note(&extension, &step);
	ck_assert(extension_has(&extension, &step));
	step = extend_step(&split, 0, 71 * MIB, 200 * MIB);
	ck_assert(extension_has(&extension, &step));
	step = extend_step(&split, 0, 7 * MIB, 200 * MIB);
	ck_assert(!extension_has(&extension, &step));
	step = extend_step(&split, 0, 72 * MIB, 200 * MIB);
	ck_assert(!extension_has(&extension, &step));
	extension_note(&extension, &step); /* behind it: one range */
	ck_assert_uint_eq(extension.from, 8 * MIB);
	ck_assert_uint_eq(extension.to, 136 * MIB);
	step = extend_step(&split, 0, 190 * MIB, 200 * MIB);
	extension_note(&extension, &step); /* elsewhere: the last counts */
	ck_assert_uint_eq(extension.from, 190 * MIB);

	extension_add_op(&extension);
	extension_remove_op(&extension);
	ck_assert(extension_has(&extension, &step));
	extension_remove_op(&extension);
	ck_assert(!extension_has(&extension, &step));
}

TEST(ranges_of_several_parts_are_not_remembered)
{
	struct extension extension = { 0 };
	struct extend_step step = extend_step(&splits[1], 0, 0, splits[1].len);

	extension_add_op(&extension);
	extension_note(&extension, &step);
	ck_assert(!extension_has(&extension, &step));
}

TEST_MAIN
