/*
 * The functions that the parts of the registry share:
 *
 *   registry.c		   lookups, configured stores, start and stop
 *   registry_list.c	   names of stores, and keys of saved profiles
 *   registry_automatic.c  automatic stores, from the first file on a device to the sweep
 *   registry_query.c	   questions about a store that come with a descriptor, and new profiles
 *   registry_reload.c	   a new configuration's stores
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_REGISTRY_PARTS_H
#define DSAIO_DAEMON_STORE_REGISTRY_PARTS_H

#include "daemon/base/mount.h"
#include "daemon/store/registry.h"

/* Gives a new store its key and what was saved of it, and adds it to the list. */
void registry_add(struct registry *registry, struct store *store);

/* NULL: there is none. */
struct store *registry_named(const struct registry *registry, const char *name);
/* The first store on that device; NULL: there is none. */
struct store *registry_on_device(const struct registry *registry, dev_t dev);

/* Takes the store, and gives it the next id. */
void registry_add_prepared(struct registry *registry, struct store *store);

/* The stores as "t=/mnt/t, u=/mnt/u", cut to size. */
void registry_text(const struct registry *registry, char *text, size_t size);

/*
 * registry_for_file() without the check of access.  is_look: anybody may look, by any descriptor, such as
 * an O_PATH one of a device node that only root may open.  So a look never frees a store, which would drop
 * its counters and profile.
 */
int registry_find_or_make(struct registry *registry, const struct file_facts *facts,
			  const char *name, const struct peer *peer, bool is_look,
			  struct store **ret_store, struct error *error);

/* Finds the key under which the settings of a file's store are saved.  If it has none, key stays. */
void registry_find_key(const struct file_facts *facts, const struct mount *mount,
		       char key[SAVED_KEY_BYTES]);

/* Makes a store for a file on a device without one.  Errors are those of registry_for_file(). */
int automatic_make_for(struct registry *registry, const struct file_facts *facts, const char *name,
		       const struct peer *peer, struct store **ret_store, struct error *error);
/* Removes an automatic store without references from the list, and frees it. */
void automatic_remove(struct registry *registry, struct store *store);

#endif
