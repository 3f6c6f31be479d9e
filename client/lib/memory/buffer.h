/*
 * Buffers: pieces of slabs, which are memfds from the daemon's pool, mapped here.
 *
 * A slab is at least twice as large as the one before, so that many small buffers cost few round
 * trips.  A slab without buffers goes back to the pool, except one small slab: so a program that
 * allocates and frees one buffer at a time does not ask the daemon each time.  Buffers whose memory has
 * to be somewhere (huge pages, a node) lie in slabs of their own.
 *
 * Children of a fork map the slabs, too.  Memory of a buffer that existed at a fork is retired when it is
 * freed: no other buffer gets it, so that no child sees another buffer's data where it knows this one,
 * nor writes there.  It returns to the pool with its slab.  Only where an allocation would fail it is
 * used again: nothing tells whether such children live.
 *
 * Imported memory is a slab, too.  Its mapping is the program's, and it is one piece.
 *
 * An op has a reference on the piece that its memory lies in, from its start to its end.  Such a
 * piece cannot be freed.
 *
 * Knows the connection, but neither client nor ops.  Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_BUFFER_H
#define DSAIO_CLIENT_LIB_MEMORY_BUFFER_H

#include "client/lib/link/conn.h"
#include "client/lib/memory/cut.h"
#include "client/lib/memory/slab.h"

#define BUFFER_SLAB_FIRST (4u << 20)
#define BUFFER_SLAB_MAX (256u << 20) /* only a single larger request gets a larger slab */
#define BUFFER_SLAB_STEP (2u << 20)  /* such slabs are whole huge pages */

/* A slab in this process's memory, cut into buffers. */
struct mapped_slab {
	/* imported: the mapping is the program's, and it is one used piece */
	struct slab_name slab;
	struct slab_placement place;
	bool is_own; /* the library's: one used piece, and no buffer */
	char *memory;
	size_t bytes;
	int fd;	      /* for the next daemon: a mapping cannot be handed over */
	uint64_t off; /* imported: of the memory in it */
	struct cut cut;
};

/* All buffers of a client. */
struct buffers {
	struct dsaio_conn *conn;
	/* The pool is empty: releases other slabs of this client.  Returns whether it did.  Or NULL. */
	bool (*trim)(struct buffers *buffers);
	pthread_mutex_t grow_lock;  /* one new slab at a time: a second thread uses the first's */
	pthread_rwlock_t lock;	    /* of the rest; ops look up under a read lock */
	struct mapped_slab **slabs; /* by address */
	size_t n, n_allocated;
	bool is_left; /* the session has ended: no slab is the daemon's */
};

/* Where the memory of an op lies. */
struct buffer_place {
	const struct slab_name *slab; /* NULL: an op without memory */
	uint64_t slab_off;
	struct cut_piece *piece; /* referenced: buffer_unref(); NULL: none */
};

void buffers_init(struct buffers *buffers, struct dsaio_conn *conn,
		  bool (*trim)(struct buffers *buffers));
/* Unmaps all.  The slabs stay the session's, whose end frees them. */
void buffers_deinit(struct buffers *buffers);

/* Bytes of a new slab for a buffer of `bytes`, the last slab having had `last` (0: none). */
size_t buffer_slab_bytes(size_t bytes, size_t last);

/* dsaio_alloc(): `bytes` there, zeroed if wanted.  Returns 0 or a negative errno, with a message. */
int buffers_alloc(struct buffers *buffers, size_t bytes, const struct slab_placement *place,
		  bool wants_zeroes, void **ret_memory);

/*
 * The session has ended, or is about to: buffers stay mapped until they are freed.  Returns whether
 * there are any.
 */
bool buffers_leave(struct buffers *buffers);

/*
 * dsaio_free() or, is_imported, dsaio_memory_unregister().  Returns 0, -EINVAL (no such memory starts there) or
 * -EBUSY (an op uses it).  *ret_is_last: it was the last one that buffers_leave() has left.
 */
int buffers_free(struct buffers *buffers, void *memory, bool is_imported, bool *ret_is_last);

/*
 * A slab of the library's own, of so many bytes; also handed over, and unmapped by buffers_leave().  Returns 0, or a
 * negative errno with a message; -ESTALE, without one: the daemon has gone away with it.
 */
int buffers_own_new(struct buffers *buffers, size_t bytes, struct mapped_slab **ret_slab);
/* Gives it back.  No op uses it. */
void buffers_own_free(struct buffers *buffers, struct mapped_slab *slab);

/* Releases slabs without buffers, also the one that is kept.  Returns whether there was one. */
bool buffers_trim(struct buffers *buffers);

/*
 * From now on buffers_ref() finds memory of the program's own, which is already the daemon's slab: these bytes of
 * fd, which is taken unless there is an error.  Returns 0, -EEXIST if part of it is in another slab, -ENOMEM, or
 * -ESTALE if the slab's session is over.
 */
int buffers_import(struct buffers *buffers, void *memory, size_t bytes,
		   const struct slab_name *slab, int fd, uint64_t off);

/* Hands all slabs over to the session of `next`, the one after the client's.  Those that it refuses get an error. */
struct hand_over {
	uint32_t n, n_refused;
	uint64_t bytes;
	bool must_retry;
};
struct hand_over buffers_hand_over(struct buffers *buffers, struct dsaio_conn *next);

/* Is the whole range in buffers?  *ret_is_imported says of which kind. */
bool buffers_have(struct buffers *buffers, const void *memory, size_t bytes, bool *ret_is_imported);

/* References the piece that holds the whole range; false if there is none. */
bool buffers_ref(struct buffers *buffers, const void *memory, size_t len,
		 struct buffer_place *ret_place);

static inline void buffer_unref(struct cut_piece *piece)
{
	/* release: pairs with buffers_free()'s look, so that the op's end comes before the reuse */
	(void)atomic_fetch_sub_explicit(&piece->n_ops, 1, memory_order_release);
}

#endif
