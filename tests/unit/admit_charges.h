/*
 * A block of the device at admission, without a struct lane_block: what block_move() charges.
 */
#ifndef DSAIO_TESTS_UNIT_ADMIT_CHARGES_H
#define DSAIO_TESTS_UNIT_ADMIT_CHARGES_H

#include "daemon/lane/admit.h"

static inline void depth_start(struct admit *admit, struct admit_channel *channel, uint32_t bytes,
			       uint64_t now)
{
	admit_depth_charge(channel);
	admit_note_start(admit, channel, bytes, true, now);
}

/* Returns whether the latency guard watches the block. */
static inline bool engine_start(struct admit *admit, struct admit_channel *channel, unsigned kind,
				uint32_t bytes, uint64_t now)
{
	const bool is_guarded = admit_window_charge(admit, channel, kind, bytes, now);

	admit_client_charge(channel);
	return is_guarded;
}

static inline void engine_end(struct admit *admit, struct admit_channel *channel, unsigned kind,
			      uint32_t bytes, bool is_guarded, uint64_t now)
{
	admit_window_discharge(admit, channel, kind, bytes, is_guarded);
	admit_client_discharge(channel, now);
}

#endif
