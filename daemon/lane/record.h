/*
 * The events that a lane writes to its flight recorder.  An event has the time of the lane's turn, so it costs
 * no look at the clock: all events of a turn have the same time, and are in their order.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_RECORD_H
#define DSAIO_DAEMON_LANE_RECORD_H

#include "daemon/account/recorder.h"
#include "daemon/lane/channel.h"
#include "daemon/lane/turn.h"

/* event: its kind, and what that kind has. */
static inline void record(const struct lane_turn *turn, const struct op *op,
			  struct recording_event event)
{
	const struct channel *channel = op->channel;

	if (!turn->recording)
		return;
	event.nsec = turn->now_nsec;
	event.id = op->id;
	event.client = channel->who.client;
	event.channel = channel->id;
	event.pid = (uint32_t)channel->who.pid;
	event.uid = channel->uid;
	recorder_add(turn->recording, &event);
}

#endif
