/*
 * The table of the file cache: files by the name that opens them, and the order of the idle ones.
 *
 * A key is a path, or the number of a descriptor of the program's, with the access mode.  The table has
 * at most one entry for a key.  A search may also take an entry whose file is open for more than the
 * search needs.  An entry has the file's identity: the kernel's answer to statx(2).  The caller compares
 * it at each use, since the same path may name another file by then, and the same number another
 * descriptor.
 *
 * An idle entry is not open.  Idle entries are listed in the order in which they became idle.
 *
 * Knows neither system calls nor the daemon.  The caller has the lock.
 */
#ifndef DSAIO_CLIENT_LIB_IO_CACHE_H
#define DSAIO_CLIENT_LIB_IO_CACHE_H

#include "proto/util/list.h"

struct statx;

struct cache_key {
	const char *path; /* NULL: by fd; borrowed, as long as the entry is in the table */
	int fd;
	int access_mode;
};

/* The results of statx(2) that never change for an inode. */
struct cache_identity {
	uint64_t dev, ino, rdev;
	uint32_t kind; /* S_IFMT of the mode */
	/* When it was made, 0 where that is not kept: shows numbers that are used again while the
	   file is open, as some network file systems do. */
	uint64_t born_nsec;
};
struct cache_identity cache_identity_of(const struct statx *stx);
bool cache_is_same(const struct cache_identity *a, const struct cache_identity *b);

/* Embedded in the file. */
struct cache_entry {
	struct cache_key key;  /* first: the tree's key */
	struct list_node node; /* of the idle ones */
	bool is_listed, is_idle;
};

/* All zero is an empty one. */
struct cache {
	void *entries;	  /* tsearch(3) tree */
	struct list idle; /* the oldest first */
};

/* or_both: one of that name that is open for reading and writing will do, too. */
struct cache_entry *cache_find(const struct cache *cache, const struct cache_key *key,
			       bool or_both);

/* Lists it by entry->key; false: there is one already, or no memory. */
bool cache_add(struct cache *cache, struct cache_entry *entry);
/* Takes it off, idle or not; one that is not listed, too. */
void cache_remove(struct cache *cache, struct cache_entry *entry);

/* A listed entry becomes idle, the newest; or is used again. */
void cache_set_idle(struct cache *cache, struct cache_entry *entry);
void cache_set_used(struct cache *cache, struct cache_entry *entry);

#endif
