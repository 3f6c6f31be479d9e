#include "daemon/store/registry.h"

#include "daemon/base/job.h"
#include "daemon/base/memfd.h"
#include "daemon/base/work_queue.h"
#include "daemon/base/mount.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SWEEP_SEC 15 /* so an unused store is freed within 75 s */
#define NAME_BYTES 32
#define NOTE_BYTES (ERROR_TEXT_BYTES + 160)

/* ---- names ---- */

static struct store *store_named(const struct registry *registry, const char *name)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (strcmp(store->name, name) == 0)
			return store;
	return NULL;
}

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
	for (unsigned n = 2; store_named(registry, name); n++)
		(void)snprintf(name, NAME_BYTES, "%.24s-%u", base, n);
}

/* The stores as "t=/mnt/t, u=/mnt/u", cut to size. */
static void registry_name(const struct registry *registry, char *text, size_t size)
{
	size_t n = 0;

	(void)snprintf(text, size, "nothing");
	LIST_EACH(const struct store, store, &registry->stores, node)
		n += (size_t)snprintf(text + n, size - n, "%s%s=%s", n ? ", " : "", store->name,
				      store->path);
}

/* ---- profiles ---- */

/* Sets the key under which the store's profile is saved, and the saved profile if there is one. */
static int store_take_key(const struct registry *registry, struct store *store, const char *key)
{
	const struct profile *saved;

	store->saved_key = strdup(key);
	if (!store->saved_key)
		return -ENOMEM;
	saved = saved_find(&registry->saved, key);
	if (saved) {
		store->profile = *saved;
		store->profile_source = PROFILE_SAVED;
	}
	return 0;
}

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
static bool key_find(const struct file_facts *facts, const struct mount *mount,
		     char key[SAVED_KEY_BYTES])
{
	dev_t source;

	if (facts->has_uuid) {
		saved_key_by_uuid(facts->uuid, key);
		return true;
	}
	if (saved_key_by_device(facts->dev, facts->is_block_device, key))
		return true;
	/* The user that mounts a FUSE file system chooses its source, so the source proves nothing. */
	source = facts->is_foreign ? 0 : source_device(mount->source);
	return source && saved_key_by_device(source, false, key);
}

const char *store_profile_source(const struct store *store)
{
	static const char *const names[] = {
		[PROFILE_DEFAULTED] = "default",
		[PROFILE_CONFIGURED] = "configuration",
		[PROFILE_SAVED] = "saved",
		[PROFILE_SET] = "set",
	};

	return names[store->profile_source];
}

/* ---- making and freeing stores ---- */

/* A store to be freed on a worker thread: io_destroy(2) of its lanes may take 50 ms. */
struct going {
	struct work work;
	struct store *store;
};

static void going_run(struct work *work)
{
	struct going *going = container_of(work, struct going, work);

	store_free(going->store);
	free(going);
}

/* Removes an automatic store without references from the list, and frees it. */
static void store_let_go(struct registry *registry, struct store *store)
{
	struct going *going = malloc(sizeof(*going));

	assert(store->is_automatic && !store->n_holds);
	list_remove(&registry->stores, &store->node);
	registry->n_automatic--;
	log_client(&registry->log_limit, "store %s: unused: removed", store->name);
	if (!going) { /* without memory the main thread waits */
		store_free(store);
		return;
	}
	*going = (struct going){ .work.run = going_run, .store = store };
	work_queue_submit(registry->work_queue, &going->work);
}

void registry_sweep(struct registry *registry, uint64_t now_nsec)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->is_automatic && !store->n_holds &&
		    now_nsec >= store->unused_since_nsec + REGISTRY_UNUSED_NSEC)
			store_let_go(registry, store);
	if (!registry->n_automatic && registry->sweep_event)
		(void)event_del(registry->sweep_event); /* it may not be added, which is no error */
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	registry_sweep(arg, clock_nsec());
}

/* Makes room for another automatic store.  Returns false if all of them are in use. */
static bool registry_make_room(struct registry *registry, const struct peer *peer)
{
	uint32_t n_user = 0, user_max = REGISTRY_AUTOMATIC_USER_MAX;
	struct store *oldest = NULL, *oldest_of_user = NULL;

	if (config_is_admin(registry->config, peer))
		user_max = REGISTRY_AUTOMATIC_MAX;
	LIST_EACH(struct store, store, &registry->stores, node) {
		bool is_users = store->is_automatic && store->made_for == peer->uid;

		n_user += is_users;
		if (!store->is_automatic || store->n_holds)
			continue;
		if (!oldest || store->unused_since_nsec < oldest->unused_since_nsec)
			oldest = store;
		if (is_users && (!oldest_of_user ||
				 store->unused_since_nsec < oldest_of_user->unused_since_nsec))
			oldest_of_user = store;
	}
	if (n_user >= user_max)
		oldest = oldest_of_user;
	else if (registry->n_automatic < REGISTRY_AUTOMATIC_MAX)
		return true;
	if (!oldest)
		return false;
	store_let_go(registry, oldest);
	return true;
}

static int store_make_automatic(struct registry *registry, const struct file_facts *facts,
				const struct mount *mount, const struct peer *peer,
				struct store **ret_store, struct error *error)
{
	const struct timeval period = { .tv_sec = SWEEP_SEC };
	char name[NAME_BYTES], key[SAVED_KEY_BYTES];
	struct store_config config;
	struct store *store;
	int r;

	name_make(registry, facts->dev, facts->fs_type->name, name);
	config_default_store(registry->config, &config);
	config.name = name;
	config.path = mount->point ? mount->point : "";
	r = store_new_on(registry->last_id + 1, &config, facts->dev, facts->fs_type,
			 registry->main_mailbox, &store, error);
	if (r < 0)
		return r;
	if (key_find(facts, mount, key) && store_take_key(registry, store, key) < 0) {
		store_free(store);
		return error_set(error, -ENOMEM, "store %s", name);
	}
	registry->last_id++;
	registry->n_automatic++;
	store->is_automatic = true;
	store->made_for = peer->uid;
	list_push(&registry->stores, &store->node);
	if (registry->sweep_event)
		(void)event_add(registry->sweep_event,
				&period); /* without memory the next store adds it */
	log_client(&registry->log_limit, "store %s: automatic, for user %u: %s on device %u:%u%s%s",
		   store->name, peer->uid, facts->fs_type->name, major(store->dev),
		   minor(store->dev), store->path[0] ? " at " : "", store->path);
	*ret_store = store;
	return 0;
}

/* ---- the store of a file ---- */

struct store *registry_by_id(const struct registry *registry, uint32_t id)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->id == id)
			return store;
	return NULL;
}

static struct store *store_on(const struct registry *registry, dev_t dev)
{
	LIST_EACH(struct store, store, &registry->stores, node)
		if (store->dev == dev)
			return store;
	return NULL;
}

static int refuse(const struct registry *registry, const struct file_facts *facts, const char *name,
		  const char *mount_point, const char *why, struct error *error)
{
	char served[100];

	registry_name(registry, served, sizeof(served));
	return error_set_plain(
		error, -ENXIO,
		"file %.100s: is on device %u:%u (%s), which the daemon does not serve%s (it serves "
		"%s): move the file there, or have the administrator add \"[store NAME]\" and "
		"\"path = %.60s\" to dsaiod.conf, or start the daemon with --store NAME=%.60s",
		name, major(facts->dev), minor(facts->dev), facts->fs_type->name, why, served,
		mount_point, mount_point);
}

static int make_for_file(struct registry *registry, const struct file_facts *facts,
			 const char *name, const struct peer *peer, struct store **ret_store,
			 struct error *error)
{
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	const char *where;

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
	if (!registry_make_room(registry, peer))
		return error_set_plain(
			error, -EMFILE,
			"file %s: is on device %u:%u (%s), which no store names, and of %u "
			"automatic stores at most, %u for one user, none is unused: close files on "
			"other file systems first, or have the administrator name this one in "
			"dsaiod.conf",
			name, major(facts->dev), minor(facts->dev), facts->fs_type->name,
			REGISTRY_AUTOMATIC_MAX, REGISTRY_AUTOMATIC_USER_MAX);
	return store_make_automatic(registry, facts, &mount, peer, ret_store, error);
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
			       what, store->name, peer->uid, store->access.text);
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
	return store->saved_key && strcmp(store->saved_key, key) == 0;
}

/*
 * is_look: anybody may look, by any descriptor, such as an O_PATH one of a device node that only root
 * may open.  So a look never frees a store, which would drop its counters and profile.
 */
static int find_or_make(struct registry *registry, const struct file_facts *facts, const char *name,
			const struct peer *peer, bool is_look, struct store **ret_store,
			struct error *error)
{
	*ret_store = store_on(registry, facts->dev);
	/* Another file system may have got the store's device number since. */
	if (!is_look && *ret_store && (*ret_store)->is_automatic && !(*ret_store)->n_holds &&
	    !is_same(*ret_store, facts)) {
		store_let_go(registry, *ret_store);
		*ret_store = NULL;
	}
	if (*ret_store)
		return 0;
	return make_for_file(registry, facts, name, peer, ret_store, error);
}

int registry_for_file(struct registry *registry, const struct file_facts *facts, const char *name,
		      const struct peer *peer, struct store **ret_store, struct error *error)
{
	struct store *store;
	char what[160];
	int r;

	r = find_or_make(registry, facts, name, peer, false, &store, error);
	if (r < 0)
		return r;
	(void)snprintf(what, sizeof(what), "file %s", name);
	r = registry_check_access(registry, store, peer, what, error);
	if (r == 0)
		*ret_store = store;
	return r;
}

/* ---- questions about a store ---- */

/* An open question: it passes the user's worker thread and, to save a profile, the saved profiles'. */
struct query {
	struct registry *registry;
	struct registry_asking asking;
	bool is_set;			/* else it is a look */
	bool has_profile;		/* else the profile is reset */
	struct partial_profile profile; /* the rest stays */
	struct store *store;		/* referenced until its profile is saved */
	struct job job;
	char path[128]; /* of the descriptor, for error texts */
	struct file_facts facts;
	int result;
	struct error error;
};

static void query_done(struct query *query, const char *note)
{
	query->asking.on_done(query->store, query->result, query->result < 0 ? &query->error : NULL,
			      note, query->asking.arg);
	if (query->store)
		store_unref(query->store);
	free(query);
}

/* The note for a profile that is not saved. */
static void lasts_note(const struct store *store, const char *why, char *note, size_t size)
{
	(void)snprintf(note, size, "store %s: the profile is not saved: %s; it lasts until %s",
		       store->name, why,
		       store->is_automatic ? "nobody has used the store for a minute"
					   : "the daemon ends");
}

static void on_saved(void *arg, int result, const struct error *error)
{
	struct query *query = arg;
	char note[NOTE_BYTES] = "";

	if (result < 0) {
		if (query->has_profile)
			query->store->profile_source = PROFILE_SET;
		log_warning("store %s: its profile cannot be saved: %s", query->store->name,
			    error->text);
		lasts_note(query->store, error->text, note, sizeof(note));
	}
	query_done(query, note);
}

static void query_set(struct query *query)
{
	struct registry *registry = query->registry;
	struct store *store = query->store;
	const struct profile profile = profile_fill(&query->profile, &store->profile);
	char note[NOTE_BYTES];

	/* Stores with one key (subvolumes of a btrfs) are one file system. */
	LIST_EACH(struct store, s, &registry->stores, node) {
		if (s != store && (!store->saved_key || !s->saved_key ||
				   strcmp(s->saved_key, store->saved_key) != 0))
			continue;
		s->profile = query->has_profile ? profile : s->given_profile;
		s->profile_source = query->has_profile ? PROFILE_SAVED : s->given_source;
	}
	if (!store->saved_key || !registry->saved.dir) {
		if (query->has_profile)
			store->profile_source = PROFILE_SET;
		lasts_note(
			store,
			store->saved_key
				? "there is no state_dir"
				: "its file system has no UUID, nor its device an id, to know it "
				  "by after a restart (a [store NAME] in dsaiod.conf gives it "
				  "one)",
			note, sizeof(note));
		query_done(query, query->has_profile ? note : "");
		return;
	}
	query->result = saved_set(&registry->saved, store->saved_key, store->name,
				  query->has_profile ? &profile : NULL, on_saved, query,
				  &query->error);
	if (query->result < 0)
		query_done(query, "");
}

/* The store has been found, or the query has an error. */
static void query_go_on(struct query *query, struct store *store)
{
	if (query->result == 0 && store) { /* one implies the other, which cppcheck can't see */
		store_ref(store);
		query->store = store;
	}
	if (query->result == 0 && query->is_set)
		query_set(query);
	else
		query_done(query, "");
}

static void looked_main(struct job *job)
{
	struct query *query = container_of(job, struct query, job);
	struct store *store = NULL;

	if (query->result == 0)
		query->result = find_or_make(query->registry, &query->facts, query->path,
					     query->asking.peer, !query->is_set, &store,
					     &query->error);
	query_go_on(query, store);
}

static void look_run(struct job *job)
{
	struct query *query = container_of(job, struct query, job);
	char link[32];
	ssize_t n;

	/* The kernel knows the name: this calls no file system. */
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", query->asking.fd);
	n = readlink(link, query->path, sizeof(query->path) - 1);
	query->path[n > 0 ? n : 0] = 0;
	for (char *c = query->path; *c; c++)
		if (*c < ' ' || *c == 0x7f)
			*c = '?';
	query->result = file_look(query->asking.fd, query->path, &query->facts, &query->error);
	closep(&query->asking.fd);
}

static int query_start(struct registry *registry, const struct registry_asking *asking, bool is_set,
		       const struct partial_profile *profile, struct error *error)
{
	struct store *store = store_named(registry, asking->name);
	struct query *query;
	char served[200];

	if ((asking->name[0] != 0) == (asking->fd >= 0))
		return error_set_plain(error, -EINVAL,
				       "store: either its name or a descriptor of something on it "
				       "is needed, and not both");
	if (asking->name[0] && !store) {
		registry_name(registry, served, sizeof(served));
		return error_set_plain(error, -ENXIO,
				       "store %.64s: the daemon has none with this name (it serves "
				       "%s): name one of them, or a file or directory that lies on "
				       "the one",
				       asking->name, served);
	}
	query = calloc(1, sizeof(*query));
	if (!query)
		return error_set(error, -ENOMEM, "store");
	query->registry = registry;
	query->asking = *asking;
	query->is_set = is_set;
	query->has_profile = profile;
	if (profile)
		query->profile = *profile;
	if (store) {
		query_go_on(query, store);
		return 0;
	}
	query->job.run = look_run;
	query->job.done = looked_main;
	query->job.mailbox = registry->main_mailbox;
	query->job.work.about = (struct hung_about){
		.what = "check", .file = "(store)", .fd = asking->fd, .who = *asking->who
	};
	job_submit(asking->work_queue, &query->job);
	return 0;
}

int registry_get(struct registry *registry, const struct registry_asking *asking,
		 struct error *error)
{
	return query_start(registry, asking, false, NULL, error);
}

int registry_set_profile(struct registry *registry, const struct registry_asking *asking,
			 const struct partial_profile *profile, struct error *error)
{
	char why[ERROR_TEXT_BYTES - 64];

	if (!config_is_admin(registry->config, asking->peer))
		return error_set_plain(
			error, -EPERM,
			"profile: only administrators set it (root, the daemon's own user, members "
			"of admin_group in dsaiod.conf): ask one, or give a handle a profile of "
			"its own");
	if (profile && profile_check(&profile->profile, why, sizeof(why)) < 0)
		return error_set_plain(error, -EINVAL, "%s", why);
	return query_start(registry, asking, true, profile, error);
}

/* ---- start and stop ---- */

/* The kernel has one internal tmpfs for all memfds.  0, which is no device number, on failure. */
static dev_t memfd_device(void)
{
	_cleanup_(closep) int fd = memfd_new("dsaiod", 0, 0);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_dev : 0;
}

static int store_make_configured(struct registry *registry, const struct store_config *config,
				 struct error *error)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	struct file_facts facts;
	char key[SAVED_KEY_BYTES];
	struct store *store, *before;
	int r = store_new(registry->last_id + 1, config, registry->main_mailbox, &store, error);

	if (r < 0)
		return r;
	registry->last_id++;
	before = store_on(registry, store->dev);
	if (before)
		log_warning("store %s: is on the same device as store %s, which serves all its "
			    "files",
			    store->name, before->name);
	list_push(&registry->stores, &store->node);

	/* This may block: it runs only at start, and the administrator chose the path. */
	fd = open(config->path, O_PATH | O_CLOEXEC);
	if (fd >= 0 && file_look(fd, config->path, &facts, error) == 0) {
		(void)mount_find(0, facts.mount_id, facts.dev,
				 &mount); /* without it the store has no source */
		if (key_find(&facts, &mount, key))
			return store_take_key(registry, store, key) < 0
				       ? error_set(error, -ENOMEM, "store %s", store->name)
				       : 0;
	}
	saved_key_by_name(store->name, key);
	return store_take_key(registry, store, key) < 0
		       ? error_set(error, -ENOMEM, "store %s", store->name)
		       : 0;
}

static void registry_deinitp(struct registry **registry)
{
	if (*registry)
		registry_deinit(*registry);
}

int registry_init(struct registry *registry, const struct config *config, struct event_base *base,
		  struct mailbox *main_mailbox, struct error *error)
{
	_cleanup_(registry_deinitp) struct registry *made = registry;
	int r;

	*registry = (struct registry){ .config = config, .main_mailbox = main_mailbox };
	registry->memfd_dev = memfd_device();
	r = config->state_dir ? saved_init(&registry->saved, config->state_dir, main_mailbox, error)
			      : 0;
	if (r < 0)
		return r;
	if (base) {
		registry->sweep_event = event_new(base, -1, EV_PERSIST, on_sweep, registry);
		if (!registry->sweep_event)
			return error_set(error, -ENOMEM, "stores: event");
	}
	for (unsigned i = 0; i < config->n_stores; i++) {
		struct store_config one = config->stores[i];

		if (one.spin_usec == CONFIG_SPIN_INHERIT)
			one.spin_usec = config->spin_usec;
		one.is_multi_user = !config->is_user;
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
		r = saved_start(&registry->saved);
	if (r == 0 &&
	    registry->stores.first) /* a thread for each store: a hung one delays no other */
		r = work_queue_new("probe", registry->config->n_stores, &registry->prober);
	if (r < 0)
		return error_set(error, r, "stores");
	LIST_EACH(struct store, store, &registry->stores, node)
		store_probe(store, registry->prober);
	return 0;
}

void registry_deinit(struct registry *registry)
{
	if (registry->sweep_event)
		event_free(registry->sweep_event);
	work_queue_free(registry->prober);
	LIST_EACH(struct store, store, &registry->stores, node)
		store_free(store);
	work_queue_free(registry->work_queue);
	saved_deinit(&registry->saved);
	*registry = (struct registry){ 0 };
}
