/*
 * A limit on bytes and ops in a second, as an administrator sets it (dsaioctl limit).
 */
#ifndef DSAIO_DAEMON_BASE_RATE_LIMIT_H
#define DSAIO_DAEMON_BASE_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct rate_limit {
	uint64_t bytes_per_sec, ops_per_sec; /* 0: no limit */
};

static inline bool rate_limit_is_set(const struct rate_limit *limit)
{
	return limit->bytes_per_sec || limit->ops_per_sec;
}

#endif
