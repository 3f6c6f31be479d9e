/*
 * The scheduler alone: queues that always have a block, and whose blocks were started.
 */
#include "daemon/lane/sched.h"

#include "tests/unit/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

static struct sched sched;
static struct sched_client clients[4];

static void setup(void)
{
	sched_init(&sched);
	for (int i = 0; i < 4; i++)
		sched_client_init(&clients[i]);
}

/* Lets the scheduler choose n times; every queue's blocks have its own size. */
static void run(struct sched_queue *queues, const uint64_t *sizes, uint64_t *started_bytes, int n,
		uint64_t now, uint64_t step)
{
	for (int i = 0; i < n; i++) {
		struct sched_queue *queue = sched_next(&sched, now);
		size_t q = (size_t)(queue - queues);

		started_bytes[q] += sizes[q];
		sched_charge(&sched, queue, sizes[q], now);
		now += step;
	}
}

/* Does a walk come to the queue? */
static bool is_walked(const struct sched_queue *queue, uint64_t now)
{
	struct sched_walk walk = { 0 };
	const struct sched_queue *other;

	while ((other = sched_walk_next(&sched, &walk, now)))
		if (other == queue)
			return true;
	return false;
}

TEST(without_anything_to_do_no_queue_is_served)
{
	struct sched_queue queue;

	setup();
	ck_assert_ptr_null(sched_next(&sched, 0));
	sched_queue_init(&queue, &clients[0], SCHED_NORMAL, 1);
	sched_remove(&sched, &queue); /* not added: fine */
	sched_add(&sched, &queue);
	sched_add(&sched, &queue); /* twice: fine */
	ck_assert_ptr_eq(sched_next(&sched, 0), &queue);
	sched_remove(&sched, &queue);
	ck_assert_ptr_null(sched_next(&sched, 0));
}

static const struct {
	const char *what;
	uint32_t weight[2];
	uint64_t kib[2];
	double want; /* bytes of the first for one of the second */
} shares[] = {
	{ "equal, the same blocks", { 1, 1 }, { 256, 256 }, 1 },
	{ "equal, small against large blocks", { 1, 1 }, { 4, 1024 }, 1 },
	{ "weights 4 to 1", { 4, 1 }, { 256, 256 }, 4 },
	{ "weights 1 to 4, other sizes", { 1, 4 }, { 64, 1024 }, 0.25 },
	{ "the largest blocks", { 1, 1 }, { 65536, 4 }, 1 },
};

TEST_TABLE(clients_share_by_bytes_and_weight, shares)
{
	struct sched_queue queues[2];
	uint64_t sizes[2], bytes[2] = { 0 };
	double got;

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], SCHED_NORMAL, shares[_i].weight[i]);
		sched_add(&sched, &queues[i]);
		sizes[i] = KIB(shares[_i].kib[i]);
	}
	run(queues, sizes, bytes, 400000, 0, 0);
	got = (double)bytes[0] / (double)bytes[1];
	ck_assert_msg(got > shares[_i].want * 0.97 && got < shares[_i].want * 1.03, "%s: %f",
		      shares[_i].what, got);
}

TEST(more_queues_gain_a_client_nothing)
{
	struct sched_queue queues[4];
	uint64_t sizes[4] = { KIB(64), KIB(64), KIB(64), KIB(64) }, bytes[4] = { 0 };
	double got;

	setup();
	for (int i = 0; i < 4; i++) { /* three of the first client, one of the second */
		sched_queue_init(&queues[i], &clients[i == 3], SCHED_NORMAL, 1);
		sched_add(&sched, &queues[i]);
	}
	run(queues, sizes, bytes, 60000, 0, 0);
	got = (double)(bytes[0] + bytes[1] + bytes[2]) / (double)bytes[3];
	ck_assert_msg(got > 0.97 && got < 1.03, "%f", got);
	ck_assert_msg((double)bytes[0] / (double)bytes[1] > 0.95, "queues of one client");
}

static const struct {
	const char *what;
	enum sched_class io_class[2];
	uint64_t kib[2];
	uint64_t step;		  /* nsec of a block */
	double at_least, at_most; /* bytes of the second for one of the first */
} classes[] = {
	{ "normal beside demand",
	  { SCHED_DEMAND, SCHED_NORMAL },
	  { 256, 256 },
	  1000,
	  0.045,
	  0.055 },
	{ "larger blocks", { SCHED_DEMAND, SCHED_NORMAL }, { 4, 1024 }, 0, 0.045, 0.055 },
	{ "background beside normal",
	  { SCHED_NORMAL, SCHED_BACKGROUND },
	  { 1024, 64 },
	  1000,
	  0.045,
	  0.055 },
	{ "background beside demand",
	  { SCHED_DEMAND, SCHED_BACKGROUND },
	  { 256, 64 },
	  1000,
	  0.045,
	  0.055 },
	/* 64 KiB in 10 ms, and a twentieth of 4 KiB in 1 ms. */
	{ "beside small blocks",
	  { SCHED_NORMAL, SCHED_BACKGROUND },
	  { 4, 64 },
	  1000000,
	  1.8,
	  1.95 },
};

TEST_TABLE(a_lower_class_has_its_share_of_the_bytes, classes)
{
	struct sched_queue queues[2];
	uint64_t sizes[2], bytes[2] = { 0 };
	double got;

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], classes[_i].io_class[i], i ? 16 : 1);
		sched_add(&sched, &queues[i]);
		sizes[i] = KIB(classes[_i].kib[i]);
	}
	sched.n_open[classes[_i].io_class[0]] = 1;
	sched.active_nsec[classes[_i].io_class[0]] = UINT64_C(1) << 60; /* always */
	run(queues, sizes, bytes, 100000, 0, classes[_i].step);
	got = (double)bytes[1] / (double)bytes[0];
	ck_assert_msg(got > classes[_i].at_least && got < classes[_i].at_most, "%s: %f",
		      classes[_i].what, got);
}

/* Every client may choose demand, so one op of it a while takes nothing from the class normal. */
TEST(normal_has_all_that_demand_leaves)
{
	struct sched_queue queues[2];
	uint64_t sizes[2] = { KIB(4), MIB(1) }, bytes[2] = { 0 };

	setup();
	for (int i = 0; i < 2; i++)
		sched_queue_init(&queues[i], &clients[i], i ? SCHED_NORMAL : SCHED_DEMAND, 1);
	sched_add(&sched, &queues[1]);
	for (int i = 0; i < 100; i++) {
		sched.active_nsec[SCHED_DEMAND] = (uint64_t)i;
		sched_add(&sched, &queues[0]);
		run(queues, sizes, bytes, 1, (uint64_t)i, 0);
		sched_remove(&sched, &queues[0]);
		run(queues, sizes, bytes, 100, (uint64_t)i, 0);
	}
	ck_assert_uint_le(bytes[0], 100 * sizes[0]);
	ck_assert_uint_ge(bytes[0], 99 * sizes[0]);
	ck_assert_uint_ge(bytes[1], 10000 * sizes[1]);
}

/* It had nearly all of the device whenever a program with one op open was about to submit the next. */
TEST_LOOP(background_keeps_to_its_share_while_a_higher_class_is_active, 2)
{
	const enum sched_class higher[] = { SCHED_DEMAND, SCHED_NORMAL };
	const uint64_t start = 7 * WINDOW_HUNG_NSEC;
	struct sched_queue queue;
	uint64_t until;

	setup();
	sched_queue_init(&queue, &clients[0], SCHED_BACKGROUND, 1);
	sched.active_nsec[higher[_i]] = start;
	sched_add(&sched, &queue);
	ck_assert_ptr_eq(sched_next(&sched, start), &queue); /* its first block */
	sched_charge(&sched, &queue, SCHED_SHARE_BYTES, start);
	ck_assert_ptr_null(sched_next(&sched, start));
	ck_assert(!is_walked(&queue, start));
	until = sched_until_nsec(&sched);
	ck_assert_uint_gt(until, start);
	ck_assert_ptr_null(sched_next(&sched, until - 1));
	ck_assert_ptr_eq(sched_next(&sched, until), &queue);
	ck_assert(is_walked(&queue, until));
	sched_charge(&sched, &queue, MIB(1), until); /* a block may be larger: it is paid */
	ck_assert_uint_eq(sched_until_nsec(&sched), start + SCHED_ACTIVE_NSEC);

	/* While an op is open the class is active, unless the op hangs. */
	sched.n_open[higher[_i]] = 1;
	ck_assert_uint_gt(sched_until_nsec(&sched), start + SCHED_ACTIVE_NSEC);
	ck_assert_ptr_null(sched_next(&sched, start + SCHED_ACTIVE_NSEC));
	ck_assert(sched_is_throttled(&sched, SCHED_BACKGROUND, start + WINDOW_HUNG_NSEC - 1));
	ck_assert(!sched_is_throttled(&sched, SCHED_BACKGROUND, start + WINDOW_HUNG_NSEC));
	sched.n_open[higher[_i]] = 0;

	/* Then it has all. */
	ck_assert_ptr_null(sched_next(&sched, start + SCHED_ACTIVE_NSEC - 1));
	for (int i = 0; i < 100; i++) {
		ck_assert_ptr_eq(sched_next(&sched, start + SCHED_ACTIVE_NSEC), &queue);
		sched_charge(&sched, &queue, MIB(1), start + SCHED_ACTIVE_NSEC);
	}
	sched_remove(&sched, &queue);
	ck_assert_uint_eq(sched_until_nsec(&sched), 0);
}

TEST(who_does_not_come_back_is_owed_nothing)
{
	struct sched_queue queues[2];
	uint64_t sizes[2] = { KIB(256), KIB(256) }, bytes[2] = { 0 };

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], SCHED_NORMAL, 1);
		sched_add(&sched, &queues[i]);
	}
	run(queues, sizes, bytes, 8, 0, 0);
	ck_assert_uint_eq(bytes[0], bytes[1]);
	clients[1].blocks_in_flight = 1;
	sched_remove(&sched, &queues[1]);
	run(queues, sizes, bytes, 100, 0, 0); /* away: it gets its quanta, as much as it did */
	ck_assert_uint_eq(sched_owed_bytes(&sched, &queues[0]), bytes[1]);
	clients[1].blocks_in_flight = 0;
	run(queues, sizes, bytes, 4, SCHED_AWAY_NSEC, 0);
	ck_assert_uint_eq(sched_owed_bytes(&sched, &queues[0]), 0);
	bytes[0] = bytes[1] = 0;
	sched_add(&sched, &queues[1]);
	run(queues, sizes, bytes, 100, SCHED_AWAY_NSEC, 0);
	ck_assert_uint_eq(bytes[0], bytes[1]);

	/* Nor one that is gone for good. */
	clients[1].blocks_in_flight = 1;
	sched_remove(&sched, &queues[1]);
	run(queues, sizes, bytes, 8, SCHED_AWAY_NSEC, 0);
	ck_assert_uint_gt(sched_owed_bytes(&sched, &queues[0]), 0);
	sched_client_gone(&sched, &clients[1]);
	ck_assert_uint_eq(sched_owed_bytes(&sched, &queues[0]), 0);
	sched_remove(&sched, &queues[0]);
	ck_assert_ptr_null(sched_next(&sched, 0));
}

TEST(who_has_a_block_that_hangs_was_owed_as_long_as_it_hung)
{
	const uint64_t start = 77 * WINDOW_HUNG_NSEC;
	struct sched_queue queues[2];
	uint64_t sizes[2] = { KIB(256), KIB(256) }, bytes[2] = { 0 };

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], SCHED_NORMAL, 1);
		sched_add(&sched, &queues[i]);
	}
	run(queues, sizes, bytes, 8, start, 0);
	clients[1].blocks_in_flight = 1;
	sched_remove(&sched, &queues[1]);
	run(queues, sizes, bytes, 8, start + WINDOW_HUNG_NSEC - 1, 0);
	ck_assert_uint_gt(sched_owed_bytes(&sched, &queues[0]), 0);
	run(queues, sizes, bytes, 2, start + WINDOW_HUNG_NSEC, 0);
	ck_assert_uint_eq(sched_owed_bytes(&sched, &queues[0]), 0);
	bytes[0] = bytes[1] = 0;
	sched_add(&sched, &queues[1]); /* back, as others */
	run(queues, sizes, bytes, 100, start + WINDOW_HUNG_NSEC, 0);
	ck_assert_uint_eq(bytes[0], bytes[1]);
}

TEST(a_walk_comes_to_each_queue_once_in_the_order_of_service)
{
	static const struct {
		int client;
		enum sched_class io_class;
	} rows[] = {
		/* as they are added: client, class; the walk's order is by class, client, queue */
		{ 1, SCHED_NORMAL },
		{ 0, SCHED_NORMAL },
		{ 1, SCHED_NORMAL },
		{ 0, SCHED_DEMAND },
	};
	static const int order[] = { 3, 0, 2, 1 };
	struct sched_queue queues[4];
	struct sched_walk walk = { 0 };

	setup();
	ck_assert_ptr_null(sched_walk_next(&sched, &walk, 0)); /* there is none */
	for (int i = 0; i < 4; i++) {
		sched_queue_init(&queues[i], &clients[rows[i].client], rows[i].io_class, 1);
		sched_add(&sched, &queues[i]);
	}
	sched.shares[SCHED_NORMAL].bytes = 1; /* throttled, with credit */
	walk = (struct sched_walk){ 0 };
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(sched_walk_next(&sched, &walk, 0), &queues[order[i]]);
	ck_assert_ptr_null(sched_walk_next(&sched, &walk, 0));
	/* A client that is away has no queue, and keeps its place. */
	sched_remove(&sched, &queues[1]);
	walk = (struct sched_walk){ 0 };
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_eq(sched_walk_next(&sched, &walk, 0), &queues[order[i]]);
	ck_assert_ptr_null(sched_walk_next(&sched, &walk, 0));
}

TEST_MAIN
