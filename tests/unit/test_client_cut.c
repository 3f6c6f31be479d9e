#include "client/lib/memory/buffer.h"
#include "client/lib/memory/cut.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

#define PAGES 64u

static struct cut cut;

static void cut_setup(void)
{
	ck_assert_int_eq(cut_init(&cut, PAGES * CUT_PAGE), 0);
}

static void cut_teardown(void)
{
	cut_deinit(&cut);
}

static struct cut_piece *take(size_t len)
{
	struct cut_piece *piece = NULL;

	ck_assert_int_eq(cut_take(&cut, len, &piece), 0);
	return piece;
}

static void release(const struct cut_piece *piece)
{
	cut_release(&cut, cut_find(&cut, piece->off), false);
}

static void retire(const struct cut_piece *piece)
{
	cut_release(&cut, cut_find(&cut, piece->off), true);
}

/* The pieces fill the slab without a gap, no two free ones of a kind touch, the sums are right. */
static void check_pieces(void)
{
	size_t off = 0, used = 0, retired = 0;

	for (size_t i = 0; i < cut.n; i++) {
		ck_assert_uint_eq(cut.pieces[i]->off, off);
		ck_assert_uint_gt(cut.pieces[i]->len, 0);
		ck_assert_uint_eq(cut.pieces[i]->len % CUT_PAGE, 0);
		ck_assert(i == 0 || !cut.pieces[i]->is_free || !cut.pieces[i - 1]->is_free ||
			  cut.pieces[i]->is_retired != cut.pieces[i - 1]->is_retired);
		off += cut.pieces[i]->len;
		used += cut.pieces[i]->is_free ? 0 : cut.pieces[i]->len;
		retired += cut.pieces[i]->is_retired ? cut.pieces[i]->len : 0;
	}
	ck_assert_uint_eq(off, cut.bytes);
	ck_assert_uint_eq(used, cut.used_bytes);
	ck_assert_uint_eq(retired, cut.retired_bytes);
}

TEST(pieces_are_whole_pages_one_after_the_other)
{
	struct cut_piece *one = take(1), *page = take(CUT_PAGE), *more = take(CUT_PAGE + 1);

	ck_assert_uint_eq(one->off, 0);
	ck_assert_uint_eq(one->len, CUT_PAGE);
	ck_assert_uint_eq(page->off, CUT_PAGE);
	ck_assert_uint_eq(page->len, CUT_PAGE);
	ck_assert_uint_eq(more->off, 2 * CUT_PAGE);
	ck_assert_uint_eq(more->len, 2 * CUT_PAGE);
	check_pieces();
}

TEST(a_full_slab_says_so)
{
	struct cut_piece *all = take(PAGES * CUT_PAGE), *none = NULL;

	ck_assert_int_eq(cut_take(&cut, 1, &none), -ENOSPC);
	release(all);
	ck_assert_int_eq(cut_take(&cut, PAGES * CUT_PAGE + 1, &none), -ENOSPC);
	ck_assert_ptr_null(none);
	check_pieces();
}

TEST(what_is_released_grows_together_with_both_neighbours)
{
	struct cut_piece *a = take(CUT_PAGE), *b = take(CUT_PAGE), *c = take(CUT_PAGE);

	(void)take(CUT_PAGE);
	release(a);
	release(c);
	check_pieces();
	ck_assert_uint_eq(cut.n, 5);
	release(b);
	check_pieces();
	ck_assert_uint_eq(cut.n, 3);
	ck_assert_uint_eq(cut.pieces[0]->len, 3 * CUT_PAGE);
}

TEST(only_what_was_used_before_is_dirty)
{
	struct cut_piece *a = take(CUT_PAGE), *b;

	ck_assert(!a->is_dirty);
	release(a); /* grows together with the rest, which was never used */
	b = take(2 * CUT_PAGE);
	ck_assert(b->is_dirty);
	release(b);
	check_pieces();
}

TEST(retired_pieces_are_taken_only_after_their_revival)
{
	struct cut_piece *a = take(CUT_PAGE), *b = take(CUT_PAGE), *c = take(CUT_PAGE),
			 *none = NULL;

	retire(a);
	retire(b); /* grows together with a, but not with what is free */
	release(c);
	check_pieces();
	ck_assert_uint_eq(cut.n, 2);
	ck_assert_uint_eq(cut.used_bytes, 0);
	ck_assert_int_eq(cut_take(&cut, (PAGES - 1) * CUT_PAGE, &none), -ENOSPC);
	ck_assert_uint_eq(take(CUT_PAGE)->off, 2 * CUT_PAGE);
	ck_assert(cut_revive(&cut));
	check_pieces();
	ck_assert(!cut_revive(&cut));
	ck_assert_uint_eq(take(CUT_PAGE)->off, 0);
	check_pieces();
}

TEST(the_piece_of_each_byte_is_found)
{
	struct cut_piece *a = take(3 * CUT_PAGE), *b = take(CUT_PAGE);

	ck_assert_ptr_eq(cut.pieces[cut_find(&cut, 0)], a);
	ck_assert_ptr_eq(cut.pieces[cut_find(&cut, 3 * CUT_PAGE - 1)], a);
	ck_assert_ptr_eq(cut.pieces[cut_find(&cut, 3 * CUT_PAGE)], b);
	ck_assert_ptr_eq(cut.pieces[cut_find(&cut, 4 * CUT_PAGE - 1)], b);
	ck_assert(cut.pieces[cut_find(&cut, PAGES * CUT_PAGE - 1)]->is_free);
}

TEST(any_order_of_taking_and_releasing_keeps_the_pieces_whole)
{
	struct cut_piece *taken[PAGES];
	size_t n = 0;
	unsigned seed = 1;

	for (int i = 0; i < 20000; i++) {
		unsigned random;

		seed = seed * 1103515245 + 12345;
		random = seed >> 16;
		if (random & 1 && n < PAGES) {
			struct cut_piece *piece = NULL;

			if (cut_take(&cut, 1 + random % (8 * CUT_PAGE), &piece) == 0)
				taken[n++] = piece;
		} else if (n) {
			size_t which = random % n;

			if (random & 2)
				retire(taken[which]);
			else
				release(taken[which]);
			if (random % 64 == 0)
				(void)cut_revive(&cut);
			taken[which] = taken[--n];
		}
		check_pieces();
	}
	while (n)
		release(taken[--n]);
	(void)cut_revive(&cut);
	check_pieces();
	ck_assert_uint_eq(cut.n, 1);
}

static const struct {
	const char *what;
	size_t bytes, last, slab;
} slabs[] = {
	{ "the first", 1, 0, 4u << 20 },
	{ "the first, filled", 4u << 20, 0, 4u << 20 },
	{ "the first, for more", (4u << 20) + 1, 0, 6u << 20 },
	{ "the second", 1, 4u << 20, 8u << 20 },
	{ "doubled up to the bound", 1, 128u << 20, 256u << 20 },
	{ "not beyond the bound", 1, 256u << 20, 256u << 20 },
	{ "a request beyond the bound", (300u << 20) + 1, 256u << 20, 302u << 20 },
	{ "after a request beyond the bound", 1, 512u << 20, 256u << 20 },
};

TEST_TABLE(a_new_slab_is_twice_the_last_or_as_large_as_need_be, slabs)
{
	ck_assert_msg(buffer_slab_bytes(slabs[_i].bytes, slabs[_i].last) == slabs[_i].slab, "%s",
		      slabs[_i].what);
}

FIXTURE(cut_setup, cut_teardown)
TEST_MAIN
