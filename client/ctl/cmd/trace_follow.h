/*
 * A file of the flight recorder, read while the lane writes it.
 *
 * The reader keeps the number of the next event.  The lane does not wait: what it has written over since the last
 * read is lost, and counted.  The file is read, not mapped: another process may have made it shorter.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FOLLOW_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FOLLOW_H

#include "client/ctl/cmd/trace_file.h"

struct trace_follow {
	int fd;
	uint32_t n_places;
	uint64_t next;		/* number of the event that comes next */
	uint64_t n_lost;	/* events */
	struct trace_file file; /* its header, without events */
};

/*
 * is_old: it begins with the events from now on; else with the first one.
 * Takes fd, also on error.  Returns as trace_file_read().
 */
int trace_follow_start(int fd, bool is_old, struct trace_follow *ret_follow, char *text,
		       size_t size);

/* Puts the next events, oldest first, into ret_events (room for RECORDING_EVENTS_MAX).  Returns how many, or -EIO. */
int trace_follow_read(struct trace_follow *follow, struct recording_event *ret_events);

#endif
