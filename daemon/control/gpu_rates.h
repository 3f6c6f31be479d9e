/*
 * The rates of the two ways of ops on GPU memory, which clients have measured, for later clients of the same
 * user: by user, store and GPU, for each direction and class of lengths.  They last as long as the daemon,
 * and so do the driver and cuFile that were measured.
 *
 * A client's numbers may be lies.  They reach clients of its own user alone, which then use the slower way.
 * Rows are bounded for each user and for all.  The oldest row goes; it costs another measurement.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_GPU_RATES_H
#define DSAIO_DAEMON_CONTROL_GPU_RATES_H

#include "daemon/engine/gpu_probe.h"
#include "proto/gpu_rate.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Guesses: a user has a few stores, and a host 8 GPUs. */
#define GPU_RATES_USER_MAX 64u
#define GPU_RATES_MAX 1024u

struct gpu_rate {
	uint64_t direct_rate, copied_rate; /* bytes per second; 0: nothing was measured */
	bool is_direct;
	uint32_t error; /* errno of the other way's ops; 0: they did not fail */
};

struct gpu_rates_row {
	struct list_node node;
	uid_t uid;
	char *store; /* its name: an automatic store that comes back has another number */
	char gpu[GPU_UUID_BYTES];
	struct gpu_rate rates[2][N_GPU_CLASSES]; /* [is_write][class] */
};

struct gpu_rates {
	struct list rows; /* the one that was written last is the last */
	unsigned n;
};

void gpu_rates_deinit(struct gpu_rates *rates); /* zeroes are fine */

/* NULL: nothing is kept. */
struct gpu_rates_row *gpu_rates_find(const struct gpu_rates *rates, uid_t uid, const char *store,
				     const char *gpu);
/* A row that is to be written: found, or made.  NULL: no memory. */
struct gpu_rates_row *gpu_rates_get(struct gpu_rates *rates, uid_t uid, const char *store,
				    const char *gpu);

#endif
