/*
 * Admission decides which channel of a store starts its head block next, and when none may.
 *
 * The scheduler decides the order.  A channel whose turn it is may be at its depth in a lane, or wait
 * for a bounce page.  Then the next channel has its turn.  A block for the device must also fit into the
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
 * Admission knows a channel as an admit_channel, and its next block as an admit_head, which look()
 * fills in.  It knows no op, file or thread, so a test needs none.
 *
 * A block goes through admit_next(), admit_start() and admit_end().  While its bytes are at the device
 * it is also between admit_engine_start() and admit_engine_end(), which count it in the window.
 *
 * Times are the caller's.  Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_ADMIT_H
#define DSAIO_DAEMON_LANE_ADMIT_H

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

/* A channel's place in a list of waiters. */
struct admit_wait {
	struct list_node node;
	struct sched_queue *queue; /* of the channel */
	bool is_waiting;
};

/* The part of a channel that admission needs. */
struct admit_channel {
	struct sched_queue queue;
	uint32_t depth; /* blocks in flight in a lane */
	bool overlap;	/* false: a lane's queue is filled, then all its blocks are awaited */
	struct admit_lane {
		uint32_t n_in_flight;
		uint32_t n_started; /* since none was in flight */
	} * lanes;
	struct admit_wait page_wait; /* for a bounce page */
	struct admit_wait gpu_wait;  /* for the end of a block of GPU memory */
};

/* The next block of a channel's head op. */
struct admit_head {
	uint32_t bytes;	   /* 0: a sync */
	uint32_t lane;	   /* of its engine; 0: the home lane */
	bool is_unlimited; /* outside the limit of bytes in flight, and of the engine's room */
	bool must_defer;   /* its op has to wait outside of the channel first */
	bool needs_page;   /* a bounce page */
	bool is_gpu;	   /* of GPU memory */
	bool has_room;	   /* its lane's engine takes another block */
	bool is_counted;   /* it was started before, so it is in the depth already */
};

enum admit_what {
	ADMIT_NOTHING, /* until until_nsec, or if that is 0 until something starts or ends */
	ADMIT_START,   /* channel's head block */
	ADMIT_DEFER,   /* channel's head op has to wait outside of the channel */
	ADMIT_FULL,    /* channel is at its limit; it is out of the scheduler until a block ends */
};

struct admit_decision {
	enum admit_what what;
	struct admit_channel *channel;
	uint64_t until_nsec;
};

/* Channels whose head block waits for something that comes back, and are out of the scheduler meanwhile. */
struct admit_waiters {
	struct list list; /* struct admit_wait, in order */
	bool is_back;	  /* something came back, and was not yet offered to them */
};

/* Describes the head block of a channel that is ready. */
typedef struct admit_head admit_look(struct admit_channel *channel, void *arg);

struct admit {
	struct sched sched;
	struct window window;
	admit_look *look;
	void *arg;

	uint32_t n_in_flight; /* blocks in the engines */
	uint64_t bytes_in_flight;
	uint64_t gpu_bytes;		  /* of them: of GPU memory */
	uint64_t host_nsec;		  /* when a block of host memory was last to start */
	struct admit_waiters gpu_waiters; /* for the end of a block of GPU memory */
	uint64_t guard_end_nsec;	  /* large blocks wait until then; 0: they do not */

	uint32_t n_free_pages;
	struct admit_waiters page_waiters;

	uint32_t n_busy;			  /* clients with an op open */
	const struct sched_client *recent_client; /* the last client with an op or a block */
	uint64_t recent_nsec, shared_until_nsec;
	uint64_t small_op_nsec[N_SCHED_CLASSES]; /* the last op smaller than ADMIT_CUT_BYTES */
	/* As of admit_begin_turn(). */
	bool is_shared;
	bool is_throttled;		       /* the class background */
	uint32_t block_bytes[N_SCHED_CLASSES]; /* the largest block that may start */
};

/* window_max_bytes: the administrator's limit; 0: none.  n_pages: bounce pages that blocks may take.  look() is
   called with arg, by admit_next() only. */
void admit_init(struct admit *admit, uint64_t window_max_bytes, uint32_t n_pages, admit_look *look,
		void *arg);

struct admit_channel_config {
	struct sched_client *client;
	enum sched_class io_class;
	uint32_t weight;
	uint32_t depth, n_lanes;
	bool overlap;
};
/* 0 or -ENOMEM. */
int admit_channel_init(struct admit_channel *channel, const struct admit_channel_config *config);
void admit_channel_deinit(struct admit_channel *channel); /* zeroes are fine */

void admit_add_channel(struct admit_channel *channel);
/* The channel has no op open. */
void admit_remove_channel(struct admit *admit, struct admit_channel *channel);

/* An op of the channel is taken, or freed.  Its blocks start and end in between. */
void admit_open_op(struct admit *admit, struct admit_channel *channel);
void admit_close_op(struct admit *admit, struct admit_channel *channel);
/* An op of the channel has passed its checks, so its client is active. */
void admit_note_op(struct admit *admit, struct admit_channel *channel, uint64_t bytes, bool is_sync,
		   uint64_t now_nsec);
/* The channel has a block to start, or none.  Its head may have changed. */
void admit_set_ready(struct admit *admit, struct admit_channel *channel, bool is_ready);

/* Call it before the first admit_next() of a turn.  It updates what depends on time. */
void admit_begin_turn(struct admit *admit, uint64_t now_nsec);
/*
 * The next decision.  With ADMIT_START the caller calls admit_start(), with ADMIT_DEFER
 * admit_set_ready().  The last call of look() was for the decision's channel.
 */
struct admit_decision admit_next(struct admit *admit, uint64_t now_nsec);

/* A block of the channel starts in a lane, or has ended. */
void admit_start(struct admit *admit, struct admit_channel *channel, uint32_t lane, uint32_t bytes,
		 uint64_t now_nsec);
/* A block that is counted (is_counted) starts again.  It has been charged. */
void admit_start_again(struct admit *admit, struct admit_channel *channel, uint64_t now_nsec);
void admit_end(struct admit *admit, struct admit_channel *channel, uint32_t lane,
	       uint64_t now_nsec);

/* An engine gets a block of a kind (WINDOW_READ...), or returns it; pass *ret_is_guarded to
   admit_engine_end(), and the same kind. */
void admit_engine_start(struct admit *admit, struct admit_channel *channel, unsigned kind,
			uint32_t bytes, uint64_t now_nsec, bool *ret_is_guarded);
void admit_engine_end(struct admit *admit, struct admit_channel *channel, unsigned kind,
		      uint32_t bytes, bool is_guarded, uint64_t now_nsec);
/* The block does not return.  From now on it counts only for its client, and ends by admit_worker_end(). */
void admit_engine_give_up(struct admit *admit, struct admit_channel *channel, unsigned kind,
			  uint32_t bytes, bool is_guarded);
/* Worker threads as the file's engine get a block, or return it.  It counts only for its client. */
void admit_worker_start(struct admit_channel *channel);
void admit_worker_end(struct admit_channel *channel, uint64_t now_nsec);
void admit_take_page(struct admit *admit, struct admit_channel *channel);
void admit_give_page(struct admit *admit, struct admit_channel *channel);

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
