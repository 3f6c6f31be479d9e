#include "daemon/base/hung.h"

#include "daemon/base/mailbox.h"
#include "proto/util/clock.h"
#include "tests/unit/journal.h"
#include "tests/unit/suite.h"

#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

static struct event_base *base;
static struct mailbox mailbox;
static const struct hung_call *list[8]; /* those that have been reported */
static size_t n;
static int log_fd; /* what stderr is */

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
}

static void begin_call(struct hung_call *call, const struct hung_about *about, uint64_t age_nsec)
{
	hung_begin(call, about);
	call->since_nsec -= age_nsec;
}

/* A call that began so long ago. */
static void begin(struct hung_call *call, const char *file, int fd, uint64_t age_nsec)
{
	begin_call(call,
		   &(struct hung_about){ .what = "close",
					 .file = file,
					 .fd = fd,
					 .who = { .uid = 77, .client = 5 } },
		   age_nsec);
}

static bool add(const struct hung_call *call, void *arg)
{
	(void)arg;
	list[n++] = call;
	return n < sizeof(list) / sizeof(list[0]);
}

static void look(void)
{
	n = 0;
	hung_each(add, NULL);
}

static int n_timers(void)
{
	return event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED);
}

/* A turn of the main thread: if there is a timer, it waits for that. */
static void turn(void)
{
	(void)mailbox_run(&mailbox);
	if (n_timers())
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	look();
}

/* From here on the log can be counted. */
static void log_take(void)
{
	log_fd = memfd_create("log", MFD_CLOEXEC);
	ck_assert_int_eq(dup2(log_fd, STDERR_FILENO), STDERR_FILENO);
}

static unsigned log_count(const char *text)
{
	static char log[16384];
	unsigned n_lines = 0;
	ssize_t n_bytes = pread(log_fd, log, sizeof(log) - 1, 0);

	ck_assert_int_ge(n_bytes, 0);
	log[n_bytes] = 0;
	for (const char *at = log; (at = strstr(at, text)); at++)
		n_lines++;
	return n_lines;
}

TEST(what_lasts_is_listed_until_it_ends)
{
	struct hung_call old, young;

	look();
	ck_assert_uint_eq(n, 0);
	begin(&young, "young", -1, 0);
	begin(&old, "old", -1, 7 * SECOND);
	turn();
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(list[0]->file, "old");
	ck_assert_str_eq(list[0]->about.what, "close");
	ck_assert_uint_eq(list[0]->about.who.uid, 77);
	ck_assert_uint_eq(list[0]->about.who.client, 5);
	ck_assert_uint_eq(list[0]->reported_nsec, old.since_nsec);
	hung_end(&old);
	look();
	ck_assert_uint_eq(n, 0);
	hung_end(&young);
}

TEST(calls_that_are_due_together_are_reported_in_rounds_of_their_own)
{
	static const char *const names[] = { "oldest", "older", "old" };
	struct hung_call calls[3];

	log_take();
	for (unsigned i = 0; i < 3; i++)
		begin(&calls[i], names[i], -1, (9 - i) * SECOND);
	turn();
	for (unsigned i = 0; i < 3; i++) { /* the next turns do not wait */
		look();
		ck_assert_uint_eq(n, i + 1);
		ck_assert_str_eq(list[i]->file, names[i]);
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK), 0);
	}
	ck_assert_uint_eq(log_count("has not come back for"), 3);
	hung_stopping();
	ck_assert_uint_eq(log_count("delays the daemon's exit"), 3);
	for (unsigned i = 0; i < 3; i++)
		hung_end(&calls[i]);
	ck_assert_uint_eq(log_count("came back after"), 3);
	turn();
	ck_assert_int_eq(n_timers(), 0);
}

TEST(the_mount_is_found_by_the_descriptor_also_when_that_is_closed)
{
	struct hung_call call;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

	begin(&call, "f", fd, 7 * SECOND);
	(void)close(fd);
	turn();
	ck_assert_uint_eq(n, 1);
	ck_assert_msg(!strncmp(call.place.mount, "/proc (proc, device ", 20), "%s",
		      call.place.mount);
	ck_assert(call.place.text[0]);
	hung_end(&call);
}

TEST(a_mount_that_does_not_show_here_is_named_by_its_device)
{
	struct hung_about about = { .what = "read",
				    .file = "f",
				    .fd = -1,
				    .dev = 0x123,
				    .mount_id = 1u << 30,
				    .who = { .pid = getpid() } };
	struct hung_call call;

	begin_call(&call, &about, 7 * SECOND);
	turn();
	ck_assert_uint_eq(n, 1);
	ck_assert_msg(strstr(call.place.mount, "device 1:35"), "%s", call.place.mount);
	/* its name there is the number as the kernel has it: major << 20 | minor */
	ck_assert_msg(strstr(call.place.text, "connections/1048611/abort"), "%s", call.place.text);
	hung_end(&call);
}

TEST(calls_of_a_gpus_driver_have_no_mount_and_share_their_lines)
{
	const struct hung_about about = {
		.what = "GPU import", .file = "GPU memory", .is_gpu = true, .who = { .uid = 77 }
	};
	struct hung_call calls[2];

	log_take();
	for (unsigned round = 1; round <= 2; round++) { /* the second is another hang */
		for (unsigned i = 0; i < 2; i++)
			begin_call(&calls[i], &about, 7 * SECOND);
		turn();
		turn();
		ck_assert_uint_eq(n, 2);
		ck_assert_uint_eq(log_count("has not come back for"), round);
		hung_end(&calls[0]);
		ck_assert_uint_eq(log_count("came back after"), round - 1);
		hung_end(&calls[1]);
		ck_assert_uint_eq(log_count("came back after"), round);
	}
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_str_eq(calls[i].place.mount, "the GPU's driver");
		ck_assert_msg(strstr(calls[i].place.text, "nvidia-smi") &&
				      strstr(calls[i].place.text, "restart"),
			      "%s", calls[i].place.text);
	}
}

TEST(a_call_that_moves_bytes_has_a_line_of_its_own_that_names_the_process)
{
	const struct hung_about bytes = {
		.what = "cuFileRead", .file = "f", .is_gpu = true, .is_block = true
	};
	const struct hung_about none = { .what = "GPU import", .file = "f", .is_gpu = true };
	struct hung_call before, call;
	char command[32];

	log_take();
	(void)snprintf(command, sizeof(command), "kill -9 %d", getpid());
	begin_call(&before, &none, 7 * SECOND);
	begin_call(&call, &bytes, 6 * SECOND);
	turn();
	turn();
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(log_count("has not come back for"), 2);
	ck_assert_str_eq(list[0]->about.what, "GPU import");
	ck_assert(!strstr(list[0]->place.text, "kill"));
	ck_assert_str_eq(list[1]->about.what, "cuFileRead");
	ck_assert_msg(strstr(list[1]->place.text, command), "%s", list[1]->place.text);
	hung_end(&call);
	hung_end(&before);
}

TEST(a_call_wakes_the_main_thread_once_and_a_timer_runs_only_while_one_lasts)
{
	struct hung_call one, two;

	begin(&one, "one", -1, 0);
	begin(&two, "two", -1, 0);
	ck_assert_int_eq(mailbox_run(&mailbox), 1);
	ck_assert_int_eq(n_timers(), 1);
	hung_end(&one);
	begin(&one, "one", -1, 0);
	ck_assert(!mailbox_has_any(&mailbox)); /* the timer sees it */
	turn();
	ck_assert_int_eq(n_timers(), 1);
	hung_end(&one);
	hung_end(&two);
	turn();
	ck_assert_int_eq(n_timers(), 0);
	begin(&one, "one", -1, 0);
	ck_assert_int_eq(mailbox_run(&mailbox), 1); /* it has stopped: a wake-up again */
	hung_end(&one);
}

static const struct hung_about of_lane = { .what = "io_submit", .file = "lane 0" };
static const struct hung_who who = { .uid = 77, .client = 5 };

TEST(a_lane_that_is_inside_a_call_for_over_a_second_is_listed_until_it_is_back)
{
	struct hung_call lane;

	log_take();
	hung_add_lane(&lane, &of_lane);
	hung_enter(&lane, &who, clock_nsec());
	look();
	ck_assert_uint_eq(n, 0);
	for (int i = 0; i < 2 && !n; i++) /* a timer may be a little early */
		turn();
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_ge(clock_nsec(), lane.since_nsec + HUNG_LANE_NSEC);
	ck_assert_str_eq(list[0]->file, "lane 0");
	ck_assert_uint_eq(list[0]->about.who.uid, 77);
	ck_assert_uint_eq(list[0]->about.who.client, 5);
	hung_leave(&lane);
	hung_enter(&lane, &who, clock_nsec()); /* another call */
	turn();
	ck_assert_uint_eq(log_count("came back after"), 1);
	hung_leave(&lane);
	turn();
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(n_timers(), 0);
	hung_end(&lane);
}

TEST(a_lane_that_comes_back_wakes_the_main_thread_once_and_at_rest_there_is_no_timer)
{
	struct hung_call lane;

	hung_add_lane(&lane, &of_lane);
	for (int i = 0; i < 1000; i++) {
		hung_enter(&lane, &who, clock_nsec());
		hung_leave(&lane);
	}
	ck_assert_int_eq(mailbox_run(&mailbox), 1);
	turn();
	ck_assert_int_eq(n_timers(), 0);
	hung_enter(&lane, &who, clock_nsec());
	hung_leave(&lane);
	ck_assert_int_eq(mailbox_run(&mailbox), 1); /* a wake-up again */
	look();
	ck_assert_uint_eq(n, 0);
	hung_end(&lane);
}

/* `journalctl -p warning` did not show it, and no field named the store and the process. */
TEST(a_hung_lane_is_a_warning_with_the_fields_of_its_store_and_client)
{
	const struct hung_about about = { .what = "io_submit",
					  .file = "store a, lane",
					  .store = "a" };
	struct hung_call lane;

	journal_take();
	hung_add_lane(&lane, &about);
	hung_enter(&lane, &(struct hung_who){ .uid = 77, .pid = 66, .client = 5 },
		   clock_nsec() - 2 * SECOND);
	turn();
	ck_assert_msg(journal_has("4", "hung\nDSAIO_STORE=a\nDSAIO_OP=io_submit\n"
				       "DSAIO_CLIENT_UID=77\nDSAIO_CLIENT_PID=66\nDSAIO_CLIENT=5"),
		      "%s", journal_text);
	hung_leave(&lane);
	turn();
	ck_assert_msg(journal_has("5", "hung-end\nDSAIO_STORE=a"), "%s", journal_text);
	hung_end(&lane);
}

FIXTURE(setup, teardown)
TEST_MAIN
