/*
 * Conversion between our structs and protobuf-c's messages, and messages on the heap.
 */
#ifndef DSAIO_PROTO_WIRE_H
#define DSAIO_PROTO_WIRE_H

#include "proto/dsaio.pb-c.h"
#include "proto/profile.h"

#include <stdlib.h>

/* A message on the heap, as free_unpacked() frees it; NULL without memory. */
#define WIRE_NEW(type, name)                        \
	__extension__({                             \
		type *new_ = malloc(sizeof(*new_)); \
		if (new_)                           \
			name##__init(new_);         \
		new_;                               \
	})

/* A request with that body. */
#define WIRE_REQUEST(CASE, field_, message)                                    \
	((Wire__Request){ PROTOBUF_C_MESSAGE_INIT(&wire__request__descriptor), \
			  0,                                                   \
			  WIRE__REQUEST__BODY_##CASE,                          \
			  { .field_ = (message) } })

/* A whole profile. */
static inline struct profile profile_from_wire(const Wire__Profile *wire)
{
	return (struct profile){
		.block_size = wire->block_size,
		.queue_depth = wire->queue_depth,
		.single_submit = wire->single_submit,
		.overlap_events = wire->overlap_events,
		.intra_op_parallelism = wire->intra_op_parallelism,
	};
}

static inline void profile_to_wire(const struct profile *profile, Wire__Profile *wire)
{
	wire->block_size = profile->block_size;
	wire->queue_depth = profile->queue_depth;
	wire->single_submit = profile->single_submit;
	wire->overlap_events = profile->overlap_events;
	wire->intra_op_parallelism = profile->intra_op_parallelism;
	wire->absent = 0;
}

static inline struct partial_profile partial_from_wire(const Wire__Profile *wire)
{
	const struct profile defaults = PROFILE_DEFAULT;
	struct partial_profile partial = { .profile = profile_from_wire(wire),
					   .given = PROFILE_ALL & ~wire->absent };

	partial.profile = profile_fill(&partial, &defaults);
	return partial;
}

static inline void partial_to_wire(const struct partial_profile *partial, Wire__Profile *wire)
{
	profile_to_wire(&partial->profile, wire);
	wire->absent = PROFILE_ALL & ~partial->given;
}

#endif
