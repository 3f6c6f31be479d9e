/*
 * The descriptor of a file that stays in this process, and what it tells: the file's size.
 *
 * It is a duplicate of the direct description that the daemon has.  At most a quarter of the
 * descriptors that the process may have open are kept for files.  Beyond that the daemon gives the
 * file's descriptor back for the moment in which it is needed.
 */
#ifndef DSAIO_CLIENT_LIB_IO_FILE_FD_H
#define DSAIO_CLIENT_LIB_IO_FILE_FD_H

#include "client/lib/io/file.h"

#include <sys/stat.h>

/* The fields that file_statx() requests. */
#define FILE_STATX_MASK (STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BTIME)

/*
 * A descriptor of the file for a moment, until file_fd_release(): for the inode's size and nothing
 * that needs the page cache.  Returns it, or a negative errno with a message.  Any thread.
 */
int file_fd_take(struct dsaio_file *file);
/* The same if it is kept, or -1, without a message. */
int file_fd_take_kept(struct dsaio_file *file);
void file_fd_release(struct dsaio_file *file);

/* Its id may be another's with the daemon that serves now, for that errno, with a message; or 0. */
int file_refused(const struct dsaio_file *file);

/* Bytes now, or a negative errno. */
int64_t file_size(struct dsaio_file *file);

/* Bytes as the kernel has them now, without a message; sync: AT_STATX_...; or -1: that does not tell. */
int64_t file_size_seen(struct dsaio_file *file, int sync);

/* The kept descriptors, the caller's to close.  Under files.lock. */
struct file_fds file_fd_give_up(struct dsaio_file *file);
void file_fds_closep(struct file_fds *fds);

/*
 * Linux reports an error of writing back once for each open file description.  A daemon that crashes in the middle of
 * a sync may have taken that report with it.  So there is a second description, which no daemon gets, opened before
 * the first sync.  It costs one more descriptor, for files whose descriptor is kept.  A file that was opened from the
 * cache has none: the daemon gives it back, if one more may be kept.
 */
void file_fd_need_second(struct dsaio_file *file);
/*
 * Before the sync is repeated after a crash.  Returns 0, the error that the kernel reports, or -ECONNRESET: there is no
 * second description to ask.
 */
int file_fd_second_error(struct dsaio_file *file);

/*
 * fd is a new descriptor, or -1 with errno.  If the process has too many open, closes some that are
 * kept for files.  Returns whether the caller should try again.
 */
bool file_fd_may_retry(struct dsaio_client *client, int fd);

/* Looks at what the key names now; sync: AT_STATX_...  Returns 0 or a negative errno. */
int file_statx(const struct cache_key *key, int sync, struct statx *ret_stx);
/* Is that this file? */
bool file_is_same(const struct dsaio_file *file, const struct statx *stx);

#endif
