#include "daemon/config/rados.h"

#include "daemon/config/config.h"
#include "daemon/config/keys.h"

#include <assert.h>

#define QUEUE_DEPTH 16u /* blocks of 4 MiB: a cluster of three hosts is busy with these (a guess) */

/* Sets the default, unless the store has the key. */
static void preset(const struct key *key, struct store_config *store)
{
	static const struct store_config none;
	struct error error;

	if (key->preset && key_is_same(key, store, &none)) {
		int r = key_set(key, store, key->preset, &error);

		assert(r == 0); /* numbers that the table allows */
	}
}

void rados_settle(struct config *config, struct store_config *store)
{
	static const struct store_config none;
	const bool is_rados = config_is_rados(store->path);
	const struct key *key;

	for (unsigned i = 0; (key = key_at(i)); i++) {
		if (key->section != KEYS_RADOS)
			continue;
		if (is_rados)
			preset(key, store);
		else if (store->path && !key_is_same(key, store, &none))
			config_mistake(
				config,
				"%s: [store %s] %s: only a store on RADOS has this key: its path "
				"is rados://POOL/NAMESPACE",
				store->file, store->name, key->name);
	}
	if (!is_rados)
		return;
	if (!store->has_block_size)
		store->profile.block_size = store->rados.object_bytes;
	if (!store->has_queue_depth)
		store->profile.queue_depth = QUEUE_DEPTH;
}
