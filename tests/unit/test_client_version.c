#include "client/lib/dsaio.h"

#include "tests/unit/suite.h"

#include <stdio.h>

TEST(the_numbers_are_those_of_the_string)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "%d.%d.%d", DSAIO_VERSION_MAJOR, DSAIO_VERSION_MINOR,
		       DSAIO_VERSION_PATCH);
	ck_assert_str_eq(text, DSAIO_VERSION);
	ck_assert_str_eq(text, dsaio_version());
}

TEST(a_newer_version_has_a_larger_number)
{
	ck_assert_uint_eq(dsaio_version_number(), DSAIO_VERSION_NUMBER);
	ck_assert_uint_eq(DSAIO_VERSION_NUMBER % 1000, DSAIO_VERSION_PATCH);
	ck_assert_uint_eq(DSAIO_VERSION_NUMBER / 1000 % 1000, DSAIO_VERSION_MINOR);
	ck_assert_uint_eq(DSAIO_VERSION_NUMBER / 1000000, DSAIO_VERSION_MAJOR);
}

TEST_MAIN
