/*
 * Per-client limit on conflict checks: for the order of an op others of its channel are looked at,
 * all of its thousands where they conflict.  All clients together may cause LOOKS_PER_TURN in a turn,
 * of some ns each.  Entries, ended ops, batches and cancels of a client that has caused its share wait
 * for a later turn.
 */
#ifndef DSAIO_DAEMON_LANE_LOOKS_H
#define DSAIO_DAEMON_LANE_LOOKS_H

#include "daemon/lane/sched.h"

#define LOOKS_PER_TURN 4096u

/* Has the client caused the looks that it may?  Each turn works off a share. */
static inline bool looks_are_spent(struct sched_client *client, uint64_t turn, uint32_t n_clients)
{
	const uint64_t share = LOOKS_PER_TURN / (n_clients ? n_clients : 1) + 1;

	if (client->looked_turn != turn) {
		client->looked_turn = turn;
		client->n_looks -= client->n_looks < share ? client->n_looks : share;
	}
	return client->n_looks >= share;
}

#endif
