/*
 * What clients use is charged: to the client's account, and through its parents to its user's
 * and the daemon's.  A charge is taken when an object is made and given back by that object's
 * free, nowhere else.
 *
 * Main thread only.
 */
#ifndef DSAIO_DAEMON_BASE_QUOTA_H
#define DSAIO_DAEMON_BASE_QUOTA_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum charge_kind {
	CHARGE_POOL_BYTES, /* of slabs */
	CHARGE_SLABS,
	CHARGE_FILES,
	CHARGE_HANDLES,
	CHARGE_CHANNELS,
	CHARGE_ENTRIES, /* of rings: the bound on open ops */
	CHARGE_CALLS,	/* requests not yet answered */
	CHARGE_SESSIONS,
	N_CHARGE_KINDS
};

struct account {
	char name[64]; /* "client 7", "user 1000", "the daemon": for messages */
	struct account *parent;
	uint64_t used[N_CHARGE_KINDS];
	uint64_t limit[N_CHARGE_KINDS];
	/* Of an account without a parent: the daemon's descriptors (RLIMIT_NOFILE), and the kinds
	   whose bounds below it follow from them. */
	uint64_t n_descriptors;
	bool follows_descriptors[N_CHARGE_KINDS];
};

struct charge {
	struct account *account; /* NULL: nothing taken */
	enum charge_kind kind;
	uint64_t n;
};

/*
 * Takes n from the account and all its parents, or from none.  Returns 0, or, with a sentence
 * that names the account, the limit and what to do: -ENOMEM for bytes, -EMFILE for objects,
 * -EUSERS for sessions.
 */
int charge_take(struct charge *charge, struct account *account, enum charge_kind kind, uint64_t n,
		struct error *error);
void charge_give(struct charge *charge); /* also of one that was not taken */

/* True if nothing is charged to it. */
int account_is_zero(const struct account *account);

#endif
