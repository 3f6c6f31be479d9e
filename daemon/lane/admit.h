/*
 * Admission decides which channel of a store starts its head block next, and when none may.
 *
 * The scheduler decides the order.  The channel that is next may be at its depth, or wait
 * for a bounce page.  Then the one after it is next.  A block for the device must also fit into the
 * limit of bytes in flight.  For a client that is alone on the store the limit is what the device moves
 * in 10 ms (window_alone_bytes()).  For clients that share the store it is the window (window.h) less what is
 * reserved for clients that are away (sched.h).  One block of at most 64 KiB of each client with nothing
 * in flight may exceed the limit.
 *
 * Blocks of GPU memory may take as long as the driver likes, up to 1 s.  So beside blocks of host memory they
 * get at most half of the window, and never count for more than that half when a block of host memory is to start.
 *
 * The latency guard (window.h) stops larger blocks for a short time, whatever the limit.
 *
 * Administrators limit the bytes and ops in a second (limiter.h).  While the store's limit is reached, nothing starts,
 * and the scheduler keeps its order.  A channel whose user's or client's limit is reached is out of the scheduler
 * until then, so that others go on.  Its ops count as open neither for its client nor for its class.
 *
 * The lane asks for the channel that is next, describes its head block, and asks whether that may start.
 * Admission knows a channel as an admit_channel, and its next block as an admit_head.  It knows no op, file or
 * thread, so a test needs none.
 *
 * A block that may start is reported by admit_note_start(), and charged with what its state says.
 *
 * Times are the caller's.  Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_ADMIT_H
#define DSAIO_DAEMON_LANE_ADMIT_H

#include "daemon/account/limiter.h"
#include "daemon/lane/sched.h"
#include "daemon/lane/window.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

/* A client counts as active for so long after its last op (proto/README.md "Fair shares"). */
#define ADMIT_ACTIVE_NSEC 100000000u
/* Blocks are at most so large while clients with smaller ops, or of a higher class, share the
   store, so that a small block need not wait long behind a large one. */
#define ADMIT_CUT_BYTES (512u << 10)

/* While the bytes of a store are limited a block takes 10 ms of that at most, but may have 64 KiB. */
#define ADMIT_LIMITED_BLOCKS 100u /* in a second */
#define ADMIT_LIMITED_LEAST (64u << 10)

/* A channel that waits for a limit asks again after this time at the latest: the limit may have been raised or
   removed.  A
   guess. */
#define ADMIT_LIMIT_NSEC UINT64_C(50000000)

/* The limiters of a channel: of its user, and of its client.  NULL: none. */
#define ADMIT_LIMITERS 2u

/* A channel's place in a list of waiters. */
struct admit_wait {
	struct list_node node;
	struct sched_queue *queue; /* of the channel */
	bool is_waiting;
};

/* The part of a channel that admission needs. */
struct admit_channel {
	struct sched_queue queue;
	uint32_t depth; /* blocks in flight */
	bool overlap;	/* false: the queue is filled, then all its blocks are awaited */
	uint32_t n_in_flight;
	uint32_t n_started;	     /* since none was in flight */
	struct admit_wait page_wait; /* for a bounce page */
	struct admit_wait gpu_wait;  /* for the end of a block of GPU memory */
	struct limiter *limiters[ADMIT_LIMITERS];
	struct limiter_share shares[ADMIT_LIMITERS];
	struct admit_wait limit_wait; /* for a limit */
	uint64_t limit_nsec;	      /* with limit_wait: until then */
	uint32_t n_open;	      /* ops */
	uint32_t n_counted; /* in its client's and class's n_open: n_open, or 0 with limit_wait */
};

/* The next block of a channel's head op. */
struct admit_head {
	uint32_t bytes;	   /* 0: a sync */
	bool is_unlimited; /* outside the limit of bytes in flight, and of the engine's room */
	bool must_defer;   /* its op has to wait outside of the channel first */
	bool needs_page;   /* a bounce page */
	bool is_gpu;	   /* of GPU memory */
	bool has_room;	   /* its engine takes another block */
	bool is_counted;   /* it was started before, so it is in the depth already */
};

enum admit_answer {
	ADMIT_START, /* the channel's head block */
	ADMIT_DEFER, /* the channel's head op has to wait outside of the channel */
	ADMIT_FULL, /* the channel is at its limit; it is out of the scheduler until a block ends */
	/* The channel has reached a limit of its user or client, perhaps for long; it is out of the scheduler until
	   then.  The next candidate may. */
	ADMIT_LIMITED,
	ADMIT_OTHER,   /* not this one: the next candidate may */
	ADMIT_NOTHING, /* no block starts now */
};

/* Channels whose head block waits for something that comes back, and are out of the scheduler meanwhile. */
struct admit_waiters {
	struct list list; /* struct admit_wait, in order */
	bool is_back;	  /* something came back, and was not yet offered to them */
};

struct admit {
	struct sched sched;
	struct window window;
	/* The limit of bytes in flight is reached: of the others only a small block may pass it. */
	bool is_over_limit;
	struct sched_walk walk; /* over these */
	uint64_t
		until_nsec; /* after no candidate or ADMIT_NOTHING: ask again then; 0: when a block starts or ends */

	uint32_t n_in_flight; /* blocks in the engines */
	uint64_t bytes_in_flight;
	uint64_t gpu_bytes;		  /* of them: of GPU memory */
	uint64_t host_nsec;		  /* when a block of host memory was last to start */
	struct admit_waiters gpu_waiters; /* for the end of a block of GPU memory */
	uint64_t guard_end_nsec;	  /* large blocks wait until then; 0: they do not */

	struct limiter *limiter; /* the store's; NULL: none */
	struct limiter_share share;
	struct admit_waiters limit_waiters;
	uint64_t limit_nsec; /* when the first of them may start; 0: there is none */

	uint32_t n_free_pages;
	struct admit_waiters page_waiters;

	uint32_t n_busy; /* clients with an op open that no limit of a user or client holds back */
	const struct sched_client *recent_client; /* the last client with an op or a block */
	uint64_t recent_nsec, shared_until_nsec;
	uint64_t small_op_nsec[N_SCHED_CLASSES]; /* the last op smaller than ADMIT_CUT_BYTES */
	/* As of admit_begin_turn(). */
	bool is_shared;
	bool is_throttled;		       /* the class background */
	bool is_limited;		       /* the store's bytes */
	uint32_t block_bytes[N_SCHED_CLASSES]; /* the largest block that may start */
};

/* window_max_bytes: the administrator's limit; 0: none.  n_pages: bounce pages that blocks may take. */
void admit_init(struct admit *admit, uint64_t window_max_bytes, uint32_t n_pages);

struct admit_channel_config {
	struct sched_client *client;
	enum sched_class io_class;
	uint32_t weight;
	uint32_t depth;
	bool overlap;
	struct limiter *limiters[ADMIT_LIMITERS]; /* borrowed */
};
void admit_channel_init(struct admit_channel *channel, const struct admit_channel_config *config);

void admit_add_channel(struct admit_channel *channel);
/* The channel has no op open. */
void admit_remove_channel(struct admit *admit, struct admit_channel *channel);

/* The daemon stops: neither the channel's limits nor the store's make the ops that were taken wait. */
void admit_lift_limits(struct admit *admit, struct admit_channel *channel);

/* An op of the channel is taken, or freed.  Its blocks start and end in between. */
void admit_open_op(struct admit *admit, struct admit_channel *channel);
void admit_close_op(struct admit *admit, struct admit_channel *channel);
/* An op of the channel has passed its checks, so its client is active, unless a limit holds the channel back. */
void admit_note_op(struct admit *admit, struct admit_channel *channel, uint64_t bytes, bool is_sync,
		   uint64_t now_nsec);
/* The channel has a block to start, or none.  Its head may have changed. */
void admit_set_ready(struct admit *admit, struct admit_channel *channel, bool is_ready);

/* Before the first candidate of a turn.  It updates what depends on time. */
void admit_begin_turn(struct admit *admit, uint64_t now_nsec);
/* The channel whose head block is asked for next; NULL: none. */
struct admit_channel *admit_candidate(struct admit *admit, uint64_t now_nsec);
/* May the head block of this candidate start?  After ADMIT_START the caller calls admit_note_start(), after
   ADMIT_DEFER admit_set_ready(). */
enum admit_answer admit_ask(struct admit *admit, struct admit_channel *channel,
			    const struct admit_head *head, uint64_t now_nsec);

/* A block of the channel has started, the first of its op or not: it is charged to the channel's flow, and to the
   limits. */
void admit_note_start(struct admit *admit, struct admit_channel *channel, uint32_t bytes,
		      bool is_first, uint64_t now_nsec);
/* A block that is counted (is_counted) has started again.  It was charged before. */
void admit_start_again(struct admit *admit, struct admit_channel *channel, uint64_t now_nsec);

/* The charges of blocks that admission counts (block.h).  Each charge has one discharge. */
/* The depth of the channel. */
void admit_depth_charge(struct admit_channel *channel);
void admit_depth_discharge(struct admit *admit, struct admit_channel *channel, uint64_t now_nsec);
/* The window; of a kind (WINDOW_READ...), the same for both.  Returns whether the latency guard watches the
   block, for the discharge.  Before the client's charge: the guard watches a client's first block. */
bool admit_window_charge(struct admit *admit, struct admit_channel *channel, unsigned kind,
			 uint32_t bytes, uint64_t now_nsec);
void admit_window_discharge(struct admit *admit, struct admit_channel *channel, unsigned kind,
			    uint32_t bytes, bool is_guarded);
/* The client's blocks in flight. */
void admit_client_charge(struct admit_channel *channel);
void admit_client_discharge(struct admit_channel *channel, uint64_t now_nsec);
void admit_take_page(struct admit *admit, struct admit_channel *channel);
void admit_release_page(struct admit *admit, struct admit_channel *channel);

/* A block of the device has ended after nsec: for the window. */
void admit_note_done(struct admit *admit, unsigned kind, uint32_t bytes, uint64_t nsec,
		     uint64_t now_nsec);

/* The largest block of the channel that may start in this turn. */
static inline uint32_t admit_block_bytes(const struct admit *admit,
					 const struct admit_channel *channel)
{
	return admit->block_bytes[channel->queue.io_class];
}

#endif
