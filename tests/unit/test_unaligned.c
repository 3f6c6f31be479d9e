/*
 * How ranges are cut, bounce pages, and what is copied out of them.
 */
#include "daemon/object/unaligned.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
	const char *what;
	struct unaligned_range range; /* off, len, slab_off, offset_align, memory_align, is_write */
	uint32_t head, tail;
	bool is_misaligned;
} cuts[] = {
	{ "aligned", { 512, 1024, 512, 512, 512, false }, 0, 0, false },
	{ "aligned, larger sectors", { 8192, 4096, 4096, 4096, 4096, true }, 0, 0, false },
	{ "tmpfs: everything is", { 1, 3, 5, 1, 1, true }, 0, 0, false },
	{ "a byte", { 100, 1, 7, 512, 512, false }, 1, 0, false },
	{ "a byte, written", { 100, 1, 7, 512, 512, true }, 1, 0, false },
	{ "one page, misplaced", { 0, 4096, 1, 512, 512, true }, 4096, 0, false },
	{ "a short read is one head", { 1, 50000, 1, 512, 512, false }, 50000, 0, false },
	{ "a short write is not", { 1, 50000, 1, 512, 512, true }, 4095, 849, false },
	{ "except misplaced memory", { 1, 50000, 2, 512, 512, true }, 50000, 0, false },
	{ "all of a bounce page", { 1, 65535, 1, 512, 512, false }, 65535, 0, false },
	{ "one byte more", { 1, 65536, 1, 512, 512, false }, 4095, 1, false },
	{ "head only", { 100, 131072 - 100, 100, 512, 512, false }, 3996, 0, false },
	{ "tail only", { 0, 131072 + 77, 0, 512, 512, false }, 0, 77, false },
	{ "sectors, but not pages", { 512, 131072 + 1, 512, 512, 512, true }, 3584, 513, false },
	{ "large and misplaced", { 0, 131072, 1, 512, 512, false }, 0, 0, true },
	{ "large, misplaced by a sector", { 100, 131072, 612, 512, 4096, true }, 0, 0, true },
	{ "memory aligned to 4 will do", { 100, 131072, 104, 512, 4, true }, 3996, 100, false },
	{ "units of 64 KiB", { 65535, 2, 65535, 65536, 512, false }, 1, 1, false },
	{ "within a unit of 64 KiB", { 1, 65534, 0, 65536, 512, true }, 65534, 0, false },
	{ "units that no bounce page holds", { 1, 2, 1, 1 << 20, 512, true }, 0, 0, true },
	{ "the last byte", { INT64_MAX - 1, 1, 0, 512, 512, false }, 1, 0, false },
	{ "up to the last", { INT64_MAX - 131072, 131072, 4095, 512, 512, false }, 1, 4095, false },
};

TEST_TABLE(only_the_aligned_middle_goes_direct, cuts)
{
	struct unaligned_cut cut = unaligned_cut(&cuts[_i].range);

	ck_assert_msg(cut.head == cuts[_i].head && cut.tail == cuts[_i].tail &&
			      cut.is_misaligned == cuts[_i].is_misaligned,
		      "%s: head %u, tail %u%s", cuts[_i].what, cut.head, cut.tail,
		      cut.is_misaligned ? ", misaligned" : "");
}

TEST(a_cover_is_whole_units)
{
	struct unaligned_cover cover = unaligned_cover(4095, 2, 4096);

	ck_assert_uint_eq(cover.off, 0);
	ck_assert_uint_eq(cover.len, 8192);
	cover = unaligned_cover(4096, 4096, 4096);
	ck_assert_uint_eq(cover.off, 4096);
	ck_assert_uint_eq(cover.len, 4096);
	cover = unaligned_cover(INT64_MAX - 1, 1, 65536);
	ck_assert_uint_eq(cover.off + cover.len, UINT64_C(1) << 63);
}

TEST(bounce_pages_are_bounded_and_come_back)
{
	struct bounces bounces = { 0 };
	uint64_t pages[BOUNCES];

	bounces_deinit(&bounces);
	ck_assert_int_eq(bounces_init(&bounces), 0);
	for (uint32_t i = 0; i < BOUNCES; i++) {
		pages[i] = bounce_take(&bounces);
		memset(bounces.region.base + pages[i], (int)i, BOUNCE_BYTES);
	}
	ck_assert_uint_eq(bounces.n_free, 0);
	for (uint32_t i = 0; i < BOUNCES; i++) {
		const char *page = bounces.region.base + pages[i];

		ck_assert_int_eq((uint8_t)page[0], i);
		ck_assert_int_eq((uint8_t)page[BOUNCE_BYTES - 1], i);
		bounce_release(&bounces, pages[i]);
	}
	ck_assert_uint_eq(bounce_take(&bounces), pages[BOUNCES - 1]);
	bounce_release(&bounces, pages[BOUNCES - 1]);
	bounces_deinit(&bounces);
}

TEST(memory_that_is_gone_is_an_error_and_no_fault)
{
	char from[10000];
	char *to = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t done;

	ck_assert_ptr_ne(to, MAP_FAILED);
	memset(from, 7, sizeof(from));
	ck_assert_int_eq(bounce_copy(to + 1, from, 5000, &done), 0);
	ck_assert_uint_eq(done, 5000);
	ck_assert(to[0] == 0 && to[1] == 7 && to[5000] == 7 && to[5001] == 0);
	ck_assert_int_eq(munmap(to + 4096, 4096), 0);
	ck_assert_int_eq(bounce_copy(to, from, 8192, &done), EFAULT);
	ck_assert_uint_le(done, 4096);
	ck_assert_int_eq(bounce_copy(to, from, 0, &done), 0);
	ck_assert_int_eq(munmap(to, 4096), 0);
}

TEST_MAIN
