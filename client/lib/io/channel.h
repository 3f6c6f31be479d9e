/*
 * A channel: a handle's part on one store.  Its rings, and its op table.
 *
 * A row of the table is an op, from before its entry is written until its completion is consumed.  Row
 * numbers go round like the ring's slots.  Submission n takes free_rows[n].  Completion n puts there
 * the row that it ended.  Submission n + entries takes that one, and by ring.h's rule comes after.  So
 * the submitter and the consumer need no lock between them.
 *
 * A completion names its row by an id with a generation.  If it names no open row, the daemon is
 * broken.  The rings are not read any more then, and the end of file ends the ops.
 *
 * Recovery (recover.h): when the daemon has gone away, the channel is away: it has no room, and nobody reads its
 * rings.  channel_reopen() maps new ones, and channel_come_back() puts the ops of the table into them, in the
 * order of their submission: channel_entry() makes their entries.
 */
#ifndef DSAIO_CLIENT_LIB_IO_CHANNEL_H
#define DSAIO_CLIENT_LIB_IO_CHANNEL_H

#include "client/lib/io/client.h"
#include "client/lib/io/op.h"
#include "proto/profile.h"
#include "proto/ring.h"

struct channel_row {
	struct dsaio_op *_Atomic op; /* release by the submitter, acquire by the consumer; NULL:
					free */
	uint64_t id;
	uint64_t put_nsec; /* when the op was put into the ring */
	uint64_t number;   /* of its submission */
};

struct handle_channel {
	struct dsaio_client *client;
	uint32_t store;

	uint32_t id;

	/* of the present session: made anew with a new one */
	/* submit_lock: the handle's profile as the store uses it, and how much of it is granted. */
	struct profile profile;
	uint32_t block_size, queue_depth;
	int doorbell_fd;
	struct ring_client ring;

	/* the op table: its ops go into the new ring */
	struct channel_row *rows; /* entries */
	uint32_t *free_rows;	  /* entries; see above */

	pthread_mutex_t submit_lock;
	_Atomic bool is_dead; /* takes no more entries; set under submit_lock, read anywhere */
	bool is_broken; /* the consumer's: its rings are not looked at (any more, or while it is away) */
	_Atomic uint32_t n_turns; /* odd: it is away; changes under submit_lock */
	uint64_t n_put;		  /* submissions; under submit_lock */
	int error;		  /* it could not be handed over; or 0 */
	/* of the handle; set before it is shown, never changed */
	struct handle_channel *_Atomic next;

	/* the bounce thread's */
	struct list starting_jobs;	/* that may start pieces here */
	struct list_node starting_node; /* of the list of channels with such jobs */
};

/* A new channel of that handle.  Returns 0 or conn_call()'s errors, with a message. */
int channel_open(struct dsaio_client *client, uint32_t handle, uint32_t store, uint32_t entries,
		 struct handle_channel **ret_channel);
/* Unmaps it.  No op is open.  NULL is fine. */
void channel_close(struct handle_channel *channel);

/* The submission entry, without id.  A pure function. */
struct ring_entry channel_entry(const struct dsaio_op *op);

/* Completions consumed so far, and turns: read before channel_put(), a change of it means new room. */
static inline uint64_t channel_head(const struct handle_channel *channel)
{
	return (uint64_t)atomic_load_explicit(&channel->n_turns, memory_order_acquire) << 32 |
	       atomic_load_explicit(&channel->ring.head, memory_order_acquire); /* consume */
}

/*
 * Submits an op to its channel.  Returns 0, -EAGAIN if there is no room, or -ENOTCONN if the channel
 * is dead.  is_batched: the lane does not see the entry before channel_publish(), which has to follow
 * before the caller sleeps, or another thread's channel_put() of an op that is not.
 */
int channel_put(struct dsaio_op *op, bool is_batched);
/* Shows the lane what was added, and rings its doorbell at most once. */
void channel_publish(struct handle_channel *channel);

/* Entries for which there is room now. */
uint32_t channel_room(struct handle_channel *channel);

/*
 * Asks the daemon to cancel an op of that channel.  Does nothing if it is not in the ring yet: the
 * thread that puts it there checks is_cancelled after.  Returns 0 or conn_call()'s errors.
 */
int channel_cancel(const struct dsaio_op *op);
/* The same, without waiting for the answer. */
void channel_post_cancel(const struct dsaio_op *op);

/* ---- the consumer role ---- */

/* Are there completions? */
static inline bool channel_is_ready(const struct handle_channel *channel)
{
	return !channel->is_broken && ring_client_ready(&channel->ring) != 0;
}

/* Takes all completions; their ops, results filled in, go to the list's end. */
void channel_consume(struct handle_channel *channel, struct op_list *list);

/*
 * The daemon has closed the channel (it said so, or is gone): no entry is accepted any more, and all
 * open ops go to the list, with that result.
 */
void channel_end_ops(struct handle_channel *channel, int result, struct op_list *list);

/* ---- recovery: with the consumer role ---- */

/*
 * The daemon has gone away: takes its last completions.  From now on it is away.  Fine if it is already.
 * is_crash: the daemon did not stop in order.
 */
void channel_go_away(struct handle_channel *channel, bool is_crash, struct op_list *list);

/* It is away: ops that were cancelled, or whose time is over, go to the list with that result. */
void channel_look_away(struct handle_channel *channel, struct op_list *list);

/*
 * Makes it anew on the session of `next`, with its number and new rings.  Returns 0 or conn_call_for()'s errors with
 * a message, which come_back() will give its ops.
 */
int channel_reopen(struct handle_channel *channel, struct dsaio_conn *next, uint32_t handle);

/*
 * It is not away any more.  Puts the ops of its table into the ring and shows them to the lane; those that cannot be
 * go to the list, with the reason.  Returns how many were put.  features: of the next daemon.
 */
uint32_t channel_come_back(struct handle_channel *channel, uint64_t features, struct op_list *list);

#endif
