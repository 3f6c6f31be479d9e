/*
 * Which calls are stalls.
 */
#include "daemon/base/stall.h"
#include "proto/util/clock.h"
#include "tests/unit/suite.h"

#include <sys/mman.h>
#include <time.h>

/* Sleeps for longer than a stall's minimum, or runs. */
static void take_long(bool sleeps)
{
	const struct timespec long_time = { .tv_nsec = 2 * STALL_NSEC };
	const uint64_t since = clock_nsec();

	if (sleeps)
		(void)nanosleep(&long_time, NULL);
	while (clock_nsec() - since < 2 * STALL_NSEC)
		;
}

static void fault(void)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);

	ck_assert_ptr_ne((void *)(uintptr_t)page, MAP_FAILED);
	*page = 1;
	ck_assert_int_eq(munmap((void *)(uintptr_t)page, 4096), 0);
}

static const struct {
	const char *what;
	bool sleeps, faults, has_failed, is_stall;
} calls[] = {
	{ "sleep for a page", true, true, false, true },
	{ "sleep for a page that is not there any more", true, false, true, true },
	{ "sleep for something else", true, false, false, false },
	{ "preempted", false, true, true, false },
};

START_TEST(a_long_call_is_a_stall_if_it_slept_for_a_page)
{
	uint64_t since;

	fault(); /* the functions' own first faults */
	take_long(true);
	stall_note_sleep();
	since = stall_begin();
	(void)stall_end(since - 2 * STALL_NSEC, false);
	since = stall_begin();
	if (calls[_i].faults)
		fault();
	take_long(calls[_i].sleeps);
	ck_assert_msg(stall_end(since, calls[_i].has_failed) == calls[_i].is_stall, "%s",
		      calls[_i].what);
}
END_TEST

START_TEST(sleep_and_faults_before_the_call_do_not_count)
{
	uint64_t since = stall_begin();

	ck_assert(!stall_end(since, true));
	fault();
	take_long(true);
	stall_note_sleep();
	since = stall_begin();
	take_long(false);
	ck_assert(!stall_end(since, true));
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, a_long_call_is_a_stall_if_it_slept_for_a_page, 0, N_ROWS(calls));
	tcase_add_test(tcase, sleep_and_faults_before_the_call_do_not_count);
}

SUITE("stall", add_tests)
