/*
 * The entries of the index: what the keys and values of its omaps mean (engine/rados.h has the layout).  Other hosts
 * wrote them, so all that is read is decoded here and checked completely.  No librados, no state.
 *
 * A value is 32 bytes, little endian, and the name behind them:
 *
 *     0 version: 1   1 flags: 1 sparse, 2 unsized, 4 abandoned   2 bytes of the name   3 zero   4 object_bytes   8 id
 *     16 size   24 time
 *
 * One entry has one encoding, so what was decoded can be encoded again for a compare.
 */
#ifndef DSAIO_DAEMON_RADOS_ENTRY_H
#define DSAIO_DAEMON_RADOS_ENTRY_H

#include "daemon/engine/rados.h"

#include <stddef.h>
#include <time.h>

#define ENTRY_N_SHARDS 64u
#define ENTRY_KEY_BYTES (1 + RADOS_NAME_MAX + 1)
#define ENTRY_VALUE_BYTES (32 + RADOS_NAME_MAX)
#define ENTRY_OBJECT_BYTES 32 /* of an object's name */

enum entry_kind {
	ENTRY_FILE = 'n',
	ENTRY_WRITTEN = 'p',
	ENTRY_TRASH = 't',
};

struct entry {
	enum entry_kind kind;
	struct rados_entry file; /* id is never 0 */
	bool is_unsized;	 /* created without a size: there may be objects behind it */
	bool is_abandoned;	 /* in the trash, and was never committed */
	char name[RADOS_NAME_MAX + 1];
};

/* FNV-1a of the name, folded: part of the format. */
unsigned entry_shard(const char *name);
static inline unsigned entry_id_shard(uint64_t id)
{
	return (unsigned)(id % ENTRY_N_SHARDS);
}
/* The time of an entry that is written now. */
static inline uint64_t entry_now(void)
{
	return (uint64_t)time(NULL);
}
/* A file's key, or those of an id. */
void entry_key(enum entry_kind kind, const char *name, uint64_t id, char ret_key[ENTRY_KEY_BYTES]);
void entry_index_object(unsigned shard, char ret_object[ENTRY_OBJECT_BYTES]);
void entry_data_object(uint64_t id, uint64_t index, char ret_object[ENTRY_OBJECT_BYTES]);

/* Returns the bytes of the value. */
size_t entry_encode(const struct entry *entry, uint8_t ret_value[ENTRY_VALUE_BYTES]);
/* key and value are from the index object of that shard.  Returns 0 or -EUCLEAN.  The name has passed no
   rados_name_check(). */
int entry_decode(unsigned shard, const char *key, size_t key_bytes, const void *value,
		 size_t value_bytes, struct entry *ret_entry);

#endif
