#include "daemon/store/registry_parts.h"

#include "daemon/base/work_queue.h"
#include "daemon/config/changes.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- a new configuration ---- */

/* Recorded as a call that hangs, with its mount: a descriptor of the path may be there although the file system does
   not answer. */
static int prepare(const struct store_config *config, struct mailbox *main_mailbox,
		   const struct hung_who *who, struct store **ret_store, struct error *error)
{
	struct hung_about about = { .what = "check", .file = config->path, .fd = -1, .who = *who };
	_cleanup_(closep) int fd = -1;
	struct hung_call call;
	int r;

	hung_begin(&call, &about);
	about.fd = fd = open(config->path, O_PATH | O_CLOEXEC);
	hung_end(&call);
	hung_begin(&call, &about);
	r = registry_prepare(config, main_mailbox, ret_store, error);
	hung_end(&call);
	return r;
}

static void store_mistake(struct config *config, const struct store_config *store, const char *why)
{
	if (store->path_place.line)
		config_mistake(config, "%s:%u: [store %s] path = %s: %s", store->path_place.path,
			       store->path_place.line, store->name, store->path, why);
	else
		config_mistake(config, "--store %s=%s: %s", store->name, store->path, why);
}

int registry_prepare_all(struct config *config, struct mailbox *main_mailbox,
			 const struct hung_who *who, struct store **ret_stores)
{
	int result = 0;

	for (unsigned i = 0; i < config->n_stores; i++) {
		const struct store_config one = config_store(config, &config->stores[i]);
		struct error why;
		int r = prepare(&one, main_mailbox, who, &ret_stores[i], &why);

		for (unsigned j = 0; r == 0 && j < i; j++)
			if (ret_stores[j] && ret_stores[j]->dev == ret_stores[i]->dev)
				r = error_set_plain(&why, -EINVAL,
						    "is on the same device or namespace as store "
						    "%s, which serves all its files: remove one of "
						    "the two stores",
						    config->stores[j].name);
		if (r == 0)
			continue;
		store_mistake(config, &one, why.text);
		result = -EINVAL;
	}
	return result;
}

/* ---- stores that are new ---- */

/* One that clients use cannot become another; else it is removed. */
static bool must_wait(struct registry *registry, struct store *before, const char *name,
		      const char *what, struct changes *changes)
{
	if (!before)
		return false;
	if (before->is_automatic && !before->n_refs) {
		automatic_remove(registry, before);
		return false;
	}
	changes_add(&changes->needs_restart, "store %s: store %s serves its %s", name, before->name,
		    what);
	return true;
}

static void add_new(struct registry *registry, const struct config *next, struct store **prepared,
		    struct changes *changes)
{
	for (unsigned i = 0; i < next->n_stores; i++) {
		const struct store_config config = config_store(registry->config, &next->stores[i]);
		struct error why;
		struct store *store = prepared[i];
		struct store *named = registry_named(registry, store->name);

		if (named && !named->is_automatic)
			continue;
		if (must_wait(registry, named, store->name, "name", changes) ||
		    must_wait(registry, registry_on_device(registry, store->dev), store->name,
			      "file system", changes))
			continue;
		if (store_start(store, &config, &why) < 0) {
			changes_add(&changes->needs_restart, "%s", why.text);
			continue;
		}
		changes_add(&changes->applied, "store %s: is served: %s", store->name, store->path);
		registry_add_prepared(registry, TAKE_PTR(prepared[i]));
		store_probe(store, registry->prober);
	}
}

/* ---- stores that are served ---- */

static void reload_store(struct store *store, struct store_config *live, struct store_config *next,
			 struct changes *changes)
{
	const bool is_saved = store->profile_source == PROFILE_SAVED;
	char title[STORE_NAME_MAX + 16];

	(void)snprintf(title, sizeof(title), "store %s:", store->name);
	changes_of_keys(changes, KEYS_STORE, live, next, title, "");
	changes_of_keys(changes, KEYS_RADOS, live, next, title, "");
	changes_of_keys(
		changes, KEYS_PROFILE, live, next, title,
		is_saved ? ", after dsaioctl profile reset: what dsaioctl has set takes precedence"
			 : ", of channels that are opened from now on");
	store->access = next->access;
	store->given_profile = next->profile;
	store->given_source = next->has_profile ? PROFILE_CONFIGURED : PROFILE_DEFAULTED;
	if (is_saved)
		return;
	store->profile = store->given_profile;
	store->profile_source = store->given_source;
}

int registry_reload(struct registry *registry, struct config *live, struct config *next,
		    struct store **prepared, struct changes *changes, struct error *error)
{
	const uint32_t last_id = registry->last_id;
	int r = registry->prober ? 0 : work_queue_new("probe", 1, &registry->prober);

	if (r == 0)
		r = config_reserve_stores(next, live->n_stores);
	if (r < 0)
		return error_set(error, r, "stores");
	add_new(registry, next, prepared, changes);
	LIST_EACH(struct store, store, &registry->stores, node) {
		struct store_config *before = config_find_store(live, store->name);
		struct store_config *after = config_find_store(next, store->name);

		if (store->is_automatic || store->id > last_id) /* it is new */
			continue;
		if (after) {
			reload_store(store, before, after, changes);
			continue;
		}
		config_move_store(next, live, before); /* with its access */
		changes_add(
			&changes->needs_restart,
			"store %s: is served until then: dsaioctl drain %s refuses new ops at once",
			store->name, store->name);
	}
	return 0;
}
