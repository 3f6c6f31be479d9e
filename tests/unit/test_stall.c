/*
 * Which calls are stalls, and which memory and users are banned for them.
 */
#include "daemon/base/stall.h"
#include "proto/util/clock.h"
#include "tests/unit/suite.h"

#include <sys/mman.h>
#include <time.h>

#define SEC UINT64_C(1000000000)

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

/* From now on calls are watched, because one was long. */
static void watch(void)
{
	ck_assert(!stall_end(stall_begin() - 2 * STALL_NSEC, true));
}

TEST_TABLE(a_long_call_is_a_stall_if_it_slept_for_a_page, calls)
{
	bool is_as_expected = false;
	uint64_t since;

	fault(); /* the functions' own first faults */
	take_long(true);
	watch();
	/* Memory of a sanitizer's own may fault meanwhile. */
	for (int i = 0; i < 20 && !is_as_expected; i++) {
		since = stall_begin();
		if (calls[_i].faults)
			fault();
		take_long(calls[_i].sleeps);
		is_as_expected = stall_end(since, calls[_i].has_failed) == calls[_i].is_stall;
	}
	ck_assert_msg(is_as_expected, "%s", calls[_i].what);
}

TEST(the_first_long_call_is_no_stall)
{
	for (int i = 0; i < 2; i++) {
		const uint64_t since = stall_begin();

		fault();
		take_long(true);
		ck_assert_int_eq(stall_end(since, false), i);
	}
}

/* A user was blamed for the sleep and the faults of others' short calls. */
TEST(sleep_and_faults_before_the_call_do_not_count)
{
	const struct timespec short_time = { .tv_nsec = 50000 };
	bool is_stall = true;
	uint64_t since;

	fault();
	take_long(false);
	watch();
	/* The call itself may sleep, where the host takes its pages. */
	for (int i = 0; i < 20 && is_stall; i++) {
		since = stall_begin();
		fault();
		(void)nanosleep(&short_time, NULL);
		(void)stall_end(since, false); /* on a busy machine it may have been long */
		fault();
		(void)nanosleep(&short_time, NULL);
		since = stall_begin();
		take_long(false);
		is_stall = stall_end(since, true);
	}
	ck_assert(!is_stall);
}

static const struct {
	const char *what;
	bool sleeps, runs, is_stall;
} steps[] = {
	{ "sleep", true, false, true },
	{ "compute", false, true, true },
	{ "preempted", false, false, false },
};

TEST_TABLE(a_long_step_is_a_stall_if_it_slept_or_computed, steps)
{
	const struct timespec long_time = { .tv_nsec = STALL_STEP_NSEC };
	bool is_as_expected = false;

	/* The step itself may sleep, where the host takes its pages. */
	for (int i = 0; i < 20 && !is_as_expected; i++) {
		struct stall_step step;
		uint64_t cpu_nsec;

		stall_step_begin(&step);
		if (steps[_i].sleeps)
			(void)nanosleep(&long_time, NULL);
		cpu_nsec = clock_thread_nsec();
		while (steps[_i].runs && clock_thread_nsec() - cpu_nsec < 2 * STALL_STEP_NSEC)
			;
		step.since_nsec -= 2 * STALL_STEP_NSEC;
		is_as_expected = (stall_step_end(&step) >= 2 * STALL_STEP_NSEC) ==
				 steps[_i].is_stall;
	}
	ck_assert_msg(is_as_expected, "%s", steps[_i].what);
}

TEST(a_short_step_is_no_stall)
{
	struct stall_step step;
	uint64_t nsec = 1;

	for (int i = 0; i < 20 && nsec; i++) { /* on a busy machine it may be long */
		stall_step_begin(&step);
		nsec = stall_step_end(&step);
	}
	ck_assert_uint_eq(nsec, 0);
}

/* Returns the length of the ban that some stalls in a row begin, in seconds. */
static unsigned ban(struct stalls *stalls, uint64_t now_nsec)
{
	for (unsigned i = 1; i < STALLS_MAX; i++)
		ck_assert(!stalls_note(stalls, now_nsec));
	ck_assert(!stalls_is_banned(stalls, now_nsec));
	ck_assert(stalls_note(stalls, now_nsec));
	ck_assert(!stalls_note(stalls, now_nsec)); /* of a block that had started before */
	ck_assert(stalls_is_banned(stalls, stalls->banned_until_nsec - 1));
	ck_assert(!stalls_is_banned(stalls, stalls->banned_until_nsec));
	return (unsigned)((stalls->banned_until_nsec - now_nsec) / SEC);
}

TEST(a_ban_ends_and_the_next_is_longer)
{
	static const unsigned lengths[] = { 10, 20, 40, 80, 160, 320, 320 };
	struct stalls stalls = { 0 };
	uint64_t now_nsec = 1000 * SEC;

	for (unsigned i = 0; i < N_ROWS(lengths); i++) {
		ck_assert_uint_eq(ban(&stalls, now_nsec), lengths[i]);
		now_nsec = stalls.banned_until_nsec;
	}
	ck_assert_uint_eq(ban(&stalls, now_nsec + 320 * SEC), 320);
	now_nsec = stalls.banned_until_nsec;
	ck_assert_uint_eq(ban(&stalls, now_nsec + 321 * SEC), 10); /* clean for so long */
}

TEST(rare_stalls_are_no_reason_for_a_ban)
{
	struct stalls stalls = { 0 };

	for (uint64_t i = 1; i < 20; i++)
		ck_assert(!stalls_note(&stalls, i * 31 * SEC));
	ck_assert(!stalls_is_banned(&stalls, 600 * SEC));
}

static void note_all(struct stall_table *table, ino_t ino, uid_t uid, uint64_t now_nsec)
{
	const struct inode_id id = { .dev = 1, .ino = ino };

	for (unsigned i = 1; i < STALLS_MAX; i++)
		ck_assert_ptr_null(stall_table_note(table, &id, uid, now_nsec));
	ck_assert_ptr_nonnull(stall_table_note(table, &id, uid, now_nsec));
}

static bool bans(const struct stall_table *table, ino_t ino, uid_t uid, uint64_t now_nsec)
{
	const struct inode_id id = { .dev = 1, .ino = ino };

	return stall_table_bans(table, &id, uid, now_nsec);
}

/* A user was banned as a whole, because another program punched memory that both share. */
TEST(a_memory_is_banned_for_all_users_and_other_memory_is_not)
{
	struct stall_table table = { .n = 0 };

	ck_assert(!bans(&table, 1, 7, 100 * SEC));
	note_all(&table, 1, 7, 100 * SEC);
	ck_assert(bans(&table, 1, 7, 100 * SEC));
	ck_assert(bans(&table, 1, 8, 100 * SEC));
	ck_assert(!bans(&table, 2, 7, 100 * SEC));
	ck_assert(!bans(&table, 1, 7, 110 * SEC));
}

TEST(a_user_with_much_memory_that_stalls_is_banned)
{
	struct stall_table table = { .n = 0 };

	for (unsigned i = 0; i < STALL_USER_MEMORIES; i++) {
		const struct inode_id id = { .dev = 1, .ino = i };

		ck_assert(!bans(&table, 99, 7, 100 * SEC));
		ck_assert_ptr_null(stall_table_note(&table, &id, 7, 100 * SEC));
	}
	ck_assert(bans(&table, 99, 7, 100 * SEC));
	ck_assert(!bans(&table, 99, 8, 100 * SEC));
	ck_assert(!bans(&table, 99, 7, 160 * SEC));
}

TEST(the_oldest_stalls_make_room)
{
	struct stall_table table = { .n = 0 };

	for (unsigned i = 0; i < STALL_MEMORIES_MAX; i++)
		note_all(&table, i, i, (100 + i) * SEC / 10);
	note_all(&table, 999, 999, 18 * SEC);
	ck_assert(!bans(&table, 0, 1000, 18 * SEC));
	ck_assert(bans(&table, 1, 1000, 18 * SEC));
	ck_assert(bans(&table, 999, 1000, 18 * SEC));
}

TEST_MAIN
