/*
 * Rates that clients have measured: kept by user, store and GPU, and bounded.
 */
#include "daemon/control/gpu_rates.h"

#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>

static struct gpu_rates rates;

static void setup(void)
{
	memset(&rates, 0, sizeof(rates));
}

static void teardown(void)
{
	gpu_rates_deinit(&rates);
	ck_assert(!rates.n && !rates.rows.first);
}

static struct gpu_rates_row *get(uid_t uid, unsigned store)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "store%u", store);
	return gpu_rates_get(&rates, uid, name, "GPU-0");
}

static bool has(uid_t uid, unsigned store)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "store%u", store);
	return gpu_rates_find(&rates, uid, name, "GPU-0");
}

START_TEST(a_row_is_of_one_user_store_and_gpu)
{
	struct gpu_rates_row *row = get(1000, 0);

	row->rates[1][GPU_CLASS_16M] = (struct gpu_rate){ 5, 6, true, 0 };
	ck_assert_ptr_eq(get(1000, 0), row);
	ck_assert_uint_eq(row->rates[1][GPU_CLASS_16M].copied_rate, 6);
	ck_assert_ptr_ne(get(1001, 0), row);
	ck_assert_ptr_ne(get(1000, 1), row);
	ck_assert_ptr_ne(gpu_rates_get(&rates, 1000, "store0", "GPU-1"), row);
	ck_assert_uint_eq(rates.n, 4);
	ck_assert(!has(1002, 0) && !has(1001, 1));
}
END_TEST

START_TEST(the_oldest_row_of_a_user_makes_room_and_no_other_one_s)
{
	(void)get(1, 0);
	for (unsigned i = 0; i < GPU_RATES_USER_MAX; i++)
		(void)get(2, i);
	(void)get(2, 0); /* written again: the newest */
	(void)get(2, GPU_RATES_USER_MAX);
	ck_assert(has(1, 0) && has(2, 0) && !has(2, 1) && has(2, GPU_RATES_USER_MAX));
	ck_assert_uint_eq(rates.n, GPU_RATES_USER_MAX + 1);
}
END_TEST

START_TEST(all_users_together_have_a_bound)
{
	for (unsigned i = 0; i < 2 * GPU_RATES_MAX; i++)
		(void)get(i, 0);
	ck_assert_uint_eq(rates.n, GPU_RATES_MAX);
	ck_assert(!has(GPU_RATES_MAX - 1, 0) && has(GPU_RATES_MAX, 0));
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_row_is_of_one_user_store_and_gpu);
	tcase_add_test(tcase, the_oldest_row_of_a_user_makes_room_and_no_other_one_s);
	tcase_add_test(tcase, all_users_together_have_a_bound);
}

SUITE("gpu_rates", add_tests)
