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

struct shape {
	uint64_t len;
	uint32_t block_bytes;
};

static struct extend_step step_of(const struct shape *op, uint64_t next, uint64_t off,
				  uint64_t grow_end)
{
	return extend_step(op->len, op->block_bytes, next, off, grow_end);
}

static const struct {
	const char *what;
	struct shape op;
	uint64_t next, off, grow_end;
	struct extend_step want;
} steps[] = {
	{ "an op of less than a step, as a whole",
	  { 8 * MIB, MIB },
	  0,
	  4096,
	  8 * MIB + 4096,
	  { .off = 4096, .len = 8 * MIB, .own_len = 8 * MIB, .extended = UINT64_MAX } },
	{ "a part of a larger write: up to that one's end",
	  { MIB, MIB },
	  0,
	  8 * MIB,
	  20 * MIB + 77,
	  { .off = 8 * MIB, .len = 12 * MIB + 77, .own_len = MIB, .extended = UINT64_MAX } },
	{ "but not further ahead than a step",
	  { MIB, MIB },
	  0,
	  8 * MIB,
	  400 * MIB,
	  { .off = 8 * MIB, .len = 64 * MIB, .own_len = MIB, .extended = UINT64_MAX } },
	{ "the first step of a large op",
	  { 400 * MIB, MIB },
	  0,
	  MIB,
	  401 * MIB,
	  { .off = MIB, .len = 64 * MIB, .own_len = 64 * MIB, .extended = 64 * MIB } },
	{ "its second",
	  { 400 * MIB, MIB },
	  64 * MIB,
	  MIB,
	  401 * MIB,
	  { .off = 65 * MIB, .len = 64 * MIB, .own_len = 64 * MIB, .extended = 128 * MIB } },
	{ "its last: to the op's end, and no further",
	  { 400 * MIB + 8192, MIB },
	  384 * MIB,
	  0,
	  500 * MIB,
	  { .off = 384 * MIB,
	    .len = 16 * MIB + 8192,
	    .own_len = 16 * MIB + 8192,
	    .extended = UINT64_MAX } },
	{ "blocks of a step's size: one",
	  { 400 * MIB, 64 * MIB },
	  128 * MIB,
	  0,
	  400 * MIB,
	  { .off = 128 * MIB, .len = 64 * MIB, .own_len = 64 * MIB, .extended = 192 * MIB } },
	{ "the same when the block's first bytes have started",
	  { 400 * MIB, 64 * MIB },
	  129 * MIB,
	  0,
	  400 * MIB,
	  { .off = 128 * MIB, .len = 64 * MIB, .own_len = 64 * MIB, .extended = 192 * MIB } },
	{ "as many whole blocks as a step has room for",
	  { 400 * MIB, 24 * MIB },
	  0,
	  0,
	  400 * MIB,
	  { .len = 48 * MIB, .own_len = 48 * MIB, .extended = 48 * MIB } },
};

TEST_TABLE(a_step_is_what_the_next_blocks_need, steps)
{
	struct extend_step step = step_of(&steps[_i].op, steps[_i].next, steps[_i].off,
					  steps[_i].grow_end);
	const struct extend_step *want = &steps[_i].want;

	ck_assert_msg(step.off == want->off && step.len == want->len &&
			      step.own_len == want->own_len && step.extended == want->extended,
		      "%s: off %ju len %ju own %ju extended %ju", steps[_i].what,
		      (uintmax_t)step.off, (uintmax_t)step.len, (uintmax_t)step.own_len,
		      (uintmax_t)step.extended);
}

static const struct shape ops[] = {
	{ 400 * MIB, MIB },	  { 400 * MIB + 4096, 1 << 16 }, { 65 * MIB, 64 * MIB },
	{ 1000 * MIB, 5 * 4096 }, { 64 * MIB + 512, MIB },	 { 200 * MIB, 63 * MIB },
};

/* As the lane goes: a step when the blocks of the one before have started. */
TEST_TABLE(each_block_is_allocated_before_it_starts_and_few_before_they_do, ops)
{
	const struct shape *op = &ops[_i];
	const uint64_t most = op->block_bytes;
	struct extend_step step = { 0 };
	uint64_t next = 0, n_allocated = 0;

	fs_reset(UINT64_MAX);
	while (next < op->len) {
		const uint64_t end = op->len - next < most ? op->len : next + most;
		bool is_within = false;

		if (next >= step.extended) {
			step = step_of(op, next, 8192, op->len + 8192);
			fs.n_calls = 0;
			ck_assert_int_eq(extend_step_do(7, &step), 0);
			for (uint64_t k = 0; k < fs.n_calls; k++)
				n_allocated += fs.len[k];
			ck_assert_uint_le(n_allocated - next,
					  most > EXTEND_BYTES ? most : EXTEND_BYTES);
			ck_assert_uint_ge(step.extended, end);
		}
		for (uint64_t k = 0; k < fs.n_calls; k++)
			is_within |= next + 8192 >= fs.off[k] &&
				     end + 8192 <= fs.off[k] + fs.len[k];
		ck_assert(is_within);
		next = end;
	}
	ck_assert_uint_eq(n_allocated, op->len);
}

/* ---- allocating ---- */

TEST(a_step_without_room_fails)
{
	struct extend_step step = step_of(&ops[1], 0, 0, ops[1].len);

	fs_reset(step.len - 1);
	ck_assert_int_eq(extend_step_do(7, &step), ENOSPC);
	ck_assert_uint_eq(fs.n_calls, 1);
}

TEST(an_interrupted_step_goes_on)
{
	struct extend_step step = step_of(&ops[0], 0, 0, ops[0].len);

	fs_reset(UINT64_MAX);
	fs.n_interrupts = 3;
	ck_assert_int_eq(extend_step_do(7, &step), 0);
	ck_assert_uint_eq(fs.n_calls, 1);
}

TEST(where_there_is_no_room_for_what_follows_an_op_gets_its_own)
{
	const struct shape op = { MIB, MIB };
	struct extend_step step = step_of(&op, 0, 0, 8 * MIB);

	fs_reset(2 * MIB);
	ck_assert_int_eq(extend_step_do(7, &step), 0);
	ck_assert_uint_eq(fs.n_calls, 2);
	ck_assert_uint_eq(fs.len[1], MIB);
	ck_assert_uint_eq(step.len, MIB);
	fs_reset(MIB - 1);
	step = step_of(&op, 0, 0, 8 * MIB);
	ck_assert_int_eq(extend_step_do(7, &step), ENOSPC);
	fs_reset(8 * MIB);
	fs.error = EIO;
	step = step_of(&op, 0, 0, 8 * MIB);
	ck_assert_int_eq(extend_step_do(7, &step), EIO);
	ck_assert_uint_eq(fs.n_calls, 1);
}

/* ---- remembering ---- */

TEST(parts_that_follow_find_their_range_while_one_is_open)
{
	const struct shape op = { MIB, MIB };
	struct extension extension = { 0 };
	struct extend_step step;

	extension_add_op(&extension);
	step = step_of(&op, 0, 8 * MIB, 200 * MIB);
	ck_assert(!extension_has(&extension, &step));
	extension_note(&extension, &step);
	ck_assert(extension_has(&extension, &step));
	step = step_of(&op, 0, 71 * MIB, 200 * MIB);
	ck_assert(extension_has(&extension, &step));
	step = step_of(&op, 0, 7 * MIB, 200 * MIB);
	ck_assert(!extension_has(&extension, &step));
	step = step_of(&op, 0, 72 * MIB, 200 * MIB);
	ck_assert(!extension_has(&extension, &step));
	extension_note(&extension, &step); /* behind it: one range */
	ck_assert_uint_eq(extension.from, 8 * MIB);
	ck_assert_uint_eq(extension.to, 136 * MIB);
	step = step_of(&op, 0, 190 * MIB, 200 * MIB);
	extension_note(&extension, &step); /* elsewhere: the last counts */
	ck_assert_uint_eq(extension.from, 190 * MIB);

	extension_add_op(&extension);
	extension_remove_op(&extension);
	ck_assert(extension_has(&extension, &step));
	extension_remove_op(&extension);
	ck_assert(!extension_has(&extension, &step));
}

TEST_MAIN
