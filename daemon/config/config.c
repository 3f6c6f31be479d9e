#include "daemon/config/config.h"

#include "daemon/base/log.h"
#include "daemon/base/memory_limit.h"
#include "daemon/config/keys.h"
#include "daemon/config/limits.h"
#include "proto/dirs.h"
#include "proto/util/cleanup.h"
#include "proto/util/parser.h"
#include "proto/util/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define IDLE_EXIT_SEC_USER 60u /* a job's next step still finds the daemon */
#define STORES_MAX 64u	       /* a guess: each has a thread and libaio contexts */
/* Bytes of a value that a message repeats. */
#define SHOWN_BYTES 200

/* ---- mistakes ---- */

static int first_mistake(const struct config *config, struct error *error)
{
	if (!config->n_mistakes)
		return 0;
	return error_set_plain(error, -EINVAL, "%s",
			       config->mistakes[0] ? config->mistakes[0] : "out of memory");
}

bool config_is_admin(const struct config *config, const struct peer *peer)
{
	return peer->uid == 0 || peer->uid == geteuid() ||
	       (config->has_admin_group && peer_has_group(peer, config->admin_group));
}

int config_check_admin(const struct config *config, const struct peer *peer, const char *what,
		       const char *advice, struct error *error)
{
	if (config_is_admin(config, peer))
		return 0;
	return error_set_plain(error, -EPERM,
			       "%s (root, the daemon's own user, members of admin_group in "
			       "dsaiod.conf)%s",
			       what, advice);
}

/* ---- stores ---- */

struct store_config *config_find_store(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->n_stores; i++)
		if (strcmp(config->stores[i].name, name) == 0)
			return &config->stores[i];
	return NULL;
}

static int store_name_check(const char *name, struct error *error)
{
	size_t n = strspn(name, STORE_NAME_LETTERS);

	if (n == 0 || name[n] || n > STORE_NAME_MAX)
		return error_set_plain(
			error, -EINVAL,
			"store \"%s\": a name has 1 to %u letters, digits, _, - or .", name,
			STORE_NAME_MAX);
	return 0;
}

static struct store_config store_defaults(void)
{
	return (struct store_config){ .profile = PROFILE_DEFAULT,
				      .spin_usec = CONFIG_SPIN_INHERIT };
}

struct store_config config_store(const struct config *config, const struct store_config *given)
{
	struct store_config store = given ? *given : store_defaults();

	if (store.spin_usec == CONFIG_SPIN_INHERIT)
		store.spin_usec = config->spin_usec;
	store.is_multi_user = !config->is_user;
	store.state_dir = config->state_dir;
	return store;
}

/* A new store with the defaults and no path. */
static int store_add(struct config *config, const char *name, struct store_config **ret_store,
		     struct error *error)
{
	struct store_config *stores;
	char *copy;
	int r;

	r = store_name_check(name, error);
	if (r < 0)
		return r;
	if (config->n_stores == STORES_MAX)
		return error_set_plain(error, -EINVAL, "store %s: there may be at most %u", name,
				       STORES_MAX);
	stores = reallocarray(config->stores, config->n_stores + 1, sizeof(*stores));
	if (!stores)
		return error_set(error, -ENOMEM, "store %s", name);
	config->stores = stores;
	copy = strdup(name);
	if (!copy)
		return error_set(error, -ENOMEM, "store %s", name);
	stores[config->n_stores] = store_defaults();
	stores[config->n_stores].name = copy;
	*ret_store = &stores[config->n_stores++];
	return keys_preset(KEYS_RADOS, *ret_store); /* numbers: it cannot fail */
}

int config_add_store(struct config *config, const char *text, struct error *error)
{
	const char *equals = strchr(text, '=');
	_cleanup_(freep) char *name = NULL;
	struct store_config *store;
	struct error why;
	int r;

	if (!equals || !equals[1])
		return error_set_plain(
			error, -EINVAL,
			"--store %s: must be NAME=DIR, as in --store nvme0=/mnt/nvme0", text);
	if (config_is_rados(equals + 1) && rados_path_check(equals + 1, &why) < 0)
		return error_set_plain(error, -EINVAL, "--store %s: %s", text, why.text);
	name = strndup(text, (size_t)(equals - text));
	if (!name)
		return error_set(error, -ENOMEM, "--store %s", text);
	if (config_find_store(config, name))
		return error_set_plain(error, -EINVAL, "--store %s: there is a store %s already",
				       text, name);
	r = store_add(config, name, &store, error);
	if (r < 0)
		return r;
	store->path = strdup(equals + 1);
	return store->path ? 0 : error_set(error, -ENOMEM, "--store %s", text);
}

void config_log_mistakes(const struct config *config, const char *prefix)
{
	for (unsigned i = 0; i < config->n_mistakes; i++)
		log_mistake("dsaiod: %s%s", prefix,
			    config->mistakes[i] ? config->mistakes[i] : "out of memory");
}

/* ---- the files ---- */

struct reading {
	struct config *config;	      /* gets the mistakes, and the settings */
	struct store_config *profile; /* of a saved file: gets its profile; else NULL */
	struct saved_settings *saved; /* likewise: gets the rest */
	const char *path;	      /* of config->files, so each file has its own pointer */
	struct parser parser;
	char section[PARSER_LINE_BYTES + 1]; /* being read */
	bool has_section;		     /* one has begun, */
	bool is_known;			     /* and exists: it has keys, which set object */
	enum key_section keys;
	void *object;			 /* NULL: the section's name is a mistake, and reported */
	unsigned lines[CONFIG_KEYS_MAX]; /* where the section has its keys; 0: not yet */
	bool has_daemon, has_profile, has_settings; /* sections that the file has had */
};

static bool is_store_section(const char *section, const char **ret_name)
{
	static const char prefix[] = "store ";

	if (strncmp(section, prefix, sizeof(prefix) - 1) != 0)
		return false;
	*ret_name = section + sizeof(prefix) - 1;
	*ret_name += strspn(*ret_name, " \t");
	return true;
}

static void section_mistake(struct reading *reading, const char *why)
{
	config_mistake(reading->config, "%s:%u: [%.*s]: %s", reading->path, reading->parser.line,
		       SHOWN_BYTES, reading->section, why);
}

static void section_set(struct reading *reading, enum key_section keys, void *object)
{
	reading->is_known = true;
	reading->keys = keys;
	reading->object = object;
}

/* [daemon], [profile] or [settings], which a file has once. */
static void section_once(struct reading *reading, bool *was_there, enum key_section keys,
			 void *object)
{
	if (*was_there)
		section_mistake(reading, "the file has this section already");
	*was_there = true;
	section_set(reading, keys, object);
}

/*
 * The store is made when its first section begins, so a section without keys is a store, too.  That of a later file
 * adds to it.
 */
static void store_begin(struct reading *reading, const char *name)
{
	struct store_config *store = config_find_store(reading->config, name);
	struct error why;

	if (store && store->file == reading->path)
		section_mistake(reading, "the store has a section already");
	else if (!store && store_add(reading->config, name, &store, &why) < 0)
		section_mistake(reading, why.text);
	if (store)
		store->file = reading->path;
	section_set(reading, KEYS_STORE, store);
}

static void section_begin(struct reading *reading)
{
	const char *section = reading->section, *name;

	(void)strcpy(reading->section, reading->parser.name); /* a part of one line */
	if (!reading->profile) /* else no two sections have a key in common */
		memset(reading->lines, 0, sizeof(reading->lines));
	reading->has_section = true;
	reading->is_known = false;
	if (reading->profile && strcmp(section, "profile") == 0)
		section_once(reading, &reading->has_profile, KEYS_PROFILE, reading->profile);
	else if (reading->profile && strcmp(section, "settings") == 0)
		section_once(reading, &reading->has_settings, KEYS_SAVED, reading->saved);
	else if (reading->profile)
		section_mistake(reading, "there are only the sections [profile] and [settings]");
	else if (strcmp(section, "daemon") == 0)
		section_once(reading, &reading->has_daemon, KEYS_DAEMON, reading->config);
	else if (is_store_section(section, &name))
		store_begin(reading, name);
	else
		section_mistake(reading, "no such section; there are [daemon] and [store NAME]");
}

static struct config_place place_now(const struct reading *reading)
{
	return (struct config_place){ .path = reading->path, .line = reading->parser.line };
}

/* Notes the place of a key that is set. */
static void place_note(struct reading *reading, const struct key *key)
{
	struct store_config *store = reading->object;

	if (reading->keys == KEYS_DAEMON) {
		reading->config->key_places[key_index(key)] = place_now(reading);
		reading->config->has_admin_group |= strcmp(key->name, "admin_group") == 0;
		return;
	}
	if (reading->keys == KEYS_SAVED)
		return;
	store->has_profile |= key->section == KEYS_PROFILE;
	if (key->section == KEYS_RADOS)
		store->rados_key = key->name;
	store->has_block_size |= strcmp(key->name, "block_size") == 0;
	store->has_queue_depth |= strcmp(key->name, "queue_depth") == 0;
}

/* The present line is the path of the section's store, or may have been meant as that. */
static void path_note(struct reading *reading)
{
	struct store_config *store = reading->object;

	if (reading->is_known && reading->keys == KEYS_STORE && store)
		store->path_place = place_now(reading);
}

static int key_read(struct reading *reading, struct error *error)
{
	const struct key *key = key_find(reading->keys, reading->parser.name, error);
	unsigned *line;
	int r;

	if (!key)
		return -EINVAL;
	if (!reading->object)
		return 0;
	line = &reading->lines[key_index(key)];
	if (*line)
		return error_set_plain(error, -EINVAL, "is given in line %u already", *line);
	*line = reading->parser.line;
	if (strcmp(key->name, "path") == 0)
		path_note(reading);
	r = key_set(key, reading->object, reading->parser.value, error);
	if (r == 0)
		place_note(reading, key);
	return r;
}

static void on_key(struct reading *reading)
{
	const struct parser *parser = &reading->parser;
	struct error why;

	if (!reading->has_section)
		config_mistake(
			reading->config, "%s:%u: %s = %.*s: stands before the first section, %s",
			reading->path, parser->line, parser->name, SHOWN_BYTES, parser->value,
			reading->profile ? "[profile] or [settings]" : "[daemon] or [store NAME]");
	else if (reading->is_known && key_read(reading, &why) < 0)
		config_mistake(reading->config, "%s:%u: [%s] %.*s = %.*s: %s", reading->path,
			       parser->line, reading->section, SHOWN_BYTES, parser->name,
			       SHOWN_BYTES, parser->value, why.text);
}

/* Mistakes go to config; an error is one of reading. */
static int lines_read(struct reading *reading, struct error *error)
{
	while (reading->config->n_mistakes < CONFIG_MISTAKES_MAX) {
		struct error why;

		switch (parser_next(&reading->parser, why.text, sizeof(why.text))) {
		case PARSER_SECTION:
			section_begin(reading);
			break;
		case PARSER_KEY:
			on_key(reading);
			break;
		case PARSER_END:
			return 0;
		case -EINVAL:
			config_mistake(reading->config, "%s:%u: %s", reading->path,
				       reading->parser.line, why.text);
			path_note(reading);
			break;
		default:
			return error_set_plain(error, -EIO, "configuration %s: %s", reading->path,
					       why.text);
		}
	}
	return 0;
}

/* Adds the path to config->files. */
static const char *file_add(struct config *config, const char *path)
{
	char **files = reallocarray(config->files, config->n_files + 1, sizeof(*files));
	char *copy = strdup(path);

	if (files)
		config->files = files;
	if (!files || !copy) {
		free(copy);
		return NULL;
	}
	return files[config->n_files++] = copy;
}

static int file_read(struct config *config, const char *path, struct error *error)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(fclosep) FILE *file = NULL;
	struct reading reading = { .config = config };
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(error, -errno, "configuration %s", path);
	if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) /* /dev/null is fine; a FIFO waits */
		return error_set_plain(error, -EIO,
				       "configuration %s: cannot be read: is it a file?", path);
	file = reading.parser.file = fdopen(fd, "r");
	if (!file)
		return error_set(error, -errno, "configuration %s", path);
	fd = -1; /* the stream's now */
	reading.path = file_add(config, path);
	if (!reading.path)
		return error_set(error, -ENOMEM, "configuration %s", path);
	return lines_read(&reading, error);
}

static int is_drop_in(const struct dirent *entry)
{
	const size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > 5 && strcmp(entry->d_name + len - 5, ".conf") == 0;
}

/* Compares bytes, because the order must not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* The files of a directory, which need not exist. */
static int drop_ins_read(struct config *config, const char *dir, struct error *error)
{
	struct dirent **entries;
	int n = scandir(dir, &entries, is_drop_in, by_name), r = 0;

	if (n < 0)
		return errno == ENOENT ? 0 : error_set(error, -errno, "configuration %s", dir);
	for (int i = 0; i < n; i++) {
		_cleanup_(freep) char *path = NULL;

		if (r == 0 && asprintf(&path, "%s/%s", dir, entries[i]->d_name) < 0)
			r = error_set(error, -ENOMEM, "configuration %s", dir);
		if (r == 0)
			r = file_read(config, path, error);
		free(entries[i]);
	}
	free(entries);
	return r;
}

int config_read(struct config *config, const char *path, bool is_required, struct error *error)
{
	_cleanup_(freep) char *dir = NULL;
	int r = file_read(config, path, error);

	if (r == -ENOTDIR && !is_required) /* HOME=/dev/null */
		return 0;
	if (r < 0 && (r != -ENOENT || is_required))
		return r;
	if (asprintf(&dir, "%s.d", path) < 0)
		return error_set(error, -ENOMEM, "configuration %s", path);
	return drop_ins_read(config, dir, error);
}

int config_read_saved(FILE *file, const char *path, struct saved_settings *ret_settings,
		      struct error *error)
{
	struct saved_settings saved = { 0 };
	struct store_config store = { .profile = PROFILE_DEFAULT };
	struct config config = { 0 }; /* for the mistakes */
	struct reading reading = { .config = &config,
				   .profile = &store,
				   .saved = &saved,
				   .path = path,
				   .parser = { .file = file } };
	const struct key *key;
	int r = lines_read(&reading, error);

	for (unsigned i = 0; r == 0 && (key = key_at(i)); i++)
		if (reading.has_profile && key->section == KEYS_PROFILE && !reading.lines[i])
			config_mistake(&config, "%s: %s is missing", path, key->name);
	if (r == 0 && !reading.has_profile && !reading.has_settings)
		config_mistake(&config, "%s: has neither [profile] nor [settings]", path);
	if (r == 0)
		r = first_mistake(&config, error);
	if (r == 0) {
		saved.has_profile = reading.has_profile;
		saved.profile = store.profile;
		*ret_settings = saved;
	}
	config_deinit(&config);
	return r;
}

/* ---- all together ---- */

int config_set_socket(struct config *config, const char *path, struct error *error)
{
	char *copy;

	if (!*path || strlen(path) >= SOCKET_PATH_BYTES)
		return error_set_plain(error, -ENAMETOOLONG,
				       "socket path %s has %zu bytes, and the kernel takes 1 to %u",
				       path, strlen(path), SOCKET_PATH_BYTES - 1);
	copy = strdup(path);
	if (!copy)
		return error_set(error, -ENOMEM, "--socket");
	free(config->socket_path);
	config->socket_path = copy;
	config->key_places[key_index(key_of_daemon("socket"))].line = 0; /* no longer a file's */
	return 0;
}

/* As the process was started: it may have become another user, and a reload finds the same defaults. */
static bool is_started_by_root(void)
{
	static int is = -1;

	if (is < 0)
		is = geteuid() == 0;
	return is;
}

/* Where profiles are saved by default; NULL: nowhere, or no memory. */
static char *state_dir_usual(bool is_user)
{
	const char *state = secure_getenv("STATE_DIRECTORY"), *home;
	const struct passwd *passwd;
	char *path = NULL;

	if (state && *state == '/') /* of several the first: systemd has colons between them */
		return strndup(state, strcspn(state, ":"));
	if (is_started_by_root() && !is_user)
		return strdup(DSAIO_LOCALSTATEDIR "/lib/dsaiod");
	state = secure_getenv("XDG_STATE_HOME");
	if (state && *state == '/')
		return asprintf(&path, "%s/dsaiod", state) < 0 ? NULL : path;
	home = secure_getenv("HOME");
	if (!home || *home != '/') {
		passwd = getpwuid(geteuid());
		home = passwd ? passwd->pw_dir : NULL;
	}
	if (!home || *home != '/')
		return NULL;
	return asprintf(&path, "%s/.local/state/dsaiod", home) < 0 ? NULL : path;
}

int config_init(struct config *config)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	bool is_service = is_started_by_root() || getenv("NOTIFY_SOCKET");
	struct memory_limit memory_limit;
	struct rlimit limit;

	memory_limit_get("", &memory_limit);
	*config = (struct config){
		.memory_bytes = memory < memory_limit.bytes ? memory : memory_limit.bytes,
		.lock = is_service ? POOL_LOCK_YES : POOL_LOCK_AUTO,
		.n_descriptors = 1024, /* the usual limit */
	};
	config->pool_size = config->memory_bytes / 2;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		config->n_descriptors = limit.rlim_cur == RLIM_INFINITY ? 1u << 20 : limit.rlim_cur;
	return keys_preset(KEYS_DAEMON, config);
}

/* The program that started the daemon may know where a library is that no loader finds. */
static void library_inherit(struct config *config, const char *name, const char *variable)
{
	const char *path = secure_getenv(variable);
	struct error error;

	if (path && *path && key_set(key_of_daemon(name), config, path, &error) < 0)
		config_mistake(config, "environment: %s = %.*s: %s", variable, SHOWN_BYTES, path,
			       error.text);
}

void config_set_user(struct config *config)
{
	config->is_user = true;
	free(config->socket_path);
	config->socket_path = NULL;
	config->lock = POOL_LOCK_AUTO; /* a user has 8 MiB that may be locked */
	config->idle_exit_sec = IDLE_EXIT_SEC_USER;
	library_inherit(config, "cuda_library", "DSAIO_CUDA_LIBRARY");
	library_inherit(config, "cufile_library", "DSAIO_CUFILE_LIBRARY");
}

void config_deinit(struct config *config)
{
	for (unsigned i = 0; i < config->n_stores; i++) {
		free((char *)(uintptr_t)config->stores[i].name); /* const for those who read it */
		free((char *)(uintptr_t)config->stores[i].path);
		access_deinit(&config->stores[i].access);
		free(config->stores[i].rados.conf);
		free(config->stores[i].rados.user);
	}
	free(config->stores);
	free(config->socket_path);
	free(config->state_dir);
	free(config->cuda_library);
	free(config->cufile_library);
	for (unsigned i = 0; i < config->n_files; i++)
		free(config->files[i]);
	free(config->files);
	for (unsigned i = 0; i < config->n_mistakes; i++)
		free(config->mistakes[i]);
	*config = (struct config){ 0 };
}

/* Sets what the section of a store on RADOS leaves out; another store has none of its keys. */
static void rados_settle(struct config *config, struct store_config *store)
{
	if (!config_is_rados(store->path)) {
		if (store->path && store->rados_key)
			config_mistake(
				config,
				"%s: [store %s] %s: only a store on RADOS has this key: its path "
				"is rados://POOL/NAMESPACE",
				store->file, store->name, store->rados_key);
		return;
	}
	store->access.is_closed = true;
	if (!store->has_block_size)
		store->profile.block_size = store->rados.object_bytes;
	if (!store->has_queue_depth)
		store->profile.queue_depth = RADOS_QUEUE_DEPTH;
}

int config_check(struct config *config, struct error *error)
{
	limits_settle(config);
	if (!config->state_dir)
		config->state_dir = state_dir_usual(config->is_user);
	for (unsigned i = 0; i < config->n_stores; i++) {
		rados_settle(config, &config->stores[i]);
		if (!config->stores[i].path && !config->stores[i].path_place.line)
			config_mistake(config,
				       "%s: [store %s]: path is missing: name a directory on its "
				       "file system, or its block device",
				       config->stores[i].file, config->stores[i].name);
	}
	return first_mistake(config, error);
}
