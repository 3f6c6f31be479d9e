/*
 * The other reference: libaio within this process, as a good program would use it.
 *
 * One context, one file opened with O_DIRECT, page-aligned memory.  io_getevents waits in the
 * kernel for one event at least and takes all there are; each starts the next read at once.
 */
#ifndef DSAIO_TESTS_BENCH_LOCAL_H
#define DSAIO_TESTS_BENCH_LOCAL_H

#include <libaio.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCAL_DEPTH_MAX 32

struct local {
	int fd;
	io_context_t context;
	char *memory; /* LOCAL_DEPTH_MAX blocks */
	uint64_t block_bytes;
	bool is_write;	    /* local_random() writes */
	unsigned rw_flags;  /* RWF_NOWAIT, or 0 */
	uint64_t n_refused; /* those that would have waited, and were asked for again without it */
};

/* Opens path for I/O in blocks of block_bytes.  0 or -errno; says on stderr why. */
int local_open(struct local *local, const char *path, uint64_t block_bytes);
void local_close(struct local *local);

/*
 * Reads or writes random blocks of the file's first file_bytes, depth of them always in flight, for
 * usec.  Gives how many ended and the seconds that they took, until the last was back.
 */
int local_random(struct local *local, uint64_t file_bytes, unsigned depth, int64_t usec,
		 uint64_t *ret_n, double *ret_seconds);

/*
 * Reads or writes the file's first bytes once, from or to memory, in the order of the blocks,
 * depth of them in flight.
 */
int local_stream(struct local *local, char *memory, uint64_t bytes, unsigned depth, bool is_write,
		 double *ret_seconds);

#endif
