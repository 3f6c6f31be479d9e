#include "daemon/store/store.h"

#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/work_queue.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/rados.h"
#include "daemon/lane/lane.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The deepest profile fits one lane. */
#define LANE_DEPTH 4096u
/* A lane with less room would not keep a device busy. */
#define LANE_ROOM_MIN 32u

/* A larger block of a raw block device becomes several requests, and RWF_NOWAIT refuses it. */
#define RAW_NOWAIT_BYTES (1u << 20)

/*
 * The largest block that the device takes in one request.  The kernel would split a larger one and
 * may have to wait between the parts, so RWF_NOWAIT refuses it.  Stores without a device (tmpfs, btrfs,
 * network file systems) have no such limit.
 */
static uint32_t whole_bytes(dev_t dev, const struct fs_type *fs_type)
{
	static const char *const paths[] = {
		"/sys/dev/block/%u:%u/queue/max_sectors_kb",
		"/sys/dev/block/%u:%u/../queue/max_sectors_kb", /* a partition: its disk has the limit */
	};
	uint32_t most = fs_type->is_device ? RAW_NOWAIT_BYTES : PROFILE_BLOCK_SIZE_MAX;

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		_cleanup_(fclosep) FILE *file = NULL;
		char path[80];
		uint32_t kib;

		(void)snprintf(path, sizeof(path), paths[i], major(dev), minor(dev));
		file = fopen(path, "re");
		if (file && fscanf(file, "%" SCNu32, &kib) == 1 && kib >= 4 && kib < most >> 10)
			return (kib << 10) & ~(uint32_t)4095;
	}
	return most;
}

CLEANUP_FUNCTION(struct store, store_free)

int store_new_on(uint32_t id, const struct store_config *config, dev_t dev,
		 const struct fs_type *fs_type, struct mailbox *main_mailbox,
		 struct store **ret_store, struct error *error)
{
	_cleanup_(store_freep) struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return error_set(error, -ENOMEM, "store %s", config->name);
	store->id = id;
	store->dev = dev;
	store->profile = store->given_profile = config->profile;
	store->profile_source = store->given_source = config->has_profile ? PROFILE_CONFIGURED
									  : PROFILE_DEFAULTED;
	store->engine = engine_ops_get(ENGINE_LIBAIO);
	store->access = config->access;
	store->unused_since_nsec = clock_nsec();
	store->fs_type = fs_type;
	store->name = strdup(config->name);
	store->path = strdup(config->path);
	if (!store->name || !store->path)
		return error_set(error, -ENOMEM, "store %s", config->name);
	store->lane_store = (struct lane_store){ .store = store,
						 .name = store->name,
						 .dev = dev,
						 .main_mailbox = main_mailbox,
						 .spin_usec = config->spin_usec,
						 .window_max_bytes = config->window_max,
						 .whole_bytes = whole_bytes(dev, fs_type),
						 .is_multi_user = config->is_multi_user,
						 .is_tmpfs = fs_type->is_tmpfs };
	atomic_init(&store->lane_store.is_blocking,
		    probe_judge(NULL, fs_type, store->probe.text_before));
	atomic_init(&store->probe.is_done, false);
	*ret_store = TAKE_PTR(store);
	return 0;
}

uint32_t store_hash(const char *text)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (const char *c = text; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 16777619u;
	return hash;
}

/* No device of the kernel's has such a number; two stores of one namespace have the same. */
static dev_t rados_dev(const char *path)
{
	return (dev_t)1 << 63 | store_hash(path);
}

static int store_new_rados(uint32_t id, const struct store_config *config,
			   struct mailbox *main_mailbox, struct store **ret_store,
			   struct error *error)
{
	const struct rados_plugin *plugin;
	int r = rados_plugin_load(&plugin, error);

	if (r == 0)
		r = store_new_on(id, config, rados_dev(config->path), &fs_type_rados, main_mailbox,
				 ret_store, error);
	if (r < 0)
		return r;
	(*ret_store)->plugin = plugin;
	(*ret_store)->engine = plugin->engine;
	(void)snprintf((*ret_store)->probe.text_before, PROBE_TEXT_BYTES,
		       "objects of a Ceph cluster, by librados");
	return 0;
}

int store_start(struct store *store, const struct store_config *config, struct error *error)
{
	return store->plugin ? store->plugin->store_open(
				       &(struct rados_settings){ .store = store->name,
								 .path = store->path,
								 .state_dir = config->state_dir,
								 .keys = config->rados },
				       &store->rados, error)
			     : 0;
}

int store_new(uint32_t id, const struct store_config *config, struct mailbox *main_mailbox,
	      struct store **ret_store, struct error *error)
{
	const struct fs_type *fs_type;
	struct stat st;
	struct statfs fs;

	if (config_is_rados(config->path))
		return store_new_rados(id, config, main_mailbox, ret_store, error);
	if (stat(config->path, &st) < 0)
		return error_set(
			error, -errno,
			"store %s: %s: name a directory on the file system, or a block device",
			config->name, config->path);
	if (S_ISBLK(st.st_mode))
		return store_new_on(id, config, st.st_rdev, &fs_type_block_device, main_mailbox,
				    ret_store, error);
	if (!S_ISDIR(st.st_mode))
		return error_set(error, -ENOTDIR,
				 "store %s: %s: neither a directory nor a block device",
				 config->name, config->path);
	if (statfs(config->path, &fs) < 0)
		return error_set(error, -errno, "store %s: %s: statfs", config->name, config->path);
	fs_type = fs_type_of((uint64_t)fs.f_type);
	if (fs_type->is_pseudo)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"store %s: %s: is on %s, a pseudo file system without stored "
			"bytes: name a directory on another file system",
			config->name, config->path, fs_type->name);
	return store_new_on(id, config, st.st_dev, fs_type, main_mailbox, ret_store, error);
}

/* On a worker thread. */
static void probe_run(struct work *work)
{
	struct store *store = container_of(work, struct store, probe.work);
	struct store_probe *p = &store->probe;
	struct probe probe;
	bool is_blocking;

	privileges_own_files();
	probe_measure(store->path, store->fs_type->is_device, &probe);
	is_blocking = probe_judge(&probe, store->fs_type, p->text);
	atomic_store_explicit(&store->lane_store.is_blocking, is_blocking, memory_order_relaxed);
	atomic_store_explicit(&p->is_done, true, memory_order_release);
	if (is_blocking)
		log_notice("store %s: worker threads are its engine: %s", store->name, p->text);
}

void store_probe(struct store *store, struct work_queue *work_queue)
{
	if (store->fs_type->is_tmpfs || store->plugin)
		return;
	store->probe.work.run = probe_run;
	store->probe.work.about = (struct hung_about){
		.what = "probe",
		.file = store->path,
		.fd = -1,
		.dev = store->dev,
		.who = { .uid = geteuid() },
	};
	work_queue_submit(work_queue, &store->probe.work);
}

const char *store_engine_text(const struct store *store)
{
	/* acquire: pairs with the release in probe_run() */
	return atomic_load_explicit(&store->probe.is_done, memory_order_acquire)
		       ? store->probe.text
		       : store->probe.text_before;
}

void store_free(struct store *store)
{
	if (!store)
		return;
	assert(!store->n_refs);
	if (store->lane)
		lane_stop(store->lane);
	lane_free(store->lane);
	assert(!store->inodes.root);
	if (store->rados)
		store->plugin->store_close(store->rados);
	free(store->name);
	free(store->path);
	free(store);
}

/*
 * Whether the lane needs room in the kernel: not if worker threads are the engine.  Only the probe of a
 * configured store may still change that.
 */
static bool needs_room(const struct store *store)
{
	return store->engine->grow && !store->fs_type->is_tmpfs &&
	       (!store_is_blocking(store) ||
		(!store->is_automatic &&
		 !atomic_load_explicit(&store->probe.is_done, memory_order_acquire)));
}

/* The room for a lane that has `have` and shall have depth, of which the store may take so much more. */
static uint32_t room_for(uint64_t depth, uint32_t have, uint64_t room_left)
{
	uint64_t room = depth > LANE_ROOM_MIN ? depth : LANE_ROOM_MIN;

	if (room > have && room < 2 * (uint64_t)have)
		room = 2 * (uint64_t)have; /* few contexts */
	if (room > LANE_DEPTH)
		room = LANE_DEPTH;
	return room > have && room - have > room_left ? have + (uint32_t)room_left : (uint32_t)room;
}

uint64_t store_room(const struct store *store)
{
	return store->lane ? lane_room(store->lane) : 0;
}

/* needs: its room has to be LANE_ROOM_MIN at least. */
static int start_lane(struct store *store, bool needs, uint32_t room, struct error *error)
{
	struct lane_config config = {
		.store = &store->lane_store,
		.engine = store->engine,
		.depth = LANE_DEPTH,
		.rados_store = store->rados,
		.park_nsec = LANE_PARK_NSEC,
		.idle_doorbells_max = LANE_IDLE_DOORBELLS_MAX,
	};

	/* Any user may open the store first, and all others then depend on its lane. */
	if (needs)
		config.room = room > LANE_ROOM_MIN ? room : LANE_ROOM_MIN;
	return lane_start(&config, &store->lane, error);
}

/* There is no context for an automatic store: until the store is freed, worker threads are its engine. */
static void leave_to_workers(struct store *store, const struct error *error)
{
	static struct log_limit log_limit;

	(void)snprintf(store->probe.text_before, sizeof(store->probe.text_before),
		       "fs.aio-max-nr leaves no context for it");
	atomic_store_explicit(&store->lane_store.is_blocking, true, memory_order_relaxed);
	log_client(&log_limit, "store %s: worker threads are its engine: %s", store->name,
		   error->text);
}

int store_start_lane(struct store *store, const struct profile *profile, uint64_t room_left,
		     struct error *error)
{
	const uint64_t depth = store->lane_store.channels_depth +
			       lane_store_blocks(&store->lane_store, profile);
	const uint32_t have = (uint32_t)store_room(store);
	const bool needs = needs_room(store);
	const uint32_t room = room_for(depth, have, room_left);
	int r = 0;

	if (!store->lane) {
		r = start_lane(store, needs, room, error);
		if (r == -EAGAIN && needs && store->is_automatic) {
			leave_to_workers(store, error);
			r = start_lane(store, false, 0, error);
		}
	} else if (needs && room > have) {
		/* Without more room the blocks wait for one another: slower, not wrong. */
		struct error ignored;

		(void)lane_grow(store->lane, room, &ignored);
	}
	return r;
}

uint32_t store_block_bytes(const struct store *store, const struct profile *profile)
{
	return lane_store_block_bytes(&store->lane_store, profile);
}

uint32_t store_lane_depth(const struct store *store)
{
	return store->lane_store.depth;
}
