/*
 * The scheduler alone: queues that always have a block, and whose blocks were started.
 */
#include "daemon/lane/sched.h"

#include "tests/unit/suite.h"

#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)

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

START_TEST(nothing_to_do_is_nobodys_turn)
{
	struct sched_queue queue;

	setup();
	ck_assert_ptr_null(sched_next(&sched, 0));
	sched_queue_init(&queue, &clients[0], SCHED_NORMAL, 1);
	sched_remove(&sched, &queue); /* not added: fine */
	sched_add(&sched, &queue, 0);
	sched_add(&sched, &queue, 0); /* twice: fine */
	ck_assert_ptr_eq(sched_next(&sched, 0), &queue);
	sched_remove(&sched, &queue);
	ck_assert_ptr_null(sched_next(&sched, 0));
}
END_TEST

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

START_TEST(clients_share_by_bytes_and_weight)
{
	struct sched_queue queues[2];
	uint64_t sizes[2], bytes[2] = { 0 };
	double got;

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], SCHED_NORMAL, shares[_i].weight[i]);
		sched_add(&sched, &queues[i], 0);
		sizes[i] = KIB(shares[_i].kib[i]);
	}
	run(queues, sizes, bytes, 400000, 0, 0);
	got = (double)bytes[0] / (double)bytes[1];
	ck_assert_msg(got > shares[_i].want * 0.97 && got < shares[_i].want * 1.03, "%s: %f",
		      shares[_i].what, got);
}
END_TEST

START_TEST(more_queues_gain_a_client_nothing)
{
	struct sched_queue queues[4];
	uint64_t sizes[4] = { KIB(64), KIB(64), KIB(64), KIB(64) }, bytes[4] = { 0 };
	double got;

	setup();
	for (int i = 0; i < 4; i++) { /* three of the first client, one of the second */
		sched_queue_init(&queues[i], &clients[i == 3], SCHED_NORMAL, 1);
		sched_add(&sched, &queues[i], 0);
	}
	run(queues, sizes, bytes, 60000, 0, 0);
	got = (double)(bytes[0] + bytes[1] + bytes[2]) / (double)bytes[3];
	ck_assert_msg(got > 0.97 && got < 1.03, "%f", got);
	ck_assert_msg((double)bytes[0] / (double)bytes[1] > 0.95, "queues of one client");
}
END_TEST

START_TEST(classes_go_in_order)
{
	struct sched_queue queues[3];
	uint64_t sizes[3] = { KIB(256), KIB(256), KIB(256) }, bytes[3] = { 0 };

	setup();
	sched_queue_init(&queues[0], &clients[0], SCHED_BACKGROUND, 16);
	sched_queue_init(&queues[1], &clients[1], SCHED_NORMAL, 1);
	sched_queue_init(&queues[2], &clients[2], SCHED_DEMAND, 1);
	for (int i = 0; i < 3; i++)
		sched_add(&sched, &queues[i], 0);
	run(queues, sizes, bytes, 100, 0, 1000);
	ck_assert_uint_eq(bytes[0] + bytes[1], 0);
	sched_remove(&sched, &queues[2]);
	run(queues, sizes, bytes, 100, 100000, 1000);
	ck_assert_uint_eq(bytes[0], 0);
}
END_TEST

START_TEST(a_head_block_that_waits_is_lifted_and_falls_back)
{
	struct sched_queue queues[2];
	uint64_t sizes[2] = { KIB(256), KIB(256) }, bytes[2] = { 0 };

	setup();
	sched_queue_init(&queues[0], &clients[0], SCHED_BACKGROUND, 1);
	sched_queue_init(&queues[1], &clients[1], SCHED_DEMAND, 1);
	for (int i = 0; i < 2; i++)
		sched_add(&sched, &queues[i], 0);
	/* 100 us a block for 2 seconds: two classes up take 20 ms, then it is one among two. */
	run(queues, sizes, bytes, 20000, 0, 100000);
	ck_assert_uint_ge(bytes[0] / sizes[0], 2000 / 30);
	ck_assert_uint_le(bytes[0] / sizes[0], 2000 / 18);
}
END_TEST

/* ---- shares on a device ---- */

/*
 * Two clients that keep so many ops open, on a device that does one block after the other.  An op's
 * next is sent a while after its end.  The rule for starts is the lane's, with a fixed window.
 */
struct pair {
	const char *what;
	uint64_t op_kib, block_kib;
	uint32_t depth[2], weight[2];
	double want; /* the first's share */
};

#define WINDOW KIB(1024)
#define LEAST KIB(512)
#define SENDING_NSEC 60000u

static struct party {
	struct sched_client client;
	struct sched_queue queue;
	uint32_t n_ready; /* ops that wait */
	uint64_t left;	  /* bytes of the first that have not started */
	uint64_t done_bytes;
	uint64_t sends[64]; /* when further ops come, in order */
	uint32_t sent, sends_end;
} parties[2];

static struct flight {
	struct party *party;
	uint64_t bytes;
	bool is_last; /* of its op */
	uint64_t end_nsec;
} flights[256];
static uint32_t flight_first, flight_end;
static uint64_t bytes_in_flight;

static bool start_one(const struct pair *pair, uint64_t now)
{
	struct sched_queue *queue = sched_next(&sched, now);
	struct party *party;
	struct flight *flight = &flights[flight_end % 256], *before = flight;
	uint64_t free_until = now, len, counted, room, owed;

	if (!queue)
		return false;
	party = queue == &parties[0].queue ? &parties[0] : &parties[1];
	len = party->left < KIB(pair->block_kib) ? party->left : KIB(pair->block_kib);
	counted = len < KIB(256) ? len : KIB(256);
	owed = sched_owed_bytes(&sched, queue);
	room = WINDOW > LEAST + owed ? WINDOW - owed : LEAST;
	if (bytes_in_flight && bytes_in_flight + counted > room)
		return false;
	if (flight_end != flight_first)
		before = &flights[(flight_end - 1) % 256];
	if (before != flight && before->end_nsec > now)
		free_until = before->end_nsec;
	party->left -= len;
	*flight = (struct flight){ party, len, !party->left, free_until + len }; /* 1 byte a nsec */
	flight_end++;
	bytes_in_flight += len;
	party->client.blocks_in_flight++;
	sched_charge(&sched, queue, len, now);
	if (!party->left) {
		if (--party->n_ready)
			party->left = KIB(pair->op_kib);
		else
			sched_remove(&sched, queue);
	}
	return true;
}

static void send_op(const struct pair *pair, struct party *party, uint64_t now)
{
	if (party->n_ready++ == 0)
		party->left = KIB(pair->op_kib);
	sched_add(&sched, &party->queue, now);
}

/* The next thing happens: a block is back, or an op comes. */
static uint64_t step(const struct pair *pair)
{
	struct flight *flight = flight_first != flight_end ? &flights[flight_first % 256] : NULL;
	uint64_t now = flight ? flight->end_nsec : UINT64_MAX;
	struct party *sender = NULL;

	for (int i = 0; i < 2; i++) {
		struct party *party = &parties[i];

		if (party->sent != party->sends_end && party->sends[party->sent % 64] < now) {
			sender = party;
			now = party->sends[party->sent % 64];
		}
	}
	if (sender) {
		sender->sent++;
		send_op(pair, sender, now);
		return now;
	}
	flight_first++;
	bytes_in_flight -= flight->bytes;
	flight->party->client.blocks_in_flight--;
	flight->party->client.done_nsec = now;
	flight->party->done_bytes += flight->bytes;
	if (flight->is_last)
		flight->party->sends[flight->party->sends_end++ % 64] = now + SENDING_NSEC;
	return now;
}

static const struct pair pairs[] = {
	{ "1 op of 1 MiB beside 16", 1024, 256, { 1, 16 }, { 1, 1 }, 0.5 },
	{ "1 op beside 16, blocks as large", 1024, 1024, { 1, 16 }, { 1, 1 }, 0.5 },
	{ "1 op of 8 MiB beside 16", 8192, 256, { 1, 16 }, { 1, 1 }, 0.5 },
	{ "1 op of 8 MiB beside 16, large blocks", 8192, 1024, { 1, 16 }, { 1, 1 }, 0.5 },
	{ "weights 1 to 4, both with many", 1024, 256, { 16, 16 }, { 1, 4 }, 0.2 },
	{ "weights 1 to 4, one op beside many", 1024, 256, { 1, 16 }, { 1, 4 }, 0.2 },
	{ "weights 4 to 1, one op beside many", 8192, 256, { 1, 16 }, { 4, 1 }, 0.8 },
};

START_TEST(who_keeps_one_op_open_gets_as_much_as_who_keeps_many)
{
	const struct pair *pair = &pairs[_i];
	uint64_t now = 0;
	double got;

	setup();
	memset(parties, 0, sizeof(parties));
	flight_first = flight_end = 0;
	bytes_in_flight = 0;
	for (int i = 0; i < 2; i++) {
		sched_client_init(&parties[i].client);
		sched_queue_init(&parties[i].queue, &parties[i].client, SCHED_NORMAL,
				 pair->weight[i]);
		for (uint32_t n = 0; n < pair->depth[i]; n++)
			send_op(pair, &parties[i], 0);
	}
	while (now < UINT64_C(3000000000)) {
		while (start_one(pair, now))
			;
		now = step(pair);
	}
	got = (double)parties[0].done_bytes /
	      (double)(parties[0].done_bytes + parties[1].done_bytes);
	ck_assert_msg(got > pair->want * 0.97 && got < pair->want * 1.03, "%s: %f", pair->what,
		      got);
	/* And nothing of the device was lost but the moments without a block. */
	ck_assert_uint_ge(parties[0].done_bytes + parties[1].done_bytes, now / 100 * 90);
}
END_TEST

START_TEST(who_does_not_come_back_is_owed_nothing)
{
	struct sched_queue queues[2];
	uint64_t sizes[2] = { KIB(256), KIB(256) }, bytes[2] = { 0 };

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], SCHED_NORMAL, 1);
		sched_add(&sched, &queues[i], 0);
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
	sched_add(&sched, &queues[1], SCHED_AWAY_NSEC);
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
END_TEST

static bool is_second(const struct sched_queue *queue, void *arg)
{
	return queue == arg;
}

START_TEST(a_queue_can_be_found_out_of_turn)
{
	struct sched_queue queues[2];

	setup();
	for (int i = 0; i < 2; i++) {
		sched_queue_init(&queues[i], &clients[i], SCHED_NORMAL, 1);
		sched_add(&sched, &queues[i], 0);
	}
	ck_assert_ptr_eq(sched_find(&sched, is_second, &queues[1]), &queues[1]);
	ck_assert_ptr_null(sched_find(&sched, is_second, NULL));
	sched_charge(&sched, &queues[1], KIB(4), 0);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, nothing_to_do_is_nobodys_turn);
	tcase_add_loop_test(tcase, clients_share_by_bytes_and_weight, 0, N_ROWS(shares));
	tcase_add_test(tcase, more_queues_gain_a_client_nothing);
	tcase_add_test(tcase, classes_go_in_order);
	tcase_add_test(tcase, a_head_block_that_waits_is_lifted_and_falls_back);
	tcase_add_test(tcase, a_queue_can_be_found_out_of_turn);
	tcase_add_loop_test(tcase, who_keeps_one_op_open_gets_as_much_as_who_keeps_many, 0,
			    N_ROWS(pairs));
	tcase_add_test(tcase, who_does_not_come_back_is_owed_nothing);
}

SUITE("sched", add_tests)
