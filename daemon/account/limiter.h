/*
 * A limiter holds a store, a user or a client to its limit (rate_limit.h).  The channels of a user or client are in
 * several lanes, which share its limiter without a lock.
 *
 * It is the generic cell rate algorithm: next_nsec is when the next byte, or op, may start, and each start moves it on
 * by the time that it takes at the limit.  After a pause it lies at most LIMITER_BURST_NSEC in the past, which bounds
 * the burst.
 *
 * A channel buys a small quantum in advance.  That is its place in the line: what others buy later starts later.  So
 * no lane can always be first.  For a block that is larger than what is left of the quantum it buys the rest, which
 * is a place in the line, too.  When its time has come it starts as a whole, and those that buy afterwards wait for
 * the debt: a large block is neither split nor starved.  With t seconds, n channels and a limit of r, at most
 * r x (t + burst + n x quantum) bytes start, and one block.
 *
 * The main thread sets the limit; lanes do the rest.
 */
#ifndef DSAIO_DAEMON_ACCOUNT_LIMITER_H
#define DSAIO_DAEMON_ACCOUNT_LIMITER_H

#include "daemon/base/rate_limit.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* After a pause so much may start at once: a lane that sleeps wakes a millisecond late, and programs pause between two
   ops.  A guess. */
#define LIMITER_BURST_NSEC UINT64_C(50000000)
/* A quantum takes so long at the limit: short enough that many channels of a user all start something in a second. */
#define LIMITER_QUANTUM_NSEC UINT64_C(10000000)
#define LIMITER_QUANTUM_MAX (UINT64_C(1) << 20)

struct limiter_rate {
	_Atomic uint64_t per_sec; /* 0: no limit */
	_Atomic uint64_t next_nsec;
};

/* All zeroes: no limit. */
struct limiter {
	struct limiter_rate bytes, ops;
	_Atomic bool is_limited; /* alone, so that without a limit a block costs one load */
};

/* The part of one buyer.  All zeroes: nothing. */
struct limiter_part {
	uint64_t per_sec; /* the limit at which it was bought; another one makes it void */
	uint64_t left;
	uint64_t start_nsec; /* it may be used from then on */
};
struct limiter_share {
	struct limiter_part bytes, ops;
};

/* Main thread.  A limit that changes forgives all debts. */
void limiter_set(struct limiter *limiter, const struct rate_limit *limit);
/* Main thread. */
struct rate_limit limiter_get(const struct limiter *limiter);

/* The parts of the next two for a limiter that is limited. */
uint64_t limiter_buy(struct limiter *limiter, struct limiter_share *share, uint64_t bytes,
		     uint64_t now_nsec);
void limiter_spend(struct limiter *limiter, struct limiter_share *share, uint64_t bytes,
		   uint64_t ops, uint64_t now_nsec);
/* The buyer goes: what is left of its share is not owed. */
void limiter_return(struct limiter *limiter, const struct limiter_share *share);

/* NULL: no limit. */
static inline bool limiter_is_limited(const struct limiter *limiter)
{
	/* relaxed: a limit that is seen a moment later is as good */
	return limiter && atomic_load_explicit(&limiter->is_limited, memory_order_relaxed);
}

/* NULL: no limit.  When the buyer's next block, of so many bytes (0: a sync), may start: later than now_nsec, or
   not. */
static inline uint64_t limiter_ask(struct limiter *limiter, struct limiter_share *share,
				   uint64_t bytes, uint64_t now_nsec)
{
	return limiter_is_limited(limiter) ? limiter_buy(limiter, share, bytes, now_nsec) : 0;
}

/* Likewise: a block has started, with so many bytes: the first of its op (ops: 1), or another (0). */
static inline void limiter_charge(struct limiter *limiter, struct limiter_share *share,
				  uint64_t bytes, uint64_t ops, uint64_t now_nsec)
{
	if (limiter_is_limited(limiter))
		limiter_spend(limiter, share, bytes, ops, now_nsec);
}

#endif
