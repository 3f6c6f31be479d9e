/*
 * The main() of a unit test: SUITE("module", add_tests) where add_tests() adds tests to a case.
 */
#ifndef DSAIO_TESTS_UNIT_SUITE_H
#define DSAIO_TESTS_UNIT_SUITE_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#define N_ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* A loop's n rounds, or a tenth for a sanitizer or valgrind, which sees in them what it can see. */
static inline uint32_t rounds(uint32_t n)
{
	return getenv("TEST_TIME_FACTOR") ? n / 10 : n; /* run.sh's */
}

#define SUITE(name, add_tests)                               \
	int main(void)                                       \
	{                                                    \
		Suite *suite = suite_create(name);           \
		TCase *tcase = tcase_create(name);           \
		SRunner *runner = srunner_create(suite);     \
		int failed;                                  \
                                                             \
		tcase_set_timeout(tcase, 300);               \
		add_tests(tcase);                            \
		suite_add_tcase(suite, tcase);               \
		srunner_run_all(runner, CK_ENV);             \
		failed = srunner_ntests_failed(runner);      \
		srunner_free(runner);                        \
		return failed ? EXIT_FAILURE : EXIT_SUCCESS; \
	}

#endif
