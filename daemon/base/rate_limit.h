/*
 * A limit on bytes and ops in a second, as an administrator sets it (dsaioctl limit).
 */
#ifndef DSAIO_DAEMON_BASE_RATE_LIMIT_H
#define DSAIO_DAEMON_BASE_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* More than any device has; the sums of the limiters do not overflow. */
#define RATE_LIMIT_MAX (UINT64_C(1) << 50)

struct rate_limit {
	uint64_t bytes_per_sec, ops_per_sec; /* 0: no limit */
};

static inline bool rate_limit_is_set(const struct rate_limit *limit)
{
	return limit->bytes_per_sec || limit->ops_per_sec;
}

#endif
