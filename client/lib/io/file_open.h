/*
 * Opening a file: by a path, or anew by a descriptor of the program's, for direct I/O; and its
 * buffered description, when an unaligned write first needs it.
 */
#ifndef DSAIO_CLIENT_LIB_IO_FILE_OPEN_H
#define DSAIO_CLIENT_LIB_IO_FILE_OPEN_H

#include "client/lib/io/file.h"

#define FILE_MODE_DEFAULT 0666u /* less the umask */

/*
 * Opens a path, or finds it in the cache.  flags: as of dsaio_open(); mode: of a new file.
 * Returns 0 or as dsaio_open(), with a message.  The caller has checked the client.
 */
int file_open(struct dsaio_client *client, const char *path, int flags, mode_t mode,
	      struct dsaio_file **ret_file);

/*
 * The file for one op: opens the path, or finds it in the cache, with at least the access mode of a
 * read or a write.  Else as file_open().
 */
int file_open_for(struct dsaio_client *client, const char *path, bool is_write,
		  struct dsaio_file **ret_file);

/* dsaio_file_from_fd(), as file_open(). */
int file_open_fd(struct dsaio_client *client, int fd, struct dsaio_file **ret_file);

/* Opens a file of the client's again by its path, for direct I/O.  Returns the descriptor, or a negative errno with a
   message: -ESTALE: the path names another file now, or there is none. */
int file_open_again(const struct dsaio_file *file);
/* The same file as that descriptor, opened without O_DIRECT; or a negative errno with a message. */
int file_open_buffered(const struct dsaio_file *file, int fd);

/*
 * Before an op that is not aligned and writes: the daemon has to have the file's buffered
 * description.  Returns 0, or a negative errno with a message that such an op ends with; -EACCES:
 * the file cannot be opened anew.  Sends a message the first time.  No lock held.
 */
int file_need_buffered(struct dsaio_file *file);

#endif
