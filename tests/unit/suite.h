/*
 * The frame of a unit test's program: tests, perhaps one FIXTURE for all of them, and TEST_MAIN.
 *
 * TEST is run once, TEST_TABLE for each row of a table, TEST_LOOP n times; _i counts from 0.
 */
#ifndef DSAIO_TESTS_UNIT_SUITE_H
#define DSAIO_TESTS_UNIT_SUITE_H

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#define N_ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* With a sanitizer's shadow memory no small limit on address space can be set. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SHADOW_MEMORY 1
#elif defined(__has_feature)
#define HAS_SHADOW_MEMORY (__has_feature(thread_sanitizer) || __has_feature(address_sanitizer))
#else
#define HAS_SHADOW_MEMORY 0
#endif

/* A loop's n rounds, or a tenth for a sanitizer or valgrind, which sees in them what it can see. */
static inline uint32_t rounds(uint32_t n)
{
	return getenv("TEST_TIME_FACTOR") ? n / 10 : n; /* run.sh's */
}

static inline TCase *test_case(void)
{
	static TCase *tcase;

	if (!tcase) {
		tcase = tcase_create(program_invocation_short_name);
		tcase_set_timeout(tcase, 300);
	}
	return tcase;
}

#define TEST_ENDS(id, signal, n)                                                 \
	static const TTest *id;                                                  \
	__attribute__((constructor)) static void id##_add(void)                  \
	{                                                                        \
		tcase_add_loop_test_raise_signal(test_case(), id, signal, 0, n); \
	}                                                                        \
	START_TEST(id)
#define TEST(id) TEST_ENDS(id, 0, 1)
#define TEST_TABLE(id, table) TEST_ENDS(id, 0, N_ROWS(table))
#define TEST_LOOP(id, n) TEST_ENDS(id, 0, n)
#define TEST_ABORTS(id, n) TEST_ENDS(id, SIGABRT, n) /* each by an assert() */

#define FIXTURE(setup, teardown)                                           \
	__attribute__((constructor)) static void setup##_add(void)         \
	{                                                                  \
		tcase_add_checked_fixture(test_case(), (setup), teardown); \
	}

#define TEST_MAIN                                                           \
	int main(void)                                                      \
	{                                                                   \
		Suite *suite = suite_create(program_invocation_short_name); \
		SRunner *runner = srunner_create(suite);                    \
		int failed;                                                 \
                                                                            \
		suite_add_tcase(suite, test_case());                        \
		srunner_run_all(runner, CK_ENV);                            \
		failed = srunner_ntests_failed(runner);                     \
		srunner_free(runner);                                       \
		return failed ? EXIT_FAILURE : EXIT_SUCCESS;                \
	}

#endif
