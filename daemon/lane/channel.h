/*
 * A channel: a handle's part on one store.  With rings (a memfd that the client maps), or
 * without (entries come by Submit); all but the decoding is the same.
 *
 * The main thread makes it, hands it to the store's lane with lane_add_channel(), and
 * gets it back, idle, through on_removed after lane_remove_channel().  In between the lane has
 * it; the main thread reads only what is marked so.
 */
#ifndef DSAIO_DAEMON_LANE_CHANNEL_H
#define DSAIO_DAEMON_LANE_CHANNEL_H

#include "daemon/account/metrics.h"
#include "daemon/base/hung.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/quota.h"
#include "daemon/lane/admit.h"
#include "daemon/lane/block.h"
#include "daemon/lane/deadline.h"
#include "daemon/lane/lane_store.h"
#include "daemon/lane/op.h"
#include "daemon/lane/op_ids.h"
#include "daemon/lane/order.h"
#include "daemon/object/objects.h"
#include "proto/profile.h"
#include "proto/ring.h"

/* Callbacks of a channel to its session, in the main thread. */
struct channel_owner {
	/* The lane has let go of it: no op open, no block in flight.  channel_free() is next. */
	void (*on_removed)(struct channel *channel, void *arg);
	/* The client broke the rules; the session has to end.  Once. */
	void (*on_broken)(struct channel *channel, const char *why, void *arg);
	void *arg;
};

/* Ops that came by one Submit.  The session makes it, lane_submit() takes it. */
struct batch {
	struct channel *channel;
	uint32_t n, n_open;
	struct message message;
	void (*on_done)(struct batch *batch); /* main thread, when all have ended; frees it */
	void *arg;
	int64_t *results;	     /* n, behind the entries: as in struct ring_completion */
	struct ring_entry entries[]; /* n */
};
int batch_new(struct channel *channel, uint32_t n, void (*on_done)(struct batch *), void *arg,
	      struct batch **ret_batch);

struct channel {
	/* set at making, read by both */
	uint32_t id; /* in its session */
	struct lane_store *lane_store;
	struct store *store; /* opaque */
	struct lane *lane;
	struct objects *objects; /* the session's */
	struct sched_client *client;
	uid_t uid;
	struct hung_who who;	/* the client, for the flight recorder */
	uint32_t counted_depth; /* in the store's channels_depth */
	struct profile profile; /* as served: queue_depth fits the engine's queue */
	uint32_t entries;
	bool has_rings;
	bool knows_unknown;	  /* RING_FEATURE_UNKNOWN */
	int ring_fd, doorbell_fd; /* memfd and the lane's eventfd; -1 without rings */
	int client_doorbell_fd;	  /* borrowed: the daemon's end of the handle's doorbell socket */
	size_t map_bytes;
	struct channel_owner owner;
	struct metrics metrics;			      /* lane writes */
	struct charge channel_charge, entries_charge; /* main thread */

	/* the lane's */
	struct ring_lane ring;
	struct op *ops;		    /* one for each entry, set aside */
	struct op_rare *ops_rare;   /* likewise; touched by the few ops that need it */
	struct list free_ops;	    /* of them: were used, and are free again */
	uint32_t n_fresh_ops;	    /* used at least once: the others have no memory yet */
	struct list ready;	    /* with blocks to start, in order */
	struct list ended;	    /* completion written, not yet published */
	struct order order;	    /* of open ops that were not refused */
	struct op_ids ids;	    /* of open ops */
	uint32_t n_open;	    /* taken, not yet shown as ended */
	uint32_t n_in_device;	    /* of them with a block in flight */
	uint64_t timed_nsec;	    /* stats' sums of time are as of then */
	struct deadlines deadlines; /* of them; gone when they were due */
	uint32_t n_gated;	    /* open ops with is_gated */
	uint32_t n_at_workers;	    /* blocks that workers have */
	uint32_t n_deep_at_workers; /* of them, where workers are the engine */
	uint32_t n_returned;	    /* blocks that came back, not yet started again: in the depth */
	struct block_pool worker_blocks; /* also for returned ones; behind ops_rare */
	struct list worker_waiters;	 /* ops, for a worker */
	struct workers workers;		 /* of uid, for blocks that may block */
	struct transfer *transfer;	 /* borrowed: for a call of workers */
	struct admit_channel admit;
	struct list_node awake_node; /* in the lane's list of those awake */
	struct channel *next_ended;  /* in the lane's list of channels with ended ops */
	bool is_awake;		     /* looked at in each turn; else parked, with no op open */
	uint64_t quiet_nsec;	     /* since when it is quiet, while no op is open */
	struct list_node wake_node;  /* in its client's list of those whose threads may sleep */
	bool must_wake;		     /* it is in that list */
	bool has_ended, is_broken, is_closing, has_left_epoll;
	uint32_t doorbell_taken;   /* ring.taken at its last doorbell */
	uint32_t n_idle_doorbells; /* rings without entries in the second that began at */
	uint64_t idle_doorbells_since_nsec;
	bool drain;		 /* with is_closing: what was taken may end */
	_Atomic bool must_hurry; /* main thread: it may not, after all; lane reads: relaxed */
	struct message add_message, message, broken_message; /* may all be on their way */
	const char *broken_why;
};

struct channel_config {
	struct lane_store *store; /* its lane runs */
	struct objects *objects;
	struct sched_client *client;
	struct quota *quota;
	uid_t uid;
	struct hung_who who; /* zeroes: not known */
	struct profile profile;
	enum sched_class io_class;
	uint32_t weight;
	struct limiter *limiters[ADMIT_LIMITERS]; /* they live longer */
	uint32_t entries; /* wanted: rounded up to a power of two within the ring's limits */
	bool has_rings;
	bool knows_unknown;
	int client_doorbell_fd;
	struct channel_owner owner;
};

/*
 * Makes a channel, charged to the quota; for lane_add_channel().  Returns 0, -EMFILE or
 * -ENOMEM (charge) or what memfd_create, mmap and eventfd say.
 */
int channel_new(const struct channel_config *config, struct channel **ret_channel,
		struct error *error);
/* Gives the charges back.  Not while a lane has it.  NULL is fine. */
void channel_free(struct channel *channel);
CLEANUP_FUNCTION(struct channel, channel_free)

/*
 * Before n_open or n_in_device changes: brings the sums of time up to now.  The time that all
 * ops waited is their number, summed over time, so no op has to remember when its wait began.
 */
void channel_count_time(struct channel *channel, uint64_t now_nsec);

/* Those of its class in its store. */
static inline struct metrics *channel_class_metrics(const struct channel *channel)
{
	return &channel->lane_store->metrics[channel->admit.queue.io_class];
}

/* Adds to a counter of the channel, and to that of its class. */
#define CHANNEL_ADD(channel, counter, n)                                  \
	do {                                                              \
		metrics_add(&(channel)->metrics.counter, n);              \
		metrics_add(&channel_class_metrics(channel)->counter, n); \
	} while (0)

/* The client broke the rules: reports it to the owner.  Once for a channel. */
void channel_break(struct channel *channel, const char *why);

/* Its place among the channel's ops, and its number in their order. */
static inline uint16_t op_number(const struct op *op)
{
	return (uint16_t)(op - op->channel->ops);
}

/* The fields of an op of the channel that most ops do not need. */
static inline struct op_rare *op_rare(const struct op *op)
{
	return &op->channel->ops_rare[op_number(op)];
}

/* Its blocks that came back; NULL: none. */
static inline struct block *op_returned(const struct op *op)
{
	return op->has_returned ? op_rare(op)->returned : NULL;
}

static inline void op_set_returned(struct op *op, struct block *returned)
{
	op->has_returned = returned != NULL;
	op_rare(op)->returned = returned;
}

/* At its multiples the middle of the op is cut into blocks: a multiple of the file's alignment. */
uint32_t channel_block_size(const struct channel *channel, const struct op *op);

#endif
