#include "daemon/account/limiter.h"

#include "proto/util/clock.h"

/* Many who owe years get no more of them: the sum does not overflow. */
#define NEXT_NSEC_MAX (UINT64_C(1) << 63)

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
	/* A block has 64 MiB at most: this does not overflow. */
	const uint64_t nsec = (n * NSEC_PER_SEC + per_sec - 1) / per_sec;
	uint64_t next = atomic_load_explicit(&rate->next_nsec, memory_order_relaxed), start, end;

	do {
		start = next > earliest ? next : earliest;
		end = start < NEXT_NSEC_MAX ? start + nsec : start;
		/* acquire: pairs with the release in rate_set().  release: passes it on to the next lane. */
	} while (!atomic_compare_exchange_weak_explicit(
		&rate->next_nsec, &next, end, memory_order_acq_rel, memory_order_relaxed));
	/* The limit may have changed: the debt of the old one, which may be of years, ends with it. */
	if (atomic_load_explicit(&rate->per_sec, memory_order_relaxed) != per_sec)
		atomic_store_explicit(&rate->next_nsec, 0, memory_order_release);
	return start;
}

static uint64_t quantum(uint64_t per_sec)
{
	const uint64_t n = per_sec / (NSEC_PER_SEC / LIMITER_QUANTUM_NSEC);

	return !n ? 1 : n < LIMITER_QUANTUM_MAX ? n : LIMITER_QUANTUM_MAX;
}

static uint64_t part_buy(struct limiter_rate *rate, struct limiter_part *part, uint64_t n,
			 uint64_t now_nsec)
{
	/* relaxed: take() looks again */
	const uint64_t per_sec = atomic_load_explicit(&rate->per_sec, memory_order_relaxed);

	/* The time that was bought lies before next_nsec, unless the limit was changed, and then set again. */
	if (part->per_sec != per_sec ||
	    part->start_nsec > atomic_load_explicit(&rate->next_nsec, memory_order_relaxed))
		*part = (struct limiter_part){ .per_sec = per_sec };
	if (per_sec && part->left < n) {
		n -= part->left;
		n = n > quantum(per_sec) ? n : quantum(per_sec);
		part->left += n;
		part->start_nsec = take(rate, per_sec, n, now_nsec);
	}
	return part->start_nsec;
}

uint64_t limiter_buy(struct limiter *limiter, struct limiter_share *share, uint64_t bytes,
		     uint64_t now_nsec)
{
	const uint64_t ops_nsec = part_buy(&limiter->ops, &share->ops, 1, now_nsec);
	const uint64_t bytes_nsec = bytes ? part_buy(&limiter->bytes, &share->bytes, bytes,
						     now_nsec)
					  : 0;

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

static void part_return(struct limiter_rate *rate, const struct limiter_part *part)
{
	const uint64_t nsec = part->left ? part->left * NSEC_PER_SEC / part->per_sec : 0;
	uint64_t next = atomic_load_explicit(&rate->next_nsec, memory_order_relaxed);

	/* Orders as in take().  Bytes that are void are not returned, see part_buy(). */
	while (part->left && part->start_nsec <= next &&
	       part->per_sec == atomic_load_explicit(&rate->per_sec, memory_order_relaxed) &&
	       !atomic_compare_exchange_weak_explicit(&rate->next_nsec, &next,
						      next > nsec ? next - nsec : 0,
						      memory_order_acq_rel, memory_order_relaxed))
		continue;
}

void limiter_return(struct limiter *limiter, const struct limiter_share *share)
{
	part_return(&limiter->bytes, &share->bytes);
	part_return(&limiter->ops, &share->ops);
}
