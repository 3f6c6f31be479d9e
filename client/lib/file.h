/*
 * A file: what the program opened with its own rights, handed over to the daemon.
 *
 * Two open file descriptions of one inode: a direct one, which is the daemon's, and a buffered
 * one, opened before it and kept here: for the size, for moving it, and for what is not aligned.
 * A descriptor that can not be opened anew (a foreign file) is shared with the daemon instead:
 * then only aligned ops can be served.
 *
 * Held by the caller until dsaio_file_close() and by each open op; the last lets go of it.
 */
#ifndef DSAIO_CLIENT_FILE_H
#define DSAIO_CLIENT_FILE_H

#include "client/lib/inode.h"

struct dsaio_file {
	struct client_object object;
	struct dsaio_client *client;
	_Atomic uint32_t n_refs;
	uint32_t id, store; /* the daemon's numbers */
	int fd;		    /* the buffered description; or the shared one */
	bool is_shared;
	_Atomic bool has_buffered; /* the daemon has the buffered description, too */
	bool can_read, can_write, is_block_device;
	uint32_t offset_align, memory_align; /* powers of two */
	struct inode *inode;
	char *name; /* for people */
};

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

/* inode_extend() and inode_remove() for an op on the file. */
int file_extend(struct dsaio_file *file, struct dsaio_op *op);
void file_remove_op(struct dsaio_file *file, struct dsaio_op *op);

/*
 * Before an op that is not aligned and writes: the daemon has to have the file's buffered
 * description.  Returns 0, or a negative errno with a sentence that such an op ends with; -EACCES:
 * the file can not be opened anew.  Sends a message the first time.  No lock held.
 */
int file_need_buffered(struct dsaio_file *file);

#endif
