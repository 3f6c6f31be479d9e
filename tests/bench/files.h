/*
 * The files that all sides read and write: dir/data.0, dir/data.1, ..., one for each process.
 *
 * All their blocks are allocated, hold bytes that nobody can compress, and are on the device: so
 * every side only overwrites.  A host may keep what was just written in its own cache and read
 * from it 20 times as fast as what is old: so files are written anew before what is measured on
 * them, and both sides meet the same.
 */
#ifndef DSAIO_TESTS_BENCH_FILES_H
#define DSAIO_TESTS_BENCH_FILES_H

#include <stddef.h>
#include <stdint.h>

#define FILES_PATH_BYTES 4200
#define FILES_NAME "data"

void files_path(char path[FILES_PATH_BYTES], const char *dir, unsigned index);

/* Writes n files of so many bytes (a multiple of 4096).  0 or -errno; says on stderr why. */
int files_make(const char *dir, unsigned n, uint64_t bytes);
void files_remove(const char *dir, unsigned n);

/* Page-aligned memory with random bytes: what is there, and what nobody can compress. */
int memory_new(uint64_t bytes, char **ret_memory);
void memory_fill(char *memory, uint64_t bytes);

#endif
