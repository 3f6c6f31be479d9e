/*
 * An op: one read, write or sync.
 *
 * The op table of a channel (channel.h) points to it from its submission until its completion is
 * consumed.  It holds all that its entry is made of, so it can be submitted again: channel_entry()
 * makes the entry from the op alone, with the file's and the slab's number in the present session.
 *
 *     state         what holds; the owner of the fields              next states
 *     OP_FREE       on its pool's free list                          PREPARED
 *     OP_PREPARED   the submitting thread's; maybe in its inode      SUBMITTED WAITING BOUNCED ENDED
 *     OP_WAITING    the bounce thread's: waits for an earlier op,    SUBMITTED ENDED
 *                   or for room in its ring
 *     OP_SUBMITTED  in its channel's table; the consumer's           ENDED
 *     OP_BOUNCED    the thread's that copies it piece by piece;      ENDED
 *                   each piece is an op of its own
 *     OP_ENDED      result, done and text are final                  FREE
 *
 * WAITING and BOUNCED ops are off the ring: the daemon does not know them, so it cannot order them
 * (inode.h).  A field is written by its owner alone, as said at the field, or in the table.
 */
#ifndef DSAIO_CLIENT_LIB_IO_OP_H
#define DSAIO_CLIENT_LIB_IO_OP_H

#include "client/lib/dsaio.h"
#include "client/lib/memory/buffer.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct job_piece;
struct handle_channel;
struct dsaio_file;
struct dsaio_handle;
struct op_chunk;
struct vector;

enum op_state { OP_FREE, OP_PREPARED, OP_WAITING, OP_SUBMITTED, OP_BOUNCED, OP_ENDED };

/* Fields that few ops need come last. */
struct dsaio_op {
	struct dsaio_handle *handle;
	struct dsaio_file *file;	/* referenced until the end; of a piece: borrowed */
	struct handle_channel *channel; /* NULL: does not go by a ring */
	uint64_t off, len;
	struct buffer_place buffer; /* its piece is referenced until the end */
	uint64_t grow_end;	    /* a write: as in struct ring_entry */
	_Atomic uint64_t ring_id;   /* 0: in no ring yet; seq_cst, against is_cancelled */
	struct job_piece *part_of;  /* it is a piece of a bounced op: job.h */
	struct vector *vector;	 /* it is a vectored op, with which it is freed, or a part of one */
	_Atomic uint32_t n_refs; /* the library's (it passes to the ended list), the caller's,
					 those of threads that wait; the last one frees it */
	_Atomic int state;	 /* enum op_state; op_change_state() */
	uint32_t timeout_msec;	 /* as in struct ring_entry */
	uint8_t opcode;		 /* enum ring_opcode */
	uint8_t path;		 /* enum dsaio_path */
	uint8_t n_crashes;	 /* of the daemon while it was in the ring; as state */
	_Atomic bool is_cancelled; /* any thread's */
	_Atomic bool is_taken;	   /* any thread's; relaxed: a caller has seen its error */
	/* the submitting thread's: constant from the start of its way on */
	bool is_async;	/* dsaio_handle_wait() and dsaio_handle_reap() report it */
	bool is_vector; /* it is a vectored op */
	bool is_dsync;	/* a write that is on the device at its end */
	bool is_linked; /* a sync that waits for writes; not if inode_has_failed() since n_failed */
	/* inode.lock */
	bool is_in_inode; /* among the file's inode's open ops */
	bool is_clear;	  /* no op that was open before it conflicts */
	/* handle->lock */
	bool is_callers; /* the caller has, or had, a reference */
	bool is_orphan;	 /* the caller has freed it */
	bool is_listed;	 /* on the list of ended ops */
	bool is_awaited; /* at its end, client_poke() */
	/* the thread's that ends it */
	int64_t result;		     /* bytes, or a negative errno */
	uint64_t done;		     /* bytes, also of one that failed */
	bool is_unknown;	     /* dsaio_op_is_unknown() */
	struct list_node inode_node; /* inode.lock */
	struct list_node node;	     /* ended ops: handle->lock; its next also in op_list, pool */
	uint64_t end_number;	     /* handle->lock; numbers the ends of a handle */
	void *data;		     /* for its completion */
	uint64_t n_failed;	     /* of one that is linked */
	char *text;		     /* message of one that failed; NULL: none */
	const char *because; /* for it: a restart of the daemon ended it so; NULL: it did not */
	char *why;	     /* of one on GPU memory that was copied; NULL: none */
	uint64_t began_nsec; /* 0: its time is not measured */
};

static inline enum op_state op_state(const struct dsaio_op *op)
{
	/* acquire: pairs with op_change_state(); an ended op's result is there */
	return (enum op_state)atomic_load_explicit(&op->state, memory_order_acquire);
}

/* Asserts that the table above has the transition. */
void op_change_state(struct dsaio_op *op, enum op_state state);

static inline bool op_has_ended(const struct dsaio_op *op)
{
	return op_state(op) == OP_ENDED;
}

/* An open op.  The answer stays under inode.lock. */
static inline bool op_is_off_ring(const struct dsaio_op *op)
{
	return op_state(op) == OP_WAITING || op_state(op) == OP_BOUNCED;
}

/* ---- filling in: the submitting thread ---- */

/* An op from the pool, PREPARED; with a reference for the library and, if wanted, the caller. */
void op_init(struct dsaio_op *op, struct dsaio_handle *handle, struct handle_channel *channel,
	     bool is_async, bool is_callers);

/* Sets the op's request.  Takes the reference in `buffer`. */
void op_set_io(struct dsaio_op *op, uint8_t opcode, uint64_t off, uint64_t len,
	       const struct buffer_place *buffer);
/* How its bytes go; and for copied GPU memory why, which the op takes (NULL: no memory).  Those of a part are
   also the vectored op's, unless that has a later path already. */
void op_set_path(struct dsaio_op *op, enum dsaio_path path);
void op_take_why(struct dsaio_op *op, char *why);
/* Also of a part whose vectored op has one. */
bool op_has_why(struct dsaio_op *op);
/* References the file. */
void op_set_file(struct dsaio_op *op, struct dsaio_file *file);

/* ---- on its way ---- */

/* Whoever puts it into a ring later looks at is_cancelled after. */
void op_set_cancelled(struct dsaio_op *op);

/* For messages. */
const char *op_verb(const struct dsaio_op *op);

/*
 * The errno for which the op's file or memory is not the daemon's in that session, or 0; *why: the reason, for a
 * message.
 */
int op_refused(const struct dsaio_op *op, uint32_t session, const char **why);

/* ---- its end ---- */

/* Sets the op's result: bytes or a negative errno. */
void op_set_result(struct dsaio_op *op, int64_t result, uint64_t done);
/* The message of an op that fails.  Takes text; NULL: the errno has to do. */
void op_set_text(struct dsaio_op *op, char *text);

/* A caller has seen its error. */
static inline void op_set_taken(struct dsaio_op *op)
{
	atomic_store_explicit(&op->is_taken, true, memory_order_relaxed); /* nothing goes with it */
}

/* ---- references ---- */

static inline void op_ref(struct dsaio_op *op)
{
	/* relaxed: the caller has, or its list has, a reference */
	(void)atomic_fetch_add_explicit(&op->n_refs, 1, memory_order_relaxed);
}

/* Returns true for the last one: op_pool_release() has to follow. */
static inline bool op_unref(struct dsaio_op *op)
{
	/* acq_rel: the last sees all use before */
	return atomic_fetch_sub_explicit(&op->n_refs, 1, memory_order_acq_rel) == 1;
}

/* ---- the op objects of a handle: handle->lock ---- */

struct op_pool {
	struct dsaio_op *free;
	struct op_chunk *chunks;
	uint64_t n_used;
};

/* A PREPARED op, else zeroes; NULL: no memory. */
struct dsaio_op *op_pool_take(struct op_pool *pool);
void op_pool_release(struct op_pool *pool, struct dsaio_op *op);
/* The next op of number *at or more that is on its way, also a part of a vectored op, but no piece; NULL:
   none.  *at: behind it. */
struct dsaio_op *op_pool_next(const struct op_pool *pool, uint64_t *at);
/* Frees all, also ops that a caller still holds. */
void op_pool_deinit(struct op_pool *pool);

/* Drops a reference, which must not be the last user of a closed handle. */
static inline void op_pool_unref(struct op_pool *pool, struct dsaio_op *op)
{
	if (op_unref(op))
		op_pool_release(pool, op);
}

/* ---- ops that were collected and did not end yet: their thread's ---- */

struct op_list {
	struct dsaio_op *first, *last;
};

void op_list_add(struct op_list *list, struct dsaio_op *op);

static inline struct dsaio_op *op_of_node(struct list_node *node)
{
	return node ? container_of(node, struct dsaio_op, node) : NULL;
}

static inline struct dsaio_op *op_next(const struct dsaio_op *op)
{
	return op_of_node(op->node.next);
}

#endif
