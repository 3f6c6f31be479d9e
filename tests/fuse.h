/*
 * A FUSE file system whose server does what a test tells it, while it runs.
 *
 * It is mounted in a mount namespace of the test's, which a daemon that was started before does not
 * see, and served by a process that speaks the kernel's protocol itself.  Its files have names of one
 * letter and FUSE_FILE_BYTES bytes: the pattern of FUSE_SEED, whatever is written.  Others can be made
 * (names that start with a dot), and are gone at once.  It ends by itself after a minute: what hangs
 * on it then comes back.
 */
#ifndef DSAIO_TESTS_FUSE_H
#define DSAIO_TESTS_FUSE_H

#include "tests/stores.h"

#define FUSE_FILE_BYTES (8 * MIB)
#define FUSE_SEED 77
#define FUSE_GATHER_MAX 256u
#define FUSE_DISK 'd'

/* Shared with the server. */
struct fuse_control {
	_Atomic bool is_hung;	      /* nothing is answered */
	_Atomic pid_t hung_pid;	      /* nothing that this process asks is answered; 0: of none */
	_Atomic bool is_io_hung;      /* no read and no write is */
	_Atomic bool is_flush_hung;   /* no flush is: what close(2) of any descriptor waits for */
	_Atomic char hung_file;	      /* no read or write of this one; 0: of none */
	_Atomic bool only_reads_hang; /* of hung_file: its writes are answered */
	_Atomic int write_error;      /* what writes are answered with; 0: as they should be */
	/* The disk's next write or read of bytes that begin with these hangs, and no other; 0: none does. */
	_Atomic uint64_t held;
	_Atomic bool is_held;	     /* it was there */
	_Atomic uint32_t delay_usec; /* each read or write takes so long */
	/* Reads and writes of files with a letter are answered only when so many are there; 0: at once. */
	_Atomic uint32_t n_gather;
	_Atomic uint32_t
		n_hung; /* reads, writes, flushes and what hung_pid asks that are not answered */
	_Atomic uint32_t max_together; /* that were there unanswered, not counting the hung ones */
};

struct fuse {
	const char *dir;
	int answer_fd; /* an eventfd, see fuse_answer_hung() */
	struct fuse_control *control;
	pid_t pid;
};

/* Mounts and serves it; flags: as mount(2) has them.  Skips where there is no FUSE. */
void fuse_start(struct fuse *fs, unsigned long flags);
/*
 * The same with a file FUSE_DISK that keeps its bytes, for a loop device (stores.h): a slow disk.  Its direct I/O
 * overlaps, and no signal ends a process before its I/O has.
 */
void fuse_start_disk(struct fuse *fs);
char *fuse_path(const struct fuse *fs, char name);
/* Reads and writes hang no more; the server answers those that do. */
void fuse_answer_hung(const struct fuse *fs);
/* Does what the daemon's log says frees it: what hangs ends with an error. */
void fuse_free_as_reported(const struct daemon *daemon);

#endif
