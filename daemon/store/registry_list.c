#include "daemon/store/registry_parts.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- names ---- */

struct store *registry_named(const struct registry *registry, const char *name)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (strcmp(store->name, name) == 0)
			return store;
	return NULL;
}

void registry_text(const struct registry *registry, char *text, size_t size)
{
	size_t n = 0;

	(void)snprintf(text, size, "nothing");
	LIST_EACH(const struct store, store, &registry->stores, node)
		if (n < size)
			n += (size_t)snprintf(text + n, size - n, "%s%s=%s", n ? ", " : "",
					      store->name, store->path);
}

struct store *registry_by_key(const struct registry *registry, uint32_t key)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->key == key)
			return store;
	return NULL;
}

static void take_saved(struct store *store, const struct saved_settings *saved)
{
	if (saved->has_profile) {
		store->profile = saved->profile;
		store->profile_source = PROFILE_SAVED;
	}
	limiter_set(&store->lane_store.limiter, &saved->limit);
	lane_store_set_drained(&store->lane_store, saved->is_drained);
}

void registry_add(struct registry *registry, struct store *store)
{
	uint32_t key = store_hash(store->name);

	while (!key || registry_by_key(registry, key))
		key++;
	store->key = key;
	list_push(&registry->stores, &store->node);
	store->saved = saved_entry(&registry->saved, store->saved_key);
	if (store->saved && store->saved->is_there)
		take_saved(store, &store->saved->settings);
}

/* ---- keys of saved settings ---- */

/*
 * The block device that a mount's source names, or 0.  This is the main thread, so the lookup stays
 * within the file system of /dev: "/dev/../x", a link out of it or a mount on top of it would call
 * another file system, which may hang.
 */
static dev_t source_device(const char *source)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV |
					   RESOLVE_NO_MAGICLINKS };
	_cleanup_(closep) int dir = -1, fd = -1;
	struct stat st;

	if (!source || strncmp(source, "/dev/", 5) != 0)
		return 0;
	dir = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		fd = (int)syscall(SYS_openat2, dir, source + 5, &how, sizeof(how));
	return fd >= 0 && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) ? st.st_rdev : 0;
}

/* The key is the UUID that the file system reports, else the one that /dev/disk has for its device.
   A btrfs has no device of its own, so the device of its mount's source is used. */
void registry_find_key(const struct file_facts *facts, const struct mount *mount,
		       char key[SAVED_KEY_BYTES])
{
	dev_t source;

	if (facts->has_uuid) {
		saved_key_by_uuid(facts->uuid, key);
		return;
	}
	if (saved_key_by_device(facts->dev, facts->is_block_device, key))
		return;
	/* The user that mounts a FUSE file system chooses its source, so the source proves nothing. */
	source = facts->is_foreign ? 0 : source_device(mount->source);
	if (source)
		(void)saved_key_by_device(source, false, key); /* else it stays */
}
