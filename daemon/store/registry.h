/*
 * The registry contains all stores of the daemon: configured stores, and automatic stores.  The
 * daemon makes an automatic store when a client adds the first file on a device that no [store] names.
 *
 * Files arrive as descriptors, so an automatic store grants no new access.  But the server of a FUSE
 * or network file system can block its I/O forever.  So the system daemon makes automatic stores only
 * for block devices and for file systems that the kernel serves from this host's devices and memory.
 * The administrator must name the others.  A user's own daemon accepts all file systems.
 *
 * An automatic store is freed after a minute without references.  So if another file system gets its
 * device number, that file system gets a store of its own.  Ids are never reused.
 *
 * Clients name a store by its key, which is made from its name.  A configured store has its key in the next daemon,
 * too, and so has an automatic one: its name is its block device's, or its kind of file system and the minor device
 * number.  Only where two of them have one name does their order decide, by which the later gets a number behind it.
 *
 * Main thread.  It reads /proc and /sys, and never calls a file system that a client chose.
 */
#ifndef DSAIO_DAEMON_STORE_REGISTRY_H
#define DSAIO_DAEMON_STORE_REGISTRY_H

#include "daemon/base/log.h"
#include "daemon/base/peer.h"
#include "daemon/config/config.h"
#include "daemon/object/file.h"
#include "daemon/store/saved.h"
#include "daemon/store/store.h"

struct changes;
struct event;
struct event_base;
struct work_queue;

#define REGISTRY_AUTOMATIC_MAX 64u	  /* a guess: each has threads and libaio contexts */
#define REGISTRY_AUTOMATIC_USER_MAX 16u	  /* automatic stores that one user's files may make */
#define REGISTRY_UNUSED_NSEC 60000000000u /* an automatic store lives so long without references */

struct registry {
	const struct config *config;  /* borrowed */
	struct mailbox *main_mailbox; /* borrowed */
	struct list stores;	      /* in order of id: configured stores first */
	uint32_t last_id, n_automatic;
	struct event *sweep_event; /* added while automatic stores exist; NULL without a base */
	struct saved saved;
	struct log_limit log_limit;
	dev_t memfd_dev;	       /* the device number of memfds, which belong to no store */
	struct work_queue *work_queue; /* frees stores: io_destroy(2) may take 50 ms */
	struct work_queue *prober;     /* a thread for each configured store; NULL: there is none */
};

/*
 * Makes the configured stores.  config must live as long as the registry.  base: for the sweep; NULL:
 * no sweep.  Returns 0, or the error of the first store that cannot be made.  After an error the
 * registry needs no deinit.
 */
int registry_init(struct registry *registry, const struct config *config, struct event_base *base,
		  struct mailbox *main_mailbox, struct error *error);
/*
 * Starts the threads that probe the configured stores.  Call it once, before the functions below.
 * Returns 0 or an error.
 */
int registry_start(struct registry *registry, struct error *error);
void registry_deinit(
	struct registry *registry); /* no store has a reference; a zeroed registry is fine */

/* Makes a configured store that is not in the registry yet, on any thread: its path may block.  Returns 0 or the error
   of store_new(). */
int registry_prepare(const struct store_config *config, struct mailbox *main_mailbox,
		     struct store **ret_store, struct error *error);

/*
 * Makes all stores of a new configuration, likewise.  Returns 0, or -EINVAL: config has a mistake for each that cannot
 * be served.  ret_stores: zeroed room for n_stores; the caller frees what is there, also after an error.
 */
int registry_prepare_all(struct config *config, struct mailbox *main_mailbox,
			 const struct hung_who *who, struct store **ret_stores);

/*
 * A reload: adds the stores of next that are not served, applies next to the others, and moves the stores that are
 * served until a restart from live to next.  prepared: those of next->stores, in their order; it takes those
 * that it adds.  Returns 0, or an error of the host's memory or threads: then nothing has changed.
 */
int registry_reload(struct registry *registry, struct config *live, struct config *next,
		    struct store **prepared, struct changes *changes, struct error *error);

/* Returns NULL if no store has this key. */
struct store *registry_by_key(const struct registry *registry, uint32_t key);

/*
 * Finds the store of a file that peer passed, or makes an automatic store.  The caller takes a
 * reference (store_ref()).  name: the file's name, for the error text.  Returns 0, or
 *   -ENXIO   no store names the file's device, and it may have no automatic store
 *   -EACCES  the store does not serve this user
 *   -EMFILE  the limit on automatic stores is reached
 */
int registry_for_file(struct registry *registry, const struct file_facts *facts, const char *name,
		      const struct peer *peer, struct store **ret_store, struct error *error);

/* Returns 0, or -EACCES: the store does not serve this user.  what: the start of the error text. */
int registry_check_access(const struct registry *registry, const struct store *store,
			  const struct peer *peer, const char *what, struct error *error);

/*
 * A question about a store.  It names the store, or (name "") has a descriptor of any file on it,
 * which may be O_PATH.  peer and work_queue are borrowed until on_done.
 */
struct registry_question {
	const char *name;
	int fd; /* -1: none */
	const struct peer *peer;
	struct work_queue *work_queue; /* the user's: fstat(2) of the descriptor may block */
	const struct hung_who *who;
	/* Once, in the main thread: with 0 and a store, which lives until it returns, or an error
	   and NULL.  note: a message for people that goes with success, or "". */
	void (*on_done)(struct store *store, int result, const struct error *error,
			const char *note, void *arg);
	void *arg;
};

/* The change of a store, if there is one; it is saved. */
struct store_change {
	enum { CHANGE_NOTHING, CHANGE_PROFILE, CHANGE_LIMIT, CHANGE_DRAINED } what;
	bool is_set; /* else the profile is reset, there is no limit, or the store is served again */
	struct partial_profile profile; /* what is not given stays */
	struct rate_limit limit;
};

/*
 * Finds the store, or makes an automatic store, and changes it; if that cannot be saved, the note says so.  Returns 0,
 * takes fd, and calls on_done now or later.  After an error it does not call on_done, and fd remains the caller's.
 * Errors: those of registry_for_file(), and -ENXIO for a name that no store has.  -EPERM, -EINVAL: of a profile, the
 * peer is no administrator, or it is invalid.  For other changes the caller has checked that.
 */
int registry_change(struct registry *registry, const struct registry_question *question,
		    const struct store_change *change, struct error *error);

/* For store_start_lane(): the rest of what all automatic stores of the store's user may have.
   INT64_MAX: no limit. */
uint64_t registry_room_left(const struct registry *registry, const struct store *store);

/* "default", "configuration", "saved" or "set". */
const char *store_profile_source(const struct store *store);

/* Frees automatic stores that had no reference for REGISTRY_UNUSED_NSEC. */
void registry_sweep(struct registry *registry, uint64_t now_nsec);

#endif
