/*
 * The files of the flight recorder (proto/recording.h), beside the socket, read and checked.  Another user may have
 * made them, and lanes may be writing: they are copied, and every value of the copy is taken for a stranger's.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FILE_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FILE_H

#include "client/ctl/cmd/trace_ops.h"
#include "client/ctl/ui/ctl.h"
#include "proto/recording.h"
#include "proto/util/socket.h"

struct trace_file {
	char store[sizeof(((struct recording *)0)->store)]; /* any bytes, and a NUL */
	char program[sizeof(((struct recording *)0)->program)];
	uint32_t pid, crash_signal;
	uint64_t process_ticks, start_nsec, start_real_nsec, crash_nsec;
	struct recording_event *events; /* oldest first; owned; NULL: none were read */
	size_t n_events;
	uint64_t n_written; /* by the lane, so far; the last event's number is one less */
	bool is_left_out;   /* it is none, and that has been said */
	uint64_t n_lost;    /* events that it has written over before they were read */
};
void trace_file_deinit(struct trace_file *file);

/*
 * Reads the events that the lane has written since file, from the same path, was read; if it is zero, or the
 * path has another daemon's file by now: all.  A path that is no such file, or not yet, is noted, and has no events.
 * Returns CTL_OK or CTL_FAILED (reported).
 */
int trace_file_read(const struct ctl *ctl, const char *path, int fd, struct trace_file *file);

/* Whether the daemon that wrote it still runs, as far as this process sees it. */
bool trace_file_is_live(const struct trace_file *file);
/* That time of the lane as CLOCK_REALTIME. */
uint64_t trace_file_real_nsec(const struct trace_file *file, uint64_t nsec);

/* ---- all of a daemon ---- */

struct trace_files {
	char socket_path[SOCKET_PATH_BYTES];
	struct trace_file files[RECORDING_FILES_MAX]; /* without events: no such */
	const struct trace_file *first;		      /* NULL: there is none */
	uint64_t n_lost;			      /* events, of all files */
	struct trace_ops ops;
	/* trace.c's: */
	bool is_live;
	uint64_t end_nsec; /* TIME is before it */
};
void trace_files_deinit(struct trace_files *files);

/* Finds the path of a connection, also where nobody listens any more.  CTL_OK or CTL_FAILED (reported). */
int trace_files_find(const struct ctl *ctl, struct trace_files *files);

/*
 * Reads what the lanes have written since the last call into the files of that kind (RECORDING_NOW, ...), and adds
 * the ops that the filter has by their events.  CTL_OK or CTL_FAILED (reported).
 */
int trace_files_read(const struct ctl *ctl, struct trace_files *files, const char *kind,
		     const struct trace_filter *filter);

#endif
