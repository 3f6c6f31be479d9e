/*
 * A limiter with a clock of the test's: how much starts in a time, bursts, debts, turns of two lanes, and a limit that
 * changes.
 */
#include "daemon/account/limiter.h"
#include "tests/unit/suite.h"

#include <pthread.h>
#include <string.h>

#define SEC UINT64_C(1000000000)
#define MSEC UINT64_C(1000000)
#define START (100 * SEC) /* of the test's clock */

static struct limiter limiter;
static struct limiter_share shares[2];

static void setup(void)
{
	memset(&limiter, 0, sizeof(limiter));
	memset(shares, 0, sizeof(shares));
}
FIXTURE(setup, NULL)

static void limit(uint64_t bytes_per_sec, uint64_t ops_per_sec)
{
	limiter_set(&limiter, &(struct rate_limit){ bytes_per_sec, ops_per_sec });
}

/* Starts a block if it may. */
static bool go(unsigned i, uint64_t bytes, uint64_t now)
{
	if (limiter_ask(&limiter, &shares[i], bytes, now) > now)
		return false;
	limiter_charge(&limiter, &shares[i], bytes, 1, now);
	return true;
}

/* Blocks that start in a time, one buyer asking each 100 us as long as it may. */
static uint64_t count(uint64_t bytes, uint64_t from, uint64_t nsec)
{
	uint64_t n = 0;

	for (uint64_t now = from; now < from + nsec; now += MSEC / 10)
		while (n < 1000000 && go(0, bytes, now))
			n++;
	return n;
}

static const struct {
	const char *what;
	uint64_t bytes_per_sec, ops_per_sec, bytes, least, most; /* blocks in 10 s */
} rates[] = {
	/* The bounds: ten seconds less a quantum; the burst, a quantum and one block more. */
	{ "small blocks", 100 << 20, 0, 4096, 255700, 257560 },
	{ "large blocks", 100 << 20, 0, 1 << 20, 999, 1007 },
	{ "a block takes longer than the burst", 1 << 20, 0, 4 << 20, 3, 3 },
	{ "ops", 0, 1000, 1 << 20, 9990, 10061 },
	{ "both, bytes are fewer", 1 << 20, 1000000, 4096, 2557, 2577 },
	{ "both, ops are fewer", UINT64_C(1) << 40, 10, 4096, 99, 102 },
	{ "no byte is too slow", 1, 0, 1, 10, 11 },
	{ "the largest limit", UINT64_C(1) << 50, UINT64_C(1) << 50, 4096, 1000000, 1000000 },
	{ "syncs are no bytes", 1, 0, 0, 1000000, 1000000 },
	{ "syncs are ops", 0, 1000, 0, 9990, 10061 },
};

TEST_TABLE(as_much_starts_as_the_limit_says, rates)
{
	uint64_t n;

	limit(rates[_i].bytes_per_sec, rates[_i].ops_per_sec);
	n = count(rates[_i].bytes, START, 10 * SEC);
	ck_assert_msg(n >= rates[_i].least && n <= rates[_i].most, "%s: %lu", rates[_i].what,
		      (unsigned long)n);
}
END_TEST

TEST(without_a_limit_nothing_waits)
{
	ck_assert(!limiter_is_limited(&limiter));
	ck_assert_uint_eq(count(1 << 20, START, 1), 1000000);
	limit(1, 1);
	ck_assert(limiter_is_limited(&limiter));
	ck_assert_uint_eq(limiter_get(&limiter).bytes_per_sec, 1);
	ck_assert_uint_eq(limiter_get(&limiter).ops_per_sec, 1);
	limit(0, 0);
	ck_assert_uint_eq(count(1 << 20, START, 1), 1000000);
}
END_TEST

TEST(a_pause_is_saved_up_to_the_burst)
{
	limit(100 * 4096 * 1000, 0); /* 100 blocks a millisecond */
	(void)count(4096, START, SEC);
	/* Its quantum may be half used. */
	ck_assert_uint_le(count(4096, START + 100 * SEC, 1), 100 * (50 + 10 + 10) + 1);
}
END_TEST

/* A lane that asks later each time would find that the other one has started already. */
TEST(who_asks_a_little_later_gets_as_much)
{
	uint64_t n[2] = { 0 };

	limit(64 << 20, 0);
	for (uint64_t now = START; now < START + 10 * SEC; now += MSEC)
		for (unsigned i = 0; i < 2; i++)
			n[i] += go(i, 1 << 20, now + i * MSEC / 2);
	ck_assert_uint_ge(n[0] + n[1], 639);
	ck_assert_uint_le(n[0] + n[1], 650);
	ck_assert_uint_le(n[0] > n[1] ? n[0] - n[1] : n[1] - n[0], 4);
}
END_TEST

/* A debt of years ends with the limit that made it. */
TEST(a_new_limit_forgives_debts)
{
	limit(1, 0);
	ck_assert(go(0, 64 << 20, START));
	ck_assert(!go(0, 1, START + 1000 * SEC));
	limit(1, 0); /* the same is no new one */
	ck_assert(!go(0, 1, START + 1000 * SEC));
	limit(2, 0);
	ck_assert(go(0, 1, START + 1000 * SEC));
}
END_TEST

/* Years that were bought are void, though the limit is as it was when it was bought. */
TEST(a_limit_that_was_lifted_forgives_debts)
{
	limit(1, 0);
	ck_assert(go(0, 64 << 20, START));
	ck_assert(!go(0, 1, START + 1000 * SEC));
	limit(0, 0);
	ck_assert(go(0, 1, START + 1000 * SEC));
	limit(1, 0);
	ck_assert(go(0, 1, START + 1000 * SEC));
}
END_TEST

/* A share that was bought with another limit is void: the lane finds that when it asks. */
TEST(a_charge_of_the_old_limit_leaves_no_debt)
{
	limit(1, 0);
	ck_assert_uint_le(limiter_ask(&limiter, &shares[0], 1, START), START);
	limit(1 << 20, 0);
	limiter_charge(&limiter, &shares[0], 64 << 20, 1, START);
	ck_assert(go(1, 1, START));
}
END_TEST

/* Those that have something left of a quantum wait for each other all the same. */
TEST(many_large_blocks_do_not_start_at_once)
{
	limit(1 << 20, 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert(go(i, 1, START));
	ck_assert(go(0, 1 << 20, START));
	ck_assert(!go(1, 1 << 20, START));
	ck_assert(go(1, 1 << 20, START + SEC));
}
END_TEST

TEST(what_a_buyer_has_left_is_not_owed)
{
	uint64_t before;

	limit(1000, 1000);
	ck_assert(go(0, 10, START)); /* all of a quantum */
	before = limiter.bytes.next_nsec;
	ck_assert(go(1, 1, START));
	ck_assert_uint_gt(limiter.bytes.next_nsec, before + 5 * MSEC);
	limiter_return(&limiter, &shares[1]);
	ck_assert_uint_eq(limiter.bytes.next_nsec, before + MSEC);
	/* Ops that another limit has sold are void. */
	limit(2000, 1000);
	ck_assert(go(0, 100, START));
	before = limiter.bytes.next_nsec;
	limiter_return(&limiter, &shares[1]);
	ck_assert_uint_eq(limiter.bytes.next_nsec, before);
}
END_TEST

TEST(debts_of_many_buyers_do_not_overflow)
{
	uint64_t start, last = 0;

	limit(1, 0);
	for (unsigned i = 0; i < 1000; i++) {
		shares[0] = (struct limiter_share){ 0 };
		start = limiter_ask(&limiter, &shares[0], 64 << 20, START);
		ck_assert_uint_ge(start, last);
		last = start;
	}
}
END_TEST

#define THREADS_N 20000u

static void *spend(void *arg)
{
	struct limiter_share share = { 0 };

	for (unsigned i = 0; i < rounds(THREADS_N); i++) {
		(void)limiter_ask(&limiter, &share, 1000, START);
		limiter_charge(&limiter, &share, 1000, 1, START);
	}
	*(uint64_t *)arg = share.bytes.left;
	return NULL;
}

TEST(two_lanes_lose_no_charge)
{
	uint64_t left[2], start;
	pthread_t threads[2];

	limit(1000 * 1000, 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, spend, &left[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	start = limiter_ask(&limiter, &shares[0], 1, START);
	/* A byte takes a microsecond. */
	ck_assert_uint_eq(
		start, START - LIMITER_BURST_NSEC +
			       (2 * rounds(THREADS_N) * UINT64_C(1000) + left[0] + left[1]) * 1000);
}
END_TEST

TEST_MAIN
