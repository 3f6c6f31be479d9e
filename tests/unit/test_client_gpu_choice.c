/*
 * The choice between the two ways of ops on GPU memory, from times alone.
 */
#include "client/lib/memory/gpu_choice.h"

#include "proto/gpu_rate.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define SEC UINT64_C(1000000000)

static struct gpu_choice choice;

static void setup(void)
{
	memset(&choice, 0, sizeof(choice));
}

static const struct {
	uint64_t len;
	enum gpu_class class;
} classes[] = {
	{ 1, GPU_CLASS_1M },
	{ MIB, GPU_CLASS_1M },
	{ MIB + 1, GPU_CLASS_16M },
	{ 16 * MIB, GPU_CLASS_16M },
	{ 16 * MIB + 1, GPU_CLASS_LONGER },
	{ UINT64_MAX, GPU_CLASS_LONGER },
};

START_TEST(lengths_have_classes)
{
	ck_assert_int_eq(gpu_class_of(classes[_i].len), classes[_i].class);
}
END_TEST

/* Rates in MiB per second. */
static const struct {
	const char *what;
	uint64_t direct[4], copied[4];
	bool is_direct;
	uint64_t direct_median, copied_median;
} medians[] = {
	{ "direct is faster", { 10, 12, 14, 16 }, { 7, 7, 7, 7 }, true, 13, 7 },
	{ "a copy is faster", { 7, 7, 7, 7 }, { 16, 10, 14, 12 }, false, 7, 13 },
	{ "the same", { 9, 9, 9, 9 }, { 9, 9, 9, 9 }, true, 9, 9 },
	{ "almost the same", { 95, 95, 95, 95 }, { 100, 100, 100, 100 }, true, 95, 100 },
	{ "not quite", { 94, 94, 94, 94 }, { 100, 100, 100, 100 }, false, 94, 100 },
	{ "the first direct op is slow", { 1, 20, 20, 20 }, { 10, 10, 10, 10 }, true, 20, 10 },
	{ "one copy is fast", { 20, 20, 20, 20 }, { 10, 999, 10, 10 }, true, 20, 10 },
};

static bool add(bool is_direct, uint64_t mib_per_sec)
{
	return gpu_choice_add(&choice, is_direct, mib_per_sec * MIB, SEC);
}

START_TEST(the_other_way_is_tried_when_the_usual_one_has_counted)
{
	const bool usual = _i;

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned n = 0; n < 50; n++)
			ck_assert(gpu_choice_next(&choice, usual, n & 1) == usual);
		(void)add(usual, 1);
	}
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(gpu_choice_next(&choice, usual, false) == usual);
		ck_assert(gpu_choice_next(&choice, usual, true) != usual);
		ck_assert(add(!usual, 1) == (i == 3));
	}
	ck_assert(choice.is_made);
}
END_TEST

START_TEST(a_way_whose_ops_do_not_count_is_given_up)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 4; i++)
		(void)add(true, 1);
	for (unsigned i = 0; i < 100; i++)
		n += !gpu_choice_next(&choice, true, true);
	ck_assert_uint_eq(n, GPU_CHOICE_TRIES);
}
END_TEST

START_TEST(a_way_that_fails_twice_is_the_slower_one)
{
	const bool failing = _i;

	(void)add(failing, 9999);
	ck_assert(!gpu_choice_fail(&choice, failing, EIO));
	(void)add(failing, 9999); /* it works again */
	ck_assert(!gpu_choice_fail(&choice, failing, EIO));
	ck_assert_int_eq(choice.error, 0);
	ck_assert(!gpu_choice_fail(&choice, failing, EPERM));
	ck_assert(gpu_choice_next(&choice, failing, false) != failing);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(add(!failing, 1) == (i == 3));
	ck_assert(choice.is_made && choice.is_direct != failing);
	ck_assert_int_eq(choice.error, EPERM);
}
END_TEST

START_TEST(two_ways_that_fail_tell_nothing)
{
	for (unsigned i = 0; i < 2; i++)
		ck_assert(!gpu_choice_fail(&choice, true, EIO));
	for (unsigned i = 0; i < 2; i++)
		ck_assert(!gpu_choice_fail(&choice, false, EIO));
	ck_assert(!choice.is_made && !choice.n[true] && !choice.n[false] && !choice.error);
	ck_assert(gpu_choice_next(&choice, true, true));
}
END_TEST

START_TEST(the_better_median_stays)
{
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(!add(true, medians[_i].direct[i]));
		ck_assert(add(false, medians[_i].copied[i]) == (i == 3));
	}
	ck_assert_msg(choice.is_made && choice.is_direct == medians[_i].is_direct, "%s",
		      medians[_i].what);
	ck_assert_uint_eq(choice.rate[true], medians[_i].direct_median * MIB);
	ck_assert_uint_eq(choice.rate[false], medians[_i].copied_median * MIB);
	for (unsigned i = 0; i < 9; i++) {
		ck_assert(gpu_choice_next(&choice, true, true) == medians[_i].is_direct);
		ck_assert(!add(!medians[_i].is_direct, 9999)); /* for good */
	}
}
END_TEST

/* Runs an op as the owner does: the way, and the time that it takes on a store where direct ops are twice as fast. */
static bool run(uint64_t len)
{
	bool is_direct = gpu_choice_next(&choice, true, gpu_choice_is_like(&choice, len));
	const uint64_t nsec = (100000 + len / 2) * (is_direct ? 1 : 2);

	if (gpu_choice_take_len(&choice, len))
		(void)gpu_choice_add(&choice, is_direct, len, nsec);
	return is_direct;
}

START_TEST(lengths_of_ops_do_not_decide)
{
	uint32_t random = 1;

	for (unsigned i = 0; i < 10000; i++) {
		random = random * 1664525u + 1013904223u;
		(void)run(MIB >> (random >> 29)); /* 8 KiB to 1 MiB */
	}
	ck_assert(!choice.is_made || choice.is_direct);
	/* Where direct ops are the short ones, and copied ones long. */
	setup();
	for (unsigned i = 0; i < 1000; i++)
		(void)run(choice.n[true] < 4 ? 4096 : MIB);
	ck_assert(!choice.is_made);
	ck_assert_uint_eq(choice.len, MIB); /* which became the usual length */
}
END_TEST

START_TEST(ops_of_one_length_decide_whatever_came_before)
{
	(void)run(8);
	(void)run(77);
	(void)run(4096);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(run(MIB));
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(!run(i & 1 ? MIB - MIB / 5 : MIB));
		ck_assert(run(4096)); /* unlike: the usual way, and counts no more */
	}
	ck_assert(choice.is_made && choice.is_direct);
}
END_TEST

START_TEST(a_way_that_fails_is_left_whatever_the_lengths)
{
	ck_assert(run(4096));
	ck_assert(!gpu_choice_fail(&choice, true, EIO));
	ck_assert(!gpu_choice_fail(&choice, true, EIO));
	for (unsigned i = 0; i < 4; i++)
		ck_assert(!run(MIB));
	ck_assert(choice.is_made && !choice.is_direct);
}
END_TEST

START_TEST(one_way_alone_decides_nothing)
{
	for (unsigned i = 0; i < 20; i++)
		ck_assert(!add(true, i + 1));
	ck_assert(!choice.is_made);
	for (unsigned i = 0; i < 3; i++)
		ck_assert(!add(false, 1));
	ck_assert(add(false, 1));
	ck_assert_uint_eq(choice.rate[true], 5 * MIB / 2); /* the first four count */
}
END_TEST

START_TEST(ops_without_bytes_or_time_do_no_harm)
{
	for (unsigned i = 0; i < 9; i++)
		ck_assert(!gpu_choice_add(&choice, i & 1, 0, SEC));
	for (unsigned i = 0; i < 4; i++) {
		(void)gpu_choice_add(&choice, true, UINT64_MAX, 0);
		(void)gpu_choice_add(&choice, false, 1, UINT64_MAX);
	}
	ck_assert(choice.is_made && choice.is_direct);
	ck_assert_uint_eq(choice.rate[true], GPU_RATE_MAX);
	ck_assert_uint_eq(choice.rate[false], 1);
}
END_TEST

START_TEST(the_choice_of_another_client_is_taken)
{
	(void)add(true, 100);
	gpu_choice_set(&choice, false, 3, 4, EPERM);
	for (unsigned i = 0; i < 9; i++)
		ck_assert(!gpu_choice_next(&choice, true, true));
	ck_assert_uint_eq(choice.rate[true], 3);
	ck_assert_uint_eq(choice.rate[false], 4);
	ck_assert_int_eq(choice.error, EPERM);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, lengths_have_classes, 0, N_ROWS(classes));
	tcase_add_loop_test(tcase, the_other_way_is_tried_when_the_usual_one_has_counted, 0, 2);
	tcase_add_test(tcase, a_way_whose_ops_do_not_count_is_given_up);
	tcase_add_loop_test(tcase, a_way_that_fails_twice_is_the_slower_one, 0, 2);
	tcase_add_test(tcase, two_ways_that_fail_tell_nothing);
	tcase_add_loop_test(tcase, the_better_median_stays, 0, N_ROWS(medians));
	tcase_add_test(tcase, lengths_of_ops_do_not_decide);
	tcase_add_test(tcase, ops_of_one_length_decide_whatever_came_before);
	tcase_add_test(tcase, a_way_that_fails_is_left_whatever_the_lengths);
	tcase_add_test(tcase, one_way_alone_decides_nothing);
	tcase_add_test(tcase, ops_without_bytes_or_time_do_no_harm);
	tcase_add_test(tcase, the_choice_of_another_client_is_taken);
}

SUITE("client_gpu_choice", add_tests)
