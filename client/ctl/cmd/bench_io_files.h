/*
 * The test files of bench io, with the names that ds_io gives them.
 *
 * Any user can guess these names.  So no link is followed, and only a file of this user, with no
 * other name, is written.  All functions run in a process of the crew (crew.h) and return 0 or
 * bench_process_fail()'s value.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_BENCH_IO_FILES_H
#define DSAIO_CLIENT_CTL_CMD_BENCH_IO_FILES_H

#include "client/ctl/bench/crew.h"

/* FOLDER/_aio_read_SIZE.pt.TASK_LOOP.  path: of PATH_MAX. */
void bench_io_path(const struct bench_process *process, bool is_read, uint64_t bytes, unsigned loop,
		   char *path);

/*
 * Opens a file to be read.  If it is missing or has another size, it is made of random bytes
 * first.  is_partial: true while this process fills a file that was missing, also after a failure.
 */
int bench_io_open_read(struct bench_process *process, const char *path, uint64_t bytes, int *ret_fd,
		       bool *is_partial);

/* Opens a file to be written.  is_partial: true if it was missing, and this process made it. */
int bench_io_open_write(struct bench_process *process, const char *path, int *ret_fd,
			bool *is_partial);

/* Reads the file without the page cache, where that is possible, and compares it with the buffer. */
int bench_io_validate(struct bench_process *process, const char *path, uint64_t bytes,
		      bool is_read);

#endif
