/*
 * Quotas: an object that a client uses is charged to the quotas of the client, its user and the daemon.
 * A charge is taken when the object is made, and discharged only by that object's free function.
 *
 * Main thread only.
 */
#ifndef DSAIO_DAEMON_BASE_QUOTA_H
#define DSAIO_DAEMON_BASE_QUOTA_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum quota_kind {
	QUOTA_POOL_BYTES, /* of slabs */
	QUOTA_GPU_BYTES,  /* of slabs of GPU memory */
	QUOTA_SLABS,
	QUOTA_VIEWS, /* pieces of views, for each client that has them */
	QUOTA_FILES,
	QUOTA_HANDLES,
	QUOTA_CHANNELS,
	QUOTA_ENTRIES, /* of rings: the limit on open ops */
	QUOTA_CALLS,   /* requests not yet answered */
	QUOTA_SESSIONS,
	N_QUOTA_KINDS
};

struct quota {
	char name[64]; /* "client 7", "user 1000", "the daemon": for messages */
	struct quota *parent;
	uint64_t used[N_QUOTA_KINDS];
	uint64_t limit[N_QUOTA_KINDS];
	/* Set only in the daemon's quota: its descriptors (RLIMIT_NOFILE), and the kinds whose limits
	   follow from them. */
	uint64_t n_descriptors;
	bool follows_descriptors[N_QUOTA_KINDS];
};

struct charge {
	struct quota *quota; /* NULL: nothing is charged */
	enum quota_kind kind;
	uint64_t n;
};

/*
 * Charges n to the quota and all its parents, or to none.  Returns 0, or, with a message
 * that names the quota, the limit and what to do: -ENOMEM for bytes (-EDQUOT for those of GPUs), -EMFILE
 * for objects, -EUSERS for sessions.
 */
int quota_charge(struct charge *charge, struct quota *quota, enum quota_kind kind, uint64_t n,
		 struct error *error);
void quota_discharge(struct charge *charge); /* zeroes are fine */
/* From now on it is n, whatever the limits say. */
void quota_adjust(struct charge *charge, uint64_t n);

/* The key of dsaiod.conf that decides the limits of this kind: of a client, of its user (limits.c).  NULL: the
   levels have keys of their own. */
const char *quota_key(enum quota_kind kind);

/* True if nothing is charged to it. */
int quota_is_zero(const struct quota *quota);

#endif
