/* student: the numbers of the tables. */
#include "client/ctl/bench/student.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit/suite.h"

TEST(students_quantiles_are_those_of_the_tables)
{
	static const struct {
		size_t degrees;
		double quantile;
	} rows[] = { { 1, 12.706 }, { 4, 2.776 }, { 30, 2.042 }, { 40, 2.021 }, { 120, 1.980 } };

	for (int i = 0; i < N_ROWS(rows); i++)
		ck_assert_double_eq_tol(student_95(rows[i].degrees), rows[i].quantile, 0.001);
	ck_assert(isinf(student_95(0)));
}

TEST_MAIN
