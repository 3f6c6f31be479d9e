/*
 * The calls of struct rados_plugin on files by name (names.c), and its hold() and release() (sweep.c).
 */
#ifndef DSAIO_DAEMON_RADOS_NAMES_H
#define DSAIO_DAEMON_RADOS_NAMES_H

#include "daemon/engine/rados.h"

int names_open(struct rados_store *store, const char *name, struct rados_file *ret_file,
	       struct error *error);
int names_create(struct rados_store *store, const char *name, uint64_t size, bool is_sparse,
		 struct rados_file *ret_file, struct error *error);
int names_open_token(struct rados_store *store, const char *name, uint64_t id,
		     struct rados_file *ret_file, struct error *error);
int names_commit(struct rados_store *store, const char *name, const struct rados_file *file,
		 uint64_t size, struct error *error);
int names_abandon(struct rados_store *store, const char *name, const struct rados_file *file,
		  struct error *error);
int names_remove(struct rados_store *store, const char *name, struct error *error);
int names_stat(struct rados_store *store, const char *name, struct rados_entry *ret_entry,
	       struct error *error);
int names_list(struct rados_store *store, const char *prefix, char next[RADOS_NAME_MAX + 8],
	       int (*each)(const char *name, const struct rados_entry *entry, void *arg), void *arg,
	       struct error *error);

int names_hold(struct rados_store *store, const struct rados_file *file);
void names_release(struct rados_store *store, const struct rados_file *file);

#endif
