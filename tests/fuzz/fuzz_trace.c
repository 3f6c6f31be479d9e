/*
 * A file of the flight recorder, or of trace record, and its replay: anybody may have made it, or write it meanwhile.
 * If the first byte is even, it has the length that its header names.
 */
#include "client/ctl/cmd/replay.h"
#include "client/ctl/cmd/trace_file.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENTS_MAX 128u

/* A file of another length than its header names is refused at once. */
static void fit(const uint8_t **data, size_t *size)
{
	static uint8_t room[RECORDING_BYTES(EVENTS_MAX)];
	struct recording header;
	uint8_t *bytes;
	size_t n;

	take_bytes(data, size, &header, sizeof(header));
	header.n_events %= EVENTS_MAX + 1;
	n = RECORDING_BYTES(header.n_events);
	bytes = room + sizeof(room) - n; /* the sanitizer sees its end */
	memcpy(bytes, &header, sizeof(header));
	take_bytes(data, size, bytes + sizeof(header), n - sizeof(header));
	*data = bytes;
	*size = n;
}

static void check_stream(const struct replay *replay, const struct trace_op *ops, unsigned stream)
{
	struct replay_due dues[EVENTS_MAX];
	uint64_t ends[EVENTS_MAX];

	assert(replay->stream_ops[stream] && replay->stream_ops[stream] <= EVENTS_MAX);
	replay_dues(ops, replay->stream_ops[stream], ends, dues);
	for (uint64_t i = 0; i < replay->stream_ops[stream]; i++) {
		const struct trace_op *op = &ops[i];

		/* Or the replay would wait for an op that it has not submitted. */
		assert(dues[i].n_before <= i && dues[i].pause_nsec <= op->taken_nsec);
		assert(op->taken_nsec <= op->ended_nsec && op->ended_nsec <= replay->duration_nsec);
		assert(op->off + op->len <= replay->stream_bytes[stream]);
	}
}

static void check_replay(struct trace_ops *ops)
{
	static struct replay replay;
	char text[CTL_MESSAGE_BYTES] = "";
	const struct ctl ctl = { .command = "bench replay", .message = text };
	uint64_t n = 0;

	if (replay_init(&ctl, "FILE", ops, &replay) != CTL_OK) {
		assert(text[0]);
		return;
	}
	for (uint32_t i = 0; i < replay.n_streams; i++) {
		check_stream(&replay, replay.ops + n, i);
		n += replay.stream_ops[i];
	}
	assert(n == replay.n_ops);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct trace_filter all;
	char text[CTL_MESSAGE_BYTES] = "";
	const struct ctl ctl = { .command = "trace", .message = text };
	struct trace_file file = { 0 };
	struct trace_ops ops = { 0 };
	uint8_t choice;
	int r, fd = memfd_create("recording", MFD_CLOEXEC);

	take_bytes(&data, &size, &choice, 1);
	if (choice % 2 == 0)
		fit(&data, &size);
	assert(write(fd, data, size) == (ssize_t)size);
	r = trace_file_read(&ctl, "FILE", fd, EVENTS_MAX, &file);
	assert(close(fd) == 0 && (r == CTL_OK || text[0]));
	if (!file.recording) {
		assert(!file.n_written);
		return 0;
	}
	assert(file.n_written - file.first <= EVENTS_MAX - RECORDING_MARGIN);
	assert(strlen(file.recording->store) < sizeof(file.recording->store) &&
	       strlen(file.recording->program) < sizeof(file.recording->program));
	trace_ops_add(&ops, 0, &file, &all);
	assert(ops.n + ops.n_lost <= file.n_written - file.first);
	for (size_t i = 0; i < ops.n; i++)
		assert(*trace_op_kind(&ops.ops[i]));
	check_replay(&ops);
	trace_ops_deinit(&ops);
	trace_file_deinit(&file);
	return 0;
}
