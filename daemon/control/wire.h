/*
 * Messages that the daemon makes; what goes into them: proto/wire.h.
 */
#ifndef DSAIO_DAEMON_CONTROL_WIRE_H
#define DSAIO_DAEMON_CONTROL_WIRE_H

#include "proto/wire.h"

#include <stdlib.h>

/* A message on the heap, as free_unpacked() frees it; NULL without memory. */
#define WIRE_NEW(type, name)                        \
	__extension__({                             \
		type *new_ = malloc(sizeof(*new_)); \
		if (new_)                           \
			name##__init(new_);         \
		new_;                               \
	})

#endif
