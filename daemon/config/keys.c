#include "daemon/config/keys.h"

#include "daemon/base/id_table.h"
#include "daemon/config/config.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"
#include "proto/util/socket.h"
#include "proto/util/yes_no.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPIN_USEC_MAX 1000000u /* a longer time is a sleep */
#define WINDOW_MIN (64u << 10) /* bytes: less than a block of a large op */
#define WINDOW_MAX (UINT64_C(1) << 32)
#define POOL_MIN (1u << 20)
#define POOL_MAX (UINT64_C(1) << 46) /* the limit of a slab */
#define IDLE_EXIT_SEC_MAX 86400u     /* a day; 0 stands for more */
#define CLIENT_OBJECTS_MAX (ID_TABLE_SLOTS_MAX - 1)
#define CLIENT_OPS_MAX (1u << 28)
#define USER_CLIENTS_MAX (1u << 24)

/* ---- setters ---- */

/* Returns 0, or -EINVAL, -ERANGE; without is_size only digits will do. */
static int number_parse(const char *text, bool is_size, uint64_t *ret_number)
{
	if (!is_size && text[strspn(text, "0123456789")])
		return -EINVAL;
	return size_parse(text, ret_number);
}

static int number_store(void *field, const struct key *key, const char *text, bool is_size,
			struct error *error)
{
	uint64_t n;

	if (number_parse(text, is_size, &n) < 0 || n < key->min || n > key->max)
		return is_size ? error_set_plain(error, -EINVAL,
						 "must be a number from %s to %s (bytes, or with "
						 "K, M, G, T, KiB, MiB, GiB, TiB behind it)",
						 SIZE_TEXT(key->min), SIZE_TEXT(key->max))
			       : error_set_plain(error, -EINVAL,
						 "must be a number from %" PRIu64 " to %" PRIu64,
						 key->min, key->max);
	if (key->field_bytes ==
	    sizeof(uint32_t)) /* it holds the largest number that the key allows */
		*(uint32_t *)field = (uint32_t)n;
	else
		*(uint64_t *)field = n;
	return 0;
}

static int size_set(void *field, const struct key *key, const char *text, struct error *error)
{
	return number_store(field, key, text, true, error);
}

/* A percentage is one of the memory that the host and its limits leave. */
static int pool_size_set(void *field, const struct key *key, const char *text, struct error *error)
{
	const size_t n_digits = strspn(text, "0123456789");
	unsigned percent;

	if (strcmp(text + n_digits, "%") != 0)
		return size_set(field, key, text, error);
	if (n_digits > 3 || sscanf(text, "%u", &percent) != 1 || percent < 1 || percent > 100)
		return error_set_plain(error, -EINVAL, "must be from 1%% to 100%%");
	*(uint64_t *)field =
		container_of((uint64_t *)field, struct config, pool_size)->memory_bytes / 100 *
		percent;
	return 0;
}

/* 0: no limit.  Other numbers below key->min would cost most of a device's rate. */
static int window_max_set(void *field, const struct key *key, const char *text, struct error *error)
{
	if (strcmp(text, "0") != 0)
		return size_set(field, key, text, error);
	*(uint64_t *)field = 0;
	return 0;
}

static int number_set(void *field, const struct key *key, const char *text, struct error *error)
{
	return number_store(field, key, text, false, error);
}

static int bool_set(void *field, const struct key *key, const char *text, struct error *error)
{
	(void)key;
	if (yes_no_parse(text, field) < 0)
		return error_set_plain(error, -EINVAL, "must be yes or no");
	return 0;
}

/* The fields of the enums have the compiler's usual type for these. */
_Static_assert(sizeof(enum pool_lock) == sizeof(unsigned) &&
		       sizeof(enum pool_pages) == sizeof(unsigned) &&
		       sizeof(enum gpu_mode) == sizeof(unsigned),
	       "word_set() writes an unsigned");

static const struct {
	const char *key;      /* of [daemon] */
	const char *words[4]; /* in the order of the enum; then NULL */
	const char *must;     /* how a refusal explains them */
} enums[] = {
	{ "lock",
	  { "yes", "auto" },
	  "yes (refuse memory that cannot be locked) or auto (serve it unlocked)" },
	{ "huge_pages",
	  { "auto", "reserved", "no" },
	  "auto (transparent huge pages, where the kernel has them), reserved (those that the host "
	  "has reserved before these) or no" },
	{ "gpu",
	  { "auto", "direct", "copy" },
	  "auto (cuFile where it needs no copy, else copies), direct (cuFile, or the op fails) or "
	  "copy (GPU memory is copied)" },
};

/* A word that is yes or no has the others for these, too. */
static bool word_is(const char *word, const char *text)
{
	bool is_yes, want;

	return strcasecmp(text, word) == 0 || (yes_no_parse(word, &want) == 0 &&
					       yes_no_parse(text, &is_yes) == 0 && is_yes == want);
}

static int word_set(void *field, const struct key *key, const char *text, struct error *error)
{
	unsigned row = 0;

	while (strcmp(enums[row].key, key->name) != 0)
		row++; /* each key with this setter has one */
	for (unsigned i = 0; enums[row].words[i]; i++)
		if (word_is(enums[row].words[i], text)) {
			*(unsigned *)field = i;
			return 0;
		}
	return error_set_plain(error, -EINVAL, "must be %s", enums[row].must);
}

static int text_store(void *field, const char *text, struct error *error)
{
	char **place = field, *copy = strdup(text);

	if (!copy)
		return error_set(error, -ENOMEM, "configuration");
	free(*place);
	*place = copy;
	return 0;
}

int rados_path_check(const char *path, struct error *error)
{
	const char *pool = path + strlen(RADOS_SCHEME);
	const size_t n_pool = strspn(pool, STORE_NAME_LETTERS);
	const char *nspace = pool + n_pool + 1;

	if (n_pool && pool[n_pool] == '/' && *nspace &&
	    !nspace[strspn(nspace, STORE_NAME_LETTERS)] && strlen(path) < PATH_MAX)
		return 0;
	return error_set_plain(
		error, -EINVAL,
		"must be rados://POOL/NAMESPACE, each of letters, digits, _, - or .");
}

/* Absolute: nobody knows in which directory the daemon will be started. */
static int path_set(void *field, const struct key *key, const char *text, struct error *error)
{
	if (config_is_rados(text) && key->section == KEYS_STORE) {
		int r = rados_path_check(text, error);

		return r < 0 ? r : text_store(field, text, error);
	}
	if (!text[0])
		return error_set_plain(error, -EINVAL, "must not be empty");
	if (text[0] == '"' || text[0] == '\'')
		return error_set_plain(error, -EINVAL,
				       "must be an absolute path, which stands without quotes");
	if (strstr(text, " #") && access(text, F_OK) < 0)
		return error_set_plain(error, -EINVAL,
				       "is not there: a comment behind a value starts with ;");
	if (text[0] != '/' || strlen(text) > key->max)
		return error_set_plain(error, -EINVAL,
				       "must be an absolute path of at most %" PRIu64
				       " bytes; it has %zu",
				       key->max, strlen(text));
	return text_store(field, text, error);
}

/* A user of Ceph: dsaio, which may also be given as client.dsaio. */
static int ceph_user_set(void *field, const struct key *key, const char *text, struct error *error)
{
	static const char prefix[] = "client.";
	const char *user = strncmp(text, prefix, strlen(prefix)) == 0 ? text + strlen(prefix)
								      : text;

	if (!*user || user[strspn(user, STORE_NAME_LETTERS)] || strlen(user) > key->max)
		return error_set_plain(error, -EINVAL,
				       "must be of letters, digits, _, - and ., at most %" PRIu64,
				       key->max);
	return text_store(field, user, error);
}

static int object_size_set(void *field, const struct key *key, const char *text,
			   struct error *error)
{
	uint64_t n;

	if (size_parse(text, &n) == 0 && (n & (n - 1)))
		return error_set_plain(error, -EINVAL, "must be a power of two");
	return size_set(field, key, text, error);
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

static int group_set(void *field, const struct key *key, const char *text, struct error *error)
{
	gid_t *group = field;
	id_t id;
	int r = id_find(text, true, &id, error);

	(void)key;
	if (r == 0)
		*group = id;
	return r;
}

/* Names or numbers with commas between them. */
static int ids_set(void *field, const struct key *key, const char *text, struct error *error)
{
	const bool is_group = strcmp(key->name, "groups") == 0;
	struct access_list *list = field;
	_cleanup_(freep) char *copy = strdup(text), *kept = strdup(text);
	_cleanup_(freep) id_t *ids = NULL;
	char *rest = copy, *word;
	unsigned n = 0;
	int r;

	if (copy && kept) /* one more than there are commas */
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
					       key->name);
		r = id_find(word, is_group, &ids[n], error);
		if (r < 0)
			return r;
		n++;
	}
	free(list->ids);
	free(list->text);
	*list = (struct access_list){ .ids = TAKE_PTR(ids), .n = n, .text = TAKE_PTR(kept) };
	return 0;
}

/* ---- the table ---- */

#define FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)
#define DAEMON(field) KEYS_DAEMON, false, FIELD(struct config, field)
#define LIVE(field) KEYS_DAEMON, true, FIELD(struct config, field)
#define STORE(field) KEYS_STORE, false, FIELD(struct store_config, field)
#define LIVE_STORE(field) KEYS_STORE, true, FIELD(struct store_config, field)
#define PROFILE(field) KEYS_PROFILE, true, FIELD(struct store_config, profile.field)
#define RADOS(field) KEYS_RADOS, false, FIELD(struct store_config, rados.field)
#define SAVED(field) KEYS_SAVED, false, FIELD(struct saved_settings, field)

static const struct key keys[] = {
	{ DAEMON(socket_path), "socket", path_set, 0, SOCKET_PATH_BYTES - 1, SOCKET_SYSTEM, NULL,
	  "The path of the socket: absolute, at most 107 bytes." },
	{ LIVE(pool_size), "pool_size", pool_size_set, POOL_MIN, POOL_MAX, NULL, "64G",
	  "Limit on the pinned memory of all clients together." },
	{ LIVE(client_limit[QUOTA_POOL_BYTES]), "client_pool_max", size_set, POOL_MIN, POOL_MAX,
	  NULL, "32G", "Limit on the pinned memory of one client." },
	{ LIVE(user_limit[QUOTA_POOL_BYTES]), "user_pool_max", size_set, POOL_MIN, POOL_MAX, NULL,
	  "32G", "Limit on the pinned memory of all clients of one user." },
	{ DAEMON(lock), "lock", word_set, 0, 0, NULL, "yes",
	  "Whether memory that cannot be locked is refused (yes) or served unlocked (auto)." },
	{ DAEMON(huge_pages), "huge_pages", word_set, 0, 0, "auto", NULL,
	  "Whether pinned memory consists of huge pages of 2 MiB." },
	{ DAEMON(spin_usec), "spin_usec", number_set, 0, SPIN_USEC_MAX, "20", NULL,
	  "Longest time in microseconds that daemon and client spin before they sleep, up to "
	  "1000000." },
	{ LIVE(auto_stores), "auto_stores", bool_set, 0, 0, "yes", NULL,
	  "Whether file systems and block devices without a section of their own are served." },
	{ LIVE(admin_group), "admin_group", group_set, 0, 0, NULL, "adm",
	  "A group whose members are administrators, like root and the daemon's own user." },
	{ DAEMON(state_dir), "state_dir", path_set, 0, PATH_MAX - 1, NULL, "/var/lib/dsaiod",
	  "The absolute path of the directory for what administrators have set: profiles, limits, drains." },
	{ DAEMON(gpu), "gpu", word_set, 0, 0, "auto", NULL,
	  "How GPU memory is read and written: by cuFile (direct), by copies (copy), or auto." },
	{ LIVE(client_limit[QUOTA_GPU_BYTES]), "client_device_max", size_set, 0, POOL_MAX, "0",
	  NULL, "Limit on the GPU memory of one client that the daemon uses; 0: no limit." },
	{ DAEMON(cuda_library), "cuda_library", path_set, 0, PATH_MAX - 1, NULL,
	  "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	  "The absolute path of NVIDIA's libcuda, which finds the host's GPUs." },
	{ DAEMON(cufile_library), "cufile_library", path_set, 0, PATH_MAX - 1, NULL,
	  "/usr/local/cuda/lib64/libcufile.so.0",
	  "The absolute path of NVIDIA's libcufile, which moves bytes between storage and GPUs." },
	{ LIVE(idle_exit_sec), "idle_exit_sec", number_set, 0, IDLE_EXIT_SEC_MAX, "0", NULL,
	  "Exit this number of seconds after the last client has disconnected, up to 86400; 0: never." },
	{ LIVE(client_limit[QUOTA_FILES]), "client_files", number_set, 1, CLIENT_OBJECTS_MAX,
	  "16384", NULL, "Limit on the files that one client has open or cached." },
	{ LIVE(client_limit[QUOTA_HANDLES]), "client_handles", number_set, 1,
	  CLIENT_OBJECTS_MAX / 4, "256", NULL, "Limit on the handles of one client." },
	{ LIVE(client_limit[QUOTA_ENTRIES]), "client_ops", number_set, 1, CLIENT_OPS_MAX, "262144",
	  NULL, "Limit on the ops of one client that may be open at the same time." },
	{ LIVE(user_limit[QUOTA_SESSIONS]), "user_clients", number_set, 1, USER_CLIENTS_MAX, "1024",
	  NULL, "Limit on the clients of one user." },
	{ STORE(path), "path", path_set, 0, PATH_MAX - 1, NULL, "/mnt/nvme0",
	  "A directory on the file system, which names all of it, or a block device; or rados://POOL/NAMESPACE." },
	{ STORE(window_max), "window_max", window_max_set, WINDOW_MIN, WINDOW_MAX, "0", NULL,
	  "Limit on the window: bytes in flight while several clients use the store; 0: none." },
	{ STORE(spin_usec), "spin_usec", number_set, 0, SPIN_USEC_MAX, NULL, "20",
	  "As in [daemon], for this store's lane." },
	{ LIVE_STORE(access.lists[ACCESS_USERS]), "users", ids_set, 0, 0, NULL, "root, 1001",
	  "Names or numbers of the users that the store serves, with commas between them." },
	{ LIVE_STORE(access.lists[ACCESS_GROUPS]), "groups", ids_set, 0, 0, NULL, "users",
	  "Names or numbers of the groups whose members the store serves, with commas between "
	  "them." },
	{ PROFILE(block_size), "block_size", size_set, PROFILE_BLOCK_SIZE_MIN,
	  PROFILE_BLOCK_SIZE_MAX, "1M", NULL,
	  "Bytes of one request to the device (a block), 512 to 64M in steps of 512." },
	{ PROFILE(queue_depth), "queue_depth", number_set, 1, PROFILE_QUEUE_DEPTH_MAX, "128", NULL,
	  "Requests of a handle in flight in one lane, 1 to 4096." },
	{ PROFILE(single_submit), "single_submit", bool_set, 0, 0, "no", NULL,
	  "Whether requests are handed to the kernel one by one." },
	{ PROFILE(overlap_events), "overlap_events", bool_set, 0, 0, "yes", NULL,
	  "Whether the queue is refilled while requests are in flight, instead of after all have "
	  "completed." },
	{ PROFILE(intra_op_parallelism), "intra_op_parallelism", number_set, 1,
	  PROFILE_PARALLELISM_MAX, "1", NULL, "Multiplies queue_depth, 1 to 64." },
	{ RADOS(conf), "ceph_conf", path_set, 0, PATH_MAX - 1, NULL, "/etc/ceph/ceph.conf",
	  "The absolute path of the cluster's configuration." },
	{ RADOS(user), "ceph_user", ceph_user_set, 0, 200, NULL, "dsaio",
	  "The user of Ceph by which the daemon reads and writes, without client." },
	{ RADOS(object_bytes), "object_size", object_size_set, RADOS_OBJECT_MIN, RADOS_OBJECT_MAX,
	  "4M", NULL, "Bytes of the objects of new files: a power of two from 64K to 32M." },
	{ RADOS(op_timeout_sec), "op_timeout", number_set, 1, 3600, "30", NULL,
	  "Seconds after which a request to the cluster fails, 1 to 3600." },
	{ RADOS(inflight_max), "inflight_max", size_set, RADOS_OBJECT_MAX, UINT64_C(1) << 36,
	  "256M", NULL, "Limit on the bytes in flight to the cluster, of all clients together." },
	{ RADOS(connections), "connections", number_set, 1, 16, "1", NULL,
	  "Connections to the cluster, each with threads of its own, 1 to 16." },
	{ RADOS(trash_after_sec), "trash_after", number_set, 1, 30 * 86400, "600", NULL,
	  "Seconds until bytes that no name has any more are removed, 1 to 2592000." },
	{ SAVED(limit.bytes_per_sec), "bandwidth", number_set, 0, RATE_LIMIT_MAX, "0", NULL,
	  "Limit on the bytes in a second; 0: none." },
	{ SAVED(limit.ops_per_sec), "iops", number_set, 0, RATE_LIMIT_MAX, "0", NULL,
	  "Limit on the ops in a second; 0: none." },
	{ SAVED(is_drained), "drained", bool_set, 0, 0, "no", NULL,
	  "Whether the store refuses new ops." },
};
#define N_KEYS ((unsigned)(sizeof(keys) / sizeof(*keys)))
_Static_assert(N_KEYS <= CONFIG_KEYS_MAX, "key_places has room for them");

const struct key *key_at(unsigned index)
{
	return index < N_KEYS ? &keys[index] : NULL;
}

unsigned key_index(const struct key *key)
{
	return (unsigned)(key - keys);
}

static bool is_in(const struct key *key, enum key_section section)
{
	return key->section == section || (section == KEYS_STORE && (key->section == KEYS_PROFILE ||
								     key->section == KEYS_RADOS));
}

const struct key *key_find(enum key_section section, const char *name, struct error *error)
{
	char known[400];
	size_t used = 0;

	for (unsigned i = 0; i < N_KEYS; i++)
		if (is_in(&keys[i], section) && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	for (unsigned i = 0; i < N_KEYS && used < sizeof(known); i++)
		if (is_in(&keys[i], section))
			used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
						 used ? ", " : "", keys[i].name);
	(void)error_set_plain(error, -EINVAL, "no such key; there are %s", known);
	return NULL;
}

const struct key *key_of_daemon(const char *name)
{
	const struct key *key = key_find(KEYS_DAEMON, name, &(struct error){ 0 });

	assert(key);
	return key;
}

int key_set(const struct key *key, void *object, const char *text, struct error *error)
{
	void *field = (char *)object + key->offset;
	struct store_config *store = object;
	char why[ERROR_TEXT_BYTES - 64];
	struct profile before;
	int r;

	if (key->section != KEYS_PROFILE)
		return key->set(field, key, text, error);
	/* Each number may be allowed and the profile still not be: a block_size between steps. */
	before = store->profile;
	r = key->set(field, key, text, error);
	if (r == 0 && profile_check(&store->profile, why, sizeof(why)) < 0) {
		store->profile = before;
		r = error_set_plain(error, -EINVAL, "%s", why);
	}
	return r;
}

bool key_is_same(const struct key *key, const void *a, const void *b)
{
	const size_t text = key->set == ids_set ? offsetof(struct access_list, text) : 0;
	const char *field_a = (const char *)a + key->offset + text;
	const char *field_b = (const char *)b + key->offset + text;
	const char *text_a, *text_b;

	if (key->set != path_set && key->set != ceph_user_set && key->set != ids_set)
		return memcmp(field_a, field_b, key->field_bytes) == 0;
	memcpy(&text_a, field_a, sizeof(text_a));
	memcpy(&text_b, field_b, sizeof(text_b));
	return text_a && text_b ? strcmp(text_a, text_b) == 0 : text_a == text_b;
}

void key_swap(const struct key *key, void *a, void *b)
{
	char *field_a = (char *)a + key->offset, *field_b = (char *)b + key->offset;

	for (size_t i = 0; i < key->field_bytes; i++) {
		const char byte = field_a[i];

		field_a[i] = field_b[i];
		field_b[i] = byte;
	}
}

int keys_preset(enum key_section section, void *object)
{
	struct error error;

	for (unsigned i = 0; i < N_KEYS; i++)
		if (keys[i].preset && keys[i].section == section) {
			int r = key_set(&keys[i], object, keys[i].preset, &error);

			assert(r == 0 || r == -ENOMEM); /* the table allows its own defaults */
			if (r < 0)
				return r;
		}
	return 0;
}

/* ---- the sample ---- */

static const char *sample_value(const struct key *key, bool is_user)
{
	/* The defaults of config_set_user(), and the directories of a user. */
	static const char *const of_user[][2] = {
		{ "socket", "/run/user/1000/dsaiod/dsaiod.sock" },
		{ "lock", "auto" },
		{ "state_dir", "/home/alice/.local/state/dsaiod" },
		{ "idle_exit_sec", "60" },
	};

	for (unsigned i = 0; is_user && i < sizeof(of_user) / sizeof(*of_user); i++)
		if (strcmp(key->name, of_user[i][0]) == 0)
			return of_user[i][1];
	return key->example ? key->example : key->preset;
}

void keys_print(FILE *file, bool is_user)
{
	(void)fputs("# The configuration of dsaiod; dsaiod.conf(5) explains each key.\n"
		    "#\n"
		    "# Each key shows its default, or an example, behind a \";\".\n"
		    "# After a change: systemctl reload dsaiod, or dsaioctl reload\n"
		    "\n"
		    "[daemon]\n",
		    file);
	for (unsigned i = 0; i < N_KEYS; i++) {
		const struct key *key = &keys[i];

		if (key->section == KEYS_SAVED)
			continue;
		if (key->section == KEYS_RADOS && keys[i - 1].section != KEYS_RADOS)
			(void)fputs(
				"\n# A store on Ceph RADOS, which may have all of these, and more.\n"
				";[store ceph]\n; path = rados://pool/namespace\n",
				file);
		if (key->section != KEYS_DAEMON && keys[i - 1].section == KEYS_DAEMON)
			(void)fputs("\n# A store with settings of its own.\n;[store nvme0]\n",
				    file);
		(void)fprintf(file, "\n# %s\n;%s = %s\n", key->meaning, key->name,
			      sample_value(key, is_user));
	}
}
