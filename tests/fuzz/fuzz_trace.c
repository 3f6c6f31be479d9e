/*
 * A file of the flight recorder: anybody may have made it, or write it meanwhile.  The first 8 bytes are
 * what it says after it was read.
 */
#include "client/ctl/cmd/trace_file.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace_file file;
	char text[256] = "", number[TRACE_NUMBER_BYTES];
	uint64_t n_written;
	size_t has_result = 0;
	int r;

	take_bytes(&data, &size, &n_written, sizeof(n_written));
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
	}
	assert(has_result <= file.n_events);
	trace_file_deinit(&file);
	return 0;
}
