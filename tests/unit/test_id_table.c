#include "daemon/base/id_table.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static struct id_table table; /* shared with a thread in one test */

TEST(an_id_finds_its_object_until_it_is_removed)
{
	int a, b;
	uint32_t id_a, id_b;

	memset(&table, 0, sizeof(table));
	ck_assert_int_eq(id_table_add(&table, &a, 0, &id_a), 0);
	ck_assert_int_eq(id_table_add(&table, &b, 0, &id_b), 0);
	ck_assert_uint_ne(id_a, 0);
	ck_assert_uint_ne(id_a, id_b);
	ck_assert_ptr_eq(id_table_get(&table, id_a), &a);
	ck_assert_ptr_eq(id_table_get(&table, id_b), &b);
	ck_assert_uint_eq(table.n_objects, 2);

	ck_assert_ptr_eq(id_table_remove(&table, id_a), &a);
	ck_assert_ptr_null(id_table_get(&table, id_a));
	ck_assert_ptr_null(id_table_remove(&table, id_a)); /* once */
	id_table_release(&table, id_a);
	ck_assert_ptr_null(id_table_remove(&table, id_a));
	ck_assert_ptr_eq(id_table_get(&table, id_b), &b);
	ck_assert_uint_eq(table.n_objects, 1);

	(void)id_table_remove(&table, id_b);
	id_table_release(&table, id_b);
	id_table_deinit(&table);
}

TEST(invented_ids_find_nothing)
{
	static const uint32_t ids[] = { 0,	    1,		0xffff,
					0x10001,    0x20000,	0xffff0000,
					0xffffffff, 0x0100ffff, 0x10000 + ID_TABLE_CHUNK };
	int a;
	uint32_t id;

	memset(&table, 0, sizeof(table));
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
			ck_assert_ptr_null(id_table_get(&table, ids[i]));
			ck_assert_ptr_null(id_table_remove(&table, ids[i]));
		}
		if (round == 0)
			ck_assert_int_eq(id_table_add(&table, &a, 0, &id), 0);
	}
	ck_assert_ptr_eq(id_table_remove(&table, id), &a);
	id_table_release(&table, id);
	id_table_deinit(&table);
}

/* C6: a stale id must not name what took its slot. */
TEST(a_stale_id_does_not_find_its_slots_next_object)
{
	int a;
	uint32_t first, id;
	bool is_same_slot = false;

	memset(&table, 0, sizeof(table));
	ck_assert_int_eq(id_table_add(&table, &a, 0, &first), 0);
	(void)id_table_remove(&table, first);
	id_table_release(&table, first);
	for (unsigned i = 0; i < 3 * ID_TABLE_CHUNK; i++) {
		ck_assert_int_eq(id_table_add(&table, &a, 0, &id), 0);
		ck_assert_uint_ne(id, first);
		is_same_slot |= (id & 0xffff) == (first & 0xffff);
		ck_assert_ptr_null(id_table_get(&table, first));
		(void)id_table_remove(&table, id);
		id_table_release(&table, id);
	}
	ck_assert(is_same_slot);
	id_table_deinit(&table);
}

TEST(generations_wrap_without_an_id_of_zero)
{
	int a;
	uint32_t id;

	memset(&table, 0, sizeof(table));
	for (unsigned i = 0; i < 70000 * ID_TABLE_CHUNK; i++) {
		/* An assertion of Check's costs a system call. */
		if (id_table_add(&table, &a, 0, &id) < 0 || !(id >> 16) ||
		    id_table_remove(&table, id) != &a)
			ck_abort_msg("turn %u", i);
		id_table_release(&table, id);
	}
	id_table_deinit(&table);
}

TEST(a_removed_slot_waits_for_its_release)
{
	int a;
	uint32_t ids[ID_TABLE_CHUNK], id;

	memset(&table, 0, sizeof(table));
	for (unsigned i = 0; i < ID_TABLE_CHUNK; i++)
		ck_assert_int_eq(id_table_add(&table, &a, 0, &ids[i]), 0);
	(void)id_table_remove(&table, ids[5]);
	ck_assert_int_eq(id_table_add(&table, &a, 0, &id), 0);
	ck_assert_uint_eq(id & 0xffff, ID_TABLE_CHUNK); /* a fresh one */
	id_table_release(&table, ids[5]);
	ck_assert_int_eq(id_table_add(&table, &a, 0, &ids[5]), 0);
	ck_assert_uint_eq(ids[5] & 0xffff, 5);

	(void)id_table_remove(&table, id);
	id_table_release(&table, id);
	for (unsigned i = 0; i < ID_TABLE_CHUNK; i++) {
		(void)id_table_remove(&table, ids[i]);
		id_table_release(&table, ids[i]);
	}
	id_table_deinit(&table);
}

TEST(a_full_table_says_so_and_goes_on_when_there_is_room)
{
	static uint32_t ids[ID_TABLE_SLOTS_MAX];
	uint32_t id, cursor = 0, n = 0;
	int a;

	memset(&table, 0, sizeof(table));
	for (unsigned i = 0; i < ID_TABLE_SLOTS_MAX; i++)
		ck_assert_int_eq(id_table_add(&table, &a, 0, &ids[i]), 0);
	ck_assert_int_eq(id_table_add(&table, &a, 0, &id), -EMFILE);
	while (id_table_next(&table, &cursor))
		n++;
	ck_assert_uint_eq(n, ID_TABLE_SLOTS_MAX);
	(void)id_table_remove(&table, ids[1234]);
	id_table_release(&table, ids[1234]);
	ck_assert_int_eq(id_table_add(&table, &a, 0, &ids[1234]), 0);
	for (unsigned i = 0; i < ID_TABLE_SLOTS_MAX; i++) {
		ck_assert_ptr_eq(id_table_remove(&table, ids[i]), &a);
		id_table_release(&table, ids[i]);
	}
	id_table_deinit(&table);
}

TEST(next_goes_over_all_objects_and_no_others)
{
	int objects[4];
	uint32_t ids[4], cursor = 0;

	memset(&table, 0, sizeof(table));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(id_table_add(&table, &objects[i], 0, &ids[i]), 0);
	(void)id_table_remove(&table, ids[1]);
	ck_assert_ptr_eq(id_table_next(&table, &cursor), &objects[0]);
	ck_assert_ptr_eq(id_table_next(&table, &cursor), &objects[2]);
	(void)id_table_remove(&table, ids[2]); /* also while one goes over them */
	ck_assert_ptr_eq(id_table_next(&table, &cursor), &objects[3]);
	ck_assert_ptr_null(id_table_next(&table, &cursor));
	(void)id_table_remove(&table, ids[0]);
	(void)id_table_remove(&table, ids[3]);
	for (int i = 0; i < 4; i++)
		id_table_release(&table, ids[i]);
	id_table_deinit(&table);
}

/* Another thread must find complete objects; TSan watches. */
static _Atomic bool is_over;

static void *look(void *arg)
{
	static const uint32_t n_ids = 600;

	(void)arg;
	while (!atomic_load(&is_over))
		for (uint32_t i = 0; i < n_ids; i++) {
			const uint32_t *object = id_table_get(&table, 1u << 16 | i);

			if (object && *object != 4711)
				return (void *)(uintptr_t)object;
		}
	return NULL;
}

TEST(lookups_go_on_while_objects_come_and_go)
{
	static uint32_t objects[600];
	uint32_t id;
	pthread_t thread;
	void *wrong;

	memset(&table, 0, sizeof(table));
	ck_assert_int_eq(pthread_create(&thread, NULL, look, NULL), 0);
	for (unsigned i = 0; i < 600; i++) {
		objects[i] = 4711;
		ck_assert_int_eq(id_table_add(&table, &objects[i], 0, &id), 0);
		if (i % 2)
			(void)id_table_remove(&table, id);
	}
	atomic_store(&is_over, true);
	ck_assert_int_eq(pthread_join(thread, &wrong), 0);
	ck_assert_ptr_null(wrong);
	for (unsigned i = 0; i < 600; i++) {
		(void)id_table_remove(&table, 1u << 16 | i);
		id_table_release(&table, 1u << 16 | i);
	}
	id_table_deinit(&table);
}

TEST(a_bound_on_objects_is_one_on_indices)
{
	uint32_t id, ids[100];
	int object;

	memset(&table, 0, sizeof(table));
	id_table_bound(&table, 100);
	for (unsigned i = 0; i < 1000; i++) {
		ck_assert_int_eq(id_table_add(&table, &object, 0, &id), 0);
		ck_assert_uint_lt(id & 0xffff, 100);
		(void)id_table_remove(&table, id);
		id_table_release(&table, id);
	}
	for (unsigned i = 0; i < 100; i++) {
		ck_assert_int_eq(id_table_add(&table, &object, 0, &ids[i]), 0);
		ck_assert_uint_lt(ids[i] & 0xffff, 100);
	}
	for (unsigned i = 0; i < 100; i++) {
		(void)id_table_remove(&table, ids[i]);
		id_table_release(&table, ids[i]);
	}
	id_table_deinit(&table);
}

static void remove_and_release(uint32_t id)
{
	ck_assert_ptr_nonnull(id_table_remove(&table, id));
	id_table_release(&table, id);
}

TEST(a_wanted_id_is_given_and_its_slot_goes_on_from_there)
{
	const uint32_t wanted = 7u << 16 | 300;
	uint32_t id, ids[301];
	int a;

	memset(&table, 0, sizeof(table));
	ck_assert_int_eq(id_table_add(&table, &a, wanted, &id), 0);
	ck_assert_uint_eq(id, wanted);
	ck_assert_ptr_eq(id_table_get(&table, wanted), &a);
	ck_assert_ptr_null(id_table_get(&table, 1u << 16 | 300));
	for (unsigned i = 0; i < 301; i++) { /* the slots below, in their order, then a fresh one */
		ck_assert_int_eq(id_table_add(&table, &a, 0, &ids[i]), 0);
		ck_assert_uint_eq(ids[i], 1u << 16 | (i < 300 ? i : 301));
	}
	remove_and_release(wanted);
	ck_assert_int_eq(id_table_add(&table, &a, 0, &id), 0);
	ck_assert_uint_eq(id, 8u << 16 | 300);
	remove_and_release(id);
	for (unsigned i = 0; i < 301; i++)
		remove_and_release(ids[i]);
	id_table_deinit(&table);
}

TEST(a_wanted_id_takes_its_slot_from_any_place_among_the_free_ones)
{
	static const uint32_t wanted[] = { 5u << 16 | 0, 5u << 16 | 9, 5u << 16 | 4, 5u << 16 | 5 };
	uint32_t id, ids[6];
	int a;

	memset(&table, 0, sizeof(table));
	id_table_bound(&table, 10);
	ck_assert_int_eq(id_table_add(&table, &a, 2u << 16 | 9, &id), 0);
	remove_and_release(id); /* all ten are free */
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(id_table_add(&table, &a, wanted[i], &id), 0);
		ck_assert_uint_eq(id, wanted[i]);
	}
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_int_eq(id_table_add(&table, &a, 0, &ids[i]), 0);
		ck_assert_uint_eq(ids[i] & 0xffff, i < 3 ? i + 1 : i + 3);
	}
	for (unsigned i = 0; i < 4; i++)
		remove_and_release(wanted[i]);
	for (unsigned i = 0; i < 6; i++)
		remove_and_release(ids[i]);
	id_table_deinit(&table);
}

TEST(a_wanted_id_that_is_used_or_impossible_is_refused)
{
	uint32_t id, first;
	int a;

	memset(&table, 0, sizeof(table));
	id_table_bound(&table, 10);
	ck_assert_int_eq(id_table_add(&table, &a, 0, &first), 0);
	ck_assert_int_eq(id_table_add(&table, &a, first, &id), -EEXIST);
	ck_assert_int_eq(id_table_add(&table, &a, 9u << 16, &id), -EEXIST);
	(void)id_table_remove(&table, first);
	ck_assert_int_eq(id_table_add(&table, &a, first, &id), -EEXIST); /* not released */
	id_table_release(&table, first);
	ck_assert_int_eq(id_table_add(&table, &a, first, &id), 0);
	ck_assert_int_eq(id_table_add(&table, &a, 3, &id), -EINVAL); /* generation 0 */
	ck_assert_int_eq(id_table_add(&table, &a, 1u << 16 | 10, &id), -EINVAL);
	ck_assert_int_eq(id_table_add(&table, &a, UINT32_MAX, &id), -EINVAL);
	ck_assert_uint_eq(table.n_slots, 1);
	remove_and_release(first);
	id_table_bound(&table, 0);
	ck_assert_int_eq(id_table_add(&table, &a, UINT32_MAX, &id), 0); /* the last of all */
	remove_and_release(UINT32_MAX);
	id_table_deinit(&table);
}

TEST_MAIN
