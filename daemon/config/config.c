#include "daemon/config/config.h"
#include "daemon/base/id_table.h"
#include "proto/util/cleanup.h"
#include "proto/dirs.h"
#include "proto/frame.h"
#include "proto/util/size.h"
#include "proto/util/socket.h"
#include "proto/util/yes_no.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define SPIN_USEC_DEFAULT 200u /* twice a slow moment of an SSD, see lane.c */
#define SPIN_USEC_MAX 1000000u /* more is no short time any more */
#define WINDOW_MIN (64u << 10) /* bytes: less than a block of a large op */
#define WINDOW_MAX (UINT64_C(1) << 32)
#define POOL_MIN (1u << 20)
#define POOL_MAX (UINT64_C(1) << 46) /* what a slab can have */
#define IDLE_EXIT_SEC_USER 60u	     /* a job's next step still finds it */
#define IDLE_EXIT_SEC_MAX 86400u     /* a day; who wants more wants 0 */
#define STORES_MAX 64u		     /* a guess: each has a thread and libaio contexts */
#define CLIENT_OBJECTS_MAX (ID_TABLE_SLOTS_MAX - 1) /* what an id_table holds */
#define USER_OBJECTS_MAX (1u << 24)
#define ENTRIES_MAX (1u << 28)
#define UNSENT_FDS_MAX 16u /* the sessions' SESSION_UNSENT_FDS_MAX */

/* ---- values ---- */

enum value_kind {
	VALUE_PATH, /* absolute, of at most max bytes */
	VALUE_SIZE,
	VALUE_U32,
	VALUE_COUNT, /* as VALUE_U32, and 64 bits wide */
	VALUE_BOOL,
	VALUE_LOCK,
	VALUE_PAGES,
	VALUE_ENGINE,
	VALUE_GROUP,
	VALUE_USERS,
	VALUE_GROUPS,
};

/* One key; the table is what the files may say. */
struct key {
	const char *name;
	enum value_kind kind;
	size_t offset; /* in struct config, struct store_config or struct profile */
	uint64_t min, max;
};

#define DAEMON_KEY(field) offsetof(struct config, field)
#define CLIENT_KEY(text, kind, max)                                                 \
	{                                                                           \
		"client_" text, VALUE_COUNT, DAEMON_KEY(client_limit[kind]), 1, max \
	}
#define USER_KEY(text, kind, max)                                               \
	{                                                                       \
		"user_" text, VALUE_COUNT, DAEMON_KEY(user_limit[kind]), 1, max \
	}
static const struct key daemon_keys[] = {
	{ "socket", VALUE_PATH, DAEMON_KEY(socket_path), 0, SOCKET_PATH_BYTES - 1 },
	{ "pool_size", VALUE_SIZE, DAEMON_KEY(pool_size), POOL_MIN, POOL_MAX },
	{ "client_pool_max", VALUE_SIZE, DAEMON_KEY(client_pool_max), POOL_MIN, POOL_MAX },
	{ "user_pool_max", VALUE_SIZE, DAEMON_KEY(user_pool_max), POOL_MIN, POOL_MAX },
	{ "lock", VALUE_LOCK, DAEMON_KEY(lock), 0, 0 },
	{ "huge_pages", VALUE_PAGES, DAEMON_KEY(huge_pages), 0, 0 },
	{ "spin_usec", VALUE_U32, DAEMON_KEY(spin_usec), 0, SPIN_USEC_MAX },
	{ "auto_stores", VALUE_BOOL, DAEMON_KEY(auto_stores), 0, 0 },
	{ "admin_group", VALUE_GROUP, DAEMON_KEY(admin_group), 0, 0 },
	{ "state_dir", VALUE_PATH, DAEMON_KEY(state_dir), 0, PATH_MAX - 1 },
	{ "idle_exit_sec", VALUE_U32, DAEMON_KEY(idle_exit_sec), 0, IDLE_EXIT_SEC_MAX },
	CLIENT_KEY("slabs", QUOTA_SLABS, CLIENT_OBJECTS_MAX),
	CLIENT_KEY("files", QUOTA_FILES, CLIENT_OBJECTS_MAX),
	CLIENT_KEY("handles", QUOTA_HANDLES, CLIENT_OBJECTS_MAX),
	CLIENT_KEY("channels", QUOTA_CHANNELS, CLIENT_OBJECTS_MAX),
	CLIENT_KEY("entries", QUOTA_ENTRIES, ENTRIES_MAX),
	CLIENT_KEY("requests", QUOTA_CALLS, USER_OBJECTS_MAX),
	USER_KEY("clients", QUOTA_SESSIONS, USER_OBJECTS_MAX),
	USER_KEY("slabs", QUOTA_SLABS, USER_OBJECTS_MAX),
	USER_KEY("files", QUOTA_FILES, USER_OBJECTS_MAX),
	USER_KEY("handles", QUOTA_HANDLES, USER_OBJECTS_MAX),
	USER_KEY("channels", QUOTA_CHANNELS, USER_OBJECTS_MAX),
	USER_KEY("entries", QUOTA_ENTRIES, ENTRIES_MAX),
	USER_KEY("requests", QUOTA_CALLS, USER_OBJECTS_MAX),
};

#define STORE_KEY(field) offsetof(struct store_config, field)
static const struct key store_keys[] = {
	{ "path", VALUE_PATH, STORE_KEY(path), 0, PATH_MAX - 1 },
	{ "engine", VALUE_ENGINE, STORE_KEY(engine), 0, 0 },
	{ "lanes", VALUE_U32, STORE_KEY(max_lanes), 1, STORE_LANES_MAX },
	{ "window_bytes", VALUE_SIZE, STORE_KEY(window_bytes), WINDOW_MIN, WINDOW_MAX },
	{ "spin_usec", VALUE_U32, STORE_KEY(spin_usec), 0, SPIN_USEC_MAX },
	{ "users", VALUE_USERS, STORE_KEY(access), 0, 0 },
	{ "groups", VALUE_GROUPS, STORE_KEY(access), 0, 0 },
};

/* Of a store, too, and of a kept profile. */
#define PROFILE_KEY(field) offsetof(struct profile, field)
static const struct key profile_keys[] = {
	{ "block_size", VALUE_SIZE, PROFILE_KEY(block_size), PROFILE_BLOCK_SIZE_MIN,
	  PROFILE_BLOCK_SIZE_MAX },
	{ "queue_depth", VALUE_U32, PROFILE_KEY(queue_depth), 1, PROFILE_QUEUE_DEPTH_MAX },
	{ "single_submit", VALUE_BOOL, PROFILE_KEY(single_submit), 0, 0 },
	{ "overlap_events", VALUE_BOOL, PROFILE_KEY(overlap_events), 0, 0 },
	{ "intra_op_parallelism", VALUE_U32, PROFILE_KEY(intra_op_parallelism), 1,
	  PROFILE_PARALLELISM_MAX },
};
#define N_KEYS(keys) ((unsigned)(sizeof(keys) / sizeof(*(keys))))
_Static_assert(N_KEYS(daemon_keys) <= CONFIG_KEYS_MAX, "key_lines has room for them");

/* Of a store first its own, then those of its profile. */
const char *config_key_name(bool is_store, unsigned index)
{
	if (!is_store)
		return index < N_KEYS(daemon_keys) ? daemon_keys[index].name : NULL;
	if (index < N_KEYS(store_keys))
		return store_keys[index].name;
	index -= N_KEYS(store_keys);
	return index < N_KEYS(profile_keys) ? profile_keys[index].name : NULL;
}

/* Returns 0, or -EINVAL, -ERANGE; without is_size only digits will do. */
static int number_parse(const char *text, bool is_size, uint64_t *ret_number)
{
	if (!is_size && text[strspn(text, "0123456789")])
		return -EINVAL;
	return size_parse(text, ret_number);
}

static int number_set(void *field, const struct key *key, const char *text, struct error *error)
{
	bool is_size = key->kind == VALUE_SIZE;
	uint64_t n;

	if (number_parse(text, is_size, &n) < 0 || n < key->min || n > key->max)
		return error_set_plain(
			error, -EINVAL, "must be a number from %" PRIu64 " to %" PRIu64 "%s",
			key->min, key->max,
			is_size ? " (bytes, or with K, M, G, KiB, MiB, GiB behind it)" : "");
	/* A profile's block_size is 32 bits wide, and so is its maximum. */
	if (key->kind == VALUE_COUNT || (is_size && key->max > UINT32_MAX))
		*(uint64_t *)field = n;
	else
		*(uint32_t *)field = (uint32_t)n;
	return 0;
}

static int bool_set(bool *field, const char *text, struct error *error)
{
	if (yes_no_parse(text, field) < 0)
		return error_set_plain(error, -EINVAL, "must be yes or no");
	return 0;
}

static int lock_set(enum pool_lock *field, const char *text, struct error *error)
{
	if (strcasecmp(text, "yes") == 0)
		*field = POOL_LOCK_YES;
	else if (strcasecmp(text, "auto") == 0)
		*field = POOL_LOCK_AUTO;
	else
		return error_set_plain(error, -EINVAL,
				       "must be yes (refuse what can not be locked) or auto (serve "
				       "it unlocked)");
	return 0;
}

static int pages_set(enum pool_pages *field, const char *text, struct error *error)
{
	if (strcasecmp(text, "auto") == 0)
		*field = POOL_PAGES_AUTO;
	else if (strcasecmp(text, "reserved") == 0)
		*field = POOL_PAGES_RESERVED;
	else if (strcasecmp(text, "no") == 0)
		*field = POOL_PAGES_SMALL;
	else
		return error_set_plain(error, -EINVAL,
				       "must be auto (transparent huge pages, where the kernel has "
				       "them), reserved (those that the host has reserved before "
				       "these) or no");
	return 0;
}

/* Absolute: nobody knows in which directory the daemon will be started. */
static int path_set(char **field, const struct key *key, const char *text, struct error *error)
{
	char *copy;

	if (!text[0])
		return error_set_plain(error, -EINVAL, "must not be empty");
	if (text[0] != '/' || strlen(text) > key->max)
		return error_set_plain(error, -EINVAL,
				       "must be an absolute path of at most %" PRIu64
				       " bytes; it has %zu",
				       key->max, strlen(text));
	copy = strdup(text);
	if (!copy)
		return error_set(error, -ENOMEM, "configuration");
	free(*field);
	*field = copy;
	return 0;
}

static int engine_set(enum engine_kind *field, const char *text, struct error *error)
{
	if (strcmp(text, "libaio") != 0)
		return error_set_plain(error, -EINVAL, "must be libaio");
	*field = ENGINE_LIBAIO;
	return 0;
}

/* A user or group, by name or number. */
static int id_find(const char *name, bool is_group, id_t *ret_id, struct error *error)
{
	const struct passwd *user;
	const struct group *group;
	uint64_t n;

	if (number_parse(name, false, &n) == 0) {
		if (n >= UINT32_MAX) /* the last stands for none */
			return error_set_plain(error, -EINVAL,
					       "%s: must be a number from 0 to %u, or a name", name,
					       UINT32_MAX - 1);
		*ret_id = (id_t)n;
		return 0;
	}
	user = is_group ? NULL : getpwnam(name);
	group = is_group ? getgrnam(name) : NULL;
	if (!user && !group)
		return error_set_plain(error, -EINVAL,
				       "%s: this host has no such %s: must be a name that `getent "
				       "%s` shows, or a number",
				       name, is_group ? "group" : "user",
				       is_group ? "group" : "passwd");
	*ret_id = user ? user->pw_uid : group->gr_gid;
	return 0;
}

static int group_set(gid_t *field, const char *text, struct error *error)
{
	id_t id;
	int r = id_find(text, true, &id, error);

	if (r == 0)
		*field = id;
	return r;
}

/* Adds "users a, b" to what an administrator may read. */
static int access_add_text(struct access *access, const char *what, const char *list)
{
	char *text;

	if (asprintf(&text, "%s%s%s %s", access->text ? access->text : "", access->text ? "; " : "",
		     what, list) < 0)
		return -ENOMEM;
	free(access->text);
	access->text = text;
	return 0;
}

/* Names or numbers with commas between them. */
static int ids_set(struct access *access, bool is_group, const char *text, struct error *error)
{
	_cleanup_(freep) char *copy = strdup(text);
	_cleanup_(freep) id_t *ids = NULL;
	char *rest = copy, *word;
	unsigned n = 0;
	int r;

	if (copy) /* one more than there are commas */
		ids = calloc(strlen(text) + 1, sizeof(*ids));
	if (!ids)
		return error_set(error, -ENOMEM, "configuration");
	while ((word = strsep(&rest, ","))) {
		word += strspn(word, " \t");
		for (size_t len = strlen(word); len && isspace((unsigned char)word[len - 1]); len--)
			word[len - 1] = 0;
		if (!*word)
			return error_set_plain(error, -EINVAL,
					       "must be names or numbers of %s, with commas "
					       "between them",
					       is_group ? "groups" : "users");
		r = id_find(word, is_group, &ids[n], error);
		if (r < 0)
			return r;
		n++;
	}
	if (access_add_text(access, is_group ? "groups" : "users", text) < 0)
		return error_set(error, -ENOMEM, "configuration");
	if (is_group) {
		free(access->groups);
		access->groups = TAKE_PTR(ids);
		access->n_groups = n;
	} else {
		free(access->users);
		access->users = TAKE_PTR(ids);
		access->n_users = n;
	}
	return 0;
}

static int key_set(void *object, const struct key *key, const char *text, struct error *error)
{
	void *field = (char *)object + key->offset;

	switch (key->kind) {
	case VALUE_PATH:
		return path_set(field, key, text, error);
	case VALUE_BOOL:
		return bool_set(field, text, error);
	case VALUE_LOCK:
		return lock_set(field, text, error);
	case VALUE_PAGES:
		return pages_set(field, text, error);
	case VALUE_ENGINE:
		return engine_set(field, text, error);
	case VALUE_GROUP:
		return group_set(field, text, error);
	case VALUE_USERS:
	case VALUE_GROUPS:
		return ids_set(field, key->kind == VALUE_GROUPS, text, error);
	case VALUE_SIZE:
	case VALUE_U32:
	case VALUE_COUNT:
		return number_set(field, key, text, error);
	}
	return -EINVAL; /* no other kind is in the tables */
}

static const struct key *key_find(const struct key *keys, unsigned n, const char *name)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/* Also when a value alone is fine, the profile may not be: a block_size between steps. */
static int profile_key_set(struct profile *profile, const struct key *key, const char *text,
			   struct error *error)
{
	struct profile changed = *profile;
	char why[ERROR_TEXT_BYTES - 64];
	int r = key_set(&changed, key, text, error);

	if (r < 0)
		return r;
	if (profile_check(&changed, why, sizeof(why)) < 0)
		return error_set_plain(error, -EINVAL, "%s", why);
	*profile = changed;
	return 0;
}

/* "socket, pool_size, ..." behind the sentence that there is no such key; from: the first that the
   section takes. */
static int key_refuse(bool is_store, unsigned from, struct error *error)
{
	const char *name;
	char known[400];
	size_t used = 0;

	for (unsigned i = from; (name = config_key_name(is_store, i)) && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
					 used ? ", " : "", name);
	return error_set_plain(error, -EINVAL, "no such key; there are %s", known);
}

bool config_is_admin(const struct config *config, const struct peer *peer)
{
	return peer->uid == 0 || peer->uid == geteuid() ||
	       (config->has_admin_group && peer_has_group(peer, config->admin_group));
}

/* ---- stores ---- */

static struct store_config *store_find(const struct config *config, const char *name)
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

void config_default_store(const struct config *config, struct store_config *ret_store)
{
	*ret_store = (struct store_config){ .profile = PROFILE_DEFAULT,
					    .engine = ENGINE_LIBAIO,
					    .spin_usec = config->spin_usec,
					    .is_multi_user = !config->is_user };
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
	config_default_store(config, &stores[config->n_stores]);
	stores[config->n_stores].spin_usec = CONFIG_SPIN_INHERIT;
	stores[config->n_stores].name = copy;
	*ret_store = &stores[config->n_stores++];
	return 0;
}

int config_add_store(struct config *config, const char *text, struct error *error)
{
	const char *equals = strchr(text, '=');
	_cleanup_(freep) char *name = NULL;
	struct store_config *store;
	char *path;
	int r;

	if (!equals || !equals[1])
		return error_set_plain(
			error, -EINVAL,
			"--store %s: must be NAME=DIR, as in --store nvme0=/mnt/nvme0", text);
	name = strndup(text, (size_t)(equals - text));
	if (!name)
		return error_set(error, -ENOMEM, "--store %s", text);
	if (store_find(config, name))
		return error_set_plain(error, -EINVAL, "--store %s: there is a store %s already",
				       text, name);
	path = strdup(equals + 1);
	if (!path)
		return error_set(error, -ENOMEM, "--store %s", text);
	r = store_add(config, name, &store, error);
	if (r < 0) {
		free(path);
		return r;
	}
	store->path = path;
	return 0;
}

/* ---- mistakes ---- */

__attribute__((format(printf, 2, 3))) static void mistake(struct config *config, const char *format,
							  ...)
{
	char *text = NULL;
	va_list args;

	if (config->n_mistakes == CONFIG_MISTAKES_MAX)
		return; /* who mends these sees the others */
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	config->mistakes[config->n_mistakes++] = text; /* NULL: without memory there is one, too */
}

/* ---- the file ---- */

/* The longest line: libinih's, with its line end. */
#define LINE_BYTES_MAX 199
/* What has no line end for so long is no text: /dev/zero would never have one. */
#define REST_BYTES_MAX (1u << 20)

struct reading {
	struct config *config;	 /* its mistakes are told there */
	struct profile *profile; /* of a kept profile; else NULL */
	const char *path;
	FILE *file;
	unsigned line;
	char section[LINE_BYTES_MAX + 1]; /* being read; "" before the first */
	bool is_endless;		  /* a line is: the rest is not read */
	bool has_daemon, has_profile;	  /* sections that it has had */
	unsigned lines[CONFIG_KEYS_MAX];  /* where it has its keys; 0: not yet */
};

static bool is_saved(const struct reading *reading)
{
	return reading->profile;
}

static bool is_store_section(const char *section, const char **ret_name)
{
	static const char prefix[] = "store ";

	if (strncmp(section, prefix, sizeof(prefix) - 1) != 0)
		return false;
	*ret_name = section + sizeof(prefix) - 1;
	*ret_name += strspn(*ret_name, " \t");
	return true;
}

static void section_once(struct reading *reading, bool *was_there)
{
	if (*was_there)
		mistake(reading->config, "%s:%u: [%s]: the file has this section already",
			reading->path, reading->line, reading->section);
	*was_there = true;
}

/* A new section: the store is made when it is named.  Checked here, since libinih does not tell of
   one that has no keys. */
static void section_begin(struct reading *reading, const char *section)
{
	struct store_config *store;
	const char *name;
	struct error why;

	memset(reading->lines, 0, sizeof(reading->lines));
	(void)snprintf(reading->section, sizeof(reading->section), "%s", section);
	if (is_saved(reading)) {
		if (strcmp(section, "profile") != 0)
			mistake(reading->config, "%s:%u: [%s]: there is only the section [profile]",
				reading->path, reading->line, section);
		else
			section_once(reading, &reading->has_profile);
		return;
	}
	if (strcmp(section, "daemon") == 0) {
		section_once(reading, &reading->has_daemon);
		return;
	}
	if (!is_store_section(section, &name)) {
		mistake(reading->config,
			"%s:%u: [%s]: no such section; there are [daemon] and [store NAME]",
			reading->path, reading->line, section);
		return;
	}
	if (store_find(reading->config, name))
		mistake(reading->config, "%s:%u: [%s]: the store has a section already",
			reading->path, reading->line, section);
	else if (store_add(reading->config, name, &store, &why) < 0)
		mistake(reading->config, "%s:%u: [%s]: %s", reading->path, reading->line, section,
			why.text);
}

/*
 * As fgets(), with blanks in front gone: libinih takes an indented line for more of the value above
 * it.  It sees only what it will take, and so all mistakes are told, not just the first: a
 * line that is none of its kinds, or is too long, is told and handed on as an empty one.
 */
static char *line_read(char *line, int size, void *arg)
{
	struct reading *reading = arg;
	size_t blanks, rest = 0;
	char *end;
	int c;

	/* After so many mistakes no more are told. */
	if (reading->is_endless || reading->config->n_mistakes == CONFIG_MISTAKES_MAX ||
	    !fgets(line, size, reading->file))
		return NULL;
	reading->line++;
	if (!strchr(line, '\n') && !feof(reading->file)) {
		while ((c = getc(reading->file)) != '\n' && c != EOF && rest < REST_BYTES_MAX)
			rest++;
		reading->is_endless = rest == REST_BYTES_MAX;
		mistake(reading->config, "%s:%u: the line has more than %d bytes, or a zero byte",
			reading->path, reading->line, size - 2);
		line[0] = 0;
	}
	if (reading->line == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0) /* a byte order mark */
		memmove(line, line + 3, strlen(line + 3) + 1);
	blanks = strspn(line, " \t\r\f\v\n");
	memmove(line, line + blanks, strlen(line + blanks) + 1);
	end = line[0] == '[' ? strchr(line, ']') : NULL;
	if (end) {
		char section[LINE_BYTES_MAX + 1];

		(void)snprintf(section, sizeof(section), "%.*s", (int)(end - line - 1), line + 1);
		section_begin(reading, section);
	} else if (line[0] && !strchr(";#", line[0]) && (line[0] == '[' || !strpbrk(line, "=:"))) {
		line[strcspn(line, "\r\n")] = 0;
		mistake(reading->config,
			"%s:%u: %s: must be [daemon], [store NAME], KEY = VALUE, or a comment that "
			"starts with # or ;",
			reading->path, reading->line, line);
		line[0] = 0;
	}
	if (!line[0])
		(void)strcpy(line, "\n");
	return line;
}

/* The key, and what it sets; NULL: there is none, which is told.  *ret_index: its own. */
static const struct key *key_choose(struct reading *reading, const char *name, void **ret_object,
				    unsigned *ret_index, struct error *error)
{
	struct config *config = reading->config;
	const char *store_name;
	struct store_config *store;
	const struct key *key;

	if (is_saved(reading) || is_store_section(reading->section, &store_name)) {
		key = key_find(profile_keys, N_KEYS(profile_keys), name);
		if (key) {
			*ret_index = N_KEYS(store_keys) + (unsigned)(key - profile_keys);
			if (is_saved(reading))
				*ret_object = reading->profile;
			else if ((store = store_find(config, store_name))) {
				*ret_object = &store->profile;
				store->has_profile = true;
			}
			return key;
		}
		key = is_saved(reading) ? NULL : key_find(store_keys, N_KEYS(store_keys), name);
		if (key) {
			*ret_index = (unsigned)(key - store_keys);
			*ret_object = store_find(config, store_name);
			return key;
		}
		/* A kept profile has the last ones of a store. */
		(void)key_refuse(true, is_saved(reading) ? N_KEYS(store_keys) : 0, error);
		return NULL;
	}
	key = key_find(daemon_keys, N_KEYS(daemon_keys), name);
	if (key) {
		*ret_index = (unsigned)(key - daemon_keys);
		*ret_object = config;
		return key;
	}
	(void)key_refuse(false, 0, error);
	return NULL;
}

static int key_read(struct reading *reading, const char *name, const char *value,
		    struct error *error)
{
	void *object = NULL;
	const struct key *key;
	unsigned index = 0;
	int r;

	key = key_choose(reading, name, &object, &index, error);
	if (!key)
		return -EINVAL;
	if (!object)
		return 0; /* its section is the mistake, and told */
	if (reading->lines[index])
		return error_set_plain(error, -EINVAL, "is given in line %u already",
				       reading->lines[index]);
	reading->lines[index] = reading->line;
	if (key >= profile_keys && key < profile_keys + N_KEYS(profile_keys))
		r = profile_key_set(object, key, value, error);
	else
		r = key_set(object, key, value, error);
	if (r == 0 && key->offset == STORE_KEY(path) && key->kind == VALUE_PATH &&
	    object != reading->config)
		((struct store_config *)object)->path_line = reading->line;
	if (r == 0 && object == reading->config) {
		reading->config->key_lines[index] = reading->line;
		if (key->kind == VALUE_GROUP)
			reading->config->has_admin_group = true;
	}
	return r;
}

/* libinih's handler: 1, for it is told here what is wrong. */
static int on_key(void *arg, const char *section, const char *name, const char *value)
{
	struct reading *reading = arg;
	const char *store_name;
	struct error why;

	(void)section; /* cut by libinih; reading has all of it */
	if (!is_saved(reading) && strcmp(reading->section, "daemon") != 0 &&
	    !is_store_section(reading->section, &store_name)) {
		if (!reading->section[0]) /* else the section is the mistake, and told */
			mistake(reading->config,
				"%s:%u: %s = %s: stands before the first section, [daemon] or "
				"[store NAME]",
				reading->path, reading->line, name, value);
		return 1;
	}
	if (key_read(reading, name, value, &why) < 0)
		mistake(reading->config, "%s:%u: [%s] %s = %s: %s", reading->path, reading->line,
			reading->section, name, value, why.text);
	return 1;
}

/* Mistakes go to config; an error is one of reading. */
static int file_read(struct reading *reading, struct error *error)
{
	int line = ini_parse_stream(line_read, reading, on_key, reading);

	if (ferror(reading->file)) /* libinih tells no errno */
		return error_set_plain(error, -EIO,
				       "configuration %s: can not be read: is it a file?",
				       reading->path);
	if (line < 0)
		return error_set(error, -ENOMEM, "configuration %s", reading->path);
	if (line > 0) /* what line_read() let through: a key or section that is empty */
		mistake(reading->config, "%s:%d: must be [daemon], [store NAME] or KEY = VALUE",
			reading->path, line);
	return 0;
}

int config_read(struct config *config, const char *path, struct error *error)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(fclosep) FILE *file = NULL;
	struct reading reading = { .config = config, .path = path };
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(error, -errno, "configuration %s", path);
	if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) /* /dev/null is fine; a FIFO waits */
		return error_set_plain(error, -EIO,
				       "configuration %s: can not be read: is it a file?", path);
	file = reading.file = fdopen(fd, "r");
	if (!file)
		return error_set(error, -errno, "configuration %s", path);
	fd = -1; /* the stream's now */
	free(config->path);
	config->path = strdup(path);
	if (!config->path)
		return error_set(error, -ENOMEM, "configuration %s", path);
	return file_read(&reading, error);
}

static int first_mistake(const struct config *config, struct error *error)
{
	if (!config->n_mistakes)
		return 0;
	return error_set_plain(error, -EINVAL, "%s",
			       config->mistakes[0] ? config->mistakes[0] : "out of memory");
}

int config_read_profile(FILE *file, const char *path, struct profile *ret_profile,
			struct error *error)
{
	struct profile profile = PROFILE_DEFAULT;
	struct config config = { 0 }; /* for the mistakes */
	struct reading reading = {
		.config = &config, .profile = &profile, .path = path, .file = file
	};
	int r = file_read(&reading, error);

	for (unsigned i = 0; r == 0 && i < N_KEYS(profile_keys); i++)
		if (!reading.lines[N_KEYS(store_keys) + i])
			mistake(&config, "%s: %s is missing", path, profile_keys[i].name);
	if (r == 0)
		r = first_mistake(&config, error);
	if (r == 0)
		*ret_profile = profile;
	config_deinit(&config);
	return r;
}

/* ---- all together ---- */

/* Where the line of a key of [daemon] is noted, by the key's field. */
static unsigned *line_at(struct config *config, size_t offset)
{
	unsigned i = 0;

	while (daemon_keys[i].offset != offset)
		i++; /* it is in the table */
	return &config->key_lines[i];
}

/* The line of the file that has it; 0: it is not given. */
static unsigned line_of(const struct config *config, size_t offset)
{
	return *line_at((struct config *)(uintptr_t)config, offset); /* is only read */
}

unsigned config_socket_line(const struct config *config)
{
	return line_of(config, DAEMON_KEY(socket_path));
}

int config_set_socket(struct config *config, const char *path, struct error *error)
{
	char *copy;

	if (strlen(path) >= SOCKET_PATH_BYTES)
		return error_set_plain(error, -ENAMETOOLONG,
				       "socket path %s has %zu bytes, and the kernel takes 1 to %u",
				       path, strlen(path), SOCKET_PATH_BYTES - 1);
	copy = strdup(path);
	if (!copy)
		return error_set(error, -ENOMEM, "--socket");
	free(config->socket_path);
	config->socket_path = copy;
	*line_at(config, DAEMON_KEY(socket_path)) = 0; /* no longer the file's */
	return 0;
}

/*
 * What a client, and a user in sum, may have.  All that the bounds of one user allow needs no more
 * than a share of the descriptors: 45 of 100 of the system's daemon, so that two users never take
 * each other's, and 90 of a user's own.  Each of a kind takes as many as DESCRIPTORS says at most,
 * and a kind gets so many 32nds of the share; files come last and get all that the others leave.
 * With 20,000 descriptors one user may have 64 clients with 8 handles each, and the companions
 * that the library opens for handles with private memory.
 */
static const struct {
	enum quota_kind kind;
	unsigned descriptors, share, share_of_own; /* 32nds; of a user's own daemon */
	uint64_t client_max, user_max;
} rules[] = {
	{ QUOTA_SLABS, 1, 3, 2, 1024, 4096 },
	{ QUOTA_HANDLES, 1, 4, 2, 256, 1024 },	 /* a doorbell socket */
	{ QUOTA_CHANNELS, 2, 8, 3, 1024, 4096 }, /* ring and doorbell */
	{ QUOTA_CALLS, 2, 1, 1, 64, 256 },	 /* what came with it, or goes back */
	/* its socket, pidfd, file board, what came and was not looked at, unread replies' */
	{ QUOTA_SESSIONS, 3 + 2 * FRAME_FDS_MAX + UNSENT_FDS_MAX, 8, 4, 1, 1024 },
	{ QUOTA_FILES, 1, 8, 20, 16384, 262144 }, /* a buffered description is one more */
};
#define SHARES 32u
#define PERCENT_OF_SYSTEM 45u
#define PERCENT_OF_OWN 90u
/* So that a daemon with few descriptors still serves somebody. */
#define BOUND_MIN 4u

static uint64_t at_most(uint64_t n, uint64_t limit)
{
	return n < limit ? n : limit;
}

static void limits_init(struct config *config)
{
	uint64_t *client = config->client_limit, *user = config->user_limit;
	uint64_t nofile = 1024, share, left;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		nofile = limit.rlim_cur == RLIM_INFINITY ? 1u << 20 : limit.rlim_cur;
	config->n_descriptors = nofile;
	share = nofile * (config->is_user ? PERCENT_OF_OWN : PERCENT_OF_SYSTEM) / 100;
	left = share;
	for (unsigned i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		unsigned part = config->is_user ? rules[i].share_of_own : rules[i].share;
		enum quota_kind kind = rules[i].kind;

		user[kind] = at_most(rules[i].user_max,
				     (kind == QUOTA_FILES ? left : share * part / SHARES) /
					     rules[i].descriptors);
		config->follows_descriptors[kind] = user[kind] < rules[i].user_max;
		if (user[kind] < BOUND_MIN)
			user[kind] = BOUND_MIN;
		left -= at_most(left, user[kind] * rules[i].descriptors);
		/* One client leaves the user's others some; of files as many as can be, for data
		   sets of ten thousand. */
		client[kind] = at_most(rules[i].client_max, kind == QUOTA_FILES
								    ? user[kind] - user[kind] / 10
								    : user[kind] / 2);
	}
	client[QUOTA_ENTRIES] = 1u << 18;
	user[QUOTA_ENTRIES] = 1u << 20;
}

/* Where profiles are kept if nothing says so; NULL: nowhere, or without memory. */
static char *state_dir_usual(bool is_user)
{
	const char *state = secure_getenv("STATE_DIRECTORY"), *home;
	const struct passwd *passwd;
	char *path = NULL;

	if (state && *state == '/') /* of several the first: systemd has colons between them */
		return strndup(state, strcspn(state, ":"));
	if (geteuid() == 0 && !is_user)
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
	bool is_service = geteuid() == 0 || getenv("NOTIFY_SOCKET");

	*config = (struct config){
		.socket_path = strdup(SOCKET_SYSTEM),
		.pool_size = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) /
			     2,
		.lock = is_service ? POOL_LOCK_YES : POOL_LOCK_AUTO,
		.spin_usec = SPIN_USEC_DEFAULT,
		.auto_stores = true,
	};
	limits_init(config);
	return config->socket_path ? 0 : -ENOMEM;
}

void config_set_user(struct config *config)
{
	config->is_user = true;
	free(config->socket_path);
	config->socket_path = NULL;
	config->lock = POOL_LOCK_AUTO; /* a user has 8 MiB that may be locked */
	config->idle_exit_sec = IDLE_EXIT_SEC_USER;
	limits_init(config);
}

void config_deinit(struct config *config)
{
	for (unsigned i = 0; i < config->n_stores; i++) {
		free((char *)(uintptr_t)config->stores[i].name); /* const for those who read it */
		free((char *)(uintptr_t)config->stores[i].path);
		access_deinit(&config->stores[i].access);
	}
	free(config->stores);
	free(config->socket_path);
	free(config->state_dir);
	free(config->path);
	for (unsigned i = 0; i < config->n_mistakes; i++)
		free(config->mistakes[i]);
	*config = (struct config){ 0 };
}

/*
 * A bound follows another that is given and it would contradict; if both are given, it is a
 * mistake.  key, of: the smaller one's and the larger one's names.
 */
static void bounds_settle(struct config *config, const char *key, size_t offset, const char *of,
			  size_t of_offset)
{
	uint64_t *small = (uint64_t *)((char *)config + offset);
	uint64_t *large = (uint64_t *)((char *)config + of_offset);
	unsigned line = line_of(config, offset);

	if (*small <= *large)
		return;
	if (!line)
		*small = *large;
	else if (!line_of(config, of_offset) && of_offset != DAEMON_KEY(pool_size))
		*large = *small;
	else
		mistake(config,
			"%s:%u: [daemon] %s = %" PRIu64 ": must be at most %s, which is %" PRIu64,
			config->path, line, key, *small, of, *large);
}

static void pool_settle(struct config *config)
{
	if (!line_of(config, DAEMON_KEY(client_pool_max)))
		config->client_pool_max = config->pool_size / 2;
	if (!line_of(config, DAEMON_KEY(user_pool_max)))
		config->user_pool_max = config->is_user ? config->pool_size : config->pool_size / 2;
	bounds_settle(config, "user_pool_max", DAEMON_KEY(user_pool_max), "pool_size",
		      DAEMON_KEY(pool_size));
	bounds_settle(config, "client_pool_max", DAEMON_KEY(client_pool_max), "pool_size",
		      DAEMON_KEY(pool_size));
	bounds_settle(config, "client_pool_max", DAEMON_KEY(client_pool_max), "user_pool_max",
		      DAEMON_KEY(user_pool_max));
	config->client_limit[QUOTA_POOL_BYTES] = config->client_pool_max;
	config->user_limit[QUOTA_POOL_BYTES] = config->user_pool_max;
}

/* A bound that the file gives, for a client or a user, is no default any more. */
static void given_settle(struct config *config, size_t client_offset, size_t user_offset)
{
	size_t kind = (user_offset - DAEMON_KEY(user_limit)) / sizeof(*config->user_limit);

	if (line_of(config, client_offset) || line_of(config, user_offset))
		config->follows_descriptors[kind] = false;
}

/* Each client_ bound has its user_ bound. */
static void limits_settle(struct config *config)
{
	for (unsigned i = 0; i < N_KEYS(daemon_keys); i++)
		for (unsigned j = 0; j < N_KEYS(daemon_keys); j++) {
			const struct key *small = &daemon_keys[i], *large = &daemon_keys[j];

			if (small->kind == VALUE_COUNT && strncmp(small->name, "client_", 7) == 0 &&
			    strncmp(large->name, "user_", 5) == 0 &&
			    strcmp(small->name + 7, large->name + 5) == 0) {
				given_settle(config, small->offset, large->offset);
				bounds_settle(config, small->name, small->offset, large->name,
					      large->offset);
			}
		}
}

int config_check(struct config *config, struct error *error)
{
	pool_settle(config);
	limits_settle(config);
	if (!config->state_dir)
		config->state_dir = state_dir_usual(config->is_user);
	for (unsigned i = 0; i < config->n_stores; i++)
		if (!config->stores[i].path)
			mistake(config,
				"%s: [store %s]: path is missing: name a directory on its file "
				"system, or its block device",
				config->path, config->stores[i].name);
	return first_mistake(config, error);
}
