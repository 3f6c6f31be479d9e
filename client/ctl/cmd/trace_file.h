/*
 * A file of the flight recorder (proto/recording.h), read and checked.  Another user may have made it, and
 * the lane may be writing it: it is copied, and every value of the copy is taken for a stranger's.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FILE_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FILE_H

#include "proto/recording.h"

#include <stdbool.h>
#include <stddef.h>

struct trace_file {
	char store[sizeof(((struct recording *)0)->store)]; /* any bytes, and a NUL */
	char program[sizeof(((struct recording *)0)->program)];
	uint32_t pid, crash_signal;
	uint64_t process_ticks, start_nsec, start_real_nsec, crash_nsec;
	struct recording_event *events; /* oldest first; owned */
	size_t n_events;
};
void trace_file_deinit(struct trace_file *file);

/*
 * bytes: the whole file; n_written: what it said after it was read.  Returns 0, or -EINVAL or -ENOMEM with
 * what is wrong in text (of size bytes).
 */
int trace_file_parse(const void *bytes, size_t len, uint64_t n_written, struct trace_file *ret_file,
		     char *text, size_t size);
/* Also -errno of read(2).  The descriptor remains the caller's. */
int trace_file_read(int fd, struct trace_file *ret_file, char *text, size_t size);

/* Whether the daemon that wrote it still runs, as far as this process sees it. */
bool trace_file_is_live(const struct trace_file *file);
/* That time of the lane as CLOCK_REALTIME. */
uint64_t trace_file_real_nsec(const struct trace_file *file, uint64_t nsec);

/* For people, and the values of JSON; a value that is not known as its number, in number. */
#define TRACE_NUMBER_BYTES 24u
const char *trace_event_text(const struct recording_event *event, char number[TRACE_NUMBER_BYTES]);
const char *trace_opcode_text(const struct recording_event *event, char number[TRACE_NUMBER_BYTES]);
static inline bool trace_has_result(const struct recording_event *event)
{
	return event->kind == RECORDING_ENDED || event->kind == RECORDING_CANCELLED ||
	       event->kind == RECORDING_BLOCK_DONE;
}

#endif
