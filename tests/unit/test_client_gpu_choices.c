/*
 * Which ops on GPU memory share a choice between its two ways, and the messages about it.
 */
#include "tests/unit/client_choices.h"

#include <stdio.h>

/* ---- kinds ---- */

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
}

SUITE("client_gpu_choices", add_tests)
