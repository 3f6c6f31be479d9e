/*
 * Slabs: memfds that the daemon makes from its pool for this client.
 *
 * A slab is asked for and released by a call on the control socket.  Buffers (buffer.h) map theirs;
 * slots (slots.h) use the descriptor.  Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_SLAB_H
#define DSAIO_CLIENT_LIB_MEMORY_SLAB_H

#include "client/lib/link/conn.h"

#include <stdbool.h>
#include <stdint.h>

/* The fields of an entry that name a slab.  Embedded in objects that map it or copy through it. */
struct slab_name {
	uint32_t id;	   /* the daemon's number for it */
	uint32_t session;  /* conn_session() of the last that it was made in, or handed over to */
	_Atomic int error; /* it could not be handed over to that: no op can use it */
	bool is_imported;  /* the memory is the program's own */
	bool is_gpu;	   /* it is a GPU's: any address is as good as any other */
};

struct allocation_handle;

/* Where the memory of a slab has to be.  */
struct slab_placement {
	Wire__Pages pages;
	bool has_node;
	uint32_t node;
};

extern const struct slab_placement SLAB_ANYWHERE; /* zeros */

static inline bool slab_placement_is(const struct slab_placement *a, const struct slab_placement *b)
{
	return a->pages == b->pages && a->has_node == b->has_node && a->node == b->node;
}

/*
 * Asks the daemon for a slab of that many bytes (of huge pages: whole ones).  what: for the message.
 * Returns 0, with its number, its session and its memfd (the caller's), or conn_call()'s errors with a message.
 */
int slab_ask(struct dsaio_conn *conn, const char *what, uint64_t bytes,
	     const struct slab_placement *place, struct slab_name *slab, int *ret_fd);

/*
 * Asks the daemon to map part of a file of the program's own as a slab.  Takes fd, also on error.
 * Returns 0 or conn_call()'s errors with a message.
 */
int slab_import_fd(struct dsaio_conn *conn, int fd, uint64_t off, uint64_t bytes,
		   struct slab_name *slab);

/* The same with an allocation of a GPU.  Takes handle->fd, also on error.  must_import: also where cuFile copies. */
int slab_import_gpu(struct dsaio_conn *conn, const struct allocation_handle *handle, uint64_t bytes,
		    bool must_import, struct slab_name *slab);

/* Releases a slab that no op uses, unless its session is over.  waits: until it is done. */
void slab_release(struct dsaio_conn *conn, const struct slab_name *slab, bool waits);

/*
 * Hands it over to the session of `next`, with its number: as an import of those bytes of fd, if it is imported.
 * Takes fd, also on error.  Returns 0 or conn_call_for()'s errors with a message.
 */
int slab_hand_over(struct dsaio_conn *next, const struct slab_name *slab, int fd, uint64_t off,
		   uint64_t bytes);

#endif
