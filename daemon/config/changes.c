#include "daemon/config/changes.h"

#include "daemon/config/config.h"
#include "daemon/config/keys.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void list_deinit(struct change_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->lines[i]);
	free(list->lines);
}

void changes_deinit(struct changes *changes)
{
	list_deinit(&changes->applied);
	list_deinit(&changes->needs_restart);
	*changes = (struct changes){ 0 };
}

void changes_add(struct change_list *list, const char *format, ...)
{
	char **lines = reallocarray(list->lines, list->n + 1, sizeof(*lines));
	va_list args;
	int n;

	if (!lines)
		return;
	list->lines = lines;
	va_start(args, format);
	n = vasprintf(&lines[list->n], format, args);
	va_end(args);
	list->n += n >= 0;
}

void config_adopt(struct config *live, struct config *next, struct changes *changes)
{
	struct config before = *live;
	const struct key *key;

	for (unsigned i = 0; (key = key_at(i)); i++)
		if (key->section == KEYS_DAEMON && !key_is_same(key, live, next))
			changes_add(key->is_live ? &changes->applied : &changes->needs_restart,
				    "[daemon] %s", key->name);
	*live = *next;
	*next = before;
	for (unsigned i = 0; (key = key_at(i)); i++)
		if (key->section == KEYS_DAEMON && !key->is_live)
			key_swap(key, live, next);
}

int config_reserve_stores(struct config *config, unsigned n)
{
	struct store_config *stores = reallocarray(config->stores, config->n_stores + n + 1,
						   sizeof(*stores));

	if (!stores)
		return -ENOMEM;
	config->stores = stores;
	return 0;
}

void config_keep_store(struct config *config, struct store_config *store)
{
	config->stores[config->n_stores++] = *store;
	store->name = store->path = NULL;
	store->access = (struct access){ 0 };
}
