/*
 * Counts of a turn of a lane, of a user or one of its clients: entries taken from rings, and ops that were
 * due.  They bound the cost of the turn.  Lane only.
 */
#ifndef DSAIO_DAEMON_BASE_TAKES_H
#define DSAIO_DAEMON_BASE_TAKES_H

#include <stdint.h>

enum take { TAKE_ENTRY, TAKE_DUE, N_TAKES };

struct takes {
	uint32_t n_awake; /* clients of the user, channels of the client */
	uint64_t turn;	  /* intake's turn that n counts */
	uint32_t n[N_TAKES];
};

#endif
