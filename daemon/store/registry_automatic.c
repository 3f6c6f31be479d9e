#include "daemon/store/registry_parts.h"

#include "daemon/base/work_queue.h"
#include "daemon/engine/engine.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SWEEP_SEC 15 /* so an unused store is freed within 75 s */
#define NAME_BYTES 32

/* ---- names ---- */

/* The kernel's name of a block device: "nvme0n1p2"; for device mapper the name of the mapping. */
static bool block_name(dev_t dev, char name[NAME_BYTES])
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[64], target[256];
	const char *slash;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/dm/name", major(dev), minor(dev));
	file = fopen(path, "re");
	if (file && fgets(target, sizeof(target), file)) {
		target[strcspn(target, "\n")] = 0;
		(void)snprintf(name, NAME_BYTES, "%.*s", NAME_BYTES - 1, target);
		return name[0];
	}
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	slash = strrchr(target, '/');
	(void)snprintf(name, NAME_BYTES, "%.*s", NAME_BYTES - 1, slash ? slash + 1 : target);
	return name[0];
}

/* Makes a name that no other store has, from the letters that store names may contain. */
static void name_make(const struct registry *registry, dev_t dev, const char *fs_type,
		      char name[NAME_BYTES])
{
	char base[NAME_BYTES];

	if (!block_name(dev, base))
		(void)snprintf(base, sizeof(base), "%s-%u", fs_type, minor(dev));
	for (char *c = base; *c; c++)
		if (!strchr(STORE_NAME_LETTERS, *c))
			*c = '_';
	(void)strcpy(name, base);
	for (unsigned n = 2; registry_named(registry, name); n++)
		(void)snprintf(name, NAME_BYTES, "%.24s-%u", base, n);
}

/* ---- room in the kernel ---- */

uint64_t registry_room_left(const struct registry *registry, const struct store *store)
{
	uint64_t left;

	if (!store->is_automatic || !store->engine->grow)
		return INT64_MAX;
	left = store->engine->user_room();
	LIST_EACH(const struct store, other, &registry->stores, node) {
		const bool is_users = other->is_automatic && other->made_for == store->made_for;
		const uint64_t room = is_users ? store_room(other) : 0;

		left = left > room ? left - room : 0;
	}
	return left;
}

/* ---- the end of a store ---- */

/* On a worker thread: io_destroy(2) of its lane may take 50 ms. */
static void removal_run(struct work *work)
{
	store_free(container_of(work, struct store, removal));
}

void automatic_remove(struct registry *registry, struct store *store)
{
	assert(store->is_automatic && !store->n_refs);
	list_remove(&registry->stores, &store->node);
	registry->n_automatic--;
	if (store->saved)
		store->saved->written_bytes += lane_store_written(&store->lane_store);
	log_client(&registry->log_limit, "store %s: unused: removed", store->name);
	store->removal.run = removal_run;
	work_queue_submit(registry->work_queue, &store->removal);
}

void registry_sweep(struct registry *registry, uint64_t now_nsec)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->is_automatic && !store->n_refs &&
		    now_nsec >= store->unused_since_nsec + REGISTRY_UNUSED_NSEC)
			automatic_remove(registry, store);
	if (!registry->n_automatic && registry->sweep_event)
		(void)event_del(registry->sweep_event); /* it may not be added, which is no error */
}

/* ---- the begin of a store ---- */

/* Makes room for another automatic store.  Returns false if all of them are in use. */
static bool automatic_make_room(struct registry *registry, const struct peer *peer)
{
	const uint32_t user_max = config_is_admin(registry->config, peer)
					  ? REGISTRY_AUTOMATIC_MAX
					  : REGISTRY_AUTOMATIC_USER_MAX;
	struct store *oldest = NULL;
	uint32_t n_user = 0;

	LIST_EACH(const struct store, store, &registry->stores, node)
		n_user += store->is_automatic && store->made_for == peer->uid;
	if (n_user < user_max && registry->n_automatic < REGISTRY_AUTOMATIC_MAX)
		return true;
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->is_automatic && !store->n_refs &&
		    (n_user < user_max || store->made_for == peer->uid) &&
		    (!oldest || store->unused_since_nsec < oldest->unused_since_nsec))
			oldest = store;
	if (!oldest)
		return false;
	automatic_remove(registry, oldest);
	return true;
}

static int automatic_make(struct registry *registry, const struct file_facts *facts,
			  const struct mount *mount, const struct peer *peer,
			  struct store **ret_store, struct error *error)
{
	const struct timeval period = { .tv_sec = SWEEP_SEC };
	char name[NAME_BYTES];
	struct store_config config = config_store(registry->config, NULL);
	struct store *store;
	int r;

	name_make(registry, facts->dev, facts->fs_type->name, name);
	config.name = name;
	config.path = mount->point ? mount->point : "";
	r = store_new_on(registry->last_id + 1, &config, facts->dev, facts->fs_type,
			 registry->main_mailbox, &store, error);
	if (r < 0)
		return r;
	registry_find_key(facts, mount, store->saved_key);
	registry->last_id++;
	registry->n_automatic++;
	store->is_automatic = true;
	store->made_for = peer->uid;
	registry_add(registry, store);
	if (registry->sweep_event)
		(void)event_add(registry->sweep_event,
				&period); /* without memory the next store adds it */
	log_client(&registry->log_limit, "store %s: automatic, for user %u: %s on device %u:%u%s%s",
		   store->name, peer->uid, facts->fs_type->name, major(store->dev),
		   minor(store->dev), store->path[0] ? " at " : "", store->path);
	*ret_store = store;
	return 0;
}

static int refuse(const struct registry *registry, const struct file_facts *facts, const char *name,
		  const char *mount_point, const char *why, struct error *error)
{
	char served[100];

	registry_text(registry, served, sizeof(served));
	return error_set_plain(
		error, -ENXIO,
		"file %.100s: is on device %u:%u (%s), which the daemon does not serve%s (it serves "
		"%s): move the file there, or have the administrator add \"[store NAME]\" and "
		"\"path = %.60s\" to dsaiod.conf, or start the daemon with --store NAME=%.60s",
		name, major(facts->dev), minor(facts->dev), facts->fs_type->name, why, served,
		mount_point, mount_point);
}

int automatic_make_for(struct registry *registry, const struct file_facts *facts, const char *name,
		       const struct peer *peer, struct store **ret_store, struct error *error)
{
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	const char *where;

	if (facts->fs_type->is_pseudo)
		return error_set_plain(error, -ENXIO,
				       "file %s: is on %s, a pseudo file system without stored "
				       "bytes, which no store serves",
				       name, facts->fs_type->name);
	if (!facts->is_block_device)
		(void)mount_find(0, facts->mount_id, facts->dev,
				 &mount); /* without it the message has no path */
	where = mount.point ? mount.point : facts->is_block_device ? "DEVICE" : "DIR";
	if (!facts->is_block_device && facts->dev == registry->memfd_dev)
		return error_set_plain(error, -ENXIO,
				       "file %s: is a memfd, which is memory and lies on no store",
				       name);
	if (!registry->config->auto_stores)
		return refuse(registry, facts, name, where, " (auto_stores = no)", error);
	if (!registry->config->is_user && !facts->fs_type->is_trusted)
		return refuse(registry, facts, name, where,
			      ", since its server can block the I/O of the daemon", error);
	if (!automatic_make_room(registry, peer))
		return error_set_plain(
			error, -EMFILE,
			"file %s: is on device %u:%u (%s), which no store names, and of %u "
			"automatic stores at most, %u for one user, none is unused: close files on "
			"other file systems first, or have the administrator name this one in "
			"dsaiod.conf",
			name, major(facts->dev), minor(facts->dev), facts->fs_type->name,
			REGISTRY_AUTOMATIC_MAX, REGISTRY_AUTOMATIC_USER_MAX);
	return automatic_make(registry, facts, &mount, peer, ret_store, error);
}
