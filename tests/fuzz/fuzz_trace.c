/*
 * A file of the flight recorder: anybody may have made it, or write it meanwhile.  The first 8 bytes are
 * what it says after it was read.  If they are even, it has the length that its header names.
 */
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/cmd/trace_ops.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

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
	struct trace_file file;
	char text[256] = "", number[TRACE_NUMBER_BYTES];
	uint64_t n_written;
	struct trace_ops ops = { 0 };
	size_t has_result = 0;
	int r;

	take_bytes(&data, &size, &n_written, sizeof(n_written));
	if (n_written % 2 == 0)
		fit(&data, &size);
	r = trace_file_parse(data, size, n_written, &file, text, sizeof(text));
	assert(r <= 0 && (r == 0 || text[0]));
	if (r < 0)
		return 0;
	assert(file.n_events <= RECORDING_EVENTS_MAX - RECORDING_MARGIN);
	assert(strlen(file.store) < sizeof(file.store) &&
	       strlen(file.program) < sizeof(file.program));
	for (size_t i = 0; i < file.n_events; i++) {
		assert(*trace_event_text(&file.events[i], number));
		assert(*trace_opcode_text(&file.events[i], number));
		(void)trace_file_real_nsec(&file, file.events[i].nsec);
		has_result += trace_has_result(&file.events[i]);
		assert(trace_ops_add(&ops, 0, &file.events[i]) == 0);
	}
	assert(trace_ops_end(&ops) == 0 && ops.n + ops.n_lost <= file.n_events);
	trace_ops_deinit(&ops);
	assert(has_result <= file.n_events);
	trace_file_deinit(&file);
	return 0;
}
