#include "client/lib/io/cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define BUCKETS_MIN 64 /* a guess: doubled when there are as many entries */

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

static bool is_name(const struct cache_key *a, const struct cache_key *b)
{
	if (!a->path != !b->path)
		return false;
	return a->path ? strcmp(a->path, b->path) == 0 : a->fd == b->fd;
}

/* FNV-1a of the name, so that the entries of all access modes are in one bucket. */
static size_t key_hash(const struct cache_key *key)
{
	uint64_t hash = UINT64_C(14695981039346656037);
	const char *p;

	if (!key->path)
		return (size_t)((hash ^ (uint64_t)key->fd) * UINT64_C(1099511628211));
	for (p = key->path; *p; p++)
		hash = (hash ^ (unsigned char)*p) * UINT64_C(1099511628211);
	return (size_t)hash;
}

static struct cache_entry **bucket_of(const struct cache *cache, const struct cache_key *key)
{
	return &cache->buckets[key_hash(key) & (cache->n_buckets - 1)];
}

void cache_deinit(struct cache *cache)
{
	free(cache->buckets);
}

struct cache_entry *cache_find(const struct cache *cache, const struct cache_key *key, bool or_both)
{
	struct cache_entry *entry = cache->n_buckets ? *bucket_of(cache, key) : NULL;

	for (; entry; entry = entry->next) {
		if ((entry->key.access_mode == key->access_mode ||
		     (or_both && entry->key.access_mode == O_RDWR)) &&
		    is_name(&entry->key, key))
			return entry;
	}
	return NULL;
}

static void put(struct cache *cache, struct cache_entry *entry)
{
	struct cache_entry **bucket = bucket_of(cache, &entry->key);

	entry->next = *bucket;
	*bucket = entry;
}

/* Without memory it stays as it is, only slower. */
static void grow(struct cache *cache)
{
	struct cache old = *cache;
	struct cache_entry *entry, *next;
	size_t n = old.n_buckets ? 2 * old.n_buckets : BUCKETS_MIN;
	struct cache_entry **buckets = calloc(n, sizeof(struct cache_entry *));

	if (!buckets)
		return;
	cache->buckets = buckets;
	cache->n_buckets = n;
	for (size_t i = 0; i < old.n_buckets; i++)
		for (entry = old.buckets[i]; entry; entry = next) {
			next = entry->next;
			put(cache, entry);
		}
	free(old.buckets);
}

bool cache_add(struct cache *cache, struct cache_entry *entry)
{
	if (cache_find(cache, &entry->key, false))
		return false;
	if (cache->n_entries >= cache->n_buckets)
		grow(cache);
	if (!cache->n_buckets)
		return false;
	put(cache, entry);
	entry->is_listed = true;
	cache->n_entries++;
	return true;
}

void cache_remove(struct cache *cache, struct cache_entry *entry)
{
	struct cache_entry **place;

	if (!entry->is_listed)
		return;
	if (entry->is_idle)
		cache_set_used(cache, entry);
	for (place = bucket_of(cache, &entry->key); *place != entry; place = &(*place)->next)
		;
	*place = entry->next;
	entry->is_listed = false;
	cache->n_entries--;
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
