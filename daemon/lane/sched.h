/*
 * The scheduler of a store decides which channel is served next.  It knows queues (one per channel), not
 * ops.
 *
 * Classes are served in order.  Within a class it is deficit round robin by bytes: over clients, then
 * over a client's queues, with a quantum of 256 KiB x weight.
 *
 * A lower class is throttled to its share: a twentieth of the bytes that higher classes start, and 64 KiB each
 * 10 ms.  The share goes first, so nothing starves.  The class normal is throttled only while the class demand
 * has a block to start, because every client may choose demand, and few small ops of it must not slow
 * down all others.  The class background is throttled while a higher class is active, and for 30 ms after,
 * so that a program with one op open seldom finds a block of it at the device.
 *
 * A client with one op open has no block to start while its last block is in flight, and until it
 * submits the next op.  In that time it is "away": it keeps its place and gets its quantum when it
 * is the head, at most as many bytes as it used before.  When it is back, it is next.  The others
 * should not fill the device with these owed bytes (sched_owed_bytes()), or the client would wait
 * behind them each time.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_SCHED_H
#define DSAIO_DAEMON_LANE_SCHED_H

#include "daemon/base/takes.h"
#include "daemon/base/wakes.h"
#include "daemon/lane/window.h"
#include "proto/util/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum sched_class { SCHED_DEMAND, SCHED_NORMAL, SCHED_BACKGROUND, N_SCHED_CLASSES };

#define SCHED_QUANTUM_BYTES (256u << 10)
/* The share of a class: one byte for so many of higher classes, and one in so long beside higher classes that
   move few: 64 KiB in 10 ms.  Guesses. */
#define SCHED_SHARE_PART 20u
#define SCHED_SHARE_NSEC 150u
/* The largest credit, and the largest block of the class background while it is throttled. */
#define SCHED_SHARE_BYTES (64u << 10)
/* A higher class is active for so long after its last block or op.  It is also while it has an op open, unless
   that hangs (WINDOW_HUNG_NSEC). */
#define SCHED_ACTIVE_NSEC 30000000u
/* The largest block, and the largest debt.  Else a client with blocks out of order could get a debt that
   takes minutes to pay. */
#define SCHED_DEBT_MAX (INT64_C(64) << 20)
#define SCHED_WEIGHT_MAX 16u
/* A client is away while it has blocks in flight, unless they hang (WINDOW_HUNG_NSEC), and for this time
   after.  To wake up, process the data and submit takes tens of microseconds, some hundreds on a busy host.
   A guess. */
#define SCHED_AWAY_NSEC 1000000u
/* The maximum that a client is owed when it is back. */
#define SCHED_OWED_MAX (INT64_C(16) << 20)

struct sched_queue;

/* A client's share in one class. */
struct sched_flow {
	struct list_node node; /* in the class's list of clients that are active or away */
	struct list queues;    /* its queues with a block to start */
	int64_t deficit_bytes;
	int64_t stay_bytes;    /* started since it was last inactive or away */
	int64_t owed_max;      /* away: the deficit it may have */
	int64_t quantum_bytes; /* away: as it was */
	struct sched_client *client;
	bool is_charged; /* it has had its quantum as the head */
	bool is_away;
};

struct sched_client {
	struct sched_flow flows[N_SCHED_CLASSES];
	uint64_t started_nsec; /* when its last block started */
	/* Maintained by the lane, which has no other struct for a client.  The scheduler reads only
	   blocks_in_flight and done_nsec. */
	uint32_t n_channels, blocks_in_flight;
	struct takes takes; /* intake's */
	uint32_t n_pages;   /* bounce pages of its blocks */
	uint64_t done_nsec; /* when its last block ended */
	uint32_t n_open; /* ops taken, not yet shown as ended, that no limit holds back (admit.h) */
	struct wakes wakes;
	struct list to_wake; /* channels, for publish.h */
	struct list_node to_wake_node;
	struct window_small small;
};

struct sched_queue {
	struct sched_client *client;
	enum sched_class io_class;
	_Atomic uint32_t weight; /* the main thread may change it: relaxed, any value is right */
	struct list_node node;	 /* in its client's list */
	int64_t deficit_bytes;
	bool is_active, is_charged;
};

/* The bytes that a throttled class may start; a block may leave it a debt. */
struct sched_share {
	int64_t bytes;
	uint64_t since_nsec; /* up to when it has had its bytes for time */
};

struct sched {
	struct list flows[N_SCHED_CLASSES];  /* the head is served */
	uint32_t n_active[N_SCHED_CLASSES];  /* flows with a block to start */
	int64_t owed_bytes[N_SCHED_CLASSES]; /* to those that are away */
	struct sched_share shares[N_SCHED_CLASSES];
	/* Maintained by admission: open ops, and the last op or end of a block. */
	uint32_t n_open[N_SCHED_CLASSES];
	uint64_t active_nsec[N_SCHED_CLASSES];
};

void sched_init(struct sched *sched);
void sched_client_init(struct sched_client *client);
void sched_queue_init(struct sched_queue *queue, struct sched_client *client,
		      enum sched_class io_class, uint32_t weight);

/* Main thread, too. */
static inline void sched_set_weight(struct sched_queue *queue, uint32_t weight)
{
	atomic_store_explicit(&queue->weight, weight, memory_order_relaxed);
}

/* The client's queues will not be added any more. */
void sched_client_gone(struct sched *sched, struct sched_client *client);

/* The queue has a block to start.  Fine if it was added. */
void sched_add(struct sched *sched, struct sched_queue *queue);
/* The queue has no block, or may not start it now.  Fine if it was not added. */
void sched_remove(struct sched *sched, struct sched_queue *queue);
/* Likewise, of an active queue, but nothing is owed to its client meanwhile. */
void sched_set_aside(struct sched *sched, struct sched_queue *queue);

/* Whether the class may start no more than its share. */
bool sched_is_throttled(const struct sched *sched, enum sched_class io_class, uint64_t now_nsec);
/* The queue that is served next, or NULL.  The caller starts its head block and calls sched_charge(), or
   calls sched_remove(), or does not ask again until something changes. */
struct sched_queue *sched_next(struct sched *sched, uint64_t now_nsec);
/* After sched_next() returned NULL: when to ask again although nothing changes; 0: never. */
uint64_t sched_until_nsec(const struct sched *sched);
/*
 * All queues in the order of service, for a block that need not wait until its queue is served.  A throttled class
 * has credit, or is left out.  Begins with zeroes; NULL ends it.  Nothing changes meanwhile.
 */
struct sched_walk {
	unsigned n_classes; /* seen */
	struct sched_flow *flow;
	struct sched_queue *queue;
};
struct sched_queue *sched_walk_next(struct sched *sched, struct sched_walk *walk,
				    uint64_t now_nsec);
/* The bytes owed to clients of the queue's class that are away. */
uint64_t sched_owed_bytes(const struct sched *sched, const struct sched_queue *queue);
/* A block of so many bytes of that queue was started. */
void sched_charge(struct sched *sched, struct sched_queue *queue, uint64_t bytes,
		  uint64_t now_nsec);

#endif
