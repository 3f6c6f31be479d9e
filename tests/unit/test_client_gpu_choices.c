/*
 * Which ops on GPU memory share a choice between its two ways, which of them count for it, and the
 * messages about it.  The daemon is a thread of the test's.
 */
#include "client/lib/memory/gpu_choices.h"

#include "proto/gpu_rate.h"
#include "tests/unit/daemon_end.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
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

static void daemon_see(const Wire__GpuRates *rates)
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

static void *daemon_main(void *arg)
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

static void client_begin(uint64_t features, Wire__GpuWay way, bool is_direct_only)
{
	conn.facts.features = features;
	conn.facts.gpu_way = way;
	gpu_choices_deinit(&choices);
	gpu_choices_init(&choices, &conn, is_direct_only);
}

static void setup(void)
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
static void settle(void)
{
	if (is_settled)
		return;
	is_settled = true;
	(void)shutdown(conn.fd, SHUT_WR);
	ck_assert_int_eq(pthread_join(d.thread, NULL), 0);
}

static void teardown(void)
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

static struct gpu_region_gpu gpu_of(int number)
{
	struct gpu_region_gpu gpu = { .number = number };

	memset(gpu.uuid.bytes, 'a' + number, sizeof(gpu.uuid.bytes));
	return gpu;
}

/* The way of the next op: directly?  *ret_why: is there a reason that has the text? */
static bool next_why(const struct op_kind *k, struct gpu_choices_row **ret_row, const char *text,
		     bool *ret_why)
{
	const struct gpu_region_gpu gpu = gpu_of(k->gpu);
	const char *why = NULL;
	bool is_direct = gpu_choices_next(&choices, &k->kind, &gpu, ret_row, &why);

	*ret_why = why && strstr(why, text);
	ck_assert_msg(is_direct == !why, "%s: %s", k->what, why ? why : "no reason");
	return is_direct;
}

static bool next(const struct op_kind *k, struct gpu_choices_row **ret_row)
{
	bool has_why;

	return next_why(k, ret_row, "", &has_why);
}

static bool is_copied(const struct op_kind *k)
{
	const char *why = NULL;
	bool is = gpu_choices_is_copied(&choices, &k->kind, k->gpu, &why);

	ck_assert(is == (why && (strstr(why, "copies are faster: ") ||
				 strstr(why, "two ops failed directly: "))));
	return is;
}

/* Bytes of an op that ends at once, and of one that takes long beside it: no clock decides. */
enum { SLOW = 1, FAST = 1 << 30 };

/* An op alone, whose end was noticed at once. */
static void run(const struct op_kind *k, struct gpu_choices_row *row, bool is_direct,
		int64_t result)
{
	struct gpu_choices_op op;

	gpu_choices_begin(&choices, row, false, &op);
	gpu_choices_end(&choices, &op, &k->kind, is_direct, true, result);
}

/* Ops until the choice is made. */
static void decide(const struct op_kind *k, bool is_direct_faster)
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

static void check_unknown(const struct op_kind *k)
{
	struct gpu_choices_row *row;

	ck_assert_msg(!is_copied(k), "%s", k->what);
	ck_assert_msg(next(k, &row) && row, "%s", k->what);
}

/* ---- kinds ---- */

static const struct op_kind usual = { "a read", 0, { .store = 1, .len = 4096 } };

/* Each differs from it in one thing. */
static const struct op_kind others[] = {
	{ "another store", 0, { .store = 2, .len = 4096 } },
	{ "another GPU", 1, { .store = 1, .len = 4096 } },
	{ "a write", 0, { .store = 1, .len = 4096, .is_write = true } },
	{ "a longer op", 0, { .store = 1, .len = 2 * MIB } },
	{ "a still longer op", 0, { .store = 1, .len = 17 * MIB } },
};

START_TEST(each_kind_of_op_has_a_choice_of_its_own)
{
	decide(&usual, false);
	check_unknown(&others[_i]);
	ck_assert(is_copied(&usual));
	decide(&others[_i], true);
	ck_assert(is_copied(&usual));
}
END_TEST

START_TEST(ops_of_one_kind_share_a_choice)
{
	const struct op_kind same = { "a length of the same class", 0, { .store = 1, .len = MIB } };

	decide(&usual, false);
	ck_assert(is_copied(&same));
}
END_TEST

START_TEST(no_row_is_made_by_the_look_whether_ops_are_copied)
{
	ck_assert(!is_copied(&usual));
	ck_assert_uint_eq(choices.n_rows, 0);
}
END_TEST

START_TEST(ops_on_a_store_too_many_go_directly)
{
	struct op_kind k = usual;
	struct gpu_choices_row *row;

	d.are_copies_usual = true;
	for (k.kind.store = 1; k.kind.store <= GPU_CHOICES_ROWS_MAX; k.kind.store++)
		ck_assert(!next(&k, &row) && row);
	ck_assert(next(&k, &row) && !row);
	run(&k, NULL, true, FAST);
	ck_assert(!is_copied(&k));
	settle();
	ck_assert_uint_eq(d.n_seen, GPU_CHOICES_ROWS_MAX);
}
END_TEST

/* ---- the daemon's memory ---- */

static void check_seen(unsigned i, const struct op_kind *k, bool is_question)
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

START_TEST(the_daemon_is_asked_once_for_a_store_and_a_gpu_and_told_each_choice)
{
	const struct op_kind *k = &others[_i];
	const bool is_direct = _i & 1;
	const bool has_own_row = k->gpu != usual.gpu || k->kind.store != usual.kind.store;

	check_unknown(&usual);
	decide(k, is_direct);
	settle();
	ck_assert_uint_eq(d.n_seen, 2 + has_own_row);
	check_seen(0, &usual, true);
	if (has_own_row)
		check_seen(1, k, true);
	check_seen(1 + has_own_row, k, false);
	ck_assert_int_eq(d.seen[1 + has_own_row].is_direct, is_direct);
	ck_assert((d.seen[1 + has_own_row].direct_rate > d.seen[1 + has_own_row].copied_rate) ==
		  is_direct);
}
END_TEST

static struct op_kind kind_of(int i)
{
	static const uint64_t lens[N_GPU_CLASSES] = { 4096, 2 * MIB, 17 * MIB };

	return (struct op_kind){
		"a kind",
		0,
		{ .store = 1, .is_write = i / N_GPU_CLASSES, .len = lens[i % N_GPU_CLASSES] }
	};
}

/* The daemon knows such rates of that kind. */
static void know(int kind, bool is_direct, uint64_t direct_gib, uint64_t copied_gib)
{
	Wire__GpuRate *rate = &d.rates[d.n_rates++];

	wire__gpu_rate__init(rate);
	rate->is_write = kind / N_GPU_CLASSES;
	rate->len_class = (uint32_t)kind % N_GPU_CLASSES;
	rate->is_direct = is_direct;
	rate->direct_rate = direct_gib << 30;
	rate->copied_rate = copied_gib << 30;
}

/* The choice is made for copies, and that is the reason. */
static void check_copied(int kind, const char *text)
{
	const struct op_kind k = kind_of(kind);
	struct gpu_choices_row *row;
	bool has_why;

	ck_assert(!next_why(&k, &row, text, &has_why));
	ck_assert(has_why && !row);
	ck_assert(is_copied(&k));
}

START_TEST(a_choice_of_the_daemons_is_taken_for_its_kind_alone)
{
	know(_i, false, 3, 4);
	for (int i = 0; i < N_KINDS; i++) {
		const struct op_kind k = kind_of(i);

		if (i == _i)
			check_copied(i, "copies are faster: 4 GiB/s, and 3 GiB/s directly");
		else
			check_unknown(&k);
	}
}
END_TEST

START_TEST(each_kind_of_op_has_a_reason_of_its_own)
{
	char text[32];

	for (int i = 0; i < N_KINDS; i++)
		know(i, false, 1, (uint64_t)i + 2);
	for (int i = 0; i < 2 * N_KINDS; i++) {
		(void)snprintf(text, sizeof(text), "copies are faster: %d GiB/s", i % N_KINDS + 2);
		check_copied(i % N_KINDS, text);
	}
}
END_TEST

START_TEST(a_direct_way_of_the_daemons_is_taken_too)
{
	struct gpu_choices_row *row;

	d.are_copies_usual = true;
	know(0, true, 1, 1);
	ck_assert(next(&usual, &row) && !row);
	ck_assert(!is_copied(&usual));
}
END_TEST

START_TEST(a_class_that_no_one_knows_is_left_out)
{
	struct gpu_choices_row *row;

	know(0, false, 1, 1);
	d.rates[0].len_class = N_GPU_CLASSES;
	for (int i = 0; i < N_ROWS(others); i++)
		check_unknown(&others[i]);
	ck_assert(next(&usual, &row) && row);
}
END_TEST

START_TEST(copies_are_the_usual_way_where_the_daemon_says_so)
{
	struct gpu_choices_row *row;
	bool has_why;

	d.are_copies_usual = true;
	ck_assert(!next_why(&usual, &row, "not measured yet", &has_why));
	ck_assert(has_why && row);
	ck_assert(!is_copied(&usual)); /* not for good */
	decide(&usual, true);
}
END_TEST

START_TEST(a_daemon_that_refuses_knows_nothing)
{
	d.error = -EOPNOTSUPP;
	d.are_copies_usual = true;
	for (unsigned i = 0; i < 3; i++)
		check_unknown(&usual);
	settle();
	ck_assert_uint_eq(d.n_seen, 1);
}
END_TEST

START_TEST(a_daemon_that_is_gone_knows_nothing)
{
	(void)shutdown(d.fd, SHUT_RDWR);
	check_unknown(&usual);
}
END_TEST

START_TEST(an_older_daemon_is_neither_asked_nor_told)
{
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_AUTO, false);
	d.are_copies_usual = true;
	decide(&usual, false);
	settle();
	ck_assert_uint_eq(d.n_seen, 0);
}
END_TEST

static const struct {
	const char *what;
	uint64_t features;
	Wire__GpuWay way;
	bool is_direct_only, has_choice;
} clients[] = {
	{ "both ways", RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_AUTO, false, true },
	{ "the program demands one", RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_AUTO, true, false },
	{ "the daemon demands one", RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_DIRECT, false, false },
	{ "the daemon has one", RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_COPY, false, false },
	{ "a daemon without imports", RING_FEATURE_GPU_RATES, WIRE__GPU_WAY__GPU_AUTO, false,
	  false },
};

START_TEST(there_is_a_choice_only_between_two_ways)
{
	client_begin(clients[_i].features, clients[_i].way, clients[_i].is_direct_only);
	ck_assert_msg(choices.has_choice == clients[_i].has_choice, "%s", clients[_i].what);
}
END_TEST

/* ---- which ops count ---- */

/* The usual way has counted, so the next op tries the other one. */
static bool usual_has_counted(void)
{
	struct gpu_choices_row *row;

	return !next(&usual, &row);
}

enum { COUNTS, PART, LATE, EMPTY, OVERLAPS_OLD, OVERLAPS_NEW, OVERLAPS_PAST };

static const struct {
	const char *what;
	int how;
} ops[] = {
	{ "an op alone", COUNTS },
	{ "a part of an op", PART },
	{ "an end that was noticed late", LATE },
	{ "a cancelled op", EMPTY },
	{ "an op that another was open at", OVERLAPS_OLD },
	{ "an op during which another began", OVERLAPS_NEW },
	{ "an op during which another began and ended", OVERLAPS_PAST },
};

START_TEST(only_an_op_whose_time_is_its_own_counts)
{
	const int how = ops[_i].how;
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < 2 * GPU_CHOICE_TIMES; i++) {
		struct gpu_choices_op op, other;

		if (how == OVERLAPS_OLD)
			gpu_choices_begin(&choices, NULL, false, &other);
		gpu_choices_begin(&choices, row, how == PART, &op);
		if (how == OVERLAPS_NEW || how == OVERLAPS_PAST)
			gpu_choices_begin(&choices, NULL, false, &other);
		if (how == OVERLAPS_PAST)
			gpu_choices_end(&choices, &other, &usual.kind, true, true, 1);
		gpu_choices_end(&choices, &op, &usual.kind, true, how != LATE,
				how == EMPTY ? 0 : FAST);
		if (how == OVERLAPS_OLD || how == OVERLAPS_NEW)
			gpu_choices_end(&choices, &other, &usual.kind, true, true, 1);
	}
	ck_assert_msg(usual_has_counted() == (how == COUNTS), "%s", ops[_i].what);
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++) /* none is open any more */
		run(&usual, row, true, FAST);
	ck_assert(usual_has_counted());
}
END_TEST

START_TEST(the_first_copied_op_of_a_row_does_not_count)
{
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, true, FAST);
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, false, SLOW);
	ck_assert(!next(&usual, &row) && row);
	run(&usual, row, false, SLOW);
	ck_assert(next(&usual, &row) && !row);
	/* Copies are set up then, whatever the kind of op. */
	ck_assert(next(&others[2], &row) && row);
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++) {
		run(&others[2], row, true, FAST);
		run(&others[2], row, false, SLOW);
	}
	ck_assert(next(&others[2], &row) && !row);
}
END_TEST

START_TEST(an_unlike_op_goes_the_usual_way_while_the_other_is_tried)
{
	struct op_kind longer = usual;
	struct gpu_choices_row *row;

	longer.kind.len = 2 * usual.kind.len;
	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, true, FAST);
	ck_assert(next(&longer, &row));
	ck_assert(!next(&usual, &row));
	run(&usual, row, false, SLOW);
	for (unsigned i = 0; i < 2 * GPU_CHOICE_TIMES; i++)
		run(&longer, row, false, FAST);
	ck_assert(next(&longer, &row) && row); /* they have not counted */
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, false, SLOW);
	ck_assert(next(&usual, &row) && !row);
}
END_TEST

START_TEST(an_op_beside_another_goes_the_usual_way)
{
	struct gpu_choices_op other;
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, true, FAST);
	gpu_choices_begin(&choices, NULL, false, &other);
	ck_assert(next(&usual, &row));
	gpu_choices_end(&choices, &other, &usual.kind, true, true, 1);
	ck_assert(!next(&usual, &row));
}
END_TEST

static const struct {
	int error;
	bool is_ways_fault;
} failures[] = {
	{ EIO, true },	     { EFAULT, true },	   { EOPNOTSUPP, true }, { ECONNRESET, false },
	{ ENOTCONN, false }, { ETIMEDOUT, false }, { ECANCELED, false }, { ENOSPC, false },
	{ EDQUOT, false },   { EFBIG, false },
};

START_TEST(a_way_is_left_for_failures_of_its_own)
{
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_FAILURES; i++)
		run(&usual, row, true, -failures[_i].error);
	ck_assert_msg(next(&usual, &row) == !failures[_i].is_ways_fault, "%s",
		      strerror(failures[_i].error));
}
END_TEST

START_TEST(a_failure_counts_beside_other_ops_and_if_noticed_late)
{
	struct gpu_choices_op op, other;
	struct gpu_choices_row *row;
	bool has_why;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_FAILURES; i++) {
		gpu_choices_begin(&choices, NULL, false, &other);
		gpu_choices_begin(&choices, row, true, &op);
		gpu_choices_end(&choices, &op, &usual.kind, true, false, -EIO);
		gpu_choices_end(&choices, &other, &usual.kind, true, true, 1);
	}
	ck_assert(!next_why(&usual, &row, "two ops failed directly", &has_why) && has_why);
	ck_assert_ptr_nonnull(row);
	for (unsigned i = 0; i < GPU_CHOICE_TIMES + 1; i++)
		run(&usual, row, false, SLOW);
	ck_assert(!next_why(&usual, &row, "two ops failed directly: Input/output error", &has_why));
	ck_assert(has_why && is_copied(&usual));
	settle();
	ck_assert_uint_eq(d.n_seen, 2);
	ck_assert(!d.seen[1].is_direct);
	ck_assert_uint_eq(d.seen[1].error, EIO);
}
END_TEST

START_TEST(a_choice_that_a_failure_makes_is_told_to_the_daemon)
{
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, true, SLOW);
	for (unsigned i = 0; i < GPU_CHOICE_FAILURES; i++)
		run(&usual, row, false, -EIO);
	ck_assert(next(&usual, &row) && !row);
	settle();
	ck_assert_uint_eq(d.n_seen, 2);
	check_seen(1, &usual, false);
	ck_assert(d.seen[1].is_direct);
}
END_TEST

START_TEST(a_cancelled_op_of_another_length_changes_nothing)
{
	struct op_kind longer = usual;
	struct gpu_choices_row *row;

	longer.kind.len = 2 * usual.kind.len;
	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		run(&usual, row, true, FAST);
	run(&longer, row, true, 0);
	ck_assert(usual_has_counted());
}
END_TEST

START_TEST(an_op_without_a_row_tells_nothing)
{
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	for (unsigned i = 0; i < 2 * GPU_CHOICE_TIMES; i++)
		run(&usual, NULL, true, i & 1 ? -EIO : FAST);
	ck_assert(next(&usual, &row) && row);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, each_kind_of_op_has_a_choice_of_its_own, 0, N_ROWS(others));
	tcase_add_test(tcase, ops_of_one_kind_share_a_choice);
	tcase_add_test(tcase, no_row_is_made_by_the_look_whether_ops_are_copied);
	tcase_add_test(tcase, ops_on_a_store_too_many_go_directly);
	tcase_add_loop_test(tcase,
			    the_daemon_is_asked_once_for_a_store_and_a_gpu_and_told_each_choice, 0,
			    N_ROWS(others));
	tcase_add_loop_test(tcase, a_choice_of_the_daemons_is_taken_for_its_kind_alone, 0, N_KINDS);
	tcase_add_test(tcase, each_kind_of_op_has_a_reason_of_its_own);
	tcase_add_test(tcase, a_direct_way_of_the_daemons_is_taken_too);
	tcase_add_test(tcase, a_class_that_no_one_knows_is_left_out);
	tcase_add_test(tcase, copies_are_the_usual_way_where_the_daemon_says_so);
	tcase_add_test(tcase, a_daemon_that_refuses_knows_nothing);
	tcase_add_test(tcase, a_daemon_that_is_gone_knows_nothing);
	tcase_add_test(tcase, an_older_daemon_is_neither_asked_nor_told);
	tcase_add_loop_test(tcase, there_is_a_choice_only_between_two_ways, 0, N_ROWS(clients));
	tcase_add_loop_test(tcase, only_an_op_whose_time_is_its_own_counts, 0, N_ROWS(ops));
	tcase_add_test(tcase, the_first_copied_op_of_a_row_does_not_count);
	tcase_add_test(tcase, an_unlike_op_goes_the_usual_way_while_the_other_is_tried);
	tcase_add_test(tcase, an_op_beside_another_goes_the_usual_way);
	tcase_add_loop_test(tcase, a_way_is_left_for_failures_of_its_own, 0, N_ROWS(failures));
	tcase_add_test(tcase, a_failure_counts_beside_other_ops_and_if_noticed_late);
	tcase_add_test(tcase, a_choice_that_a_failure_makes_is_told_to_the_daemon);
	tcase_add_test(tcase, a_cancelled_op_of_another_length_changes_nothing);
	tcase_add_test(tcase, an_op_without_a_row_tells_nothing);
}

SUITE("client_gpu_choices", add_tests)
