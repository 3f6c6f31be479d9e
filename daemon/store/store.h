/*
 * A store: a file system (named by a directory on it) or a raw block device that the daemon
 * serves, with its own lane.  A file belongs to the store that has its device number.
 *
 * Or a namespace of a RADOS pool, by a plug-in.  Its files have names (control/names.h) and no descriptors, and its
 * device number is none that a file can have.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_STORE_H
#define DSAIO_DAEMON_STORE_STORE_H

#include "daemon/base/error.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/work_queue.h"
#include "daemon/config/config.h"
#include "daemon/lane/lane_store.h"
#include "daemon/object/file.h"
#include "daemon/store/probe.h"
#include "daemon/store/saved.h"
#include "proto/profile.h"
#include "proto/util/clock.h"
#include "proto/util/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct engine_ops;
struct lane;
struct rados_plugin;
struct rados_store;

/* The source of a store's profile: a later value takes precedence over an earlier one. */
enum profile_source {
	PROFILE_DEFAULTED,
	PROFILE_CONFIGURED,
	PROFILE_SAVED, /* an administrator has set it */
};

struct store {
	struct list_node node; /* in the list of struct registry */
	uint32_t id;	       /* from 1: for status */
	uint32_t key; /* for clients: from its name, so that the next daemon has the same */
	char *name, *path;
	const struct fs_type *fs_type;
	dev_t dev;
	struct profile profile;
	enum profile_source profile_source;
	struct profile given_profile; /* the configuration's, or the default */
	enum profile_source given_source;
	char saved_key[SAVED_KEY_BYTES]; /* under which its settings are saved; "": it has none */
	struct saved_entry *saved; /* of that key, once the registry has the store; NULL: none */
	const struct engine_ops *engine;
	const struct rados_plugin *plugin; /* of a store on RADOS; NULL: a local one */
	struct rados_store *rados;	   /* the plug-in's; NULL: not started */
	struct access access;		   /* borrowed */
	bool is_automatic;
	uid_t made_for;		    /* an automatic store: the user of its first file */
	uint32_t n_refs;	    /* references: files, shares of sessions, queries */
	uint32_t n_shares;	    /* sessions that have files or channels there */
	uint64_t unused_since_nsec; /* with n_refs 0 */
	struct lane *lane;	    /* NULL before the first channel */
	struct lane_store lane_store;
	struct store_probe {
		struct work work;
		char text_before[PROBE_TEXT_BYTES]; /* the reason until the probe is done */
		char text[PROBE_TEXT_BYTES];	    /* the reason afterwards */
		_Atomic bool is_done;		    /* text is set: release, acquire */
	} probe;
	struct inodes inodes; /* of all files on it */
	struct work removal;  /* of an automatic store */
};

/*
 * Checks the path and makes the store, without its lane.  Copies config's strings.
 * Returns 0, or a negative errno with a message (-ENOENT: no such directory, -ENOTDIR, ...).
 */
int store_new(uint32_t id, const struct store_config *config, struct mailbox *main_mailbox,
	      struct store **ret_store, struct error *error);
/* Makes a store without a check of its path, for a known device.  Returns 0 or -ENOMEM. */
int store_new_on(uint32_t id, const struct store_config *config, dev_t dev,
		 const struct fs_type *fs_type, struct mailbox *main_mailbox,
		 struct store **ret_store, struct error *error);
/*
 * Connects a store on RADOS, for which the plug-in fences an earlier daemon: once, when nothing can keep the store from
 * being served.  Does not wait for the cluster.  Nothing for other stores.  Returns 0, or an error of the host's.
 */
int store_start(struct store *store, const struct store_config *config, struct error *error);
/* Stops the lane, which must have no channel, and frees the store.  One on RADOS that has started waits for the
   cluster, up to its op_timeout.  NULL is fine. */
void store_free(struct store *store);

/*
 * Probes on the work queue whether io_submit blocks on this store.  Until the probe is done, and if it
 * fails, the kind of file system decides.  Free the work queue before the store.
 */
void store_probe(struct store *store, struct work_queue *work_queue);
/* Whether the probe has a file open on the store. */
static inline bool store_is_probing(const struct store *store)
{
	/* acquire: pairs with the release in probe_run(), after the close */
	return store->probe.work.run &&
	       !atomic_load_explicit(&store->probe.is_done, memory_order_acquire);
}
static inline bool store_is_blocking(const struct store *store)
{
	return lane_store_is_blocking(&store->lane_store);
}
/* The reason for store_is_blocking(): the end of a message. */
const char *store_engine_text(const struct store *store);

/* The registry frees an automatic store a minute after its last reference (registry.h). */
static inline void store_ref(struct store *store)
{
	store->n_refs++;
}
static inline void store_unref(struct store *store)
{
	if (--store->n_refs == 0)
		store->unused_since_nsec = clock_nsec();
}

/*
 * Starts the lane, if it does not run.  Makes room in the kernel for the blocks of a further channel of this profile
 * and those of all open channels, at most room_left more than there is.
 * Returns 0 if the lane runs, else -EAGAIN (fs.aio-max-nr is exhausted; worker threads then serve an
 * automatic store) or the error of pthread_create(3).
 */
int store_start_lane(struct store *store, const struct profile *profile, uint64_t room_left,
		     struct error *error);
/* The room in the kernel of its lane, in blocks. */
uint64_t store_room(const struct store *store);

/* A number made from a name or a path: the next daemon makes the same. */
uint32_t store_hash(const char *text);

/* The block size that the store uses for a profile while one client is active. */
uint32_t store_block_bytes(const struct store *store, const struct profile *profile);

/* The depth of the lane's engine queue, in blocks; 0 without a lane. */
uint32_t store_lane_depth(const struct store *store);

#endif
