/*
 * A file of the flight recorder that is read while a lane writes it.
 */
#include "client/ctl/cmd/trace_follow.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 64u
#define KEPT (N - RECORDING_MARGIN)

static struct recording *recording; /* as the lane has it mapped */
static struct trace_follow follow;
static struct recording_event events[RECORDING_EVENTS_MAX];
static uint64_t n_written;
static int fd;

static void setup(void)
{
	fd = memfd_create("recording", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, RECORDING_BYTES(N)), 0);
	recording = mmap(NULL, RECORDING_BYTES(N), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(recording, MAP_FAILED);
	memcpy(recording->magic, RECORDING_MAGIC, 8);
	recording->version = RECORDING_VERSION;
	recording->event_bytes = sizeof(struct recording_event);
	recording->n_events = N;
	(void)strcpy(recording->store, "nvme0");
	n_written = 0;
}

static void teardown(void)
{
	(void)munmap(recording, RECORDING_BYTES(N));
	if (follow.fd > 0)
		(void)close(follow.fd);
	follow.fd = 0;
}
FIXTURE(setup, teardown)

/* The id of an event is its number. */
static void write_events(uint64_t n)
{
	for (; n; n--, n_written++)
		recording->events[n_written % N] = (struct recording_event){ .id = n_written };
	atomic_store(&recording->n_written, n_written);
}

static int start(bool is_old)
{
	char text[256];

	return trace_follow_start(fd, is_old, &follow, text, sizeof(text));
}

/* The next read has these events, in order. */
static void reads(uint64_t first, int n)
{
	ck_assert_int_eq(trace_follow_read(&follow, events), n);
	for (int i = 0; i < n; i++)
		ck_assert_uint_eq(events[i].id, first + (uint64_t)i);
}

TEST(each_event_is_read_once)
{
	write_events(5);
	ck_assert_int_eq(start(false), 0);
	ck_assert_str_eq(follow.file.store, "nvme0");
	reads(0, 5);
	reads(0, 0);
	write_events(KEPT); /* over the end of the ring */
	reads(5, KEPT);
	write_events(1);
	reads(5 + KEPT, 1);
	ck_assert_uint_eq(follow.n_lost, 0);
}

TEST(events_before_the_record_are_left_out)
{
	write_events(1000);
	ck_assert_int_eq(start(true), 0);
	reads(0, 0);
	write_events(3);
	reads(1000, 3);
	ck_assert_uint_eq(follow.n_lost, 0);
}

TEST(events_that_the_lane_has_written_over_are_counted)
{
	ck_assert_int_eq(start(false), 0);
	write_events(10);
	reads(0, 10);
	write_events(KEPT + 7);
	reads(17, KEPT);
	ck_assert_uint_eq(follow.n_lost, 7);
	write_events(100 * N);
	reads(17 + KEPT + 100 * N - KEPT, KEPT);
	ck_assert_uint_eq(follow.n_lost, 7 + 100 * N - KEPT);
}

/* A daemon that was started anew has another file; one that counts back is a stranger's. */
TEST(a_number_that_goes_back_is_no_event)
{
	write_events(30);
	ck_assert_int_eq(start(false), 0);
	reads(0, 30);
	atomic_store(&recording->n_written, 3);
	reads(0, 0);
	atomic_store(&recording->n_written, UINT64_MAX);
	ck_assert_int_eq(trace_follow_read(&follow, events), KEPT);
}

TEST(a_file_that_became_shorter_is_an_error)
{
	write_events(3);
	ck_assert_int_eq(start(false), 0);
	ck_assert_int_eq(ftruncate(fd, 200), 0);
	ck_assert_int_eq(trace_follow_read(&follow, events), -EIO);
}

TEST(what_is_no_recording_is_refused)
{
	recording->magic[0] = 'x';
	ck_assert_int_eq(start(false), -EINVAL);
}

TEST_MAIN
