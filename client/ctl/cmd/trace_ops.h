/*
 * Ops, put together from the events of the flight recorder.
 *
 * An op is open from its event "taken" until "ended".  Events of an op whose "taken" has not been added are
 * left out: it began before the first event.  The lane may have written over the end of an op before anybody
 * read it.  That op counts as lost when its id is taken again.
 *
 * The events are a stranger's: any values are fine.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_OPS_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_OPS_H

#include "client/ctl/bench/ops_file.h"
#include "client/ctl/ui/flags.h"
#include "proto/recording.h"

struct ctl;

struct trace_ops {
	void *open; /* of tsearch(3) */
	struct trace_op *ops;
	size_t n, n_room;
	uint64_t n_lost;
};

/* Adds the next event of that lane of that daemon (its pid).  An ended op moves to ops.  Returns 0 or -ENOMEM. */
int trace_ops_add(struct trace_ops *ops, uint32_t daemon, uint32_t lane,
		  const struct recording_event *event);

/* Moves the open ops there, too, and sorts all by their start.  Returns 0 or -ENOMEM. */
int trace_ops_end(struct trace_ops *ops);

void trace_ops_deinit(struct trace_ops *ops);

/* ---- the choice of ops ---- */

struct trace_filter {
	const char *store, *user, *slower, *kind; /* as they were given; NULL: not */
	uint32_t pid;				  /* 0: any */
	bool errors;
	uint32_t uid;	      /* of user */
	uint64_t slower_nsec; /* of slower */
};

#define TRACE_FILTER_FLAGS(f)                                                                      \
	{ "store", FLAG_STRING, &(f).store, 0, 0 }, { "pid", FLAG_COUNT, &(f).pid, 1, INT32_MAX }, \
	{                                                                                          \
		"user", FLAG_STRING, &(f).user, 0, 0                                               \
	}

/* Looks up user and slower, and refuses --private.  Returns CTL_OK, CTL_USAGE or CTL_FAILED (reported). */
int trace_filter_check(const struct ctl *ctl, struct trace_filter *filter);

/* By store, pid and user; all events of an op have the same. */
bool trace_filter_has_event(const struct trace_filter *filter, const char *store,
			    const struct recording_event *event);
/* By the rest.  now_nsec: an open op takes until then. */
bool trace_filter_has(const struct trace_filter *filter, const struct trace_op *op,
		      uint64_t now_nsec);

/* "read", "write", "fsync" or "fdatasync"; "?": the opcode is not known. */
const char *trace_op_kind(const struct trace_op *op);

#endif
