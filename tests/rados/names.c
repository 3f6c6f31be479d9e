/*
 * Files by name on a real cluster: $CEPH_CONF, user client.dsaio, pool dsaio.  Each store of this program has a
 * connection of its own, as daemons on several hosts have.  Data objects are written here, without the engine.
 *
 *     names: prints "ok NAME" or "not ok NAME: why" for each test; the exit status says whether all passed.
 */
#include "daemon/base/log.h"
#include "daemon/rados/entry.h"
#include "daemon/rados/store.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const struct rados_plugin dsaiod_rados_plugin_1;
static const struct rados_plugin *const plugin = &dsaiod_rados_plugin_1;

/* ---- a small keeper ---- */

const struct engine_ops engine_rados;

int keeper_open(const struct rados_settings *settings, struct rados_store **ret_store,
		struct error *error)
{
	(void)settings;
	(void)ret_store;
	return error_set(error, -ENOSYS, "store_new() is used");
}

void keeper_close(struct rados_store *store)
{
	(void)store;
}

void keeper_state(struct rados_store *store, struct rados_state *ret_state)
{
	(void)store;
	(void)ret_state;
}

struct rados_conn {
	rados_t cluster;
	rados_ioctx_t io;
};

struct rados_store {
	struct rados_settings settings;
	struct rados_conn conn;
	struct held_files *held;
};

const struct rados_settings *store_settings(const struct rados_store *store)
{
	return &store->settings;
}

struct held_files *store_held(struct rados_store *store)
{
	return store->held;
}

int conn_take(struct rados_store *store, struct rados_conn **ret_conn, struct error *error)
{
	(void)error;
	*ret_conn = &store->conn;
	return 0;
}

void conn_put(struct rados_conn *conn)
{
	(void)conn;
}

rados_ioctx_t conn_io(const struct rados_conn *conn)
{
	return conn->io;
}

static int injected; /* the result of the next op; 0: its own */

/* Runs once, behind the next op of the main thread: for a commit, behind its read. */
static _Thread_local void (*between)(void);

int conn_note(struct rados_conn *conn, int r)
{
	void (*run)(void) = between;

	(void)conn;
	between = NULL;
	if (run)
		run();
	if (injected) {
		r = injected;
		injected = 0;
	}
	return r;
}

/* The daemon's checks more. */
int rados_name_check(const char *name, struct error *error)
{
	(void)error;
	return strncmp(name, "../", 3) ? 0 : -EINVAL;
}

/* ---- checks ---- */

static char why[1000];
static int n_failed;

#define CHECK(cond, ...)                                                                   \
	do {                                                                               \
		if (!(cond) && !why[0]) {                                                  \
			int n_ = snprintf(why, 200, "line %d: %.150s: ", __LINE__, #cond); \
			(void)snprintf(why + n_, sizeof(why) - 200, __VA_ARGS__);          \
		}                                                                          \
	} while (0)
static struct error error; /* of the main thread's calls */
#define RESULT(want, call)                                                                   \
	do {                                                                                 \
		int r_ = (call);                                                             \
		CHECK(r_ == (want), "%s: %d, wanted %d: %s", #call, r_, (want), error.text); \
	} while (0)

static char nspace[40];

static struct rados_store *store_new(uint32_t trash_after_sec)
{
	struct rados_store *store = calloc(1, sizeof(*store));

	store->settings = (struct rados_settings){ .store = "test",
						   .keys = { .object_bytes = 64 << 10,
							     .trash_after_sec = trash_after_sec } };
	if (held_files_new(&store->held) < 0 || rados_create(&store->conn.cluster, "dsaio") < 0 ||
	    rados_conf_read_file(store->conn.cluster, getenv("CEPH_CONF")) < 0 ||
	    rados_conf_set(store->conn.cluster, "rados_osd_op_timeout", "30") < 0 ||
	    rados_connect(store->conn.cluster) < 0 ||
	    rados_ioctx_create(store->conn.cluster, "dsaio", &store->conn.io) < 0) {
		(void)printf("Bail out! no cluster: set CEPH_CONF\n");
		exit(1);
	}
	rados_ioctx_set_namespace(store->conn.io, nspace);
	return store;
}

static void store_free(struct rados_store *store)
{
	rados_ioctx_destroy(store->conn.io);
	rados_shutdown(store->conn.cluster);
	held_files_free(store->held);
	free(store);
}

/* One whole sweep, that many seconds behind the last one. */
static void sweep_behind(struct rados_store *store, unsigned sec)
{
	static uint64_t now;

	now += sec * NSEC_PER_SEC;
	while (sweep_run(store, &store->conn, now) <= now)
		;
}

/* One that is due where trash_after is an hour: the third discards. */
static void sweep_round(struct rados_store *store)
{
	sweep_behind(store, 1000);
}

/* The same when nothing is held. */
static void sweep(struct rados_store *store)
{
	sweep_round(store);
	held_files_free(store->held); /* the next is due at once */
	CHECK(held_files_new(&store->held) == 0, "memory");
}

static unsigned count_data(struct rados_store *store, uint64_t id)
{
	rados_list_ctx_t list;
	const char *object;
	unsigned n = 0;
	char prefix[ENTRY_OBJECT_BYTES];

	entry_data_object(id, 0, prefix);
	CHECK(rados_nobjects_list_open(store->conn.io, &list) == 0, "list");
	while (!rados_nobjects_list_next(list, &object, NULL, NULL))
		n += !strncmp(object, prefix, id ? strlen("d.0123456789abcdef.") : 2);
	rados_nobjects_list_close(list);
	return n;
}

static void put_data(struct rados_store *store, const struct rados_file *file, uint64_t index)
{
	char object[ENTRY_OBJECT_BYTES];

	entry_data_object(file->id, index, object);
	CHECK(rados_write_full(store->conn.io, object, (const char *)&file->id, sizeof(file->id)) ==
		      0,
	      "%s", object);
}

/* A new file of n objects; commits it. */
static struct rados_file put_file(struct rados_store *store, const char *name, unsigned n)
{
	struct rados_file file = { .id = 0 };

	RESULT(0, plugin->create(store, name, n * (uint64_t)(64 << 10), false, &file, &error));
	for (unsigned i = 0; i < n; i++)
		put_data(store, &file, i);
	RESULT(0, plugin->commit(store, name, &file, 0, &error));
	return file;
}

/* ---- tests ---- */

static void a_commit_replaces_the_file(struct rados_store *store)
{
	struct rados_file first, second, file;
	struct rados_entry entry;

	RESULT(-ENOENT, plugin->open(store, "f", &file, &error));
	RESULT(0, plugin->create(store, "f", 100, true, &first, &error));
	RESULT(-ENOENT, plugin->open(store, "f", &file, &error));
	RESULT(-EINVAL, plugin->commit(store, "f", &first, 99, &error));
	RESULT(0, plugin->commit(store, "f", &first, 100, &error));
	first.size = 0; /* a client may say anything */
	RESULT(0, plugin->commit(store, "f", &first, 0, &error));
	CHECK(first.size == 100, "the size that is committed");
	RESULT(0, plugin->open(store, "f", &file, &error));
	CHECK(file.id == first.id && file.size == 100 && file.is_sparse && !file.is_writable,
	      "the first");
	RESULT(0, plugin->create(store, "f", 0, false, &second, &error));
	CHECK(second.id != first.id && second.is_writable, "the second");
	RESULT(0, plugin->commit(store, "f", &second, 7, &error));
	RESULT(0, plugin->stat(store, "f", &entry, &error));
	CHECK(entry.id == second.id && entry.size == 7 && !entry.is_sparse, "stat");
	RESULT(0, plugin->remove(store, "f", &error));
	RESULT(-ENOENT, plugin->remove(store, "f", &error));
	RESULT(-ENOENT, plugin->stat(store, "f", &entry, &error));
	RESULT(-EFBIG, plugin->create(store, "f", UINT64_MAX, false, &file, &error));
}

static void a_repeated_commit_succeeds(struct rados_store *store)
{
	struct rados_file first = put_file(store, "again", 1), second;

	RESULT(0, plugin->commit(store, "again", &first, 0, &error));
	second = put_file(store, "again", 1);
	RESULT(0, plugin->commit(store, "again", &first, 0, &error)); /* it was, and was replaced */
	RESULT(0, plugin->remove(store, "again", &error));
	RESULT(0, plugin->commit(store, "again", &second, 0, &error));
	RESULT(-ENOENT, plugin->remove(store, "again", &error));
}

static void an_abandoned_file_is_gone(struct rados_store *store)
{
	struct rados_file file, committed;

	RESULT(0, plugin->create(store, "gone", 10, false, &file, &error));
	RESULT(0, plugin->abandon(store, "gone", &file, &error));
	RESULT(0, plugin->abandon(store, "gone", &file, &error));
	RESULT(-ESTALE, plugin->commit(store, "gone", &file, 0, &error));
	RESULT(-ESTALE, plugin->open_token(store, "gone", file.id, &file, &error));
	committed = put_file(store, "gone", 1);
	RESULT(-ESTALE, plugin->abandon(store, "gone", &committed, &error));
	RESULT(0, plugin->open(store, "gone", &file, &error));
	RESULT(0, plugin->remove(store, "gone", &error));
}

/* Another name of that shard. */
static const char *same_shard(const char *name)
{
	static char other[20];
	unsigned i = 0;

	do
		(void)snprintf(other, sizeof(other), "other%u", i++);
	while (entry_shard(other) != entry_shard(name));
	return other;
}

static void a_token_opens_its_name_alone(struct rados_store *store)
{
	struct rados_file file, other;

	RESULT(0, plugin->create(store, "token", 10, true, &file, &error));
	RESULT(0, plugin->open_token(store, "token", file.id, &other, &error));
	CHECK(other.id == file.id && other.size == 10 && other.is_sparse && other.is_writable,
	      "the same");
	RESULT(-ESTALE, plugin->open_token(store, "token2", file.id, &other, &error));
	RESULT(-ESTALE, plugin->open_token(store, "token", file.id + 1, &other, &error));
	RESULT(-ESTALE, plugin->open_token(store, "token", file.id + 64, &other, &error));
	RESULT(-ESTALE, plugin->open_token(store, "token", 0, &other, &error));
	RESULT(-ESTALE, plugin->abandon(store, same_shard("token"), &file, &error));
	RESULT(0, plugin->commit(store, "token", &file, 0, &error));
	RESULT(-ESTALE, plugin->open_token(store, "token", file.id, &other, &error));
	RESULT(0, plugin->remove(store, "token", &error));
}

struct seen {
	unsigned n, sum;
};

static int see(const char *name, const struct rados_entry *entry, void *arg)
{
	struct seen *seen = arg;

	CHECK(entry->size == 64 << 10, "%s: %" PRIu64, name, entry->size);
	seen->n++;
	seen->sum += (unsigned)atoi(name + strcspn(name, "0123456789"));
	return 0;
}

static struct seen list(struct rados_store *store, const char *prefix)
{
	struct seen seen = { .n = 0 };
	char next[RADOS_NAME_MAX + 8] = "";

	do
		RESULT(0, plugin->list(store, prefix, next, see, &seen, &error));
	while (next[0] && !why[0]);
	return seen;
}

#define N_MANY 800u

static void a_list_has_each_file_once(struct rados_store *store)
{
	char name[RADOS_NAME_MAX + 1], next[RADOS_NAME_MAX + 8];
	struct seen seen;
	struct rados_file file;

	for (unsigned i = 0; i < N_MANY && !why[0]; i++) {
		(void)snprintf(name, sizeof(name), "many/%u", i);
		RESULT(0, plugin->create(store, name, 64 << 10, false, &file, &error));
		RESULT(0, plugin->commit(store, name, &file, 0, &error));
	}
	RESULT(0, plugin->create(store, "many/unseen", 1, false, &file, &error));
	seen = list(store, "many/");
	CHECK(seen.n == N_MANY && seen.sum == N_MANY * (N_MANY - 1) / 2, "%u files", seen.n);
	seen = list(store, "many/7");
	CHECK(seen.n == 111, "%u files that begin with 7", seen.n);
	seen = list(store, "none");
	CHECK(seen.n == 0, "%u files", seen.n);
	RESULT(-EINVAL, plugin->list(store, "", strcpy(next, "40name"), see, &seen, &error));
	RESULT(-EINVAL, plugin->list(store, "", strcpy(next, "x"), see, &seen, &error));
	RESULT(0, plugin->abandon(store, "many/unseen", &file, &error));
}

static void hostile_names_are_names(struct rados_store *store)
{
	char longest[RADOS_NAME_MAX + 1];
	const char *names[] = { "%s%n1", "'; rm -rf 1", "n1",	"p0000000000000001",
				"../1",	 "\xc3\xa4 1",	longest };

	memset(longest, 'L', RADOS_NAME_MAX);
	longest[RADOS_NAME_MAX] = 0;
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct rados_file made = put_file(store, names[i], 1), file = { .id = 0 };

		RESULT(0, plugin->open(store, names[i], &file, &error));
		CHECK(file.id == made.id, "%s", names[i]);
		CHECK(list(store, names[i]).n == (strcmp(names[i], "../1") ? 1 : 0), "%s",
		      names[i]);
		RESULT(0, plugin->remove(store, names[i], &error));
	}
}

/* A stranger's keys: the others are served, and a damaged name says so. */
static void damage_is_skipped(struct rados_store *store)
{
	static const char long_key[2000] = { 'n', 'x' };
	char object[ENTRY_OBJECT_BYTES];
	const char *keys[] = {
		"nbad", "nbad\0zero", "n", "t12", "p0000000000000001", long_key, "t"
	};
	const size_t key_bytes[] = { 4, 9, 1, 3, 17, sizeof(long_key), 1 };
	const char *values[] = { "x", "", "y", "z", "0123456789abcdef0123456789abcdef", "v", "" };
	const size_t value_bytes[] = { 1, 0, 1, 1, 32, 1, 0 };
	struct rados_file file;
	rados_write_op_t op = rados_create_write_op();

	entry_index_object(entry_shard("bad"), object);
	rados_write_op_omap_set2(op, keys, values, key_bytes, value_bytes, 7);
	CHECK(rados_write_op_operate2(op, store->conn.io, object, NULL, 0) == 0, "set");
	rados_release_write_op(op);
	RESULT(-EUCLEAN, plugin->open(store, "bad", &file, &error));
	CHECK(strstr(error.text, object) && strstr(error.text, "nbad"), "%s", error.text);
	CHECK(list(store, "many/").n == N_MANY && list(store, "bad").n == 0, "list");
	sweep(store);
	op = rados_create_write_op();
	rados_write_op_omap_rm_keys2(op, keys, key_bytes, 7);
	CHECK(rados_write_op_operate2(op, store->conn.io, object, NULL, 0) == 0, "rm");
	rados_release_write_op(op);
	for (unsigned i = 0; i < N_MANY && !why[0]; i++) {
		char name[40];

		(void)snprintf(name, sizeof(name), "many/%u", i);
		RESULT(0, plugin->remove(store, name, &error));
	}
}

/* ---- races ---- */

static struct rados_store *racing_store;
static struct rados_file racing_file;

static void commit_racing(void)
{
	racing_file = put_file(racing_store, "between", 1);
}

static void abandon_racing(void)
{
	RESULT(0, plugin->abandon(racing_store, "between", &racing_file, &error));
}

/* With a file to replace, and without. */
static void the_last_commit_wins(struct rados_store *store)
{
	struct rados_file mine, file;

	racing_store = store;
	for (unsigned i = 0; i < 2; i++) {
		RESULT(0, plugin->create(store, "between", 10, false, &mine, &error));
		between = commit_racing;
		RESULT(0, plugin->commit(store, "between", &mine, 0, &error));
		RESULT(0, plugin->open(store, "between", &file, &error));
		CHECK(!between && file.id == mine.id, "it has replaced the other");
	}
	RESULT(0, plugin->create(store, "between", 10, false, &racing_file, &error));
	between = abandon_racing;
	RESULT(-ESTALE, plugin->commit(store, "between", &racing_file, 0, &error));
	between = commit_racing;
	RESULT(0, plugin->remove(store, "between", &error)); /* the other's */
	RESULT(-ENOENT, plugin->open(store, "between", &file, &error));
}

#define ROUNDS 30
#define N_WRITERS 6
#define RACE_OBJECTS 2

static _Atomic unsigned n_wrong, n_reads;
static atomic_bool is_over;

static void *writer(void *arg)
{
	struct rados_store *store = arg;
	struct error own;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct rados_file file;
		char object[ENTRY_OBJECT_BYTES];
		int r = plugin->create(store, "race", RACE_OBJECTS * (64 << 10), false, &file,
				       &own);

		for (unsigned j = 0; !r && j < RACE_OBJECTS; j++) {
			entry_data_object(file.id, j, object);
			r = rados_write_full(store->conn.io, object, (const char *)&file.id,
					     sizeof(file.id));
		}
		if (!r)
			r = plugin->commit(store, "race", &file, 0, &own);
		n_wrong += r != 0;
	}
	return NULL;
}

static void *reader(void *arg)
{
	struct rados_store *store = arg;
	struct rados_file file;
	struct error own;

	while (!is_over) {
		int r = plugin->open(store, "race", &file, &own);

		for (unsigned i = 0; !r && i < RACE_OBJECTS; i++) {
			char object[ENTRY_OBJECT_BYTES];
			uint64_t id = 0;

			entry_data_object(file.id, i, object);
			n_wrong += rados_read(store->conn.io, object, (char *)&id, sizeof(id), 0) !=
					   sizeof(id) ||
				   id != file.id;
		}
		n_wrong += r && r != -ENOENT;
		n_reads += !r;
	}
	return NULL;
}

static void racing_writers_leave_one_version(struct rados_store *store)
{
	struct rados_store *other = store_new(0);
	pthread_t threads[N_WRITERS + 2];
	struct rados_file file;

	for (unsigned i = 0; i < N_WRITERS + 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, i < N_WRITERS ? writer : reader,
				      i % 2 ? store : other),
		      "thread %u", i);
	for (unsigned i = 0; i < N_WRITERS + 2; i++) {
		is_over = i >= N_WRITERS;
		(void)pthread_join(threads[i], NULL);
	}
	CHECK(n_reads && !n_wrong, "%u wrong, %u reads", n_wrong, n_reads);
	sweep(other); /* which has no grace period */
	RESULT(0, plugin->open(store, "race", &file, &error));
	CHECK(count_data(store, 0) == RACE_OBJECTS && count_data(store, file.id) == RACE_OBJECTS,
	      "%u objects", count_data(store, 0));
	RESULT(0, plugin->remove(store, "race", &error));
	sweep(other);
	CHECK(count_data(store, 0) == 0, "%u objects", count_data(store, 0));
	store_free(other);
}

/* ---- the sweep ---- */

static void a_replaced_file_waits(struct rados_store *store)
{
	struct rados_file old = put_file(store, "kept", 3), new = put_file(store, "kept", 2);
	struct rados_store *other = store_new(0);

	sweep(store);
	CHECK(count_data(store, old.id) == 3, "within trash_after");
	sweep(other);
	CHECK(count_data(store, old.id) == 0 && count_data(store, new.id) == 2, "behind it");
	RESULT(0, plugin->remove(store, "kept", &error));
	sweep(other);
	store_free(other);
}

static void an_abandoned_file_is_swept_at_once(struct rados_store *store)
{
	struct rados_store *other = store_new(0);
	struct rados_file file = { .id = 0 };

	RESULT(0, plugin->create(store, "unsized", 0, false, &file, &error));
	for (unsigned i = 0; i < 200; i += 50)
		put_data(store, &file, i);
	CHECK(count_data(store, file.id) == 4, "written");
	RESULT(0, plugin->abandon(store, "unsized", &file, &error));
	sweep(store);
	CHECK(count_data(store, file.id) == 0, "%u objects", count_data(store, file.id));
	put_data(store, &file, 1); /* by a host that does not know it yet */
	sweep(store);
	CHECK(count_data(store, file.id) == 1, "within trash_after");
	sweep(other);
	CHECK(count_data(store, file.id) == 0, "behind it");
	store_free(other);
}

static void the_lock_keeps_other_sweepers_off(struct rados_store *store)
{
	struct rados_store *other = store_new(0);
	struct rados_file file = put_file(store, "locked", 1);

	CHECK(rados_lock_exclusive(store->conn.io, "sweeper", "sweeper", "test", "", NULL, 0) == 0,
	      "lock");
	RESULT(0, plugin->remove(store, "locked", &error));
	sweep(other);
	CHECK(count_data(store, file.id) == 1, "it has no lock");
	CHECK(rados_unlock(store->conn.io, "sweeper", "sweeper", "test") == 0, "unlock");
	sweep(other);
	CHECK(count_data(store, file.id) == 0, "it has the lock");
	store_free(other);
}

/* Sets the time of what is being written. */
static void set_time(struct rados_store *store, const char *name, const struct rados_file *file,
		     uint64_t time_sec)
{
	struct entry entry = { .file = { .id = file->id,
					 .size = file->size,
					 .object_bytes = file->object_bytes,
					 .time_sec = time_sec } };
	uint8_t value[ENTRY_VALUE_BYTES];
	char key[ENTRY_KEY_BYTES], object[ENTRY_OBJECT_BYTES];
	const char *keys = key, *values = (const char *)value;
	size_t key_bytes, value_bytes;
	rados_write_op_t op = rados_create_write_op();

	(void)stpncpy(entry.name, name, RADOS_NAME_MAX);
	entry_key(ENTRY_WRITTEN, NULL, file->id, key);
	key_bytes = strlen(key);
	value_bytes = entry_encode(&entry, value);
	entry_index_object(entry_shard(name), object);
	rados_write_op_omap_set2(op, &keys, &values, &key_bytes, &value_bytes, 1);
	CHECK(rados_write_op_operate2(op, store->conn.io, object, NULL, 0) == 0, "set");
	rados_release_write_op(op);
}

static void only_held_files_outlive_trash_after(struct rados_store *store)
{
	struct rados_file held, dead, ahead, file;
	uint64_t now = (uint64_t)time(NULL);

	RESULT(0, plugin->create(store, "held", 64 << 10, false, &held, &error));
	RESULT(0, plugin->create(store, "dead", 64 << 10, false, &dead, &error));
	RESULT(0, plugin->create(store, "ahead", 64 << 10, false, &ahead, &error));
	put_data(store, &held, 0);
	put_data(store, &dead, 0);
	set_time(store, "held", &held, now - 3600);
	set_time(store, "dead", &dead, now - 3600);
	set_time(store, "ahead", &ahead, now + 7200);
	CHECK(plugin->hold(store, &held) == 0 && plugin->hold(store, &held) == 0, "hold");
	plugin->release(store, &held);
	sweep_round(store);
	sweep_round(store);
	CHECK(count_data(store, dead.id) == 1, "other daemons renew theirs first");
	sweep_round(store);
	plugin->release(store, &held);
	CHECK(count_data(store, held.id) == 1 && count_data(store, dead.id) == 0, "data");
	RESULT(0, plugin->open_token(store, "held", held.id, &file, &error));
	RESULT(0, plugin->open_token(store, "ahead", ahead.id, &file, &error));
	RESULT(-ESTALE, plugin->commit(store, "dead", &dead, 0, &error));
	RESULT(0, plugin->abandon(store, "held", &held, &error));
	RESULT(0, plugin->abandon(store, "ahead", &ahead, &error));
	sweep(store);
	CHECK(count_data(store, 0) == 0, "%u objects", count_data(store, 0));
}

static void behind_an_outage_others_renew_first(struct rados_store *store)
{
	struct rados_file theirs, file;
	const uint64_t long_ago = (uint64_t)time(NULL) - 3700;

	RESULT(0, plugin->create(store, "theirs", 10, true, &theirs, &error));
	for (unsigned i = 0; i < 3; i++)
		sweep_round(store);
	set_time(store, "theirs", &theirs, long_ago);
	sweep_behind(store, 3700); /* the store was offline */
	RESULT(0, plugin->open_token(store, "theirs", theirs.id, &file, &error));
	sweep_round(store);
	RESULT(0, plugin->open_token(store, "theirs", theirs.id, &file, &error));
	injected = -EIO;
	sweep_round(store); /* fails */
	sweep_round(store);
	sweep_round(store);
	RESULT(0, plugin->open_token(store, "theirs", theirs.id, &file, &error));
	sweep_round(store);
	RESULT(-ESTALE, plugin->open_token(store, "theirs", theirs.id, &file, &error));
	sweep(store);
}

/* Dead files are discarded in turns, and no held file waits for all of them. */
static void many_dead_files_delay_no_renewal(struct rados_store *store)
{
	struct rados_file held, file;
	char name[20];
	uint64_t start = clock_nsec();
	unsigned n_turns = 1;

	RESULT(0, plugin->create(store, "later9", 10, true, &held, &error));
	CHECK(plugin->hold(store, &held) == 0, "hold");
	for (unsigned i = 0; i < 3; i++)
		(void)sweep_run(store, &store->conn, start += 1000 * NSEC_PER_SEC);
	for (unsigned i = 0; i < 600 && !why[0]; i++) {
		(void)snprintf(name, sizeof(name), "d%u", i);
		RESULT(0, plugin->create(store, name, 10, true, &file, &error));
		set_time(store, name, &file, 0);
	}
	set_time(store, "later9", &held, (uint64_t)time(NULL) - 3601);
	start += 1000 * NSEC_PER_SEC;
	while (sweep_run(store, &store->conn, start) <= start)
		n_turns++;
	CHECK(n_turns == 3, "%u turns", n_turns);
	RESULT(-ESTALE, plugin->open_token(store, name, file.id, &file, &error));
	RESULT(0, plugin->open_token(store, "later9", held.id, &file, &error));
	plugin->release(store, &held);
	RESULT(0, plugin->abandon(store, "later9", &held, &error));
	sweep(store);
}

static void a_held_file_that_another_ends_is_not_writable(struct rados_store *store)
{
	struct rados_file mine, theirs;

	RESULT(0, plugin->create(store, "ended", 10, true, &mine, &error));
	RESULT(0, plugin->open_token(store, "ended", mine.id, &theirs, &error));
	CHECK(plugin->hold(store, &mine) == 0, "hold");
	sweep_round(store);
	CHECK(mine.is_writable, "it is being written");
	RESULT(0, plugin->commit(store, "ended", &theirs, 0, &error));
	CHECK(!mine.is_writable, "this daemon knows that it is committed");
	mine.is_writable = true;			  /* that of another host */
	CHECK(plugin->hold(store, &theirs) == 0, "hold"); /* looked up before the next round */
	sweep_round(store);
	CHECK(!mine.is_writable && !theirs.is_writable, "it is committed");
	plugin->release(store, &theirs);
	plugin->release(store, &mine);
	RESULT(0, plugin->remove(store, "ended", &error));
	sweep(store);
}

/* More than is removed in a turn: the place is kept, and held files are renewed meanwhile. */
static void a_turn_ends_and_goes_on(struct rados_store *store)
{
	struct rados_file file, held;
	uint64_t start = clock_nsec(), longest = 0, next;
	unsigned n_turns = 0;

	RESULT(0, plugin->create(store, "large", UINT64_C(20000) << 16, false, &file, &error));
	put_data(store, &file, 19999);
	RESULT(0, plugin->abandon(store, "large", &file, &error));
	RESULT(0, plugin->create(store, "later9", 64 << 10, false, &held,
				 &error)); /* its shard comes later */
	CHECK(entry_shard("later9") > entry_shard("large") && plugin->hold(store, &held) == 0,
	      "hold");
	do {
		if (n_turns == 1) {
			set_time(store, "later9", &held, (uint64_t)time(NULL) - 3601);
			start += UINT64_C(1000000000000);
		}
		uint64_t turn = clock_nsec();

		next = sweep_run(store, &store->conn, start);
		turn = clock_nsec() - turn;
		longest = turn > longest ? turn : longest;
		n_turns++;
	} while (next <= start);
	RESULT(0, plugin->open_token(store, "later9", held.id, &held, &error));
	plugin->release(store, &held);
	CHECK(count_data(store, file.id) == 0 && n_turns > 2, "%u turns", n_turns);
	(void)printf("# 20000 objects in %u turns, the longest of %.1f s\n", n_turns,
		     (double)longest / 1e9);
}

static const struct {
	const char *name;
	void (*run)(struct rados_store *store);
} tests[] = {
#define T(name)             \
	{                   \
#name, name \
	}
	T(a_commit_replaces_the_file),
	T(a_repeated_commit_succeeds),
	T(an_abandoned_file_is_gone),
	T(a_token_opens_its_name_alone),
	T(a_list_has_each_file_once),
	T(hostile_names_are_names),
	T(damage_is_skipped),
	T(the_last_commit_wins),
	T(racing_writers_leave_one_version),
	T(a_replaced_file_waits),
	T(an_abandoned_file_is_swept_at_once),
	T(the_lock_keeps_other_sweepers_off),
	T(only_held_files_outlive_trash_after),
	T(behind_an_outage_others_renew_first),
	T(many_dead_files_delay_no_renewal),
	T(a_held_file_that_another_ends_is_not_writable),
	T(a_turn_ends_and_goes_on),
};

int main(void)
{
	struct rados_store *store;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)snprintf(nspace, sizeof(nspace), "names-%d", (int)getpid());
	store = store_new(3600);
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {

		why[0] = 0;
		tests[i].run(store);
		(void)(why[0] ? printf("not ok %s: %s\n", tests[i].name, why)
			      : printf("ok %s\n", tests[i].name));
		n_failed += why[0] != 0;
	}
	store_free(store);
	return n_failed != 0;
}
