/*
 * A key and a value from the index of a RADOS store, which another host wrote.  If it is taken, it is the one encoding
 * of the entry.
 */
#include "daemon/rados/entry.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char key[ENTRY_KEY_BYTES + 8], own_key[ENTRY_KEY_BYTES];
	uint8_t own[ENTRY_VALUE_BYTES];
	struct entry entry;
	size_t key_bytes = take_u32(&data, &size) % sizeof(key), n;
	unsigned shard = take_u32(&data, &size) % (ENTRY_N_SHARDS + 1);

	take_bytes(&data, &size, key, key_bytes);
	if (shard == ENTRY_N_SHARDS) { /* the right one */
		uint64_t id = 0;

		if (size >= 16)
			memcpy(&id, data + 8,
			       sizeof(id)); /* little endian: the low byte alone counts */
		shard = entry_id_shard(id);
	}
	if (entry_decode(shard, key, key_bytes, data, size, &entry))
		return 0;
	assert(entry.file.id && entry_id_shard(entry.file.id) == shard &&
	       entry_shard(entry.name) == shard);
	assert(strlen(entry.name) >= 1 && strlen(entry.name) <= RADOS_NAME_MAX);
	assert(entry.file.size <= rados_size_max(entry.file.object_bytes));
	entry_key((enum entry_kind)key[0], entry.name, entry.file.id, own_key);
	assert(strlen(own_key) == key_bytes && !memcmp(own_key, key, key_bytes));
	n = entry_encode(&entry, own);
	assert(n == size && !memcmp(own, data, n));
	return 0;
}
