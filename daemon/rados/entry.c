#include "daemon/rados/entry.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define VERSION 1
#define FLAG_SPARSE 1u
#define FLAG_UNSIZED 2u
#define FLAG_ABANDONED 4u

/* Natural alignment leaves no gap. */
struct head {
	uint8_t version, flags, name_bytes, zero;
	uint32_t object_bytes;
	uint64_t id, size, time_sec;
};
_Static_assert(sizeof(struct head) + RADOS_NAME_MAX == ENTRY_VALUE_BYTES, "the format is fixed");

unsigned entry_shard(const char *name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
	hash ^= hash >> 32;
	hash ^= hash >> 16;
	return entry_id_shard(hash);
}

void entry_key(enum entry_kind kind, const char *name, uint64_t id, char ret_key[ENTRY_KEY_BYTES])
{
	if (kind == ENTRY_FILE)
		(void)snprintf(ret_key, ENTRY_KEY_BYTES, "n%s", name);
	else
		(void)snprintf(ret_key, ENTRY_KEY_BYTES, "%c%016" PRIx64, kind, id);
}

void entry_index_object(unsigned shard, char ret_object[ENTRY_OBJECT_BYTES])
{
	(void)snprintf(ret_object, ENTRY_OBJECT_BYTES, "index.%02x", shard);
}

void entry_data_object(uint64_t id, uint64_t index, char ret_object[ENTRY_OBJECT_BYTES])
{
	(void)snprintf(ret_object, ENTRY_OBJECT_BYTES, "d.%016" PRIx64 ".%08" PRIx32, id,
		       (uint32_t)index);
}

size_t entry_encode(const struct entry *entry, uint8_t ret_value[ENTRY_VALUE_BYTES])
{
	size_t name_bytes = strlen(entry->name);
	struct head head = {
		.version = VERSION,
		.flags = (uint8_t)((entry->file.is_sparse ? FLAG_SPARSE : 0) |
				   (entry->is_unsized ? FLAG_UNSIZED : 0) |
				   (entry->is_abandoned ? FLAG_ABANDONED : 0)),
		.name_bytes = (uint8_t)name_bytes,
		.object_bytes = htole32(entry->file.object_bytes),
		.id = htole64(entry->file.id),
		.size = htole64(entry->file.size),
		.time_sec = htole64(entry->file.time_sec),
	};

	memcpy(ret_value, &head, sizeof(head));
	memcpy(ret_value + sizeof(head), entry->name, name_bytes);
	return sizeof(head) + name_bytes;
}

/* The numbers of one that may be used. */
static bool is_sound(const struct rados_entry *file)
{
	uint32_t object = file->object_bytes;

	return file->id && object >= RADOS_OBJECT_MIN && object <= RADOS_OBJECT_MAX &&
	       !(object & (object - 1)) && file->size <= rados_size_max(object) &&
	       file->time_sec <= INT64_MAX;
}

int entry_decode(unsigned shard, const char *key, size_t key_bytes, const void *value,
		 size_t value_bytes, struct entry *ret_entry)
{
	struct entry entry = { .name = "" };
	char own_key[ENTRY_KEY_BYTES];
	struct head head;

	if (value_bytes <= sizeof(head) || value_bytes > ENTRY_VALUE_BYTES || !key_bytes)
		return -EUCLEAN;
	memcpy(&head, value, sizeof(head));
	memcpy(entry.name, (const char *)value + sizeof(head), value_bytes - sizeof(head));
	entry.file = (struct rados_entry){
		.id = le64toh(head.id),
		.size = le64toh(head.size),
		.time_sec = le64toh(head.time_sec),
		.object_bytes = le32toh(head.object_bytes),
		.is_sparse = head.flags & FLAG_SPARSE,
	};
	entry.is_unsized = head.flags & FLAG_UNSIZED;
	entry.is_abandoned = head.flags & FLAG_ABANDONED;
	entry.kind = (enum entry_kind)key[0];
	entry_key(entry.kind, entry.name, entry.file.id, own_key);

	if (head.version != VERSION ||
	    head.flags & ~(FLAG_SPARSE | FLAG_UNSIZED | FLAG_ABANDONED) || head.zero ||
	    head.name_bytes != value_bytes - sizeof(head) ||
	    head.name_bytes != strlen(entry.name) || !is_sound(&entry.file) ||
	    entry_shard(entry.name) != shard || entry_id_shard(entry.file.id) != shard ||
	    key_bytes != strlen(own_key) || memcmp(key, own_key, key_bytes) != 0)
		return -EUCLEAN;
	*ret_entry = entry;
	return 0;
}
