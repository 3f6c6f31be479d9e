/*
 * A handle: what a program opens to do I/O.  Its options, its channels, its op objects, and its ended
 * ops that were not reported yet (ended.h).
 *
 * An op object comes from the handle's pool and returns there with its last reference.  Ops that a
 * caller holds outlive dsaio_handle_close(): the closed handle stays as their owner until the last of
 * them is freed.
 *
 * Async ops that are bounced (bounce.h) go by the rings of a companion.  That is a second handle with
 * the same options, which only the bounce thread uses.
 */
#ifndef DSAIO_CLIENT_LIB_IO_HANDLE_H
#define DSAIO_CLIENT_LIB_IO_HANDLE_H

#include "client/lib/io/channel.h"
#include "client/lib/io/ended.h"

/* The options of a handle, checked. */
struct handle_settings {
	struct partial_profile profile; /* the rest is each store's */
	uint32_t entries;
	uint32_t timeout_msec; /* as in struct ring_entry */
	enum dsaio_class io_class;
	uint32_t weight;
	uint64_t spin_nsec; /* limit on the spinning of one wait */
	bool is_spin_given; /* the caller chose it; else a wait spins only where it pays */
};

struct dsaio_handle {
	struct client_object object;
	struct dsaio_client *client;
	struct handle_settings settings;
	pthread_mutex_t open_lock; /* a channel, or the companion, is being made */

	uint32_t id;	   /* the daemon's number */
	_Atomic int error; /* it could not be handed over: its id may be another's */
	uint32_t session;  /* conn_session() of the last that it was made in, or handed over to */
	_Atomic bool is_leaving; /* it is being closed, and has no ops: not handed over any more */
	int doorbell_fd;	 /* our end of the doorbell socket; its number stays */
	struct dsaio_handle
		*_Atomic companion; /* NULL: none yet; release by its maker, under lock */
	struct handle_channel *_Atomic channels; /* newest first; the same */

	pthread_mutex_t lock;		      /* of all below */
	bool has_consumer;		      /* a thread has the consumer role: wait.h */
	const struct wait_for *consumer_wait; /* the wait of that thread; NULL: it does not sleep */
	struct list waiters;
	uint64_t n_open_async; /* async ops that have not ended */
	uint64_t n_open_ring;  /* ops that have not ended and go by a ring */
	struct op_pool pool;
	struct ended ended; /* async ops that have ended and were not reported */
	bool is_closed;
	bool is_shut;	     /* its ops have ended, its channels are gone: handle_shut() */
	bool is_abandoned;   /* closed without the daemon's word: ended ops keep their memory */
	int epoll_fd;	     /* dsaio_handle_fd(); -1: not asked for yet */
	int own_doorbell_fd; /* an eventfd of this process alone, in epoll_fd */
	bool is_fd_armed;    /* dsaio_handle_reap() returned 0: the next end makes it readable */
	bool is_own_rung;

	/* the consumer's */
	bool is_doorbell_at_end;   /* the daemon closed its end of the doorbell socket */
	uint64_t looked_nsec;	   /* last look for the end of the control socket */
	uint64_t wait_began_nsec;  /* 0: completions were there at once */
	uint64_t mean_wait_nsec;   /* of waits without completions at once */
	uint64_t rests_until_nsec; /* until then it does not spin: another thread needs the core */
	bool has_small_ops;	   /* the ops consumed last were small */

	/* bounce.lock */
	uint32_t n_jobs; /* jobs of its ops in the bounce thread */
	bool is_ending;	 /* it is being closed */

	/* the bounce thread's; the first two for a companion */
	struct dsaio_handle *next_active; /* list of companions with pieces in flight */
	uint32_t n_pieces;		  /* in flight */
	uint64_t polled;		  /* the round in which its rings were consumed */
};

/* Opens a handle.  on_disconnect: of handle_close.c.  Returns 0 or conn_call()'s errors, with a message. */
int handle_open(struct dsaio_client *client, const struct handle_settings *settings,
		int (*on_disconnect)(struct client_object *object),
		struct dsaio_handle **ret_handle);

/* As ended_take_all(); the message of the one that failed becomes this thread's.  function: for it. */
int64_t handle_take_ended(struct dsaio_handle *handle, const char *function, bool only_lost);

/* As op_pool_next(), with a reference for the caller. */
struct dsaio_op *handle_next_op(struct dsaio_handle *handle, uint64_t *at);

/* Closes its channels and descriptors.  No op of it is open. */
void handle_clear(struct dsaio_handle *handle);
/* The program has closed it, and has no op of it any more: frees it.  May free the client, too. */
void handle_leave(struct dsaio_handle *handle);
/* Frees all that it has, also op objects.  NULL is fine. */
void handle_free(struct dsaio_handle *handle);

/* dsaio_handle_fd(): the descriptor, made if need be; or a negative errno, with a message. */
int handle_fd(struct dsaio_handle *handle);

/* Adds the daemon's doorbell and the session's end to that descriptor, or removes them: op of epoll_ctl(2). */
int handle_watch(const struct dsaio_handle *handle, int epoll_fd, int op);

/* Returns 0 or as client_check(). */
int handle_check(const struct dsaio_handle *handle, const char *function);

/* A new op, open, with a reference for the library and, if wanted, one for the caller; or NULL. */
struct dsaio_op *handle_op_new(struct dsaio_handle *handle, bool is_async, bool is_callers,
			       struct handle_channel *channel);

/* Drops a reference.  The last one frees the op, and with it maybe a closed handle.  No handle->lock. */
void handle_op_unref(struct dsaio_op *op);

/* Whether an async op is open.  After it returns false, wait_reap() finds all ops that have ended. */
bool handle_has_open(struct dsaio_handle *handle);

/* The handle's companion, made if need be.  Returns 0 or a negative errno, with a message. */
int handle_companion(struct dsaio_handle *handle, struct dsaio_handle **ret_companion);

/*
 * Recovery.  Makes it and its channels anew on the session of `next`; with the consumer role.  Returns 0, also if
 * `next` refuses (then its ops will end), or -ENOTCONN.  *n: its channels are added.
 */
int handle_hand_over(struct dsaio_handle *handle, struct dsaio_conn *next, uint32_t *n);

/* The channel on that store, made if need be.  Returns 0 or a negative errno, with a message. */
int handle_channel(struct dsaio_handle *handle, uint32_t store,
		   struct handle_channel **ret_channel);

/* Its channels, one after the other; NULL: no more. */
static inline struct handle_channel *handle_first_channel(const struct dsaio_handle *handle)
{
	/* acquire: pairs with handle_channel(), which shows a channel that is ready */
	return atomic_load_explicit(&handle->channels, memory_order_acquire);
}

static inline struct handle_channel *handle_next_channel(const struct handle_channel *channel)
{
	return atomic_load_explicit(&channel->next, memory_order_relaxed); /* set before shown */
}

#define CHANNEL_EACH(c, handle) \
	for (struct handle_channel *c = handle_first_channel(handle); c; c = handle_next_channel(c))

/* ---- its end: handle_close.c ---- */

/*
 * dsaio_handle_close(): sleeps until its ops have ended.  Returns 0, the first error of an op that was not reported, or
 * -EINPROGRESS: some were open at the deadline, so the handle is, too; with a message.
 */
int handle_close(struct dsaio_handle *handle, uint64_t deadline_nsec);
/* For handle_open(): the same by dsaio_disconnect(), without a deadline. */
int handle_on_disconnect(struct client_object *object);

/* Shows the lanes what a batch has added to their rings so far.  No lock. */
static inline void handle_publish(const struct dsaio_handle *handle)
{
	CHANNEL_EACH(c, handle)
		channel_publish(c);
}

#endif
