#include "client/lib/memory/import.h"
#include "client/lib/memory/slots.h"

#include "tests/unit/own_slab.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

TEST(units_are_taken_at_multiples_of_their_number)
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

/* The slab is a memfd of the test's own; no daemon is asked. */
static struct dsaio_conn conn = { .fd = -1 };
static struct buffers buffers;
static struct slots slots;
static struct slots_share *share; /* of store 0 */

static void ignore_room(struct slots *s)
{
	(void)s;
}

static void slots_setup(void)
{
	buffers_init(&buffers, &conn, NULL);
	slots_init(&slots, &buffers, ignore_room);
	slots.on_unmap = own_slab_ignore;
	slots.slabs[0] = (struct slots_slab){ .mapped = own_slab_new(&buffers, SLOTS_SLAB_BYTES),
					      .n_units = 64 };
	slots.n_slabs = 1;
	slots.is_growing = true; /* as if another thread asked for more */
	share = slots_share_get(&slots, 0);
	ck_assert_ptr_nonnull(share);
}

static void slots_teardown(void)
{
	slots_share_drop(share);
	ck_assert_ptr_null(slots.shares.first);
	slots_deinit(&slots);
	buffers_deinit(&buffers);
}

static unsigned take_all(struct slots_share *of, bool is_further, struct slot *taken)
{
	unsigned n = 0;

	while (slots_take(of, SLOT_UNIT, is_further, &taken[n]) == 0)
		n++;
	return n;
}

TEST(further_slots_of_a_store_leave_room_for_first_ones)
{
	struct slot further[64], first[64], slot;
	unsigned n_further = take_all(share, true, further);
	unsigned n_first = take_all(share, false, first);

	ck_assert_uint_eq(n_further, 32);	    /* as many as stay free */
	ck_assert_uint_eq(n_further + n_first, 42); /* twice as many as stay free */
	while (n_first)
		slots_release(&first[--n_first]);
	ck_assert_int_eq(slots_take(share, MIB, false, &slot), 0);
	ck_assert_uint_eq(slot_bytes(&slot), MIB / 2); /* less where memory is short */
	slots_release(&slot);
	ck_assert_ptr_null(slot.slab);
	while (n_further)
		slots_release(&further[--n_further]);
	ck_assert_uint_eq(slots_n_free(&slots), 64);
	ck_assert_uint_eq(slots.slabs[0].used, 0);
	ck_assert_int_eq(slots_take(share, MIB, false, &slot), 0);
	ck_assert_uint_eq(slot_bytes(&slot), MIB);
	slots_release(&slot);
}

TEST(a_store_without_a_slot_gets_one_while_others_release_none)
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
		ck_assert_uint_ge(slots_n_free(&slots), 1);
	}
	ck_assert_int_eq(slots_take(share, MIB, false, &slot), 0);
	slots_release(&slot);
	ck_assert_ptr_eq(slots_share_get(&slots, 1), others[0]);
	slots_share_drop(others[0]);
	for (unsigned i = 0; i < N_ROWS(others); i++) {
		while (n[i])
			slots_release(&taken[i][--n[i]]);
		slots_share_drop(others[i]);
	}
	ck_assert_uint_eq(slots_n_free(&slots), 64);
}

static void *await_one(void *arg)
{
	struct slot slot;
	int r = slots_await(arg, SLOT_UNIT, UINT64_MAX, &slot);

	if (r == 0)
		slots_release(&slot);
	return (void *)(intptr_t)r;
}

TEST(who_waits_for_a_slot_of_a_store_holds_up_no_other_store)
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
		is_waiting = share->waiters.first;
		(void)pthread_mutex_unlock(&slots.lock);
	} while (!is_waiting);
	ck_assert_int_eq(slots_await(other, SLOT_UNIT, UINT64_MAX, &first), 0);
	ck_assert_int_eq(slots_take(other, SLOT_UNIT, true, &further), 0);
	slots_release(&first);
	slots_release(&further);
	slots_share_drop(other);
	ck_assert_int_eq(slots_take(share, SLOT_UNIT, true, &further), -EAGAIN);
	while (n)
		slots_release(&taken[--n]);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
}

TEST(the_last_slab_stays_while_an_op_may_want_a_slot)
{
	struct slot slot;

	ck_assert_int_eq(slots_take(share, SLOT_UNIT, false, &slot), 0);
	slots_release(&slot);
	ck_assert(!slots_trim(&slots, false));

	slots_share_drop(share);
	atomic_store(&conn.is_broken, true); /* no daemon is asked */
	ck_assert(slots_trim(&slots, false));
	ck_assert_uint_eq(slots.n_slabs, 0);
	share = slots_share_get(&slots, 0);
	ck_assert_ptr_nonnull(share);
}

/* It kept its place, and an op that wanted a slot waited for it without end. */
TEST(a_slab_that_the_next_daemon_refused_goes_with_its_last_slot)
{
	struct slot taken[2];

	ck_assert_int_eq(slots_take(share, SLOT_UNIT, false, &taken[0]), 0);
	ck_assert_int_eq(slots_take(share, SLOT_UNIT, false, &taken[1]), 0);
	atomic_store(&slots.slabs[0].mapped->slab.error, -ENOMEM);
	slots_release(&taken[0]);
	ck_assert_uint_eq(slots.slabs[0].n_units, 64);
	slots_release(&taken[1]);
	ck_assert_uint_eq(slots.slabs[0].n_units, 0);
	ck_assert_uint_eq(slots.n_slabs, 0);
	ck_assert_uint_eq(slots_n_free(&slots), 0);
}

TEST(copies_end_at_memory_that_is_not_there)
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
	slots_release(&slot);
	(void)munmap(memory, 8192);
}

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

TEST_TABLE(imported_memory_has_to_be_that_mapping, mappings)
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

FIXTURE(slots_setup, slots_teardown)
TEST_MAIN
