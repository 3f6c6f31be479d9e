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

struct bench_files;

/*
 * Looks for free space, and makes the files, of random bytes: for reads and writes one of io_size,
 * or of the place's file_bytes, for each of the places.  Written once, also those that will be written, so that no
 * point pays for
 * the making of blocks.
 * keep: they are FOLDER/_dsaioctl_bench.XXXXXX (random) and remain; says so.
 * progress: called now and then with the bytes done; may be NULL.
 * Returns CTL_OK, CTL_FAILED (reported), or 128 + the signal that came.
 */
int bench_files_make(struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		     bool reads, bool writes, uint64_t io_size, bool keep,
		     void (*progress)(void *data, uint64_t done_bytes), void *data,
		     struct bench_files **ret_files);

/* The file of place i for this op: open for reading and writing, borrowed; -1: there is none. */
int bench_files_fd(const struct bench_files *files, unsigned i, enum bench_op op);

void bench_files_free(struct bench_files *files); /* NULL is fine */

#endif
