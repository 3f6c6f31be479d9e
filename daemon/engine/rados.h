/*
 * Stores on Ceph RADOS: what the daemon and its plug-in dsaiod-rados.so agree on.
 *
 * The plug-in alone knows librados, and is loaded when the first store asks for it.  It has the engine `rados`, which
 * lanes use as any other, and the calls on files by name, which block and so belong to worker threads.
 *
 * A store has connections of its own, and one thread, the keeper, that makes them, fences the daemon before this one,
 * renews files that are being written, and sweeps what was replaced.  While the cluster does not answer the store is
 * offline: blocks wait in the engine, up to op_timeout after its last answer, then end with -EHOSTDOWN, as calls do.
 *
 * In the store's namespace:
 *
 *     index.00 to index.3f   omap keys, by a hash of the name (the shard):
 *                              n<name>  a committed file        -> struct rados_entry, and its name
 *                              p<id>    a file being written    -> the same, with the time of renewal
 *                              t<id>    bytes to be removed     -> the same, with the time from which on
 *     d.<id>.<index>         the bytes of a file: object_bytes each, the last one shorter; both in 16 and 8 hex digits
 *     sweeper                the lock of the daemon that sweeps
 *
 * The low 6 bits of an id are its name's shard, so all that a commit changes is one object, in one op, which either
 * happens or not.  Committed bytes never change.
 */
#ifndef DSAIO_DAEMON_ENGINE_RADOS_H
#define DSAIO_DAEMON_ENGINE_RADOS_H

#include "daemon/base/error.h"
#include "daemon/config/rados.h" /* limits of what the administrator sets */
#include "daemon/engine/engine.h"
#include "daemon/object/target.h"

#include <stdbool.h>
#include <stdint.h>

#define RADOS_NAME_MAX 255u /* bytes of a file's name */
#define RADOS_LIST_MAX 256u /* files of one call: with the longest names they fit into a frame */
#define RADOS_PAUSE_MIN_NSEC UINT64_C(200000000)

struct rados_store; /* the plug-in's */

/* All strings are borrowed until store_open() returns. */
struct rados_settings {
	const char *store;     /* its name, for messages and the state file */
	const char *path;      /* rados://POOL/NAMESPACE */
	const char *state_dir; /* NULL: what the next daemon has to fence is not recorded */
	struct rados_config keys;
};

/* For status.  Any thread. */
struct rados_state {
	bool is_online;
	char text[160]; /* why not */
	uint32_t n_pauses;
	uint64_t longest_pause_nsec, pause_nsec;
};

/* A committed file. */
struct rados_entry {
	uint64_t id, size;
	uint64_t time_sec; /* CLOCK_REALTIME: of the commit */
	uint32_t object_bytes;
	bool is_sparse;
};

struct rados_plugin {
	const struct engine_ops *engine;

	/* Starts the keeper; does not wait for the cluster, and does not fail because of it.  Main thread. */
	int (*store_open)(const struct rados_settings *settings, struct rados_store **ret_store,
			  struct error *error);
	/* No lane uses it, no call runs, and no file is held.  It waits for the cluster, up to op_timeout for what the keeper
	   asks just then.  NULL is fine. */
	void (*store_close)(struct rados_store *store);
	void (*store_state)(struct rados_store *store, struct rados_state *ret_state);

	/* Worker threads, from here on: each blocks up to op_timeout, and returns 0 or a negative errno with a message,
	   as in dsaio.proto.  name: was checked by rados_name_check(). */
	int (*open)(struct rados_store *store, const char *name, struct rados_file *ret_file,
		    struct error *error);
	int (*create)(struct rados_store *store, const char *name, uint64_t size, bool is_sparse,
		      struct rados_file *ret_file, struct error *error);
	/* The file of that id that is being written. */
	int (*open_token)(struct rados_store *store, const char *name, uint64_t id,
			  struct rados_file *ret_file, struct error *error);
	/* Idempotent, as a client that has lost the reply asks again.  file->size becomes that of the file. */
	int (*commit)(struct rados_store *store, const char *name, struct rados_file *file,
		      uint64_t size, struct error *error);
	int (*abandon)(struct rados_store *store, const char *name, struct rados_file *file,
		       struct error *error);
	int (*remove)(struct rados_store *store, const char *name, struct error *error);
	int (*stat)(struct rados_store *store, const char *name, struct rados_entry *ret_entry,
		    struct error *error);
	/* Calls each() for some files (at least one, unless there is none; at most RADOS_LIST_MAX) whose names begin
	   with prefix.  next: "" or what the last call has written there; "" afterwards: these were the last. */
	int (*list)(struct rados_store *store, const char *prefix, char next[RADOS_NAME_MAX + 8],
		    int (*each)(const char *name, const struct rados_entry *entry, void *arg),
		    void *arg, struct error *error);

	/* While a file that is being written is held, the keeper renews it; of one that is no longer being written it takes
	   is_writable away.  Any thread; never blocks.  hold: 0 or -ENOMEM; as often as release, with the same file. */
	int (*hold)(struct rados_store *store, struct rados_file *file);
	void (*release)(struct rados_store *store, const struct rados_file *file);
};

/* Loads the plug-in: dsaiod-rados.so beside the program, else in the installation's folder.  One thread at a time.
   Returns 0, or an error whose message says what to install. */
int rados_plugin_load(const struct rados_plugin **ret_plugin, struct error *error);

/* Returns 0, or -EINVAL with a message. */
int rados_name_check(const char *name, struct error *error);

/* The symbol of the plug-in: a struct rados_plugin.  Another layout gets another name. */
#define RADOS_PLUGIN_SYMBOL "dsaiod_rados_plugin_1"

#endif
