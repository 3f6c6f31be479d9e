/*
 * A file: what the program opened with its own rights, handed over to the daemon.
 *
 * The daemon has its direct description and, once a write that is not aligned was asked for, a
 * buffered one.  Here stays a duplicate of the direct one, for the size and for moving it, as long
 * as these are few (a quarter of what the process may have); beyond that the daemon gives it back
 * for the moment in which it is needed.
 *
 *   in use   it is open, or an op on it is: n_refs is not 0
 *   leaving  the last has let go.  dsaio_file_close() settles it at once; an op's end may hold locks,
 *            so it leaves the file on the client's garbage list	-> in use, idle, freed
 *   idle     in the cache: nothing of it is open in this process; the file board says so, and the
 *            daemon lets it go when its last link is gone (proto/file_board.h)
 *									-> in use, freed
 *
 * Opened again it is found by its path (or the number of the caller's descriptor) and access mode.
 * Each time the kernel is asked what that names and whether this process may open it: two system
 * calls, no open(2), no message.  If it is another inode by now, the file is forgotten: nobody finds
 * it, and its last user frees it.  A descriptor that can not be opened anew (a foreign file) shares
 * the program's description; it is not kept, nor are block devices.
 *
 * Another file's close can hang if its mount is dead.  So a thread closes the descriptor of the file
 * that it was given, and the daemon is asked to close other files without waiting for its reply.
 *
 * All files together are at most 7/8 of what the daemon grants, as long as some are idle: the one
 * that is idle longest goes first.
 */
#ifndef DSAIO_CLIENT_LIB_IO_FILE_H
#define DSAIO_CLIENT_LIB_IO_FILE_H

#include "client/lib/io/inode.h"

struct dsaio_file {
	struct client_object object;
	struct dsaio_client *client;
	_Atomic uint32_t n_refs; /* opens and open ops; from and to 0 only under files.lock */
	uint32_t id, store;	 /* the daemon's numbers */
	bool is_shared;
	_Atomic bool has_buffered; /* the daemon has the buffered description, too */
	bool can_read, can_write, is_block_device;
	uint32_t offset_align, memory_align; /* powers of two */
	struct inode *inode;
	struct cache_identity identity;
	char *name; /* for people; the path, if it was opened by one */

	/* files.lock */
	struct cache_entry entry; /* its key never changes */
	uint32_t n_opens;	  /* opens that were not closed; each has a reference */
	int fd;			  /* the direct description; -1: the daemon has to be asked */
	uint32_t n_fd_users;	  /* threads that have taken it; nobody has it open: closes it */
	bool is_settling;	  /* file_settle() will come */
};

#define FILE_MODE_DEFAULT 0666u /* less the umask */

/*
 * Opens a path, or finds it in the cache.  flags: as of dsaio_file_open(); mode: of a new file.
 * Returns 0 or as dsaio_file_open(), with a sentence.  The caller has checked the client.
 */
int file_open(struct dsaio_client *client, const char *path, int flags, mode_t mode,
	      struct dsaio_file **ret_file);

static inline void file_ref(struct dsaio_file *file)
{
	/* relaxed: the caller holds one */
	(void)atomic_fetch_add_explicit(&file->n_refs, 1, memory_order_relaxed);
}
/* The last one leaves the file on the client's garbage list.  Any thread, any lock held. */
void file_unref(struct dsaio_file *file);

/*
 * A descriptor of the file for a moment, until file_fd_give(): for the inode's size and nothing
 * that needs the page cache.  Returns it, or a negative errno with a sentence.  Any thread.
 */
int file_fd_take(struct dsaio_file *file);
void file_fd_give(struct dsaio_file *file);

/* Bytes now, or a negative errno. */
int64_t file_size(struct dsaio_file *file);

/*
 * Before a write up to byte `end`: may it end beyond the file?  Returns 0 and the entry's grow_end (0:
 * no), or -EFBIG: this process's RLIMIT_FSIZE allows no such file.
 */
int file_grow(struct dsaio_file *file, uint64_t end, uint64_t *ret_grow_end);

/* Bytes as the kernel has them now, if that takes neither a message nor a file server; or -1. */
int64_t file_size_seen(struct dsaio_file *file);

/*
 * Before an op that is not aligned and writes: the daemon has to have the file's buffered
 * description.  Returns 0, or a negative errno with a sentence that such an op ends with; -EACCES:
 * the file can not be opened anew.  Sends a message the first time.  No lock held.
 */
int file_need_buffered(struct dsaio_file *file);

#endif
