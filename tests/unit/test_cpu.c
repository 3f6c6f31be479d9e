/* cpu: the cores that this thread may use, not those of the host. */
#include "proto/util/cpu.h"
#include "tests/unit/suite.h"

TEST(a_thread_bound_to_one_core_has_one)
{
	const unsigned n = cpu_count();
	cpu_set_t before, one;

	ck_assert_uint_ge(n, 1);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	ck_assert_int_eq(CPU_COUNT(&before), (int)n);

	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &before)) {
			CPU_SET(i, &one);
			break;
		}
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_uint_eq(cpu_count(), 1);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
	ck_assert_uint_eq(cpu_count(), n);
}

TEST_MAIN
