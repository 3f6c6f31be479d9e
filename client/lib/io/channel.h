/*
 * A channel: a handle's part on one store.  Its rings, and the table of rows.
 *
 * A row is an op from before its entry is written until its completion is consumed.  Row numbers
 * go round like the ring's slots: submission n takes free_rows[n], completion n puts the row that
 * it ended there, and submission n + entries finds it again, which by ring.h's rule comes only
 * after.  So the submitter and the consumer need no lock between them.
 *
 * A completion names its row by an id with a generation.  One that names no open row shows that
 * the daemon is broken: the rings are left alone from then on, and the end of file ends the ops.
 */
#ifndef DSAIO_CLIENT_LIB_IO_CHANNEL_H
#define DSAIO_CLIENT_LIB_IO_CHANNEL_H

#include "client/lib/io/client.h"
#include "proto/ring.h"

struct bounce_job;
struct bounce_piece;
struct cut_piece;
struct inode;

enum op_state {
	OP_FREE,  /* on its handle's list of free ones */
	OP_OPEN,  /* the library has it; its buffer is taken */
	OP_ENDED, /* result, done and text stay as they are */
};

/*
 * One read, write or sync.  Filled in by the submitting thread before others can find it; from
 * then until its end it is the consumer's, or (not by the ring) that of who bounces it.
 */
struct dsaio_op {
	struct dsaio_handle *handle;
	struct dsaio_file *file; /* held while open */
	struct inode *inode;	 /* of the file; NULL: not among its open ops */
	struct channel *channel; /* NULL: does not go by a ring */
	struct cut_piece *piece; /* held while open; NULL: none */
	uint64_t off, len;
	uint64_t grow_end;	  /* a write: as in struct ring_entry */
	uint64_t began_nsec;	  /* 0: nobody wants to know how long it took (debug.h) */
	uint64_t put_nsec;	  /* into the ring: channel_put() */
	_Atomic uint64_t ring_id; /* 0: in no ring yet; seq_cst, against is_cancelled */
	_Atomic bool is_cancelled;
	uint8_t opcode;		      /* enum ring_opcode */
	bool is_on_import;	      /* its memory is of dsaio_import() */
	bool is_async;		      /* dsaio_wait() and dsaio_reap() tell of it */
	bool is_bounced;	      /* in pieces, which are ops of their own (bounce.h) */
	struct bounce_piece *part_of; /* it is one of those: nobody but bounce.c knows it */
	_Atomic uint32_t n_refs;      /* the library's (passed on to the ended list), the caller's,
				    those of threads that wait for it; the last frees it */
	_Atomic int state; /* enum op_state; release at the end, after all of the result */
	int64_t result;	   /* bytes, or a negative errno */
	uint64_t done;
	const char *because;   /* why it failed, if the errno does not say it */
	char *text;	       /* its sentence; NULL: none */
	void *data;	       /* the caller's; never changes */
	uint32_t timeout_msec; /* as in struct ring_entry */

	/* inode.lock */
	struct dsaio_op *inode_next, *inode_prev;
	bool is_clear;	  /* nothing that was open before it conflicts; never changes */
	bool is_off_ring; /* open, and in its handle's ring not, or not yet */

	/* handle.lock */
	bool is_callers; /* the caller has a reference, or had one */
	bool is_orphan;	 /* its owner has freed it */
	bool is_listed;	 /* on the list of ended ops */
	bool is_awaited; /* at its end, client_poke() */
	uint64_t end_number;
	struct dsaio_op *next, *prev; /* ended list, free list; or (next) the consumer's batch */
};

struct op_list {
	struct dsaio_op *first, **last_next;
};
#define OP_LIST_INIT(list)          \
	{                           \
		NULL, &(list).first \
	}

struct channel_row {
	struct dsaio_op *_Atomic op; /* release by the submitter, acquire by the consumer; NULL:
					free */
	uint64_t id;
};

struct channel {
	struct dsaio_client *client;
	uint32_t id, store;
	void *map, *board;
	size_t map_bytes;
	int bell_fd;
	struct channel_row *rows; /* entries */
	uint32_t *free_rows;	  /* entries; see above */
	struct ring_client ring;
	pthread_mutex_t submit_lock;
	_Atomic bool is_dead; /* takes no more entries; set under submit_lock, read anywhere */
	bool is_broken;	      /* the consumer's: its rings are not looked at any more */
	struct channel *_Atomic next; /* of the handle; set before it is shown, never changed */

	/* the library's thread's: jobs that may start pieces here; a list of channels with such */
	struct bounce_job *first_starting, *last_starting;
	struct channel *next_starting, *prev_starting;
};

/* A new channel of that handle.  Returns 0 or conn_call()'s errors, with a sentence. */
int channel_open(struct dsaio_client *client, uint32_t handle, uint32_t store, uint32_t entries,
		 struct channel **ret_channel);
/* Unmaps it.  No op is open.  NULL is fine. */
void channel_close(struct channel *channel);

/* Completions consumed so far: read before channel_put(), a change of it means new room. */
static inline uint32_t channel_head(const struct channel *channel)
{
	return atomic_load_explicit(&channel->ring.head, memory_order_acquire); /* consume */
}

/*
 * Submits an op; entry->id is filled in.  Returns 0, -EAGAIN if there is no room, or -ENOTCONN
 * if the channel is dead.
 */
int channel_put(struct channel *channel, struct dsaio_op *op, struct ring_entry *entry);

/*
 * The same for one op of a batch: the lane does not see the entry before channel_publish(), which has
 * to follow before the caller sleeps, or before another thread's channel_put().
 */
int channel_add(struct channel *channel, struct dsaio_op *op, struct ring_entry *entry);
/* Shows the lane what was added, and rings its doorbell at most once. */
void channel_publish(struct channel *channel);

/* Entries for which there is room now. */
uint32_t channel_room(struct channel *channel);

/*
 * Asks the daemon to cancel an op of that channel; nothing, if it is not in the ring yet: who puts
 * it there looks at is_cancelled after.  Returns 0 or conn_call()'s errors.
 */
int channel_cancel(const struct dsaio_op *op);

/* ---- the consumer role ---- */

/* Is there something to consume? */
static inline bool channel_is_ready(const struct channel *channel)
{
	return !channel->is_broken && ring_client_ready(&channel->ring) != 0;
}

/* Takes all completions; their ops, results filled in, go to the list's end. */
void channel_consume(struct channel *channel, struct op_list *list);

/*
 * When the daemon has let go of the channel (it said so, or is at its end of file): no entry is
 * taken any more, and all open ops go to the list, with that result.
 */
void channel_bury(struct channel *channel, int result, struct op_list *list);

static inline void op_list_add(struct op_list *list, struct dsaio_op *op)
{
	op->next = NULL;
	*list->last_next = op;
	list->last_next = &op->next;
}

#endif
