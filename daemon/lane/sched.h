/*
 * The scheduler of a store: whose turn it is.  It knows queues (one a channel), not ops.
 *
 * Classes in order; within a class deficit round robin over clients by bytes, within a client
 * over its queues, quantum 256 KiB x weight.  A queue whose head block has waited 10 ms is
 * lifted a class for that one block, so nothing starves.
 *
 * A client that keeps only one op open has nothing to start from its last block's start until it
 * has seen the end and sent the next.  It is away: it keeps its place and gets its quantum when its
 * turn comes, up to what it did before; when it is back it is next.  What it is owed meanwhile
 * the others had better not fill the device with (sched_owed_bytes), or it would have to stand
 * behind that each time.
 *
 * Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_SCHED_H
#define DSAIO_DAEMON_LANE_SCHED_H

#include "daemon/lane/window.h"

#include <stdbool.h>
#include <stdint.h>

enum sched_class { SCHED_DEMAND, SCHED_NORMAL, SCHED_BACKGROUND, N_SCHED_CLASSES };

#define SCHED_QUANTUM_BYTES (256u << 10)
#define SCHED_AGEING_NSEC 10000000u
/* The largest block; a debt is no larger either, or out of turn a client could run up one that it
   pays for minutes. */
#define SCHED_DEBT_MAX (INT64_C(64) << 20)
#define SCHED_WEIGHT_MAX 16u
/* A client is away while it has blocks in flight and so long after: to wake up, look at what it got
   and send more takes tens of microseconds, some hundreds where cores are short.  A guess. */
#define SCHED_AWAY_NSEC 1000000u
/* What it is owed at most when it is back. */
#define SCHED_OWED_MAX (INT64_C(16) << 20)

struct sched_queue;

/* A client's share in one class. */
struct sched_turn {
	struct sched_turn *next, *prev; /* in the class's ring of clients that are active or away */
	struct sched_queue *queues;	/* ring of its queues with something to do; NULL: none */
	int64_t deficit_bytes;
	int64_t stay_bytes;    /* started since it was last inactive or away */
	int64_t owed_max;      /* away: the deficit it may have */
	int64_t quantum_bytes; /* away: as it was */
	struct sched_client *client;
	bool is_charged; /* the turn has had its quantum */
	bool is_away;
};

struct sched_client {
	struct sched_turn turns[N_SCHED_CLASSES];
	/* kept by the lane, which has no other struct for a client; of these the scheduler reads
	   blocks_in_flight and done_nsec */
	uint32_t n_channels, n_awake, blocks_in_flight, n_bounces;
	uint64_t done_nsec; /* a block was back */
	uint32_t n_open;    /* ops taken, not yet shown as ended */
	struct window_small small;
};

struct sched_queue {
	struct sched_client *client;
	enum sched_class io_class;  /* as opened */
	enum sched_class now_class; /* lifted while its head block is old */
	uint32_t weight;
	struct sched_queue *next, *prev; /* in its client's ring */
	int64_t deficit_bytes;
	uint64_t head_since_nsec; /* when its head block came to the head */
	bool is_active, is_charged;
	bool is_paused;
};

struct sched {
	struct sched_turn *turns[N_SCHED_CLASSES]; /* ring; whose turn it is */
	uint32_t n_active[N_SCHED_CLASSES];	   /* of those turns: with something to do */
	int64_t owed_bytes[N_SCHED_CLASSES];	   /* to those that are away */
	uint32_t n_queues;
	uint64_t next_ageing_nsec;
};

void sched_init(struct sched *sched);
void sched_client_init(struct sched_client *client);
void sched_queue_init(struct sched_queue *queue, struct sched_client *client,
		      enum sched_class io_class, uint32_t weight);

/* None of the client's queues will be added any more. */
void sched_client_gone(struct sched *sched, struct sched_client *client);

/* The queue has a block to start. */
void sched_add(struct sched *sched, struct sched_queue *queue, uint64_t now_nsec);
/* It has none, or may not start one now.  Fine if it was not added. */
void sched_remove(struct sched *sched, struct sched_queue *queue);
/* An active one's head block may not start now: as removed, but when it is added again it is as
   old as it was, and as high. */
void sched_pause(struct sched *sched, struct sched_queue *queue);

/* Whose turn it is, or NULL.  The caller starts its head block and calls sched_charge(), or
   sched_remove(), or stops asking until something changes. */
struct sched_queue *sched_next(struct sched *sched, uint64_t now_nsec);
/* The first queue, in the order of turns, for which may() is true: for a block that need not
   wait for its turn. */
struct sched_queue *sched_find(struct sched *sched,
			       bool (*may)(const struct sched_queue *queue, void *arg), void *arg);
/* What clients of the queue's class that are away have to their credit. */
uint64_t sched_owed_bytes(const struct sched *sched, const struct sched_queue *queue);
/* A block of so many bytes of that queue was started. */
void sched_charge(struct sched *sched, struct sched_queue *queue, uint64_t bytes,
		  uint64_t now_nsec);

#endif
