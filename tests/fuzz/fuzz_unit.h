/*
 * For fuzz targets that use the fixtures of unit tests: these check with Check's macros.  A check that fails
 * aborts, so that the fuzzer keeps its input.
 */
#ifndef DSAIO_TESTS_FUZZ_FUZZ_UNIT_H
#define DSAIO_TESTS_FUZZ_FUZZ_UNIT_H

#include "tests/fuzz/fuzz.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Memory that was freed is in the cache, where the quarantine would otherwise be 256 MiB. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=1:malloc_context_size=4";
}

/* Instead of Check's. */
void _mark_point(const char *file, int line)
{
	(void)file;
	(void)line;
}

void _ck_assert_failed(const char *file, int line, const char *what, const char *format, ...)
{
	va_list args;

	(void)fprintf(stderr, "%s:%d: %s: ", file, line, what);
	va_start(args, format);
	if (format)
		(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fprintf(stderr, "\n");
	abort();
}

#endif
