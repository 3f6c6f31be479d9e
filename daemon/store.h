/*
 * A store: a file system (named by a directory on it) or a raw block device that the daemon
 * serves, with its own lanes.  A file belongs to it by its device number.
 *
 * Its first lane is the home of all its channels and alone schedules; further ones start when a
 * handle asks for more parallelism, at most cores - 1.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_H
#define DSAIO_DAEMON_STORE_H

#include "daemon/error.h"
#include "daemon/file.h"
#include "daemon/inbox.h"
#include "daemon/stats.h"
#include "proto/profile.h"

#include <stdint.h>
#include <sys/types.h>

struct helper;
struct lane;

#define STORE_LANES_MAX 64u

struct store_config {
	const char *name;
	const char *path; /* a directory or a block device */
	struct profile profile;
	uint32_t spin_usec;    /* how long lanes spin before they sleep; 0: not at all */
	uint64_t window_bytes; /* in flight while several clients are active */
};

struct store {
	struct store *next; /* in the server's list */
	uint32_t id;	    /* from 1 */
	char *name, *path;
	char fs_type[16];
	dev_t dev;
	struct profile profile;
	uint32_t spin_usec;
	uint64_t window_bytes;
	struct inbox *main_inbox; /* borrowed: where lanes report */
	struct lane *lanes[STORE_LANES_MAX];
	uint32_t n_lanes;   /* running; 0 before the first channel */
	struct stats stats; /* of all channels that are gone and that are there; home lane writes */
	struct store_helper *helpers; /* of its users */
	struct inodes inodes;	      /* of all files on it */
};

/*
 * Looks at path and makes the store; no lane yet.  Copies config's strings.
 * Returns 0, or a negative errno with a sentence (-ENOENT: no such directory, -ENOTDIR, ...).
 */
int store_new(uint32_t id, const struct store_config *config, struct inbox *main_inbox,
	      struct store **ret_store, struct error *error);
/* Stops the lanes, which must have no channel any more.  NULL is fine. */
void store_free(struct store *store);

/*
 * Sees to it that lanes for this profile run: at least one, at most intra_op_parallelism.
 * Returns 0 if at least the home lane runs; else -EAGAIN (aio-max-nr is used up; the sentence
 * says what to raise) or what thread creation says.
 */
int store_start_lanes(struct store *store, const struct profile *profile, struct error *error);

static inline struct lane *store_home(const struct store *store)
{
	return store->lanes[0];
}

/* Blocks that a lane's engine queue holds; 0 without lanes. */
uint32_t store_lane_depth(const struct store *store);

/* The helper threads for what a user's ops may block in on this store (syncs, pieces); counted. */
int store_take_helper(struct store *store, uid_t uid, struct helper **ret_helper);
void store_give_helper(struct store *store, uid_t uid);

#endif
