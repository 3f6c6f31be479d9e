/*
 * A turn of a lane's loop.  The lane asks the clock once in a turn, and its parts use that time.  All of them
 * record events (record.h).
 */
#ifndef DSAIO_DAEMON_LANE_TURN_H
#define DSAIO_DAEMON_LANE_TURN_H

#include <stdint.h>

struct recording;

struct lane_turn {
	uint64_t now_nsec;
	uint64_t before_nsec;	     /* of the turn before, or the end of the sleep since */
	struct recording *recording; /* NULL: nothing is recorded */
};

#endif
