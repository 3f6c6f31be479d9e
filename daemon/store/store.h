/*
 * A store: a file system (named by a directory on it) or a raw block device that the daemon
 * serves, with its own lanes.  A file belongs to it by its device number.
 *
 * Its first lane is the home of all its channels and alone schedules; further ones start when a
 * handle asks for more parallelism, at most cores - 1.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_STORE_H
#define DSAIO_DAEMON_STORE_STORE_H

#include "daemon/base/error.h"
#include "daemon/object/file.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/work_queue.h"
#include "daemon/config/config.h"
#include "daemon/store/probe.h"
#include "daemon/lane/lane_store.h"
#include "proto/util/clock.h"
#include "proto/profile.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct engine_ops;
struct lane;

/* Where a store's profile is from: what stands lower goes before. */
enum profile_source {
	PROFILE_DEFAULTED,
	PROFILE_CONFIGURED,
	PROFILE_SAVED, /* an administrator has set it */
	PROFILE_SET,   /* the same, and it cannot be saved */
};

struct store {
	struct store *next; /* in the list of struct registry */
	uint32_t id;	    /* from 1 */
	char *name, *path;
	const struct fs_type *fs_type;
	dev_t dev;
	struct profile profile;
	enum profile_source profile_source;
	struct profile given_profile; /* the configuration's, or the default */
	enum profile_source given_source;
	char *saved_key; /* under which a profile is saved; NULL: it has no name */
	const struct engine_ops *engine;
	uint32_t max_lanes;
	struct access access; /* borrowed */
	bool is_automatic;
	uid_t made_for;		    /* an automatic one: whose file asked for it first */
	uint32_t n_holds;	    /* files on it, and sessions' shares of it */
	uint32_t n_shares;	    /* sessions that have files or channels there */
	uint64_t unused_since_nsec; /* with n_holds 0 */
	struct lane *lanes[STORE_LANES_MAX];
	uint32_t n_lanes; /* running; 0 before the first channel */
	struct lane_store lane_store;
	struct store_probe {
		struct work work;
		char text_before[PROBE_TEXT_BYTES]; /* why, before it is measured, */
		char text[PROBE_TEXT_BYTES];	    /* and since */
		_Atomic bool is_done;		    /* text is there: release, acquire */
	} probe;
	struct inodes inodes; /* of all files on it */
};

/*
 * Looks at path and makes the store; no lane yet.  Copies config's strings.
 * Returns 0, or a negative errno with a sentence (-ENOENT: no such directory, -ENOTDIR, ...).
 */
int store_new(uint32_t id, const struct store_config *config, struct mailbox *main_mailbox,
	      struct store **ret_store, struct error *error);
/* The same without a look: the device is known.  0 or -ENOMEM. */
int store_new_on(uint32_t id, const struct store_config *config, dev_t dev,
		 const struct fs_type *fs_type, struct mailbox *main_mailbox,
		 struct store **ret_store, struct error *error);
/* Stops the lanes, which must have no channel any more.  NULL is fine. */
void store_free(struct store *store);

/*
 * Measures, on a thread of this helper's, whether io_submit waits there; until that is known, and
 * where it can not be, the kind of file system decides.  Free the work queue before the store.
 */
void store_probe(struct store *store, struct work_queue *work_queue);
static inline bool store_is_blocking(const struct store *store)
{
	return lane_store_is_blocking(&store->lane_store);
}
/* Why it is, or is not: the end of a sentence. */
const char *store_engine_text(const struct store *store);

/* An automatic store that nobody holds goes away after a while (stores.h). */
static inline void store_ref(struct store *store)
{
	store->n_holds++;
}
static inline void store_unref(struct store *store)
{
	if (--store->n_holds == 0)
		store->unused_since_nsec = clock_nsec();
}

/*
 * Sees to it that lanes for this profile run: at least one, at most intra_op_parallelism
 * and what the configuration allows.
 * Returns 0 if at least the home lane runs; else -EAGAIN (aio-max-nr is used up; the sentence
 * says what to raise) or what thread creation says.
 */
int store_start_lanes(struct store *store, const struct profile *profile, struct error *error);

static inline struct lane *store_home(const struct store *store)
{
	return store->lanes[0];
}

/* The size of blocks that the store transfers for a profile, while one client uses it. */
uint32_t store_block_bytes(const struct store *store, const struct profile *profile);

/* Blocks that a lane's engine queue holds; 0 without lanes. */
uint32_t store_lane_depth(const struct store *store);

#endif
