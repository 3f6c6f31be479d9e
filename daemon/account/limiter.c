#include "daemon/account/limiter.h"

#define SEC_NSEC UINT64_C(1000000000)

/* ---- the limit ---- */

static void rate_set(struct limiter_rate *rate, uint64_t per_sec)
{
	if (atomic_load_explicit(&rate->per_sec, memory_order_relaxed) == per_sec)
		return;
	atomic_store_explicit(&rate->per_sec, per_sec, memory_order_relaxed);
	/* release: a lane that moves this on sees the new limit, see take() */
	atomic_store_explicit(&rate->next_nsec, 0, memory_order_release);
}

void limiter_set(struct limiter *limiter, const struct rate_limit *limit)
{
	rate_set(&limiter->bytes, limit->bytes_per_sec);
	rate_set(&limiter->ops, limit->ops_per_sec);
	atomic_store_explicit(&limiter->is_limited, rate_limit_is_set(limit), memory_order_relaxed);
}

struct rate_limit limiter_get(const struct limiter *limiter)
{
	return (struct rate_limit){
		.bytes_per_sec = atomic_load_explicit(&limiter->bytes.per_sec,
						      memory_order_relaxed), /* its own writes */
		.ops_per_sec = atomic_load_explicit(&limiter->ops.per_sec, memory_order_relaxed),
	};
}

/* ---- what lanes do ---- */

/* Moves next_nsec on by the time of n at that limit.  Returns where it was. */
static uint64_t take(struct limiter_rate *rate, uint64_t per_sec, uint64_t n, uint64_t now_nsec)
{
	const uint64_t earliest = now_nsec > LIMITER_BURST_NSEC ? now_nsec - LIMITER_BURST_NSEC : 0;
	/* A block has 64 MiB at most, and a quantum LIMITER_QUANTUM_MAX: this does not overflow. */
	const uint64_t nsec = (n * SEC_NSEC + per_sec - 1) / per_sec;
	uint64_t next = atomic_load_explicit(&rate->next_nsec, memory_order_relaxed), start;

	do
		start = next > earliest ? next : earliest;
	/* acquire: pairs with the release in rate_set().  release: passes it on to the next lane. */
	while (!atomic_compare_exchange_weak_explicit(&rate->next_nsec, &next, start + nsec,
						      memory_order_acq_rel, memory_order_relaxed));
	/* The limit may have changed: the debt of the old one, which may be of years, ends with it. */
	if (atomic_load_explicit(&rate->per_sec, memory_order_relaxed) != per_sec)
		atomic_store_explicit(&rate->next_nsec, 0, memory_order_release);
	return start;
}

static uint64_t quantum(uint64_t per_sec)
{
	const uint64_t n = per_sec / (SEC_NSEC / LIMITER_QUANTUM_NSEC);

	return !n ? 1 : n < LIMITER_QUANTUM_MAX ? n : LIMITER_QUANTUM_MAX;
}

static uint64_t part_buy(struct limiter_rate *rate, struct limiter_part *part, uint64_t now_nsec)
{
	/* relaxed: take() looks again */
	const uint64_t per_sec = atomic_load_explicit(&rate->per_sec, memory_order_relaxed);

	/* The time that was bought lies before next_nsec, unless the limit was changed, and then set again. */
	if (part->per_sec != per_sec ||
	    part->start_nsec > atomic_load_explicit(&rate->next_nsec, memory_order_relaxed))
		*part = (struct limiter_part){ .per_sec = per_sec };
	if (!part->left && per_sec) {
		part->left = quantum(per_sec);
		part->start_nsec = take(rate, per_sec, part->left, now_nsec);
	}
	return part->start_nsec;
}

uint64_t limiter_buy(struct limiter *limiter, struct limiter_share *share, bool is_sync,
		     uint64_t now_nsec)
{
	const uint64_t ops_nsec = part_buy(&limiter->ops, &share->ops, now_nsec);
	const uint64_t bytes_nsec = is_sync ? 0
					    : part_buy(&limiter->bytes, &share->bytes, now_nsec);

	return ops_nsec > bytes_nsec ? ops_nsec : bytes_nsec;
}

static void part_spend(struct limiter_rate *rate, struct limiter_part *part, uint64_t n,
		       uint64_t now_nsec)
{
	if (!part->per_sec)
		return;
	if (n > part->left) {
		(void)take(rate, part->per_sec, n - part->left, now_nsec); /* it has started */
		part->left = n;
	}
	part->left -= n;
}

void limiter_spend(struct limiter *limiter, struct limiter_share *share, uint64_t bytes,
		   uint64_t ops, uint64_t now_nsec)
{
	part_spend(&limiter->bytes, &share->bytes, bytes, now_nsec);
	part_spend(&limiter->ops, &share->ops, ops, now_nsec);
}
