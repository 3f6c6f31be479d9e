/*
 * A file of the sources as one string, for tests that compare it with what the code says.
 */
#ifndef DSAIO_TESTS_UNIT_FILE_TEXT_H
#define DSAIO_TESTS_UNIT_FILE_TEXT_H

#include "proto/util/cleanup.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Free it.  name: from the top of the tree. */
static inline char *file_text(const char *name)
{
	_cleanup_(fclosep) FILE *file = fopen(name, "re");
	char *text = calloc(1, 1 << 20);

	ck_assert_msg(file && text && fread(text, 1, (1 << 20) - 1, file) > 0,
		      "%s: run from the top of the tree", name);
	return text;
}

/* LimitNOFILE= of the unit. */
static inline unsigned long unit_descriptors(void)
{
	_cleanup_(freep) char *unit = file_text("systemd/dsaiod.service.in");
	const char *line = strstr(unit, "\nLimitNOFILE=");

	ck_assert_ptr_nonnull(line);
	return strtoul(strchr(line, '=') + 1, NULL, 10);
}

#endif
