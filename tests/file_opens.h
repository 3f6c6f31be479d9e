/*
 * How often the library really opened a file, which is read in $DSAIO_DEBUG's file, and files of one block.
 */
#ifndef DSAIO_TESTS_FILE_OPENS_H
#define DSAIO_TESTS_FILE_OPENS_H

#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 12
#define BLOCK ((size_t)4096)
#define NOBODY 65533

/* Before the first call of the library. */
static inline void count_opens(void)
{
	CHECK_SYS(setenv("DSAIO_DEBUG", test_text("%s/debug", test_dir()), 1));
}

/* Lines of the debug file with that text. */
static inline unsigned debug_lines(const char *text)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("%s/debug", test_dir()), "re");
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;
	unsigned n = 0;

	while (file && getline(&line, &size, file) >= 0)
		if (strstr(line, text))
			n++;
	return n;
}

/* All files, or one. */
static inline unsigned n_opens(const char *path)
{
	return path ? debug_lines(test_text(" open %s: file ", path)) : debug_lines(": file 0x");
}

static inline void check_file(struct rig *rig, struct dsaio_file *file, void *memory, uint64_t seed)
{
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, BLOCK, 0), BLOCK);
	pattern_check(memory, BLOCK, seed, 0, "read");
}

static inline struct dsaio_file *open_file(struct rig *rig, const char *path, int flags)
{
	struct dsaio_file *file;

	CHECK_CALL(dsaio_open(rig->client, path, flags, NULL, &file));
	return file;
}

static inline void open_check_close(struct rig *rig, const char *path, int flags, void *memory,
				    uint64_t seed)
{
	struct dsaio_file *file = open_file(rig, path, flags);

	check_file(rig, file, memory, seed);
	dsaio_file_close(file);
}

#endif
