/*
 * A file of the flight recorder: anybody may have made it, or write it meanwhile.  The first 8 bytes are
 * twice the number of events that were read before.  If they are even, it has the length that its header names.
 */
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/cmd/trace_ops.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[CTL_MESSAGE_BYTES] = "";
	const struct ctl ctl = { .command = "trace", .message = text };
	struct trace_file file = { 0 };
	struct trace_ops ops = { 0 };
	uint64_t n_read;
	int fd = memfd_create("recording", MFD_CLOEXEC);

	take_bytes(&data, &size, &n_read, sizeof(n_read));
	if (n_read % 2 == 0)
		fit(&data, &size);
	file.n_written = n_read / 2;
	assert(write(fd, data, size) == (ssize_t)size);
	assert(trace_file_read(&ctl, "FILE", fd, &file) == CTL_OK && close(fd) == 0);
	if (!file.events) {
		assert(text[0] && !file.n_events);
		return 0;
	}
	assert(file.n_events <= RECORDING_EVENTS_MAX - RECORDING_MARGIN);
	assert(file.n_events <= file.n_written);
	assert(strlen(file.store) < sizeof(file.store) &&
	       strlen(file.program) < sizeof(file.program));
	for (size_t i = 0; i < file.n_events; i++) {
		(void)trace_file_real_nsec(&file, file.events[i].nsec);
		assert(trace_ops_add(&ops, file.pid, 0, &file.events[i]) == 0);
	}
	assert(trace_ops_end(&ops) == 0 && ops.n + ops.n_lost <= file.n_events);
	for (size_t i = 0; i < ops.n; i++)
		assert(*trace_op_kind(&ops.ops[i]));
	trace_ops_deinit(&ops);
	trace_file_deinit(&file);
	return 0;
}
