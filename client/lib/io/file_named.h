/*
 * Files of RADOS stores, which are opened by name: the daemon opens them, as there is no descriptor.
 *
 * Such a file is never in the cache.  Its inode is that of its store and the id of its bytes, which another file of
 * the same name does not share.  Offsets and memory need no alignment, so there is no buffered description; cuFile
 * does not take it, so GPU memory is copied.
 *
 *     created    can_write; its size is that of the creation or, if it had none, the end of this client's writes
 *     committed  !can_write, and the size is known; also what was opened for reading
 *     abandoned  !can_write; reads fail
 */
#ifndef DSAIO_CLIENT_LIB_IO_FILE_NAMED_H
#define DSAIO_CLIENT_LIB_IO_FILE_NAMED_H

#include "client/lib/io/file.h"
#include "client/lib/io/inode.h"

/* asked: all but `file`; its name is that of uri_rados().  Returns 0 or as dsaio_create(), with a message.  The caller
   has checked the client. */
int file_named_open(struct dsaio_client *client, const char *function, Wire__FileOpen *asked,
		    struct dsaio_file **ret_file);

/* dsaio_file_commit() and dsaio_file_abandon(), of any file. */
int file_named_end(struct dsaio_file *file, const char *function, bool is_commit, uint64_t size);

/* file_size() of such a file. */
static inline int64_t file_named_size(const struct dsaio_file *file)
{
	const bool may_grow = file->can_write; /* before the size: see file_named_end() */
	const uint64_t size = file->named.size;

	return (int64_t)(size || !may_grow ? size : inode_written_end(file->inode));
}

/* The same for file_grow(). */
static inline int file_named_grow(const struct dsaio_file *file, uint64_t end)
{
	const uint64_t size = file->named.size;

	return size && end > size ? -EFBIG : 0;
}

/* Recovery: gives the session of `next` the file by its id.  Returns as conn_call_for(). */
int file_named_hand_over(const struct dsaio_file *file, struct dsaio_conn *next,
			 uint64_t deadline_nsec);

/* An answer that no daemon gives: ends the session.  Returns -ENOTCONN, with a message. */
int file_named_broken(struct dsaio_client *client, const char *function, const char *name);

#endif
