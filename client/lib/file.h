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

/* Bytes now, or a negative errno. */
int64_t file_size(const struct dsaio_file *file);

#endif
