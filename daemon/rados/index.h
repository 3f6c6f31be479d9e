/*
 * The index objects: reads of their keys, and changes that happen as a whole or not at all.
 *
 * A struct index is one shard, with a reference to the connection.  Worker threads and the keeper; each call blocks up
 * to op_timeout.  Errors are librados', with a message; -EHOSTDOWN: the cluster has fenced this daemon.
 */
#ifndef DSAIO_DAEMON_RADOS_INDEX_H
#define DSAIO_DAEMON_RADOS_INDEX_H

#include "daemon/rados/entry.h"
#include "daemon/rados/store.h"

struct index {
	struct rados_store *store;
	struct rados_conn *conn;
	unsigned shard;
};

/* The entries of a name and an id.  The id of an entry that is absent is 0.  Returns -EUCLEAN for a damaged one. */
struct index_look {
	struct entry file, written, trash;
};
int index_look(const struct index *index, const char *name, uint64_t id,
	       struct index_look *ret_look, struct error *error);

/* Calls each() for the entries with a key that begins with prefix, from `after` on, and moves that on; damaged ones are
   logged only.  Returns 0 at the end of the shard, what each() has returned if not 0, or an error. */
int index_each(const struct index *index, const char *prefix, char after[ENTRY_KEY_BYTES],
	       int (*each)(const struct index *index, const struct entry *entry, void *arg),
	       void *arg, struct error *error);

/* Replaces entries (NULL: absent) if all are still as `old` says.  Returns 0, -ECANCELED (they are not), or an
   error. */
struct index_change {
	const struct entry *old, *new;
};
int index_change(const struct index *index, const struct index_change *changes, size_t n,
		 struct error *error);
/* The entry becomes one of bytes to be removed: at once if nobody could read them, else trash_after later. */
int index_discard(const struct index *index, const struct entry *entry, struct error *error);

#endif
