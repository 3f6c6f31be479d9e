/*
 * The test files of bench io, with the names that ds_io gives them.
 *
 * Any user can guess these names.  So no link is followed, and only a file of this user, with no
 * other name, is written.  All functions but bench_io_path() and bench_io_remove() run in a process of
 * the crew (crew.h) and return 0 or bench_process_fail()'s value.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_BENCH_IO_FILES_H
#define DSAIO_CLIENT_CTL_CMD_BENCH_IO_FILES_H

#include "client/ctl/bench/crew.h"

#include <sys/types.h>

/* Which file a process has made, in case the run fails. */
struct bench_io_made {
	bool is_partial; /* it is removed then; else dev and ino mean nothing */
	dev_t dev;
	ino_t ino;
	uint64_t done_bytes; /* of a file to read, for the progress */
};

/* FOLDER/_aio_read_SIZE.pt.TASK_LOOP.  path: of PATH_MAX. */
void bench_io_path(const struct bench_process *process, bool is_read, uint64_t bytes, unsigned loop,
		   char *path);

/*
 * Opens a file to be read.  If it is missing or has another size, it is made of random bytes
 * first.  made: is partial while this process fills a file that was missing, also after a failure.
 */
int bench_io_open_read(struct bench_process *process, const char *path, uint64_t bytes, int *ret_fd,
		       struct bench_io_made *made);

/* Opens a file to be written.  made: is partial if it was missing, and this process made it. */
int bench_io_open_write(struct bench_process *process, const char *path, int *ret_fd,
			struct bench_io_made *made);

/* Removes the file if it is partial and the path still names it.  Returns whether it did. */
bool bench_io_remove(const char *path, const struct bench_io_made *made);

/* Reads the file without the page cache, where that is possible, and compares it with the buffer. */
int bench_io_validate(struct bench_process *process, const char *path, uint64_t bytes,
		      bool is_read);

#endif
