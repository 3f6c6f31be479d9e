/*
 * Intake: entries become ops.  They come from the rings of all channels, some of each in a turn, and
 * by Submit in batches.  Cancels and deadlines end ops early.
 *
 * What a turn costs depends on the channels in use, not on those that are open: a channel that is
 * quiet and has nothing open is parked.  No turn looks at it until its doorbell rings, which a lane
 * that does not sleep hears by polling.  All loops over channels are over those awake.
 *
 * Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_INTAKE_H
#define DSAIO_DAEMON_LANE_INTAKE_H

#include "daemon/lane/poller.h"
#include "daemon/lane/transfer.h"

struct lane_cancel;

struct intake_config {
	struct lane_store *store; /* all pointers are borrowed */
	const struct turn *turn;
	struct admit *admit;
	struct ready *ready;
	struct publish *publish;
	struct transfer *transfer;
	struct poller *poller;
	uint64_t park_nsec; /* a channel that was quiet for so long is parked */
};

struct intake {
	struct lane_store *store;
	const struct turn *turn;
	struct admit *admit;
	struct ready *ready;
	struct publish *publish;
	struct transfer *transfer;
	struct poller *poller;

	struct channel *awake; /* channels that are not parked */
	uint32_t n_channels, n_parked, n_closing;
	uint64_t park_nsec;
	uint64_t next_park_nsec;     /* when to look for channels to park again */
	uint64_t next_deadline_nsec; /* 0: none */
};

void intake_init(struct intake *intake, const struct intake_config *config);

void intake_add_channel(struct intake *intake, struct channel *channel);
void intake_remove_channel(struct intake *intake, struct channel *channel);
/* Its doorbell rang. */
void intake_wake(struct intake *intake, struct channel *channel);

/* What main-thread messages ask for. */
void intake_submit(struct intake *intake, struct batch *batch);
void intake_cancel(struct intake *intake, struct lane_cancel *cancel);

/* Entries of rings become ops; returns how many. */
int intake_take(struct intake *intake);
/* Cancels ops whose deadline has passed. */
void intake_run_deadlines(struct intake *intake);
/* No earlier op stands before this one any more: for publish. */
void intake_may_start(struct op *op, void *intake);
/* Lets go of closing channels that have nothing open any more. */
void intake_remove_idle(struct intake *intake);
/* Parks channels that are quiet, if it is time to look for such. */
void intake_park(struct intake *intake);
/* A ring has entries: the look before a sleep. */
bool intake_is_ready(const struct intake *intake);

#endif
