#include "daemon/store/registry_parts.h"

#include "daemon/base/event.h"
#include "daemon/base/memfd.h"
#include "daemon/base/mount.h"
#include "daemon/base/work_queue.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *store_profile_source(const struct store *store)
{
	static const char *const names[] = {
		[PROFILE_DEFAULTED] = "default",
		[PROFILE_CONFIGURED] = "configuration",
		[PROFILE_SAVED] = "saved",
	};

	if (store->profile_source == PROFILE_SAVED && !(store->saved && store->saved->is_written))
		return "set"; /* it is not saved, or not yet */
	return names[store->profile_source];
}

/* ---- the store of a file ---- */

struct store *registry_on_device(const struct registry *registry, dev_t dev)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->dev == dev)
			return store;
	return NULL;
}

int registry_check_access(const struct registry *registry, const struct store *store,
			  const struct peer *peer, const char *what, struct error *error)
{
	if (config_is_admin(registry->config, peer) || access_allows(&store->access, peer))
		return 0;
	return error_set_plain(error, -EACCES,
			       "%s: store %s does not serve user %u (it serves %.120s): ask the "
			       "administrator to add the user to its users, or one of the user's "
			       "groups to its groups, in dsaiod.conf",
			       what, store->name, peer->uid, access_text(&store->access));
}

/* Whether the file system with the store's device number may still be the store's own. */
static bool is_same(const struct store *store, const struct file_facts *facts)
{
	char key[SAVED_KEY_BYTES];

	if (store->fs_type != facts->fs_type)
		return false;
	if (!facts->has_uuid)
		return true;
	saved_key_by_uuid(facts->uuid, key);
	return strcmp(store->saved_key, key) == 0;
}

int registry_find_or_make(struct registry *registry, const struct file_facts *facts,
			  const char *name, const struct peer *peer, bool is_look,
			  struct store **ret_store, struct error *error)
{
	*ret_store = registry_on_device(registry, facts->dev);
	/* Another file system may have got the store's device number since. */
	if (!is_look && *ret_store && (*ret_store)->is_automatic && !(*ret_store)->n_refs &&
	    !is_same(*ret_store, facts)) {
		automatic_remove(registry, *ret_store);
		*ret_store = NULL;
	}
	if (*ret_store)
		return 0;
	return automatic_make_for(registry, facts, name, peer, ret_store, error);
}

int registry_for_file(struct registry *registry, const struct file_facts *facts, const char *name,
		      const struct peer *peer, struct store **ret_store, struct error *error)
{
	struct store *store;
	char what[160];
	int r;

	r = registry_find_or_make(registry, facts, name, peer, false, &store, error);
	if (r < 0)
		return r;
	(void)snprintf(what, sizeof(what), "file %s", name);
	r = registry_check_access(registry, store, peer, what, error);
	if (r == 0)
		*ret_store = store;
	return r;
}

/* ---- start and stop ---- */

static void on_sweep(EVENT_ARG(arg))
{
	registry_sweep(arg, clock_nsec());
}

/* The kernel has one internal tmpfs for all memfds.  0, which is no device number, on failure. */
static dev_t memfd_device(void)
{
	_cleanup_(closep) int fd = memfd_new("dsaiod", 0, 0);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_dev : 0;
}

int registry_prepare(const struct store_config *config, struct mailbox *main_mailbox,
		     struct store **ret_store, struct error *error)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	struct file_facts facts;
	struct store *store;
	int r = store_new(0, config, main_mailbox, &store, error);

	if (r < 0)
		return r;
	saved_key_by_name(config->name, store->saved_key);
	if (!store->plugin)
		fd = open(config->path, O_PATH | O_CLOEXEC);
	if (fd >= 0 && file_look(fd, config->path, &facts, error) == 0) {
		(void)mount_find(0, facts.mount_id, facts.dev,
				 &mount); /* without it the store has no source */
		registry_find_key(&facts, &mount, store->saved_key);
	}
	*ret_store = store;
	return 0;
}

void registry_add_prepared(struct registry *registry, struct store *store)
{
	store->id = ++registry->last_id;
	registry_add(registry, store);
}

/* This may block: it runs only at start, and the administrator chose the path. */
static int store_make_configured(struct registry *registry, const struct store_config *config,
				 struct error *error)
{
	struct store *store;
	const struct store *before;
	int r = registry_prepare(config, registry->main_mailbox, &store, error);

	if (r < 0)
		return r;
	before = registry_on_device(registry, store->dev);
	if (before)
		log_warning("store %s: is on the same device as store %s, which serves all its "
			    "files",
			    config->name, before->name);
	registry_add_prepared(registry, store);
	return 0;
}

CLEANUP_FUNCTION(struct registry, registry_deinit)

int registry_init(struct registry *registry, const struct config *config, struct event_base *base,
		  struct mailbox *main_mailbox, struct error *error)
{
	_cleanup_(registry_deinitp) struct registry *made = registry;
	int r;

	*registry = (struct registry){ .config = config, .main_mailbox = main_mailbox };
	registry->memfd_dev = memfd_device();
	if (config->state_dir)
		saved_init(&registry->saved, config->state_dir, main_mailbox);
	if (base) {
		registry->sweep_event = event_new(base, -1, EV_PERSIST, on_sweep, registry);
		if (!registry->sweep_event)
			return error_set(error, -ENOMEM, "stores: event");
	}
	for (unsigned i = 0; i < config->n_stores; i++) {
		const struct store_config one = config_store(config, &config->stores[i]);

		r = store_make_configured(registry, &one, error);
		if (r < 0)
			return r;
	}
	made = NULL;
	return 0;
}

int registry_start(struct registry *registry, struct error *error)
{
	int r = work_queue_new("stores", 1, &registry->work_queue);

	if (r == 0 && registry->saved.dir)
		r = work_queue_new("saved", 1, &registry->saved.work_queue);
	if (r == 0 &&
	    registry->stores.first) /* a thread for each store: a hung one delays no other */
		r = work_queue_new("probe", registry->config->n_stores, &registry->prober);
	if (r < 0)
		return error_set(error, r, "stores");
	LIST_EACH(struct store, store, &registry->stores, node) {
		const struct store_config config = config_store(
			registry->config, config_find_store(registry->config, store->name));

		r = store_start(store, &config, error);
		if (r < 0)
			return r;
		store_probe(store, registry->prober);
	}
	return 0;
}

void registry_deinit(struct registry *registry)
{
	event_freep(&registry->sweep_event);
	work_queue_free(registry->prober);
	LIST_EACH(struct store, store, &registry->stores, node)
		store_free(store);
	work_queue_free(registry->work_queue);
	saved_deinit(&registry->saved);
	*registry = (struct registry){ 0 };
}
