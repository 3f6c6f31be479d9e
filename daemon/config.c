#include "daemon/config.h"
#include "proto/cleanup.h"
#include "proto/socket.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SPIN_USEC_DEFAULT 200u	  /* twice a slow moment of an SSD, see lane.c */
#define SPIN_USEC_MAX 1000000u	  /* more is no short time any more */
#define WINDOW_DEFAULT (2u << 20) /* bytes; a 4 KiB read behind it waits 1 ms at 2 GB/s */
#define WINDOW_MIN (64u << 10)	  /* less than a block of a large op */
#define WINDOW_MAX (UINT64_C(1) << 32)
#define POOL_MIN (1u << 20)
#define POOL_MAX (UINT64_C(1) << 46) /* what a slab can have */
#define IDLE_EXIT_SEC_USER 60u	     /* a job's next step still finds it */
#define IDLE_EXIT_SEC_MAX 86400u     /* a day; who wants more wants 0 */
#define STORES_MAX 64u		     /* a guess: each has a thread and libaio contexts */

/* ---- values ---- */

enum value_kind { VALUE_TEXT, VALUE_SIZE, VALUE_U32, VALUE_BOOL, VALUE_LOCK };

/* One key; the table is what the files may say. */
struct key {
	const char *name;
	enum value_kind kind;
	size_t offset; /* in struct config, or in struct store_config */
	uint64_t min, max;
};

static const struct key daemon_keys[] = {
	{ "socket", VALUE_TEXT, offsetof(struct config, socket_path), 0, 0 },
	{ "pool_size", VALUE_SIZE, offsetof(struct config, pool_size), POOL_MIN, POOL_MAX },
	{ "client_pool_max", VALUE_SIZE, offsetof(struct config, client_pool_max), POOL_MIN,
	  POOL_MAX },
	{ "lock", VALUE_LOCK, offsetof(struct config, lock), 0, 0 },
	{ "spin_usec", VALUE_U32, offsetof(struct config, spin_usec), 0, SPIN_USEC_MAX },
	{ "auto_stores", VALUE_BOOL, offsetof(struct config, auto_stores), 0, 0 },
	{ "idle_exit_sec", VALUE_U32, offsetof(struct config, idle_exit_sec), 0,
	  IDLE_EXIT_SEC_MAX },
};

#define STORE_KEY(field) offsetof(struct store_config, field)
static const struct key store_keys[] = {
	{ "path", VALUE_TEXT, STORE_KEY(path), 0, 0 },
	{ "block_size", VALUE_SIZE, STORE_KEY(profile.block_size), PROFILE_BLOCK_SIZE_MIN,
	  PROFILE_BLOCK_SIZE_MAX },
	{ "queue_depth", VALUE_U32, STORE_KEY(profile.queue_depth), 1, PROFILE_QUEUE_DEPTH_MAX },
	{ "single_submit", VALUE_BOOL, STORE_KEY(profile.single_submit), 0, 0 },
	{ "overlap_events", VALUE_BOOL, STORE_KEY(profile.overlap_events), 0, 0 },
	{ "intra_op_parallelism", VALUE_U32, STORE_KEY(profile.intra_op_parallelism), 1,
	  PROFILE_PARALLELISM_MAX },
	{ "spin_usec", VALUE_U32, STORE_KEY(spin_usec), 0, SPIN_USEC_MAX },
	{ "window_bytes", VALUE_SIZE, STORE_KEY(window_bytes), WINDOW_MIN, WINDOW_MAX },
};
#define N_KEYS(keys) (sizeof(keys) / sizeof(*(keys)))

/* "64", "4K", "2M", "1G": 0, or -EINVAL, -ERANGE. */
static int number_parse(const char *text, bool is_size, uint64_t *ret_number)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	unsigned long long n;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	if (is_size && *end) {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix)
			return -EINVAL;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		end++;
	}
	if (*end)
		return -EINVAL;
	if (n << shift >> shift != n)
		return -ERANGE;
	*ret_number = n << shift;
	return 0;
}

static int number_set(void *field, const struct key *key, const char *text, struct error *error)
{
	bool is_size = key->kind == VALUE_SIZE;
	uint64_t n;

	if (number_parse(text, is_size, &n) < 0 || n < key->min || n > key->max)
		return error_set_plain(
			error, -EINVAL, "must be a number from %" PRIu64 " to %" PRIu64 "%s",
			key->min, key->max, is_size ? " (bytes, or with K, M, G behind it)" : "");
	/* A profile's block_size is 32 bits wide, and so is its maximum. */
	if (is_size && key->max > UINT32_MAX)
		*(uint64_t *)field = n;
	else
		*(uint32_t *)field = (uint32_t)n;
	return 0;
}

static int bool_set(bool *field, const char *text, struct error *error)
{
	static const char *const words[2][3] = { { "no", "false", "0" }, { "yes", "true", "1" } };

	for (unsigned value = 0; value < 2; value++)
		for (unsigned i = 0; i < 3; i++)
			if (strcasecmp(text, words[value][i]) == 0) {
				*field = value;
				return 0;
			}
	return error_set_plain(error, -EINVAL, "must be yes or no");
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

static int text_set(char **field, const char *text, struct error *error)
{
	char *copy;

	if (!text[0])
		return error_set_plain(error, -EINVAL, "must not be empty");
	copy = strdup(text);
	if (!copy)
		return error_set(error, -ENOMEM, "configuration");
	free(*field);
	*field = copy;
	return 0;
}

static int key_set(void *object, const struct key *key, const char *text, struct error *error)
{
	void *field = (char *)object + key->offset;

	switch (key->kind) {
	case VALUE_TEXT:
		return text_set(field, text, error);
	case VALUE_BOOL:
		return bool_set(field, text, error);
	case VALUE_LOCK:
		return lock_set(field, text, error);
	case VALUE_SIZE:
	case VALUE_U32:
		return number_set(field, key, text, error);
	}
	return -EINVAL; /* no other kind is in the tables */
}

static const struct key *key_find(const struct key *keys, size_t n, const char *name,
				  struct error *error)
{
	size_t used = 0;
	char known[256];

	for (size_t i = 0; i < n; i++) {
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
					 keys[i].name); /* the tables fit */
	}
	(void)error_set_plain(error, -EINVAL, "no such key; there are %s", known);
	return NULL;
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
					    .spin_usec = config->spin_usec,
					    .window_bytes = WINDOW_DEFAULT };
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

/* ---- the file ---- */

struct reading {
	struct config *config;
	const char *path;
	FILE *file;
	int line, error_line; /* of the first error; 0: none */
	int result;
	struct error *error;
};

/* As fgets(), counting lines; a line that does not fit is an error, not two lines. */
static char *line_read(char *line, int size, void *arg)
{
	struct reading *reading = arg;

	if (!fgets(line, size, reading->file))
		return NULL;
	reading->line++;
	if (!strchr(line, '\n') && !feof(reading->file) && !reading->error_line) {
		reading->error_line = reading->line;
		reading->result = error_set_plain(reading->error, -EINVAL,
						  "%s:%d: the line has more than %d bytes",
						  reading->path, reading->line, size - 2);
	}
	return line;
}

/* "store NAME": the store, made when it is named for the first time. */
static int section_store(struct reading *reading, const char *section,
			 struct store_config **ret_store, struct error *error)
{
	static const char prefix[] = "store ";
	const char *name;

	if (strncmp(section, prefix, sizeof(prefix) - 1) != 0)
		return error_set_plain(error, -EINVAL,
				       "there are only the sections [daemon] and [store NAME]");
	name = section + sizeof(prefix) - 1;
	name += strspn(name, " \t");
	*ret_store = store_find(reading->config, name);
	return *ret_store ? 0 : store_add(reading->config, name, ret_store, error);
}

static int key_read(struct reading *reading, const char *section, const char *name,
		    const char *value, struct error *error)
{
	struct config *config = reading->config;
	struct store_config *store;
	const struct key *key;
	int r;

	if (strcmp(section, "daemon") == 0) {
		key = key_find(daemon_keys, N_KEYS(daemon_keys), name, error);
		if (!key)
			return -EINVAL;
		if (key->offset == offsetof(struct config, client_pool_max))
			config->has_client_pool_max = true;
		return key_set(config, key, value, error);
	}
	r = section_store(reading, section, &store, error);
	if (r < 0)
		return r;
	key = key_find(store_keys, N_KEYS(store_keys), name, error);
	return key ? key_set(store, key, value, error) : -EINVAL;
}

/* libinih's handler: 1, or 0 for an error.  Only the first is told. */
static int on_key(void *arg, const char *section, const char *name, const char *value)
{
	struct reading *reading = arg;
	struct error why;

	if (reading->error_line)
		return 0;
	reading->result = key_read(reading, section, name, value ? value : "", &why);
	if (reading->result == 0)
		return 1;
	reading->error_line = reading->line;
	(void)error_set_plain(reading->error, reading->result, "%s:%d: [%s] %s = %s: %.200s",
			      reading->path, reading->line, section, name, value ? value : "",
			      why.text);
	return 0;
}

int config_read(struct config *config, const char *path, struct error *error)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	struct reading reading = { .config = config, .path = path, .file = file, .error = error };
	int line;

	if (!file)
		return error_set(error, -errno, "configuration %s", path);
	line = ini_parse_stream(line_read, &reading, on_key, &reading);
	if (ferror(file)) /* libinih tells no errno */
		return error_set_plain(error, -EIO,
				       "configuration %s: can not be read: is it a file?", path);
	if (line < 0)
		return error_set(error, -ENOMEM, "configuration %s", path);
	if (line > 0 && (!reading.error_line || line < reading.error_line))
		return error_set_plain(error, -EINVAL,
				       "%s:%d: must be [daemon], [store NAME], KEY = VALUE, or a "
				       "comment behind # or ;",
				       path, line);
	if (reading.error_line)
		return reading.result;
	if (!config->has_client_pool_max)
		config->client_pool_max = config->pool_size / 2;
	return 0;
}

/* ---- all together ---- */

int config_set_socket(struct config *config, const char *path, struct error *error)
{
	char *copy = strdup(path);

	if (!copy)
		return error_set(error, -ENOMEM, "--socket");
	free(config->socket_path);
	config->socket_path = copy;
	return 0;
}

static uint64_t at_most(uint64_t n, uint64_t limit)
{
	return n < limit ? n : limit;
}

/*
 * What a client, and a user in sum, may have.  Where descriptors are the limit, one user leaves
 * the daemon some: slabs and handles cost one each, channels and sessions two; with this RLIMIT
 * all that a user may have is nine tenths of them.
 */
static void limits_init(struct config *config)
{
	uint64_t *client = config->client_limit, *user = config->user_limit;
	struct rlimit limit;
	uint64_t nofile = 1024;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		nofile = limit.rlim_cur == RLIM_INFINITY ? 1u << 20 : limit.rlim_cur;

	client[CHARGE_SLABS] = at_most(1024, nofile / 16);
	client[CHARGE_FILES] = at_most(16384, nofile / 4);
	client[CHARGE_HANDLES] = at_most(256, nofile / 32);
	client[CHARGE_CHANNELS] = at_most(1024, nofile / 16);
	client[CHARGE_ENTRIES] = 1u << 18;
	client[CHARGE_CALLS] = 64;
	client[CHARGE_SESSIONS] = 1;

	for (unsigned i = 0; i < N_CHARGE_KINDS; i++)
		user[i] = 4 * client[i];
	user[CHARGE_SLABS] = at_most(user[CHARGE_SLABS], nofile / 8);
	user[CHARGE_FILES] = at_most(user[CHARGE_FILES], nofile * 3 / 8);
	user[CHARGE_HANDLES] = at_most(user[CHARGE_HANDLES], nofile / 16);
	user[CHARGE_CHANNELS] = at_most(user[CHARGE_CHANNELS], nofile / 8);
	user[CHARGE_SESSIONS] = at_most(1024, nofile / 16);
}

int config_init(struct config *config)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	bool is_service = geteuid() == 0 || getenv("NOTIFY_SOCKET");

	*config = (struct config){
		.socket_path = strdup(SOCKET_SYSTEM),
		.pool_size = memory / 2,
		.client_pool_max = memory / 4,
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
	config->lock = POOL_LOCK_AUTO; /* a user has 8 MiB that may be locked */
	config->idle_exit_sec = IDLE_EXIT_SEC_USER;
}

void config_deinit(struct config *config)
{
	for (unsigned i = 0; i < config->n_stores; i++) {
		free((char *)(uintptr_t)config->stores[i].name); /* const for those who read it */
		free((char *)(uintptr_t)config->stores[i].path);
	}
	free(config->stores);
	free(config->socket_path);
	*config = (struct config){ 0 };
}

int config_check(const struct config *config, struct error *error)
{
	char why[ERROR_TEXT_BYTES - 64];

	if (config->client_pool_max > config->pool_size)
		return error_set_plain(error, -EINVAL,
				       "client_pool_max = %" PRIu64
				       ": must not be above pool_size, which is %" PRIu64,
				       config->client_pool_max, config->pool_size);
	for (unsigned i = 0; i < config->n_stores; i++) {
		const struct store_config *store = &config->stores[i];

		if (!store->path)
			return error_set_plain(
				error, -EINVAL,
				"store %s: has no path: name a directory on its file "
				"system, or its block device",
				store->name);
		if (profile_check(&store->profile, why, sizeof(why)) < 0)
			return error_set_plain(error, -EINVAL, "store %s: %s", store->name, why);
	}
	return 0;
}
