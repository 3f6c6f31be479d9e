/*
 * A bench's test files: for each folder one to read and one to write.  They have no name, so the
 * kernel frees them when the bench ends, however it ends; --keep gives them names in the folder.
 *
 * The crew's processes are forks of this one and have the same descriptors.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_FILES_H
#define DSAIO_CLIENT_CTL_BENCH_FILES_H

#include "client/ctl/bench/place.h"
#include "client/ctl/bench/point.h"
#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/progress.h"

struct bench_files {
	unsigned n_places;
	int fds[][2]; /* of each place, by op: open for reading and writing; -1: none */
};

/*
 * Looks for free space, and makes the files, of random bytes, with a bar on a terminal: for reads and
 * writes one of io_size, or of the place's file_bytes, for each of the places.  Those that will be
 * written are written once, too, so that no point pays for the making of blocks.
 * keep: they are FOLDER/_dsaioctl_bench.XXXXXX (random) and remain; says so.
 * Returns CTL_OK, CTL_FAILED (reported), or 128 + the signal that came.
 */
int bench_files_make(struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		     bool reads, bool writes, uint64_t io_size, bool keep,
		     struct bench_files **ret_files);

/*
 * Writes random bytes to the file, past the page cache where that is possible, and syncs it.
 * *done_bytes grows by them.  progress: shows it; may be NULL.
 * Returns 0, -EINTR (a signal came, stop.h), or another negative errno.
 */
int bench_file_fill(int fd, uint64_t bytes, uint64_t *done_bytes, struct progress *progress);

void bench_files_free(struct bench_files *files); /* NULL is fine */

#endif
