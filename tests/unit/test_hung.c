#include "daemon/base/hung.h"

#include "daemon/base/mailbox.h"
#include "proto/util/clock.h"
#include "tests/unit/suite.h"

#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

static struct event_base *base;
static struct mailbox mailbox;
static struct hung_told *list;
static size_t n;

static void setup(void)
{
	base = event_base_new();
	ck_assert_ptr_nonnull(base);
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(hung_init(base, &mailbox), 0);
}

static void teardown(void)
{
	hung_deinit();
	mailbox_deinit(&mailbox);
	event_base_free(base);
	free(list);
	list = NULL;
}

/* A call that began so long ago. */
static void begin(struct hung *stuck, const char *file, int fd, uint64_t age_nsec)
{
	struct hung_about about = {
		.what = "close", .file = file, .fd = fd, .who = { .uid = 77, .client = 5 }
	};

	hung_begin(stuck, &about);
	stuck->since_nsec -= age_nsec;
}

static void look(void)
{
	free(list);
	ck_assert_int_eq(hung_list(NULL, NULL, 64, &list, &n), 0);
}

/* Runs events until the mailbox has something, or there is no timer any more. */
static void run_timers(void)
{
	while (!mailbox_has_any(&mailbox) &&
	       event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED))
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	(void)mailbox_run(&mailbox);
}

START_TEST(what_lasts_is_listed_until_it_ends)
{
	struct hung old, young;

	look();
	ck_assert_uint_eq(n, 0);
	begin(&old, "old", -1, 7 * SECOND);
	begin(&young, "young", -1, 0);
	look();
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(list[0].file, "old");
	ck_assert_str_eq(list[0].what, "close");
	ck_assert_uint_eq(list[0].who.uid, 77);
	ck_assert_uint_eq(list[0].who.client, 5);
	ck_assert_uint_ge(list[0].usec, 7000000);
	hung_end(&old);
	look();
	ck_assert_uint_eq(n, 0);
	hung_end(&young);
	(void)mailbox_run(&mailbox);
}
END_TEST

static bool is_uid(uid_t uid, const void *wanted)
{
	return uid == *(const uid_t *)wanted;
}

START_TEST(only_those_asked_for_are_listed_and_the_oldest_first)
{
	const uid_t owner = 77, other = 78;
	struct hung calls[3];

	begin(&calls[0], "oldest", -1, 9 * SECOND);
	begin(&calls[1], "older", -1, 8 * SECOND);
	begin(&calls[2], "old", -1, 7 * SECOND);
	ck_assert_int_eq(hung_list(is_uid, &other, 64, &list, &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert(!calls[0].has_place); /* nobody looked where it is */
	free(list);
	ck_assert_int_eq(hung_list(is_uid, &owner, 2, &list, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(list[0].file, "oldest");
	ck_assert_str_eq(list[1].file, "older");
	ck_assert(calls[0].has_place && !calls[1].has_place); /* one look is enough for a request */
	ck_assert_msg(strstr(list[1].place.mount, "not looked up"), "%s", list[1].place.mount);
	for (unsigned i = 0; i < 3; i++)
		hung_end(&calls[i]);
	(void)mailbox_run(&mailbox);
}
END_TEST

START_TEST(calls_that_are_due_together_are_reported_in_turns_of_their_own)
{
	struct hung calls[3];

	for (unsigned i = 0; i < 3; i++)
		begin(&calls[i], "f", -1, (9 - i) * SECOND);
	(void)mailbox_run(&mailbox);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(calls[i].is_told && calls[i].has_place);
		for (unsigned k = i + 1; k < 3; k++)
			ck_assert(!calls[k].is_told);
		ck_assert_int_ge(event_base_loop(base, EVLOOP_ONCE), 0);
	}
	ck_assert_int_eq(event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED), 0);
	for (unsigned i = 0; i < 3; i++)
		hung_end(&calls[i]);
}
END_TEST

START_TEST(a_mount_is_looked_up_once)
{
	struct hung stuck;

	begin(&stuck, "f", -1, 7 * SECOND);
	look();
	(void)strcpy(stuck.place.mount, "as it was");
	look();
	ck_assert_str_eq(list[0].place.mount, "as it was");
	hung_end(&stuck);
	(void)mailbox_run(&mailbox);
}
END_TEST

START_TEST(the_mount_is_found_by_the_descriptor_also_when_that_is_closed)
{
	struct hung stuck;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

	begin(&stuck, "f", fd, 7 * SECOND);
	(void)close(fd);
	look();
	ck_assert_uint_eq(n, 1);
	ck_assert_msg(!strncmp(list[0].place.mount, "/proc (proc, device ", 20), "%s",
		      list[0].place.mount);
	ck_assert(list[0].place.text[0]);
	hung_end(&stuck);
	(void)mailbox_run(&mailbox);
}
END_TEST

START_TEST(a_mount_that_does_not_show_here_is_named_by_its_device)
{
	struct hung_about about = { .what = "read",
				    .file = "f",
				    .fd = -1,
				    .dev = 0x123,
				    .mount_id = 1u << 30,
				    .who = { .pid = getpid() } };
	struct hung stuck;

	hung_begin(&stuck, &about);
	stuck.since_nsec -= 7 * SECOND;
	look();
	ck_assert_uint_eq(n, 1);
	ck_assert_msg(strstr(list[0].place.mount, "device 1:35"), "%s", list[0].place.mount);
	/* its name there is the number as the kernel has it: major << 20 | minor */
	ck_assert_msg(strstr(list[0].place.text, "connections/1048611/abort"), "%s",
		      list[0].place.text);
	hung_end(&stuck);
	(void)mailbox_run(&mailbox);
}
END_TEST

START_TEST(a_call_of_a_gpus_driver_has_no_mount)
{
	const struct hung_about about = {
		.what = "GPU import", .file = "GPU memory", .is_gpu = true, .who = { .uid = 77 }
	};
	struct hung stuck, next;

	hung_begin(&stuck, &about);
	stuck.since_nsec -= 7 * SECOND;
	look();
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(list[0].place.mount, "the GPU's driver");
	ck_assert_msg(strstr(list[0].place.text, "nvidia-smi"), "%s", list[0].place.text);
	ck_assert_msg(strstr(list[0].place.text, "restart"), "%s", list[0].place.text);
	hung_begin(&next, &about);
	next.since_nsec -= 6 * SECOND;
	look();
	ck_assert_uint_eq(n, 2);
	(void)mailbox_run(&mailbox);
	run_timers();
	ck_assert(stuck.is_told && next.is_told); /* but one line has been logged */
	ck_assert_int_eq(stuck.is_quiet + next.is_quiet, 1);
	hung_end(&next);
	hung_end(&stuck);
	hung_begin(&next, &about);
	next.since_nsec -= 6 * SECOND;
	(void)mailbox_run(&mailbox);
	ck_assert(next.is_told && !next.is_quiet); /* another hang */
	hung_end(&next);
}
END_TEST

START_TEST(a_call_that_moves_bytes_has_a_line_of_its_own_that_names_the_process)
{
	const struct hung_about about = {
		.what = "cuFileRead", .file = "f", .is_gpu = true, .is_block = true
	};
	struct hung before, stuck;
	char command[32];

	(void)snprintf(command, sizeof(command), "kill -9 %d", getpid());
	ck_assert_ptr_null(hung_next("none", true));
	hung_begin(&before, &about);
	ck_assert_str_eq(hung_next("cuFileHandleRegister", false), "cuFileRead");
	before.since_nsec -= 7 * SECOND;
	hung_begin(&stuck, &about);
	stuck.since_nsec -= 6 * SECOND;
	(void)mailbox_run(&mailbox);
	run_timers();
	ck_assert(before.is_told && stuck.is_told && !before.is_quiet && !stuck.is_quiet);
	look();
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(list[0].what, "cuFileHandleRegister");
	ck_assert(!strstr(list[0].place.text, "kill"));
	ck_assert_str_eq(list[1].what, "cuFileRead");
	ck_assert_msg(strstr(list[1].place.text, command), "%s", list[1].place.text);
	ck_assert_str_eq(hung_next("cuFileHandleRegister", false), "cuFileRead");
	ck_assert(!stuck.is_told); /* another call, which has just begun */
	hung_end(&stuck);
	hung_end(&before);
	(void)mailbox_run(&mailbox);
}
END_TEST

START_TEST(a_call_wakes_the_main_thread_once_and_a_timer_runs_only_while_one_lasts)
{
	struct hung one, two;
	struct timeval tv;

	begin(&one, "one", -1, 0);
	begin(&two, "two", -1, 0);
	ck_assert_int_eq(mailbox_run(&mailbox), 1);
	ck_assert_int_eq(event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED), 1);
	hung_end(&one);
	begin(&one, "one", -1, 0);
	ck_assert(!mailbox_has_any(&mailbox)); /* the timer sees it */
	hung_end(&one);
	hung_end(&two);
	tv = (struct timeval){ .tv_sec = 30 };
	ck_assert_int_eq(event_base_loopexit(base, &tv), 0);
	while (event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED) > 1)
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	begin(&one, "one", -1, 0);
	ck_assert_int_eq(mailbox_run(&mailbox), 1); /* it has stopped: a wake-up again */
	hung_end(&one);
}
END_TEST

START_TEST(what_was_told_is_not_told_again_and_needs_no_timer)
{
	struct hung stuck;

	begin(&stuck, "f", -1, 7 * SECOND);
	(void)mailbox_run(&mailbox);
	ck_assert(stuck.is_told);
	ck_assert_int_eq(event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED), 0);
	hung_stopping();
	hung_end(&stuck);
	look();
	ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(a_lane_that_is_inside_a_call_for_over_a_second_is_listed_until_it_is_back)
{
	static const struct hung_who who = { .uid = 77, .client = 5 };
	struct hung_watch lane = { .hung_since_nsec = 0 };

	hung_watch_add(&lane, &(struct hung_about){ .what = "io_submit", .file = "lane 0" });
	hung_enter(&lane, &who, clock_nsec());
	look();
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(mailbox_run(&mailbox), 1);
	run_timers();
	look();
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(list[0].file, "lane 0");
	ck_assert_uint_eq(list[0].who.uid, 77);
	ck_assert_uint_eq(list[0].who.client, 5);
	ck_assert_uint_ge(list[0].usec, 1000000);
	hung_leave(&lane);
	run_timers();
	look();
	ck_assert_uint_eq(n, 0);
	hung_watch_remove(&lane);
}
END_TEST

START_TEST(a_lane_that_comes_back_wakes_the_main_thread_once_and_at_rest_there_is_no_timer)
{
	static const struct hung_who who = { .uid = 77, .client = 5 };
	struct hung_watch lane = { .hung_since_nsec = 0 };

	hung_watch_add(&lane, &(struct hung_about){ .what = "io_submit", .file = "lane 0" });
	for (int i = 0; i < 1000; i++) {
		hung_enter(&lane, &who, clock_nsec());
		hung_leave(&lane);
	}
	ck_assert_int_eq(mailbox_run(&mailbox), 1);
	run_timers();
	ck_assert_int_eq(event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED), 0);
	hung_enter(&lane, &who, clock_nsec());
	hung_leave(&lane);
	ck_assert_int_eq(mailbox_run(&mailbox), 1); /* a wake-up again */
	look();
	ck_assert_uint_eq(n, 0);
	hung_watch_remove(&lane);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_call_of_a_gpus_driver_has_no_mount);
	tcase_add_test(tcase, a_call_that_moves_bytes_has_a_line_of_its_own_that_names_the_process);
	tcase_add_test(tcase, what_lasts_is_listed_until_it_ends);
	tcase_add_test(tcase, only_those_asked_for_are_listed_and_the_oldest_first);
	tcase_add_test(tcase, calls_that_are_due_together_are_reported_in_turns_of_their_own);
	tcase_add_test(tcase, a_mount_is_looked_up_once);
	tcase_add_test(tcase, the_mount_is_found_by_the_descriptor_also_when_that_is_closed);
	tcase_add_test(tcase, a_mount_that_does_not_show_here_is_named_by_its_device);
	tcase_add_test(tcase,
		       a_call_wakes_the_main_thread_once_and_a_timer_runs_only_while_one_lasts);
	tcase_add_test(tcase,
		       a_lane_that_is_inside_a_call_for_over_a_second_is_listed_until_it_is_back);
	tcase_add_test(
		tcase,
		a_lane_that_comes_back_wakes_the_main_thread_once_and_at_rest_there_is_no_timer);
	tcase_add_test(tcase, what_was_told_is_not_told_again_and_needs_no_timer);
}

SUITE("stuck", add_tests)
