#include "client/lib/io/bounce.h"
#include "client/lib/memory/import.h"
#include "client/lib/memory/slots.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

/* ---- pieces ---- */

static const struct {
	const char *what;
	uint64_t off, end, slot;
	uint32_t offset_align, memory_align;
	bool is_write;
	struct bounce_cut cut; /* len, slot_off, io_off, io_len, io_slot_off */
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

START_TEST(a_piece_is_what_a_slot_holds)
{
	struct bounce_align align = { cuts[_i].offset_align, cuts[_i].memory_align };
	struct bounce_cut cut = bounce_cut(cuts[_i].off, cuts[_i].end, cuts[_i].slot, align,
					   cuts[_i].is_write);

	ck_assert_msg(cut.len == cuts[_i].cut.len && cut.slot_off == cuts[_i].cut.slot_off,
		      "%s: %llu at %llu", cuts[_i].what, (unsigned long long)cut.len,
		      (unsigned long long)cut.slot_off);
	ck_assert_msg(cut.io_off == cuts[_i].cut.io_off && cut.io_len == cuts[_i].cut.io_len &&
			      cut.io_slot_off == cuts[_i].cut.io_slot_off,
		      "%s: reads or writes %llu at %llu", cuts[_i].what,
		      (unsigned long long)cut.io_len, (unsigned long long)cut.io_off);
}
END_TEST

START_TEST(pieces_cover_an_op_and_lie_as_the_file_does)
{
	static const struct bounce_align aligns[] = { { 512, 4 }, { 4096, 512 }, { 65536, 4096 } };
	struct bounce_align align = aligns[_i];
	uint64_t random = 1;

	for (unsigned round = 0; round < 1000; round++) {
		uint64_t off = (random = random * 6364136223846793005u + 1) >> 40;
		uint64_t end = off + 1 + ((random = random * 6364136223846793005u + 1) >> 41);
		uint64_t next = off;

		while (next < end) {
			uint64_t slot = SLOT_UNIT << (random >> 60) % 5;
			struct bounce_cut cut = bounce_cut(next, end, slot, align, round % 2);

			ck_assert_uint_gt(cut.len, 0);
			ck_assert_uint_le(cut.slot_off + cut.len, slot);
			ck_assert_uint_le(cut.io_slot_off + cut.io_len, slot);
			ck_assert_uint_le(cut.len, bounce_bytes(next, end, align));
			ck_assert_uint_eq((cut.io_off - cut.io_slot_off) % align.memory, 0);
			ck_assert_uint_le(cut.io_off, next);
			ck_assert_uint_ge(cut.io_off + cut.io_len, next + cut.len);
			if (round % 2 == 0)
				ck_assert_uint_eq((cut.io_off | cut.io_len) % align.offset, 0);
			next += cut.len;
			ck_assert(next >= end || next % align.offset == 0);
		}
		ck_assert_uint_eq(next, end);
	}
}
END_TEST

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

START_TEST(pieces_are_short_where_nothing_else_is_in_flight)
{
	ck_assert_msg(bounce_wish(13, 13 + wishes[_i].next, 13 + wishes[_i].end,
				  wishes[_i].is_write) == wishes[_i].bytes,
		      "%s", wishes[_i].what);
}
END_TEST

/* ---- slots ---- */

START_TEST(units_are_taken_at_multiples_of_their_number)
{
	uint64_t used = 0;

	ck_assert_int_eq(slots_take_bits(&used, 1), 0);
	ck_assert_int_eq(slots_take_bits(&used, 16), 16);
	ck_assert_int_eq(slots_take_bits(&used, 4), 4);
	ck_assert_int_eq(slots_take_bits(&used, 1), 1);
	ck_assert_int_eq(slots_take_bits(&used, 8), 8);
	ck_assert_int_eq(slots_take_bits(&used, 16), 32);
	ck_assert_int_eq(slots_take_bits(&used, 16), 48);
	ck_assert_int_eq(slots_take_bits(&used, 16), -1);
	ck_assert_int_eq(slots_take_bits(&used, 2), 2);
	ck_assert_int_eq(slots_take_bits(&used, 1), -1);
	ck_assert_uint_eq(used, UINT64_MAX);
	used = 0;
	ck_assert_int_eq(slots_take_bits(&used, 64), 0);
	ck_assert_uint_eq(used, UINT64_MAX);
}
END_TEST

/* The slab is a memfd of the test's own; no daemon is asked. */
static struct dsaio_conn conn = { .fd = -1 };
static struct link to_daemon = { &conn };
static struct buffers buffers = { .link = &to_daemon };
static struct slots slots;
static struct slots_share *share; /* of store 0 */

static void ignore_room(struct slots *s)
{
	(void)s;
}

static void slots_setup(void)
{
	slots_init(&slots, &buffers, ignore_room);
	slots.slabs[0] = (struct slots_slab){ .fd = memfd_create("test", MFD_CLOEXEC),
					      .n_units = 64 };
	ck_assert_int_ge(slots.slabs[0].fd, 0);
	ck_assert_int_eq(ftruncate(slots.slabs[0].fd, SLOTS_SLAB_BYTES), 0);
	slots.n_slabs = 1;
	slots.n_units = slots.n_free = 64;
	slots.is_growing = true; /* as if another thread asked for more */
	share = slots_share_get(&slots, 0);
	ck_assert_ptr_nonnull(share);
}

static void slots_teardown(void)
{
	slots_share_drop(share);
	ck_assert_ptr_null(slots.shares);
	slots_deinit(&slots);
}

static unsigned take_all(struct slots_share *of, bool is_further, struct slot *taken)
{
	unsigned n = 0;

	while (slots_take(of, SLOT_UNIT, is_further, &taken[n]) == 0)
		n++;
	return n;
}

START_TEST(further_slots_of_a_store_leave_room_for_first_ones)
{
	struct slot further[64], first[64], slot;
	unsigned n_further = take_all(share, true, further);
	unsigned n_first = take_all(share, false, first);

	ck_assert_uint_eq(n_further, 32);	    /* as many as stay free */
	ck_assert_uint_eq(n_further + n_first, 42); /* twice as many as stay free */
	while (n_first)
		slots_give(&first[--n_first]);
	ck_assert_int_eq(slots_take(share, MIB, false, &slot), 0);
	ck_assert_uint_eq(slot_bytes(&slot), MIB / 2); /* less where memory is short */
	slots_give(&slot);
	ck_assert_ptr_null(slot.slab);
	while (n_further)
		slots_give(&further[--n_further]);
	ck_assert_uint_eq(slots.n_free, 64);
	ck_assert_uint_eq(slots.slabs[0].used, 0);
	ck_assert_int_eq(slots_take(share, MIB, false, &slot), 0);
	ck_assert_uint_eq(slot_bytes(&slot), MIB);
	slots_give(&slot);
}
END_TEST

START_TEST(a_store_without_a_slot_gets_one_while_others_give_none_back)
{
	struct slots_share *others[4];
	struct slot taken[N_ROWS(others)][64];
	unsigned n[N_ROWS(others)];
	struct slot slot;

	for (unsigned i = 0; i < N_ROWS(others); i++) {
		others[i] = slots_share_get(&slots, i + 1);
		ck_assert_ptr_nonnull(others[i]);
		n[i] = take_all(others[i], false, taken[i]);
		ck_assert_uint_ge(n[i], 1);
		ck_assert_uint_ge(slots.n_free, 1);
	}
	ck_assert_int_eq(slots_take(share, MIB, false, &slot), 0);
	slots_give(&slot);
	ck_assert_ptr_eq(slots_share_get(&slots, 1), others[0]);
	slots_share_drop(others[0]);
	for (unsigned i = 0; i < N_ROWS(others); i++) {
		while (n[i])
			slots_give(&taken[i][--n[i]]);
		slots_share_drop(others[i]);
	}
	ck_assert_uint_eq(slots.n_free, 64);
}
END_TEST

static void *await_one(void *arg)
{
	struct slot slot;
	int r = slots_await(arg, SLOT_UNIT, UINT64_MAX, &slot);

	if (r == 0)
		slots_give(&slot);
	return (void *)(intptr_t)r;
}

START_TEST(who_waits_for_a_slot_of_a_store_holds_up_no_other_store)
{
	struct slots_share *other = slots_share_get(&slots, 1);
	struct slot taken[64], first, further;
	unsigned n = take_all(share, false, taken);
	pthread_t thread;
	bool is_waiting;
	void *result;

	ck_assert_ptr_nonnull(other);
	ck_assert_int_eq(pthread_create(&thread, NULL, await_one, share), 0);
	do {
		(void)pthread_mutex_lock(&slots.lock);
		is_waiting = share->first;
		(void)pthread_mutex_unlock(&slots.lock);
	} while (!is_waiting);
	ck_assert_int_eq(slots_await(other, SLOT_UNIT, UINT64_MAX, &first), 0);
	ck_assert_int_eq(slots_take(other, SLOT_UNIT, true, &further), 0);
	slots_give(&first);
	slots_give(&further);
	slots_share_drop(other);
	ck_assert_int_eq(slots_take(share, SLOT_UNIT, true, &further), -EAGAIN);
	while (n)
		slots_give(&taken[--n]);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
}
END_TEST

START_TEST(copies_end_at_memory_that_is_not_there)
{
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct slot slot;
	uint64_t done;

	ck_assert_ptr_ne(memory, MAP_FAILED);
	memset(memory, 0x11, 8192);
	ck_assert_int_eq(slots_take(share, SLOT_UNIT, false, &slot), 0);
	ck_assert_int_eq(slot_fill(&slot, 100, memory, 8192, &done), 0);
	ck_assert_uint_eq(done, 8192);
	memset(memory, 0, 8192);
	ck_assert_int_eq(mprotect(memory + 4096, 4096, PROT_NONE), 0);
	ck_assert_int_eq(slot_empty(&slot, 100, memory, 8192, &done), -EFAULT);
	ck_assert_uint_eq(done, 4096);
	ck_assert_int_eq(memory[0], 0x11);
	ck_assert_int_eq(memory[4095], 0x11);
	ck_assert_int_eq(slot_fill(&slot, 0, memory, 8192, &done), -EFAULT);
	ck_assert_uint_le(done, 4096);
	ck_assert_int_eq(slot_fill(&slot, 0, NULL, 1, &done), -EFAULT);
	slots_give(&slot);
	(void)munmap(memory, 8192);
}
END_TEST

/* ---- mappings ---- */

static const struct {
	const char *what, *lines[3];
	bool is_good;
} mappings[] = {
	{ "the mapping", { "10000-14000 rw-s 00002000 00:01 77 /memfd:x (deleted)\n" }, true },
	{ "a larger one", { "f000-20000 rw-s 00001000 00:01 77 /dev/shm/x\n" }, true },
	{ "in two parts",
	  { "10000-11000 rw-s 00002000 00:01 77 /x\n", "11000-14000 r--s 00003000 00:01 77 /x\n" },
	  true },
	{ "others around it",
	  { "f000-10000 rw-p 00000000 00:00 0\n", "10000-14000 rw-s 00002000 00:01 77 /x\n",
	    "14000-15000 rw-p 00000000 00:00 0 [heap]\n" },
	  true },
	{ "private", { "10000-14000 rw-p 00002000 00:01 77 /x\n" }, false },
	{ "another place of the file", { "10000-14000 rw-s 00001000 00:01 77 /x\n" }, false },
	{ "another file", { "10000-14000 rw-s 00002000 00:01 78 /x\n" }, false },
	{ "another file system", { "10000-14000 rw-s 00002000 00:02 77 /x\n" }, false },
	{ "too short", { "10000-13000 rw-s 00002000 00:01 77 /x\n" }, false },
	{ "a hole in it",
	  { "10000-11000 rw-s 00002000 00:01 77 /x\n", "12000-14000 rw-s 00004000 00:01 77 /x\n" },
	  false },
	{ "nothing there", { "20000-24000 rw-s 00002000 00:01 77 /x\n" }, false },
	{ "no such line", { "what is this\n" }, false },
};

START_TEST(imported_memory_has_to_be_that_mapping)
{
	struct import_range range = {
		.start = 0x10000, .end = 0x14000, .off = 0x2000, .dev = makedev(0, 1), .ino = 77
	};
	uint64_t reached = range.start;
	bool is_good = true;

	for (unsigned i = 0; i < 3 && mappings[_i].lines[i]; i++)
		is_good &= import_look(&range, mappings[_i].lines[i], &reached);
	is_good &= reached >= range.end;
	ck_assert_msg(is_good == mappings[_i].is_good, "%s", mappings[_i].what);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, slots_setup, slots_teardown);
	tcase_add_loop_test(tcase, a_piece_is_what_a_slot_holds, 0, N_ROWS(cuts));
	tcase_add_loop_test(tcase, pieces_cover_an_op_and_lie_as_the_file_does, 0, 3);
	tcase_add_loop_test(tcase, pieces_are_short_where_nothing_else_is_in_flight, 0,
			    N_ROWS(wishes));
	tcase_add_test(tcase, units_are_taken_at_multiples_of_their_number);
	tcase_add_test(tcase, further_slots_of_a_store_leave_room_for_first_ones);
	tcase_add_test(tcase, a_store_without_a_slot_gets_one_while_others_give_none_back);
	tcase_add_test(tcase, who_waits_for_a_slot_of_a_store_holds_up_no_other_store);
	tcase_add_test(tcase, copies_end_at_memory_that_is_not_there);
	tcase_add_loop_test(tcase, imported_memory_has_to_be_that_mapping, 0, N_ROWS(mappings));
}

SUITE("client_bounce", add_tests)
