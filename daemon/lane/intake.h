/*
 * Intake makes ops of entries.  Entries come from the rings of all channels, some of each in a turn, and
 * in batches by Submit.  Intake also ends ops early, by cancels and deadlines.
 *
 * The cost of a turn depends on the channels in use, not on the open ones: a quiet channel without open
 * ops is parked.  No turn polls it until its doorbell is written.  A lane that does not sleep polls
 * the doorbells.  All loops over channels skip parked ones.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_INTAKE_H
#define DSAIO_DAEMON_LANE_INTAKE_H

#include "daemon/lane/poller.h"
#include "daemon/lane/transfer.h"

struct lane_cancel;

/* The lane sets the first ones; the others start as zeroes. */
struct intake {
	struct lane_store *store; /* all pointers are borrowed */
	const struct lane_turn *turn;
	struct admit *admit;
	struct ready *ready;
	struct publish *publish;
	struct transfer *transfer;
	struct poller *poller;
	uint64_t park_nsec; /* a channel that was quiet for so long is parked */

	struct list awake; /* channels that are not parked */
	uint32_t n_channels, n_parked, n_closing;
	uint32_t n_awake_users;
	uint64_t n_turns;
	uint64_t next_park_nsec;     /* when to look for channels to park again */
	uint64_t next_deadline_nsec; /* 0: none */
};

void intake_add_channel(struct intake *intake, struct channel *channel);
void intake_remove_channel(struct intake *intake, struct channel *channel);
/* The doorbell of a parked channel was written, or the main thread has a request of it. */
void intake_wake(struct intake *intake, struct channel *channel);

/*
 * Checks one entry, a private copy, against the session's objects and makes it an op's: file,
 * slab, address, ranges, alignment.  All checks of foreign entries are here.  Returns 0 (op
 * holds file and slab; the end of its growth is the entry's) or a positive errno: then op is of no use but
 * to end.  Lane only; the fuzz target.
 */
int intake_check_entry(const struct channel *channel, const struct ring_entry *entry,
		       struct op *op);

/* Requests of the main thread. */
void intake_submit(struct intake *intake, struct batch *batch);
void intake_cancel(struct intake *intake, struct lane_cancel *cancel);

/* Entries of rings become ops; returns how many. */
int intake_take(struct intake *intake);
/* Cancels ops whose deadline has passed. */
void intake_run_deadlines(struct intake *intake);
/* Ops that wait for no earlier op any more. */
void intake_start(struct intake *intake, struct list *may_start);
/* Returns closing channels without open ops to their owner. */
void intake_remove_idle(struct intake *intake);
/* Parks quiet channels, if it is time to look for them. */
void intake_park(struct intake *intake);
/* Whether a ring has entries: the check before a sleep. */
bool intake_is_ready(const struct intake *intake);

#endif
