/*
 * Files of the flight recorder, as dsaioctl trace reads them.
 */
#include "client/ctl/cmd/trace_file.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define N 64u

static struct recording *recording;
static char text[CTL_MESSAGE_BYTES];
static const struct ctl ctl = { .command = "trace", .message = text };
static struct trace_file file;

/* A file of N places in which so many events were written; the id of each is its number. */
static void setup_file(uint64_t n_written)
{
	recording = aligned_alloc(64, RECORDING_BYTES(N));
	memset(recording, 0, RECORDING_BYTES(N));
	memcpy(recording->magic, RECORDING_MAGIC, 8);
	recording->version = RECORDING_VERSION;
	recording->event_bytes = sizeof(struct recording_event);
	recording->n_events = N;
	recording->pid = (uint32_t)getpid();
	recording->start_nsec = 1000;
	recording->start_real_nsec = 5000;
	(void)strcpy(recording->store, "nvme0");
	(void)strcpy(recording->program, "0.1.0");
	for (uint64_t i = n_written > N ? n_written - N : 0; i < n_written; i++)
		recording->events[i % N] = (struct recording_event){ .id = i,
								     .nsec = 2000 + i,
								     .kind = RECORDING_TAKEN };
	atomic_init(&recording->n_written, n_written);
}

/* Reads the first len bytes of it as dsaioctl does, as if it had read that many events. */
static int read_file(size_t len, uint64_t n_read)
{
	const int fd = memfd_create("recording", MFD_CLOEXEC);
	int r;

	ck_assert_int_eq(write(fd, recording, len), (ssize_t)len);
	text[0] = 0;
	trace_file_deinit(&file);
	file.start_nsec = n_read ? recording->start_nsec : 0;
	file.n_written = n_read;
	r = trace_file_read(&ctl, "FILE", fd, &file);
	ck_assert_int_eq(close(fd), 0);
	return r;
}

#define KEPT (N - RECORDING_MARGIN)
static const struct {
	uint64_t n_written, n_read, first, n, n_lost;
} rings[] = {
	{ 0, 0, 0, 0, 0 },
	{ 3, 0, 0, 3, 0 },
	{ 3, 2, 2, 1, 0 },
	{ 3, 3, 3, 0, 0 },
	{ 3, UINT64_MAX, 3, 0, 0 }, /* a number that goes back is no event */
	{ KEPT, 0, 0, KEPT, 0 },
	{ N, 0, RECORDING_MARGIN, KEPT, RECORDING_MARGIN },
	{ 1000, 0, 1000 - KEPT, KEPT, 1000 - KEPT },
	{ 1000, 999, 999, 1, 0 },
	{ 1000, 950, 1000 - KEPT, KEPT, 2 },
	{ UINT64_MAX, 0, UINT64_MAX - KEPT, KEPT, UINT64_MAX - KEPT },
};

TEST_TABLE(the_events_are_those_that_nobody_overwrote_oldest_first, rings)
{
	setup_file(rings[_i].n_written);
	ck_assert_msg(read_file(RECORDING_BYTES(N), rings[_i].n_read) == CTL_OK, "%s", text);
	ck_assert_uint_eq(file.n_events, rings[_i].n);
	ck_assert_uint_eq(file.n_written, rings[_i].n_written);
	ck_assert_uint_eq(file.n_lost, rings[_i].n_lost);
	for (size_t i = 0; i < file.n_events; i++)
		ck_assert_uint_eq(file.events[i].id, rings[_i].first + i);
	ck_assert_str_eq(file.store, "nvme0");
	ck_assert_uint_eq(trace_file_real_nsec(&file, 2000), 6000);
	trace_file_deinit(&file);
	free(recording);
}

static const struct {
	const char *what;
	size_t at;
	uint32_t value;
	size_t len;
} damages[] = {
	{ "is no file of the flight recorder", 0, 0, RECORDING_BYTES(N) },
	{ "has another version", offsetof(struct recording, version), 2, RECORDING_BYTES(N) },
	{ "has another version", offsetof(struct recording, event_bytes), 32, RECORDING_BYTES(N) },
	{ "is damaged", offsetof(struct recording, n_events), 0, RECORDING_BYTES(N) },
	{ "is damaged", offsetof(struct recording, n_events), N - 1, RECORDING_BYTES(N) },
	{ "is damaged", offsetof(struct recording, n_events), UINT32_C(1) << 31,
	  RECORDING_BYTES(N) },
	{ "is damaged", offsetof(struct recording, n_events), N / 2, RECORDING_BYTES(N) },
	{ "is damaged", offsetof(struct recording, n_events), N, RECORDING_BYTES(N) - 1 },
	{ "is no file of the flight recorder", offsetof(struct recording, n_events), N, 17 },
};

TEST_TABLE(a_damaged_file_is_refused, damages)
{
	setup_file(3);
	memcpy((char *)recording + damages[_i].at, &damages[_i].value, sizeof(uint32_t));
	ck_assert_int_eq(read_file(damages[_i].len, 0), CTL_OK);
	ck_assert(!file.events && !file.n_events && file.is_left_out);
	ck_assert_msg(strstr(text, damages[_i].what) != NULL, "%s", text);
	free(recording);
}

TEST(names_without_an_end_get_one)
{
	setup_file(1);
	memset(recording->store, 'x', sizeof(recording->store));
	memset(recording->program, 'y', sizeof(recording->program));
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 0), 0);
	ck_assert_uint_eq(strlen(file.store), sizeof(file.store) - 1);
	ck_assert_uint_eq(strlen(file.program), sizeof(file.program) - 1);
	trace_file_deinit(&file);
	free(recording);
}

TEST(what_is_no_regular_file_is_left_out_and_said_once)
{
	const int null_fd = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(trace_file_read(&ctl, "FILE", null_fd, &file), CTL_OK);
	ck_assert_msg(!file.events && strstr(text, "FILE is no file") != NULL, "%s", text);
	text[0] = 0;
	ck_assert_int_eq(trace_file_read(&ctl, "FILE", null_fd, &file), CTL_OK);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(close(null_fd), 0);
}

/* The lane of a daemon that was started anew. */
TEST(a_file_that_was_made_later_is_read_from_its_start)
{
	setup_file(5);
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 3), CTL_OK);
	ck_assert_uint_eq(file.n_events, 2);
	recording->start_nsec++;
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 0), CTL_OK);
	ck_assert_uint_eq(file.n_events, 5);
	trace_file_deinit(&file);
	free(recording);
}

/* Its pid may be another process's by now. */
TEST(a_daemon_is_live_if_pid_and_start_are_those_of_a_process)
{
	setup_file(1);
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 0), 0);
	ck_assert(!trace_file_is_live(&file));
	file.pid = UINT32_MAX;
	ck_assert(!trace_file_is_live(&file));
	trace_file_deinit(&file);
	free(recording);
}

TEST_MAIN
