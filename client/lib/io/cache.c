#include "client/lib/io/cache.h"

#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct cache_identity cache_identity_of(const struct statx *stx)
{
	struct cache_identity identity = {
		.dev = makedev(stx->stx_dev_major, stx->stx_dev_minor),
		.ino = stx->stx_ino,
		.kind = stx->stx_mode & S_IFMT,
	};

	if (S_ISBLK(stx->stx_mode))
		identity.rdev = makedev(stx->stx_rdev_major, stx->stx_rdev_minor);
	if (stx->stx_mask & STATX_BTIME)
		identity.born_nsec = (uint64_t)stx->stx_btime.tv_sec * 1000000000u +
				     stx->stx_btime.tv_nsec;
	return identity;
}

bool cache_is_same(const struct cache_identity *a, const struct cache_identity *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->rdev == b->rdev && a->kind == b->kind &&
	       a->born_nsec == b->born_nsec;
}

static int compare_names(const struct cache_key *a, const struct cache_key *b)
{
	if (a->path && b->path)
		return strcmp(a->path, b->path);
	if (a->path || b->path)
		return a->path ? 1 : -1;
	return (a->fd > b->fd) - (a->fd < b->fd);
}

/* By name, and then O_RDONLY, O_RDWR, O_WRONLY: compare_or_both() finds neighbours equal. */
static int compare(const void *a_in, const void *b_in)
{
	static const int rank[O_ACCMODE + 1] = { [O_RDWR] = 1, [O_WRONLY] = 2, [O_ACCMODE] = 3 };
	const struct cache_key *a = a_in, *b = b_in;
	int r = compare_names(a, b);

	return r ? r : rank[a->access_mode] - rank[b->access_mode];
}

static int compare_or_both(const void *key, const void *entry)
{
	return ((const struct cache_key *)entry)->access_mode == O_RDWR ? compare_names(key, entry)
									: compare(key, entry);
}

struct cache_entry *cache_find(const struct cache *cache, const struct cache_key *key, bool or_both)
{
	struct cache_entry **found = tfind(key, &cache->entries,
					   or_both ? compare_or_both : compare);

	return found ? *found : NULL;
}

bool cache_add(struct cache *cache, struct cache_entry *entry)
{
	struct cache_entry **found = tsearch(entry, &cache->entries, compare);

	entry->is_listed = found && *found == entry;
	return entry->is_listed;
}

void cache_remove(struct cache *cache, struct cache_entry *entry)
{
	if (!entry->is_listed)
		return;
	if (entry->is_idle)
		cache_set_used(cache, entry);
	(void)tdelete(entry, &cache->entries, compare); /* it is there */
	entry->is_listed = false;
}

void cache_set_idle(struct cache *cache, struct cache_entry *entry)
{
	entry->is_idle = true;
	list_push(&cache->idle, &entry->node);
}

void cache_set_used(struct cache *cache, struct cache_entry *entry)
{
	list_remove(&cache->idle, &entry->node);
	entry->is_idle = false;
}
