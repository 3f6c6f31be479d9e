/*
 * A bench's test files.  They lie in a directory that the bench makes in each folder,
 *     FOLDER/_dsaioctl_bench.XXXXXX/    XXXXXX: random
 * so that nothing in the folder itself is written or deleted.  The directory is 0700 and has
 * a file "made_by_dsaioctl", which is locked while the bench runs and has a line for each file
 * made: its name and inode.
 *
 * bench_files_free() removes all of it, unless the caller keeps it.  The next bench in the folder
 * removes the leftovers of a killed bench.  It removes only directories with such a name that belong
 * to this user and whose lock is free, and in them only files whose name and inode are listed.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_FILES_H
#define DSAIO_CLIENT_CTL_BENCH_FILES_H

#include "client/ctl/bench/place.h"
#include "client/ctl/ui/ctl.h"

struct bench_files;

/*
 * Removes leftovers, looks for free space, makes the directories and in them, of random bytes,
 * the files: for reads and writes one of io_size for each of the places.  Written once, also those
 * that will be written, so that no point pays for the making of blocks.
 * progress: called now and then with the bytes done; may be NULL.
 * Returns CTL_OK, CTL_FAILED (reported; nothing is left), or 128 + the signal that came.
 */
int bench_files_make(struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		     bool reads, bool writes, uint64_t io_size,
		     void (*progress)(void *data, uint64_t done_bytes), void *data,
		     struct bench_files **ret_files);

/* Directory of place i: what the crew's folders are. */
const char *bench_files_folder(const struct bench_files *files, unsigned i);

/* The file in such a directory; is_write: the one to be written.  path: PATH_MAX, for messages. */
const char *bench_files_path(const char *folder, bool is_write, char *path);

/*
 * Opens that file, for its direction alone.  It is in a directory that a bench of this user made:
 * a link, or another directory in that place, is not followed.
 * Returns the descriptor, or a negative errno (-EPERM: no bench of this user made the directory).
 */
int bench_files_open(const char *folder, bool is_write);

/* Removes all, or, with keep, leaves it and says where.  NULL is fine. */
void bench_files_free(struct ctl *ctl, struct bench_files *files, bool keep);

#endif
