/*
 * The temporary directory of a unit test: make_dir() and remove_dir() are a checked fixture.
 */
#ifndef DSAIO_TESTS_UNIT_TEMP_DIR_H
#define DSAIO_TESTS_UNIT_TEMP_DIR_H

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/var/tmp/dsaio-unit-XXXXXX";
static int dir_fd;

static inline void make_dir(void)
{
	memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir_fd, 0);
}

/* Fails if something is left in it. */
static inline void remove_empty_dir(void)
{
	ck_assert_int_eq(close(dir_fd), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* With all that is in it. */
static inline void remove_dir(void)
{
	ck_assert_int_eq(close(dir_fd), 0);
	ck_assert_int_eq(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

#endif
