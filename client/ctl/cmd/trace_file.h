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
	uint64_t n_written; /* by the lane, so far; the last event's number is one less */
};
void trace_file_deinit(struct trace_file *file);

/*
 * Reads the events from that number on which the lane has not written over.
 * Returns 0, -EINVAL, -ENOMEM or -errno of read(2), with what is wrong in text (of size bytes).
 */
int trace_file_read(int fd, uint64_t first, struct trace_file *ret_file, char *text, size_t size);

/* Whether the daemon that wrote it still runs, as far as this process sees it. */
bool trace_file_is_live(const struct trace_file *file);
/* That time of the lane as CLOCK_REALTIME. */
uint64_t trace_file_real_nsec(const struct trace_file *file, uint64_t nsec);

#endif
