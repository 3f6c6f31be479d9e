/*
 * Buffers: pieces of slabs, which are memfds from the daemon's pool, mapped here.
 *
 * A slab is at least twice as large as the one before, so that many small buffers cost few round
 * trips.  One that has no buffer left goes back to the pool, but for one small one, so that a
 * program that allocates and frees one buffer at a time does not ask the daemon each time.
 *
 * Imported memory (import.c) is a slab, too, but its mapping is the caller's and it is one piece.
 *
 * An op holds the piece that its memory lies in from its start to its end: such a piece can not
 * be freed.  Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_BUFFER_H
#define DSAIO_CLIENT_LIB_MEMORY_BUFFER_H

#include "client/lib/api/client.h"
#include "client/lib/memory/cut.h"

#define BUFFER_SLAB_FIRST (4u << 20)
#define BUFFER_SLAB_MAX (256u << 20) /* beyond, only a request of its own is that large */
#define BUFFER_SLAB_STEP (2u << 20)  /* of those: a huge page */

/* Where memory lies, as an entry tells it to the daemon. */
struct buffer_place {
	uint32_t slab;
	uint64_t slab_off;
	struct cut_piece *piece; /* held: buffer_drop() */
	bool is_imported;
};

/* Bytes of a new slab for a buffer of `bytes`, the last slab having had `last` (0: none). */
size_t buffer_slab_bytes(size_t bytes, size_t last);

/*
 * Asks the daemon for a slab of that many bytes.  Returns 0, with its number and its memfd (the
 * caller's), or conn_call()'s errors with a sentence.
 */
int buffer_slab_ask(struct dsaio_client *client, const char *what, uint64_t bytes,
		    uint32_t *ret_slab, int *ret_fd);

/* Gives a slab that nobody uses back to the pool. */
void buffer_slab_give_back(struct dsaio_client *client, uint32_t slab);

/* Gives slabs without a buffer back, the one that is kept, too.  Returns whether there was one. */
bool buffer_trim(struct dsaio_client *client);

/*
 * Memory of the caller's own, already a slab of the daemon's, is found by buffer_hold() from now
 * on.  Returns 0, -EEXIST if part of it is in another slab, or -ENOMEM.
 */
int buffer_import(struct dsaio_client *client, void *memory, size_t bytes, uint32_t slab);

/* Is part of it in a slab? */
bool buffer_is_known(struct dsaio_client *client, const void *memory, size_t bytes);

/* Forgets it.  Returns 0 and the slab's number, -EINVAL or -EBUSY. */
int buffer_unimport(struct dsaio_client *client, const void *memory, uint32_t *ret_slab);

/* Finds and holds the one piece that the whole range lies in; false if there is none such. */
bool buffer_hold(struct dsaio_client *client, const void *memory, size_t len,
		 struct buffer_place *ret_place);

static inline void buffer_drop(struct cut_piece *piece)
{
	/* release: pairs with dsaio_free()'s look, so that the op's end comes before the reuse */
	(void)atomic_fetch_sub_explicit(&piece->n_ops, 1, memory_order_release);
}

#endif
