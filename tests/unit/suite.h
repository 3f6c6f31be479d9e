/*
 * The main() of a unit test: SUITE("module", add_tests) where add_tests() adds tests to a case.
 */
#ifndef DSAIO_TESTS_UNIT_SUITE_H
#define DSAIO_TESTS_UNIT_SUITE_H

#include <check.h>
#include <stdlib.h>

#define N_ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

#define SUITE(name, add_tests)                               \
	int main(void)                                       \
	{                                                    \
		Suite *suite = suite_create(name);           \
		TCase *tcase = tcase_create(name);           \
		SRunner *runner = srunner_create(suite);     \
		int failed;                                  \
                                                             \
		tcase_set_timeout(tcase, 60);                \
		add_tests(tcase);                            \
		suite_add_tcase(suite, tcase);               \
		srunner_run_all(runner, CK_ENV);             \
		failed = srunner_ntests_failed(runner);      \
		srunner_free(runner);                        \
		return failed ? EXIT_FAILURE : EXIT_SUCCESS; \
	}

#endif
