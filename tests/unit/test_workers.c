/*
 * Worker threads of a store's users.
 */
#include "daemon/engine/workers.h"

#include "daemon/base/work_queue.h"
#include "tests/unit/suite.h"

START_TEST(users_share_their_own_work_queue_only)
{
	struct workers workers = { 0 };
	struct work_queue *first, *second, *other;

	ck_assert_int_eq(workers_take(&workers, 1000, &first), 0);
	ck_assert_int_eq(workers_take(&workers, 1001, &other), 0);
	ck_assert_int_eq(workers_take(&workers, 1000, &second), 0);
	ck_assert_ptr_eq(first, second);
	ck_assert_ptr_ne(first, other);
	workers_give(&workers, 1000);
	workers_give(&workers, 1000);
	workers_give(&workers, 1001);
	ck_assert_ptr_null(workers.first);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, users_share_their_own_work_queue_only);
}

SUITE("workers", add_tests)
