/*
 * Which ops on GPU memory count for the choice between its two ways.
 */
#include "tests/unit/client_choices.h"

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
	run_all(&usual, row, true, FAST); /* none is open any more */
	ck_assert(usual_has_counted());
}
END_TEST

START_TEST(the_first_copied_op_of_a_row_does_not_count)
{
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	run_all(&usual, row, true, FAST);
	run_all(&usual, row, false, SLOW);
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
	run_all(&usual, row, true, FAST);
	ck_assert(next(&longer, &row));
	ck_assert(!next(&usual, &row));
	run(&usual, row, false, SLOW);
	for (unsigned i = 0; i < 2 * GPU_CHOICE_TIMES; i++)
		run(&longer, row, false, FAST);
	ck_assert(next(&longer, &row) && row); /* they have not counted */
	run_all(&usual, row, false, SLOW);
	ck_assert(next(&usual, &row) && !row);
}
END_TEST

START_TEST(an_op_beside_another_goes_the_usual_way)
{
	struct gpu_choices_op other;
	struct gpu_choices_row *row;

	ck_assert(next(&usual, &row));
	run_all(&usual, row, true, FAST);
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
	run_all(&usual, row, true, SLOW);
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
	run_all(&usual, row, true, FAST);
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

SUITE("client_gpu_choices_counts", add_tests)
