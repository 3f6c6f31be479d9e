/*
 * Files of the flight recorder, as dsaioctl trace reads them, ops put together from their events, and the choice of
 * some.
 */
#include "client/ctl/cmd/trace_file.h"
#include "proto/ring.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
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

/* Reads the first len bytes of it as dsaioctl does, after it was read with that many events. */
static int read_file(size_t len, uint64_t n_read)
{
	const uint64_t n_written = atomic_load(&recording->n_written);
	const int fd = memfd_create("recording", MFD_CLOEXEC);
	int r;

	trace_file_deinit(&file);
	atomic_store(&recording->n_written, n_read);
	ck_assert_int_eq(write(fd, recording, len), (ssize_t)len);
	if (n_read)
		ck_assert_int_eq(trace_file_read(&ctl, "FILE", fd, N, &file), CTL_OK);
	atomic_store(&recording->n_written, n_written);
	ck_assert_int_eq(pwrite(fd, recording, len, 0), (ssize_t)len);
	text[0] = 0;
	r = trace_file_read(&ctl, "FILE", fd, N, &file);
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
	ck_assert_uint_eq(file.n_written - file.first, rings[_i].n);
	ck_assert_uint_eq(file.n_written, rings[_i].n_written);
	ck_assert_uint_eq(file.n_lost, rings[_i].n_lost);
	for (uint64_t i = file.first; i < file.n_written; i++)
		ck_assert_uint_eq(trace_file_event(&file, i)->id, i);
	ck_assert_uint_eq(file.first, rings[_i].first);
	ck_assert_str_eq(file.recording->store, "nvme0");
	ck_assert_uint_eq(trace_file_real_nsec(file.recording, 2000), 6000);
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
	{ "has another version", offsetof(struct recording, version), 1, RECORDING_BYTES(N) },
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
	ck_assert_int_eq(read_file(damages[_i].len, 0), CTL_FAILED);
	ck_assert(!file.recording && !file.n_written);
	ck_assert_msg(strstr(text, damages[_i].what) != NULL, "%s", text);
	free(recording);
}

TEST(names_without_an_end_get_one)
{
	setup_file(1);
	memset(recording->store, 'x', sizeof(recording->store));
	memset(recording->program, 'y', sizeof(recording->program));
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 0), 0);
	ck_assert_uint_eq(strlen(file.recording->store), sizeof(recording->store) - 1);
	ck_assert_uint_eq(strlen(file.recording->program), sizeof(recording->program) - 1);
	trace_file_deinit(&file);
	free(recording);
}

TEST(what_is_no_regular_file_is_refused)
{
	const int null_fd = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(trace_file_read(&ctl, "FILE", null_fd, N, &file), CTL_FAILED);
	ck_assert_msg(!file.recording && strstr(text, "FILE is no file") != NULL, "%s", text);
	ck_assert_int_eq(close(null_fd), 0);
}

TEST(a_file_that_is_being_made_has_no_events)
{
	const int fd = memfd_create("recording", MFD_CLOEXEC);

	for (size_t len = 0; len <= RECORDING_BYTES(N); len += RECORDING_BYTES(N)) {
		ck_assert_int_eq(ftruncate(fd, (off_t)len), 0);
		ck_assert_int_eq(trace_file_read(&ctl, "FILE", fd, N, &file), CTL_OK);
		ck_assert(!file.recording && !file.n_written);
	}
	ck_assert_int_eq(close(fd), 0);
}

/* The lane of a daemon that was started anew. */
TEST(a_file_that_was_made_later_is_read_from_its_start)
{
	const int fd = memfd_create("recording", MFD_CLOEXEC);

	setup_file(5);
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 3), CTL_OK);
	ck_assert(file.first == 3 && file.n_written == 5);
	recording->start_nsec++;
	ck_assert_int_eq(write(fd, recording, RECORDING_BYTES(N)), RECORDING_BYTES(N));
	ck_assert_int_eq(trace_file_read(&ctl, "FILE", fd, N, &file), CTL_OK);
	ck_assert(file.first == 0 && file.n_written == 5);
	ck_assert_int_eq(close(fd), 0);
	trace_file_deinit(&file);
	free(recording);
}

/* Its pid may be another process's by now, or of another pid namespace. */
TEST(a_daemon_is_live_if_pid_and_start_are_those_of_a_process_or_of_the_lock)
{
	char path[256], socket[256];
	int fd;

	make_dir();
	(void)snprintf(socket, sizeof(socket), "%s/s", dir);
	(void)snprintf(path, sizeof(path), "%s/s.lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, "4294967295 77 serving\n", 22), 22);
	setup_file(1);
	ck_assert_int_eq(read_file(RECORDING_BYTES(N), 0), 0);
	ck_assert(!trace_file_is_live(file.recording, socket));
	file.recording->pid = UINT32_MAX;
	file.recording->process_ticks = 77;
	ck_assert(!trace_file_is_live(file.recording, socket)); /* it has died */
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert(trace_file_is_live(file.recording, socket));
	file.recording->process_ticks = 78; /* the next one serves */
	ck_assert(!trace_file_is_live(file.recording, socket));
	ck_assert_int_eq(close(fd), 0);
	remove_dir();
	trace_file_deinit(&file);
	free(recording);
}

/* ---- ops ---- */

static struct trace_ops ops;

static void setup_ops(void)
{
	setup_file(0);
	trace_ops_deinit(&ops);
}

static void add(uint64_t id, uint8_t kind, uint8_t opcode, uint64_t nsec)
{
	const uint64_t n = atomic_fetch_add(&recording->n_written, 1);

	recording->events[n % N] = (struct recording_event){ .nsec = nsec,
							     .id = id,
							     .off = 4096,
							     .len = 8192,
							     .result = kind == RECORDING_ENDED
									       ? 8192
									       : 0,
							     .client = 3,
							     .channel = 2,
							     .file = 9,
							     .pid = 77,
							     .uid = 1000,
							     .kind = kind,
							     .opcode = opcode };
}

static void add_all(uint32_t lane)
{
	static const struct trace_filter all;

	file = (struct trace_file){ .recording = recording,
				    .n_written = atomic_load(&recording->n_written) };
	trace_ops_add(&ops, lane, &file, &all);
	trace_file_deinit(&file);
}

TEST(an_op_has_the_times_of_its_first_block_and_of_its_last)
{
	const struct trace_op *op;

	setup_ops();
	add(5, RECORDING_TAKEN, RING_OP_READ, 100);
	add(5, RECORDING_BLOCK_STARTED, RING_OP_READ, 110);
	add(5, RECORDING_BLOCK_STARTED, RING_OP_READ, 120);
	add(5, RECORDING_BLOCK_DONE, RING_OP_READ, 130);
	add(5, RECORDING_BLOCK_DONE, RING_OP_READ, 150);
	add(5, RECORDING_ENDED, RING_OP_READ, 160);
	add_all(1);
	ck_assert_uint_eq(ops.n, 1);
	op = &ops.ops[0];
	ck_assert(op->taken_nsec == 100 && op->started_nsec == 110 && op->done_nsec == 150 &&
		  op->ended_nsec == 160 && op->lane == 1);
	ck_assert(op->result == 8192 && op->off == 4096 && op->len == 8192 && op->file == 9 &&
		  op->pid == 77 && op->uid == 1000 && op->client == 3);
}

TEST(ops_of_different_lanes_channels_and_ids_are_different)
{
	setup_ops();
	add(5, RECORDING_TAKEN, RING_OP_READ, 100);
	add(6, RECORDING_TAKEN, RING_OP_READ, 102);
	add(5, RECORDING_TAKEN, RING_OP_WRITE, 101);
	recording->events[2].channel = 1;
	add(5, RECORDING_ENDED, RING_OP_WRITE, 104);
	recording->events[3].channel = 1;
	add_all(0);
	ck_assert_uint_eq(ops.n, 3);
	ck_assert(ops.ops[0].channel == 1 && ops.ops[0].ended_nsec == 104 && ops.n_lost == 0);
	ck_assert(ops.ops[1].id == 5 && !ops.ops[1].ended_nsec && ops.ops[2].id == 6);
	setup_file(0);
	add(5, RECORDING_ENDED, RING_OP_READ, 200);
	add_all(1); /* it is none of the other file's */
	ck_assert(ops.n == 3 && !ops.ops[1].ended_nsec);
}

TEST(events_of_an_op_that_began_before_are_left_out)
{
	setup_ops();
	add(5, RECORDING_BLOCK_DONE, RING_OP_READ, 100);
	add(5, RECORDING_ENDED, RING_OP_READ, 101);
	add(5, 200, 99, 103);
	add_all(0);
	ck_assert(ops.n == 0 && ops.n_lost == 0);
}

/* The lane wrote over the end of the first one. */
TEST(an_op_whose_end_was_lost_is_counted)
{
	setup_ops();
	add(5, RECORDING_TAKEN, RING_OP_READ, 100);
	add(5, RECORDING_BLOCK_STARTED, RING_OP_READ, 101);
	add(5, RECORDING_TAKEN, RING_OP_WRITE, 200);
	add(5, RECORDING_ENDED, RING_OP_WRITE, 210);
	add(5, RECORDING_BLOCK_DONE, RING_OP_WRITE, 220); /* of none */
	add_all(0);
	ck_assert(ops.n == 1 && ops.n_lost == 1);
	ck_assert(ops.ops[0].taken_nsec == 200 && ops.ops[0].opcode == RING_OP_WRITE &&
		  !ops.ops[0].started_nsec && !ops.ops[0].done_nsec);
}

static const struct {
	struct trace_filter filter;
	bool is_chosen;
} choices[] = {
	{ { 0 }, true },
	{ { .errors = true }, true },
	{ { .slower = "1us", .slower_nsec = 1000 }, true },
	{ { .slower = "2us", .slower_nsec = 1001 }, false },
};

TEST_TABLE(a_filter_has_the_ops_that_fulfil_all_of_it, choices)
{
	const struct trace_op op = { .opcode = RING_OP_FDATASYNC,
				     .pid = 77,
				     .uid = 1000,
				     .taken_nsec = 500,
				     .ended_nsec = 1500,
				     .result = ring_result_failed(EIO, 0) };

	ck_assert(trace_filter_has(&choices[_i].filter, &op, 0) == choices[_i].is_chosen);
}

static const struct {
	struct trace_filter filter;
	bool is_chosen;
} events[] = {
	{ { 0 }, true },
	{ { .pid = 77 }, true },
	{ { .pid = 78 }, false },
	{ { .user = "1000", .uid = 1000 }, true },
	{ { .user = "0", .uid = 0 }, false },
	{ { .store = "nvme0", .pid = 77 }, true },
	{ { .store = "nvme", .pid = 77 }, false },
};

TEST_TABLE(a_filter_has_the_events_that_fulfil_all_of_it, events)
{
	const struct recording_event event = { .pid = 77, .uid = 1000 };

	ck_assert(trace_filter_has_event(&events[_i].filter, "nvme0", &event) ==
		  events[_i].is_chosen);
}

TEST(an_open_op_takes_until_now)
{
	const struct trace_filter slow = { .slower = "1us", .slower_nsec = 1000 };
	const struct trace_op op = { .opcode = RING_OP_READ, .taken_nsec = 500 };

	ck_assert(trace_filter_has(&slow, &op, 1500));
	ck_assert(!trace_filter_has(&slow, &op, 1499));
	ck_assert(!trace_filter_has(&slow, &op, 499)); /* one of a lane that wrote afterwards */
}

static const struct {
	const char *slower;
	int result;
	uint64_t nsec;
} times[] = {
	{ "10ms", CTL_OK, 10000000 }, { "500us", CTL_OK, 500000 },   { "1.5s", CTL_OK, 1500000000 },
	{ "0ns", CTL_OK, 0 },	      { "10", CTL_OK, 10000000000 }, { "ms", CTL_USAGE, 0 },
	{ "-1ms", CTL_USAGE, 0 },     { "1e30s", CTL_USAGE, 0 },     { "nan s", CTL_USAGE, 0 },
	{ "nans", CTL_USAGE, 0 },     { "10ms more", CTL_USAGE, 0 },
};

TEST_TABLE(times_have_a_unit, times)
{
	struct ctl trace_ctl = { .command = "trace" };
	struct trace_filter filter = { .slower = times[_i].slower };

	ck_assert_int_eq(trace_filter_check(&trace_ctl, &filter), times[_i].result);
	ck_assert_uint_eq(filter.slower_nsec, times[_i].nsec);
}

TEST(users_are_names_or_numbers)
{
	struct ctl trace_ctl = { .command = "trace" };
	struct trace_filter root = { .user = "root", .uid = 1 }, number = { .user = "4242" };
	struct trace_filter none = { .user = "nobody-here" }, large = { .user = "4294967296" };

	ck_assert(trace_filter_check(&trace_ctl, &root) == CTL_OK && root.uid == 0);
	ck_assert(trace_filter_check(&trace_ctl, &number) == CTL_OK && number.uid == 4242);
	ck_assert_int_eq(trace_filter_check(&trace_ctl, &none), CTL_FAILED);
	ck_assert_int_eq(trace_filter_check(&trace_ctl, &large), CTL_FAILED);
}

TEST(kinds_of_ops_that_are_not_known_have_no_name)
{
	for (unsigned i = 0; i < 256; i++) {
		const struct trace_op op = { .opcode = (uint8_t)i };

		ck_assert_int_eq(*trace_op_kind(&op) != '?',
				 i >= RING_OP_READ && i <= RING_OP_FDATASYNC);
	}
}

TEST_MAIN
