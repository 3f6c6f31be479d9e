/*
 * Usage: what each user has done since the daemon's start, and the bytes that it has written since wear is counted,
 * which control/wear.h saves across restarts.
 *
 * A user has an entry from its first client, or limit, on.  The counters of its open channels are not in it: status
 * adds them.  When there are USAGE_USERS_MAX, the oldest one without a client and a limit goes, and the rest has its
 * counters.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_ACCOUNT_USAGE_H
#define DSAIO_DAEMON_ACCOUNT_USAGE_H

#include "daemon/account/limiter.h"
#include "daemon/account/metrics.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define USAGE_USERS_MAX 64u

struct usage_user {
	struct list_node node;
	uid_t uid;
	uint32_t n_clients;
	uint64_t earlier_bytes; /* written before the daemon's start */
	struct metrics ended;	/* of its channels that have ended: a coarse sum */
	struct limiter limiter; /* lasts longer than its clients, and with it what the user owes */
};

/* All zeroes: nothing was counted. */
struct usage {
	struct list users; /* struct usage_user, oldest first */
	unsigned n_users;
	struct usage_user rest; /* users that have no entry any more */
	bool has_rest;
	uint64_t since_sec; /* of the bytes: CLOCK_REALTIME */
	uint64_t n_crashes; /* daemons that did not stop in order */
};

void usage_deinit(struct usage *usage);

/* The user's entry, made if there is none; NULL: no memory.  It lasts while n_clients, the caller's, is not 0. */
struct usage_user *usage_user(struct usage *usage, uid_t uid);
/* Limits a user, who need have no client.  0 or -ENOMEM. */
int usage_set_limit(struct usage *usage, uid_t uid, const struct rate_limit *limit);

#endif
