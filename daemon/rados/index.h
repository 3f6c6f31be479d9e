/*
 * The index objects: reads of their keys, and changes that happen as a whole or not at all.
 *
 * A struct index is one shard during one call, with a reference to the connection.  Worker threads and the keeper; each
 * call blocks up to op_timeout.
 */
#ifndef DSAIO_DAEMON_RADOS_INDEX_H
#define DSAIO_DAEMON_RADOS_INDEX_H

#include "daemon/rados/entry.h"
#include "daemon/rados/store.h"

struct index {
	struct rados_store *store;
	struct rados_conn *conn;
	unsigned shard;
	char object[ENTRY_OBJECT_BYTES];
};

/* conn is borrowed. */
void index_init(struct index *index, struct rados_store *store, struct rados_conn *conn,
		unsigned shard);

/* The entries of a name and an id.  The id of an entry that is absent is 0. */
struct index_look {
	struct entry file, written, trash;
};
/* id 0: the name alone; name NULL: the id alone.  Returns 0, -EUCLEAN for a damaged value, or what index_failed() makes of librados' error. */
int index_look(const struct index *index, const char *name, uint64_t id,
	       struct index_look *ret_look, struct error *error);

/* Calls each() for the entries with a key that begins with prefix, from `after` on, and moves that on; what cannot be
   decoded is skipped and logged.  each() returns 0, or what ends the page before its entry (negative) or behind it.
   Returns that, 0 at the end of the shard, INDEX_MORE, or librados' error. */
#define INDEX_MORE INT32_MAX
int index_page(const struct index *index, const char *prefix, char after[ENTRY_KEY_BYTES],
	       int (*each)(const struct index *index, const struct entry *entry, void *arg),
	       void *arg);

/* A change: conditions and what happens if all hold.  index_apply() frees it. */
struct index_change {
	rados_write_op_t op;
};
struct index_change index_change_new(void);
void index_if_present(struct index_change *change, enum entry_kind kind, const struct entry *entry);
void index_if_absent(struct index_change *change, enum entry_kind kind, const struct entry *entry);
void index_if_same(struct index_change *change, enum entry_kind kind, const struct entry *entry);
void index_set(struct index_change *change, enum entry_kind kind, const struct entry *entry);
void index_drop(struct index_change *change, enum entry_kind kind, const struct entry *entry);
/* Returns 0, -ECANCELED (a condition did not hold, or the object is absent), or librados' error. */
int index_apply(const struct index *index, struct index_change *change);

/* Fills in the message for librados' error r.  Returns it, or -EHOSTDOWN for -ESHUTDOWN. */
int index_failed(const struct index *index, const char *name, const char *what, int r,
		 struct error *error);

#endif
