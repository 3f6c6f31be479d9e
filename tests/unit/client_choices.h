/*
 * For unit tests: a client's choices between the two ways of GPU memory, and ops of several kinds.  The daemon is a
 * thread of the test's.
 */
#ifndef DSAIO_TESTS_UNIT_CLIENT_CHOICES_H
#define DSAIO_TESTS_UNIT_CLIENT_CHOICES_H

#include "client/lib/memory/gpu_choices.h"
#include "proto/gpu_rate.h"
#include "tests/unit/daemon_end.h"
#include "tests/unit/suite.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define SEEN_MAX 300u
#define N_KINDS (2 * N_GPU_CLASSES) /* of ops on one store and GPU */

/* ---- a daemon ---- */

/* A GpuRates that it has received: with a rate, or a question. */
struct seen {
	bool is_question;
	uint32_t store;
	char uuid[16];
	bool is_write, is_direct;
	uint32_t len_class, error;
	uint64_t direct_rate, copied_rate;
};

static struct {
	int fd;
	pthread_t thread;
	/* Its answers to questions. */
	int error;
	bool are_copies_usual;
	unsigned n_rates;
	Wire__GpuRate rates[N_KINDS];
	/* After settle(). */
	unsigned n_seen;
	struct seen seen[SEEN_MAX];
} d;

static inline void daemon_see(const Wire__GpuRates *rates)
{
	struct seen *seen = &d.seen[d.n_seen++];

	ck_assert_uint_le(d.n_seen, SEEN_MAX);
	*seen = (struct seen){ .is_question = !rates->n_rates, .store = rates->store };
	ck_assert_uint_eq(rates->uuid.len, sizeof(seen->uuid));
	memcpy(seen->uuid, rates->uuid.data, sizeof(seen->uuid));
	if (seen->is_question)
		return;
	ck_assert_uint_eq(rates->n_rates, 1);
	seen->is_write = rates->rates[0]->is_write;
	seen->len_class = rates->rates[0]->len_class;
	seen->is_direct = rates->rates[0]->is_direct;
	seen->direct_rate = rates->rates[0]->direct_rate;
	seen->copied_rate = rates->rates[0]->copied_rate;
	seen->error = rates->rates[0]->error;
}

static inline void *daemon_main(void *arg)
{
	Wire__GpuRate *rates[N_KINDS];
	struct frame_reader reader = { 0 };
	Wire__Request *request;
	struct frame frame;

	for (unsigned i = 0; i < N_KINDS; i++)
		rates[i] = &d.rates[i];
	while ((request = daemon_end_read(&reader, d.fd, &frame))) {
		Wire__GpuRates body = WIRE__GPU_RATES__INIT;
		Wire__Reply reply = WIRE__REPLY__INIT;

		ck_assert_int_eq(request->body_case, WIRE__REQUEST__BODY_GPU_RATES);
		daemon_see(request->gpu_rates);
		reply.seq = request->seq;
		reply.error = d.error;
		body.are_copies_usual = d.are_copies_usual;
		body.rates = rates;
		body.n_rates = d.n_rates;
		if (!d.error) {
			reply.body_case = WIRE__REPLY__BODY_GPU_RATES;
			reply.gpu_rates = &body;
		}
		(void)daemon_end_reply(d.fd, &reply, -1); /* the client may have gone */
		wire__request__free_unpacked(request, NULL);
		frame_deinit(&frame);
	}
	frame_reader_deinit(&reader);
	return arg;
}

/* ---- a client ---- */

static struct dsaio_conn conn;
static struct gpu_choices choices;
static bool is_settled;

static inline void client_begin(uint64_t features, Wire__GpuWay way, bool is_direct_only)
{
	conn.facts.features = features;
	conn.facts.gpu_way = way;
	gpu_choices_deinit(&choices);
	gpu_choices_init(&choices, &conn, is_direct_only);
}

static inline void setup(void)
{
	memset(&d, 0, sizeof(d));
	d.fd = daemon_end_connect(&conn);
	conn.facts.features = RING_FEATURE_DEVICE | RING_FEATURE_GPU_RATES;
	conn.facts.gpu_way = WIRE__GPU_WAY__GPU_AUTO;
	gpu_choices_init(&choices, &conn, false);
	is_settled = false;
	ck_assert_int_eq(pthread_create(&d.thread, NULL, daemon_main, NULL), 0);
}

/* The daemon has seen all that was sent to it. */
static inline void settle(void)
{
	if (is_settled)
		return;
	is_settled = true;
	(void)shutdown(conn.fd, SHUT_WR);
	ck_assert_int_eq(pthread_join(d.thread, NULL), 0);
}

static inline void teardown(void)
{
	settle();
	gpu_choices_deinit(&choices);
	conn_calls_deinit(&conn);
	(void)close(conn.fd);
	(void)close(d.fd);
}

/* ---- ops ---- */

struct op_kind {
	const char *what;
	int gpu;
	struct gpu_choices_kind kind;
};

static inline struct gpu_region_gpu gpu_of(int number)
{
	struct gpu_region_gpu gpu = { .number = number };

	memset(gpu.uuid.bytes, 'a' + number, sizeof(gpu.uuid.bytes));
	return gpu;
}

/* The way of the next op: directly?  *ret_why: is there a reason that has the text? */
static inline bool next_why(const struct op_kind *k, struct gpu_choices_row **ret_row,
			    const char *text, bool *ret_why)
{
	const struct gpu_region_gpu gpu = gpu_of(k->gpu);
	const char *why = NULL;
	bool is_direct = gpu_choices_next(&choices, &k->kind, &gpu, ret_row, &why);

	*ret_why = why && strstr(why, text);
	ck_assert_msg(is_direct == !why, "%s: %s", k->what, why ? why : "no reason");
	return is_direct;
}

static inline bool next(const struct op_kind *k, struct gpu_choices_row **ret_row)
{
	bool has_why;

	return next_why(k, ret_row, "", &has_why);
}

static inline bool is_copied(const struct op_kind *k)
{
	const char *why = NULL;
	bool is = gpu_choices_is_copied(&choices, &k->kind, k->gpu, &why);

	ck_assert(is == (why && (strstr(why, "copies are faster: ") ||
				 strstr(why, "two ops failed directly: "))));
	return is;
}

/* Bytes of ops that end at once: so far apart that the time of an op decides nothing. */
enum { SLOW = 1, FAST = 1 << 30 };

/* An op alone, whose end was noticed at once. */
static inline void run(const struct op_kind *k, struct gpu_choices_row *row, bool is_direct,
		       int64_t result)
{
	struct gpu_choices_op op;

	gpu_choices_begin(&choices, row, false, &op);
	gpu_choices_end(&choices, &op, &k->kind, is_direct, true, result);
}

/* As many like ops as a way needs to have counted. */
static inline void run_all(const struct op_kind *k, struct gpu_choices_row *row, bool is_direct,
			   int64_t result)
{
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(k, row, is_direct, result);
}

/* Ops until the choice is made. */
static inline void decide(const struct op_kind *k, bool is_direct_faster)
{
	struct gpu_choices_row *row;
	bool is_direct = next(k, &row);
	unsigned n;

	for (n = 0; row; n++) {
		run(k, row, is_direct, is_direct == is_direct_faster ? FAST : SLOW);
		is_direct = next(k, &row);
	}
	/* The first copied one of a row does not count. */
	ck_assert_msg(n == 2 * GPU_CHOICE_TIMES || n == 2 * GPU_CHOICE_TIMES + 1, "%s: %u", k->what,
		      n);
	ck_assert(is_direct == is_direct_faster);
	ck_assert(is_copied(k) == !is_direct_faster);
}

static inline void check_unknown(const struct op_kind *k)
{
	struct gpu_choices_row *row;

	ck_assert_msg(!is_copied(k), "%s", k->what);
	ck_assert_msg(next(k, &row) && row, "%s", k->what);
}

static const struct op_kind usual = { "a read", 0, { .store = 1, .len = 4096 } };

/* Each differs from it in one thing. */
static const struct op_kind others[] = {
	{ "another store", 0, { .store = 2, .len = 4096 } },
	{ "another GPU", 1, { .store = 1, .len = 4096 } },
	{ "a write", 0, { .store = 1, .len = 4096, .is_write = true } },
	{ "a longer op", 0, { .store = 1, .len = 2 * MIB } },
	{ "a still longer op", 0, { .store = 1, .len = 17 * MIB } },
};

static inline void check_seen(unsigned i, const struct op_kind *k, bool is_question)
{
	const struct gpu_region_gpu gpu = gpu_of(k->gpu);
	const struct seen *seen = &d.seen[i];

	ck_assert_uint_lt(i, d.n_seen);
	ck_assert_msg(seen->is_question == is_question, "%s", k->what);
	ck_assert_uint_eq(seen->store, k->kind.store);
	ck_assert_mem_eq(seen->uuid, gpu.uuid.bytes, sizeof(seen->uuid));
	if (is_question)
		return;
	ck_assert_int_eq(seen->is_write, k->kind.is_write);
	ck_assert_uint_eq(seen->len_class, gpu_class_of(k->kind.len));
}

#endif
