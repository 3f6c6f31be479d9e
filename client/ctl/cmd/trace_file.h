/*
 * The files of the flight recorder (proto/recording.h), read and checked, and ops put together from their events.
 *
 * Another user may have made them, and lanes may be writing: they are copied, and every value of the copy is taken for
 * a stranger's.
 *
 * An op is open from its event "taken" until "ended".  Events of an op whose "taken" is not there are left out: it
 * began before the first event.  The lane may have written over the end of an op before anybody read it.  That op
 * counts as lost when its id is taken again.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FILE_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FILE_H

#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/flags.h"
#include "proto/recording.h"

#define TRACE_JOB_EVENTS_MAX (UINT32_C(1) << 23) /* of a file of trace record: 512 MiB */

struct trace_file {
	struct recording *recording; /* owned; its names have a NUL; NULL: none was read */
	uint64_t first, n_written;   /* the numbers of the events that were read the last time */
	uint64_t
		n_lost; /* events since the reading before that were written over before this one */
};
void trace_file_deinit(struct trace_file *file);

/*
 * Reads the events that the lane has written since file, from the same path, was read; if it is zero, or the
 * path has another daemon's file by now: all.  A file that is being made has none; what is no such file, of at most so
 * many events, is a failure.
 * Returns CTL_OK or CTL_FAILED (reported).
 */
int trace_file_read(const struct ctl *ctl, const char *path, int fd, uint32_t n_events_max,
		    struct trace_file *file);

static inline const struct recording_event *trace_file_event(const struct trace_file *file,
							     uint64_t number)
{
	return &file->recording->events[number % file->recording->n_events];
}

/* Whether the daemon that wrote it, and listens on the socket, still runs: by its process or its start lock. */
bool trace_file_is_live(const struct recording *recording, const char *socket_path);
/* That time of the lane as CLOCK_REALTIME. */
uint64_t trace_file_real_nsec(const struct recording *recording, uint64_t nsec);

/* All of a daemon.  Zero at first. */
struct trace_files {
	const char *socket_path; /* of a connection, also where nobody listens any more */
	struct trace_file files[RECORDING_FILES_MAX];
};
void trace_files_deinit(struct trace_files *files);

/* Reads the files of that kind (RECORDING_NOW, ...).  Returns CTL_OK or CTL_FAILED (reported). */
int trace_files_read(const struct ctl *ctl, struct trace_files *files, const char *kind);

/* ---- the choice of ops ---- */

struct trace_filter {
	const char *store, *user, *slower; /* as they were given; NULL: not */
	uint32_t pid;			   /* 0: any */
	bool errors;
	uint32_t uid;	      /* of user */
	uint64_t slower_nsec; /* of slower */
};

#define TRACE_FILTER_FLAGS(f)                                                                      \
	{ "store", FLAG_STRING, &(f).store, 0, 0 }, { "pid", FLAG_COUNT, &(f).pid, 1, INT32_MAX }, \
	{                                                                                          \
		"user", FLAG_STRING, &(f).user, 0, 0                                               \
	}

/* Looks up user and slower.  Returns CTL_OK, CTL_USAGE or CTL_FAILED (reported). */
int trace_filter_check(const struct ctl *ctl, struct trace_filter *filter);

/* By store, pid and user; all events of an op have the same. */
bool trace_filter_has_event(const struct trace_filter *filter, const char *store,
			    const struct recording_event *event);

/* ---- ops ---- */

/* For qsort(3): by the first of n values that differ. */
int trace_compare(const uint64_t *a, const uint64_t *b, size_t n);

struct trace_op {
	uint32_t file; /* the client's number for it */
	uint32_t client, channel;
	uint32_t lane; /* as it was given */
	uint64_t id;
	uint32_t pid, uid, opcode;
	uint64_t off, len;
	/* CLOCK_MONOTONIC: taken, its first block started, its last one was done, ended; 0: not (yet) */
	uint64_t taken_nsec, started_nsec, done_nsec, ended_nsec;
	int64_t result; /* as in struct ring_completion; 0 while it is open */
};

struct trace_ops {
	struct trace_op *ops; /* in no order; owned */
	size_t n;
	uint64_t n_lost;
};

/* Adds those of the file that the filter has by their events. */
void trace_ops_add(struct trace_ops *ops, uint32_t lane, const struct trace_file *file,
		   const struct trace_filter *filter);
void trace_ops_deinit(struct trace_ops *ops);

/* Has the filter it by the rest?  now_nsec: an open op takes until then. */
bool trace_filter_has(const struct trace_filter *filter, const struct trace_op *op,
		      uint64_t now_nsec);

/* "read", "write", "fsync" or "fdatasync"; "?": the opcode is not known. */
const char *trace_op_kind(const struct trace_op *op);

#endif
