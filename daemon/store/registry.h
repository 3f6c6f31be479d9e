/*
 * All stores of the daemon: those that the configuration names, and automatic ones, which are made
 * when the first file of a device comes that no [store] names.
 *
 * Files come by descriptor, so an automatic store grants nobody anything.  But who serves a FUSE or
 * network file system can hold its I/O for ever: the system's daemon makes automatic stores only
 * for file systems that the kernel serves from this host's devices and memory, and for block
 * devices; others the administrator has to name.  A user's own daemon takes all.
 *
 * An automatic store that nobody held for a minute goes away, so that a device number that is
 * used again, by another file system, gets a store that knows it.  Ids are never used again.
 *
 * Main thread; it asks /proc and /sys, never a file system that a client chose.
 */
#ifndef DSAIO_DAEMON_STORE_REGISTRY_H
#define DSAIO_DAEMON_STORE_REGISTRY_H

#include "daemon/config/config.h"
#include "daemon/object/file.h"
#include "daemon/store/saved_profiles.h"
#include "daemon/base/log.h"
#include "daemon/base/peer.h"
#include "daemon/store/store.h"

struct event;
struct event_base;
struct work_queue;

#define REGISTRY_AUTOMATIC_MAX 64u	  /* a guess: each has threads and libaio contexts */
#define REGISTRY_AUTOMATIC_USER_MAX 16u	  /* of them made for files of one user */
#define REGISTRY_UNUSED_NSEC 60000000000u /* after which an automatic one goes */

struct registry {
	const struct config *config;  /* borrowed */
	struct mailbox *main_mailbox; /* borrowed */
	struct store *first;	      /* list, in order of id: configured ones first */
	uint32_t last_id, n_automatic;
	struct event *sweep_event; /* while there are automatic ones; NULL without a base */
	struct saved_profiles saved;
	struct log_limit log_limit;
	dev_t memfd_dev;	       /* where memfds lie: memory, and no store */
	struct work_queue *work_queue; /* stops lanes: the kernel takes its time to end a context */
	struct work_queue *prober;     /* a thread for each configured store; NULL: there is none */
};

/*
 * Makes those that config names, which lives as long.  base: for the sweep; NULL: none.
 * Returns 0, or an error of the first that can not be made; then nothing is to be undone.
 */
int registry_init(struct registry *registry, const struct config *config, struct event_base *base,
		  struct mailbox *main_mailbox, struct error *error);
/* Then, once: starts threads, which measure those stores; before anything below.  0 or an error. */
int registry_start(struct registry *registry, struct error *error);
void registry_deinit(struct registry *registry); /* nobody holds any; a zeroed one is fine */

/* NULL: there is none with this id. */
struct store *registry_by_id(const struct registry *registry, uint32_t id);

/*
 * The store of a file that peer handed over, made if need be; the caller holds it (store_ref).
 * name: the file's, for the sentence.  Returns 0, or
 *   -ENXIO   no store names its device and none is made for it
 *   -EACCES  the store does not serve this user
 *   -EMFILE  there are as many automatic stores as may be
 */
int registry_for_file(struct registry *registry, const struct file_facts *facts, const char *name,
		      const struct peer *peer, struct store **ret_store, struct error *error);

/* 0, or -EACCES: the store does not serve this user.  what: what the sentence starts with. */
int registry_check_access(const struct registry *registry, const struct store *store,
			  const struct peer *peer, const char *what, struct error *error);

/*
 * Who asks about a store: by its name, or (name "") by a descriptor of anything that lies on it,
 * which may be O_PATH.  peer and helper are borrowed until on_done.
 */
struct registry_asking {
	const char *name;
	int fd; /* -1: none */
	const struct peer *peer;
	struct work_queue *work_queue; /* the user's: the look may block */
	const struct hung_who *who;
	/* Once, in the main thread: with 0 and a store, which lives until it returns, or an error
	   and NULL.  note: a sentence for people that goes with success, or "". */
	void (*on_done)(struct store *store, int result, const struct error *error,
			const char *note, void *arg);
	void *arg;
};

/*
 * Which store that is; made automatically, if need be.  Returns 0, takes fd, and now or later
 * calls on_done; or returns an error, calls nothing, and fd is still the caller's.  Errors are
 * those of registry_for_file(), and -ENXIO for a name that no store has.
 */
int registry_get(struct registry *registry, const struct registry_asking *asking,
		 struct error *error);

/*
 * The same, and sets its profile (NULL: back to the configuration's, or the default) for channels
 * opened from now on; saved if it can be, else the note says so.  -EPERM: who asks is no
 * administrator.  -EINVAL: the profile's numbers.
 */
int registry_set_profile(struct registry *registry, const struct registry_asking *asking,
			 const struct profile *profile, struct error *error);

/* "default", "configuration", "saved" or "set". */
const char *store_profile_source(const struct store *store);

/* Lets automatic stores go that were unused for long. */
void registry_sweep(struct registry *registry, uint64_t now_nsec);

#endif
