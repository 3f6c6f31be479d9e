#include "daemon/config/changes.h"

#include "daemon/config/config.h"

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

void changes_of_keys(struct changes *changes, enum key_section section, void *live, void *next,
		     const char *title, const char *note)
{
	const struct key *key;

	for (unsigned i = 0; (key = key_at(i)); i++) {
		if (key->section != section)
			continue;
		if (!key_is_same(key, live, next))
			changes_add(key->is_live ? &changes->applied : &changes->needs_restart,
				    "%s %s%s", title, key->name, note);
		if (!key->is_live) /* also of the same value */
			key_swap(key, live, next);
	}
}

void config_adopt(struct config *live, struct config *next, struct changes *changes)
{
	struct config before;

	changes_of_keys(changes, KEYS_DAEMON, live, next, "[daemon]", "");
	before = *live;
	*live = *next;
	*next = before;
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

void config_move_store(struct config *to, struct config *from, struct store_config *store)
{
	to->stores[to->n_stores++] = *store;
	*store = from->stores[--from->n_stores];
}
