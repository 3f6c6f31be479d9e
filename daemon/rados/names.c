/*
 * Files by name, and the table in which the daemon finds the plug-in's functions.  Each call reads what the index has,
 * and changes it in one op of one object, on the condition that it still is so; else it looks again.
 *
 * A file's bytes have an id of their own, so a reader's never change; t<id> keeps them for trash_after.
 */
#include "daemon/rados/index.h"
#include "daemon/rados/store.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#define TRIES 64 /* a guess: each lost one means that another host has changed the name's entries */

static void index_close(struct index *index)
{
	if (index->conn)
		conn_put(index->conn);
}

static int index_open(struct rados_store *store, const char *name, struct index *ret_index,
		      struct error *error)
{
	*ret_index = (struct index){ .store = store, .shard = entry_shard(name) };
	return conn_take(store, &ret_index->conn, error);
}

static struct rados_file entry_target(const struct rados_entry *entry, bool is_writable)
{
	return (struct rados_file){
		.id = entry->id,
		.size = entry->size,
		.object_bytes = entry->object_bytes,
		.is_sparse = entry->is_sparse,
		.is_writable = is_writable,
	};
}

struct wanted {
	const char *name;
	struct rados_file *file;   /* NULL: that of the name */
	struct rados_entry *entry; /* of stat */
	uint64_t size;		   /* of commit */
	const struct entry *made;  /* of create, which looks at nothing */
};

/* Does with the entries of its name and its file what a call is for.  Returns 0, or an error. */
typedef int looked_fn(const struct index *index, const struct index_look *look,
		      const struct wanted *wanted, struct error *error);

/* Looks, and calls looked_fn; again if another host came between, or the cluster has fenced this daemon. */
static int look_and(looked_fn *run, struct rados_store *store, const struct wanted *wanted,
		    struct error *error)
{
	int r = -ECANCELED;

	for (unsigned i = 0; i < TRIES && (r == -ECANCELED || r == -EHOSTDOWN); i++) {
		_cleanup_(index_close) struct index index;
		struct index_look look;

		r = index_open(store, wanted->name, &index, error);
		if (r < 0)
			return r;
		r = wanted->made ? 0
				 : index_look(&index, wanted->name,
					      wanted->file ? wanted->file->id : 0, &look, error);
		if (!r)
			r = run(&index, &look, wanted, error);
	}
	return r;
}

/* Whether the name has a file. */
static int file_check(const struct index *index, const struct index_look *look,
		      const struct wanted *wanted, struct error *error)
{
	if (look->file.file.id)
		return 0;
	return error_set(error, -ENOENT, "store %s: %s", store_settings(index->store)->store,
			 wanted->name);
}

/* Whether the file is being written. */
static int written_check(const struct index *index, const struct index_look *look,
			 const struct wanted *wanted, struct error *error)
{
	if (look->written.file.id && !strcmp(look->written.name, wanted->name))
		return 0;
	return error_set(error, -ESTALE,
			 "store %s: %s: no file %016" PRIx64
			 " is being written: it was committed, abandoned, or not "
			 "renewed for trash_after; create it again",
			 store_settings(index->store)->store, wanted->name, wanted->file->id);
}

/* ---- open, stat ---- */

static int looked_stat(const struct index *index, const struct index_look *look,
		       const struct wanted *wanted, struct error *error)
{
	*wanted->entry = look->file.file;
	return file_check(index, look, wanted, error);
}

static int names_stat(struct rados_store *store, const char *name, struct rados_entry *ret_entry,
		      struct error *error)
{
	return look_and(looked_stat, store, &(struct wanted){ .name = name, .entry = ret_entry },
			error);
}

static int names_open(struct rados_store *store, const char *name, struct rados_file *ret_file,
		      struct error *error)
{
	struct rados_entry entry;
	int r = names_stat(store, name, &entry, error);

	if (!r)
		*ret_file = entry_target(&entry, false);
	return r;
}

/* ---- create, open_token ---- */

static int size_check(const struct rados_store *store, const char *name, uint64_t size,
		      uint32_t object_bytes, struct error *error)
{
	if (size <= rados_size_max(object_bytes))
		return 0;
	return error_set_plain(error, -EFBIG,
			       "store %s: %s: %" PRIu64 " bytes: at most %" PRIu64
			       " with objects of %u bytes",
			       store_settings(store)->store, name, size,
			       rados_size_max(object_bytes), object_bytes);
}

static int looked_create(const struct index *index, const struct index_look *look,
			 const struct wanted *wanted, struct error *error)
{
	int r = index_change(index, &(struct index_change){ NULL, wanted->made }, 1, error);

	(void)look;
	/* Nobody else has this id: an earlier try was carried out. */
	return r == -ECANCELED ? 0 : r;
}

static int names_create(struct rados_store *store, const char *name, uint64_t size, bool is_sparse,
			struct rados_file *ret_file, struct error *error)
{
	struct entry entry = {
		.kind = ENTRY_WRITTEN,
		.file = { .size = size,
			  .time_sec = entry_now(),
			  .object_bytes = store_settings(store)->keys.object_bytes,
			  .is_sparse = is_sparse },
		.is_unsized = !size,
	};
	int r = size_check(store, name, size, entry.file.object_bytes, error);

	if (r < 0)
		return r;
	if (getrandom(&entry.file.id, sizeof(entry.file.id), 0) != sizeof(entry.file.id))
		return error_set(error, -errno, "%s: getrandom", name);
	entry.file.id = (entry.file.id | ENTRY_N_SHARDS) / ENTRY_N_SHARDS * ENTRY_N_SHARDS +
			entry_shard(name);
	(void)stpncpy(entry.name, name, RADOS_NAME_MAX);

	r = look_and(looked_create, store, &(struct wanted){ .name = name, .made = &entry }, error);
	if (!r)
		*ret_file = entry_target(&entry.file, true);
	return r;
}

static int looked_token(const struct index *index, const struct index_look *look,
			const struct wanted *wanted, struct error *error)
{
	int r = written_check(index, look, wanted, error);

	if (!r)
		*wanted->file = entry_target(&look->written.file, true);
	return r;
}

static int names_open_token(struct rados_store *store, const char *name, uint64_t id,
			    struct rados_file *ret_file, struct error *error)
{
	ret_file->id = id;
	return look_and(looked_token, store, &(struct wanted){ .name = name, .file = ret_file },
			error);
}

/* ---- commit, abandon, remove ---- */

/* Replaces what the look has found. */
static int commit_apply(const struct index *index, const struct index_look *look,
			struct entry *entry, struct error *error)
{
	const bool is_new = !look->file.file.id;
	struct entry trash = look->file;
	const struct index_change changes[] = {
		{ &look->written, NULL },
		{ is_new ? NULL : &look->file, entry },
		{ NULL, &trash },
	};

	entry->kind = ENTRY_FILE;
	trash.kind = ENTRY_TRASH;
	trash.file.time_sec = entry->file.time_sec = entry_now();
	return index_change(index, changes, is_new ? 2 : 3, error);
}

static int looked_commit(const struct index *index, const struct index_look *look,
			 const struct wanted *wanted, struct error *error)
{
	struct entry entry = look->written;
	int r;

	/* It was committed, and perhaps replaced or removed since. */
	if (look->file.file.id == wanted->file->id)
		entry = look->file;
	else if (look->trash.file.id == wanted->file->id && !look->trash.is_abandoned)
		entry = look->trash;
	else if ((r = written_check(index, look, wanted, error)) < 0)
		return r;
	if (entry.kind == ENTRY_WRITTEN) {
		if (entry.is_unsized)
			entry.file.size = wanted->size;
		else if (wanted->size && wanted->size != entry.file.size)
			return error_set(error, -EINVAL,
					 "store %s: %s: commit of %" PRIu64
					 " bytes: created with %" PRIu64,
					 store_settings(index->store)->store, wanted->name,
					 wanted->size, entry.file.size);
		r = size_check(index->store, wanted->name, entry.file.size, entry.file.object_bytes,
			       error);
		if (r == 0)
			r = commit_apply(index, look, &entry, error);
		if (r < 0)
			return r;
		sweep_ended(index->store, entry.file.id);
	}
	wanted->file->size = entry.file.size;
	return 0;
}

static int names_commit(struct rados_store *store, const char *name, struct rados_file *file,
			uint64_t size, struct error *error)
{
	return look_and(looked_commit, store,
			&(struct wanted){ .name = name, .file = file, .size = size }, error);
}

static int looked_abandon(const struct index *index, const struct index_look *look,
			  const struct wanted *wanted, struct error *error)
{
	int r;

	if (!look->written.file.id && look->file.file.id != wanted->file->id)
		return 0; /* it is abandoned already */
	r = written_check(index, look, wanted, error);
	if (r == 0)
		r = index_discard(index, &look->written, error);
	if (r == 0)
		sweep_ended(index->store, wanted->file->id);
	return r;
}

static int names_abandon(struct rados_store *store, const char *name, struct rados_file *file,
			 struct error *error)
{
	return look_and(looked_abandon, store, &(struct wanted){ .name = name, .file = file },
			error);
}

static int looked_remove(const struct index *index, const struct index_look *look,
			 const struct wanted *wanted, struct error *error)
{
	int r = file_check(index, look, wanted, error);

	return r < 0 ? r : index_discard(index, &look->file, error);
}

static int names_remove(struct rados_store *store, const char *name, struct error *error)
{
	return look_and(looked_remove, store, &(struct wanted){ .name = name }, error);
}

/* ---- list ---- */

struct listing {
	int (*each)(const char *name, const struct rados_entry *entry, void *arg);
	void *arg;
	unsigned n_files;
};

static int list_each(const struct index *index, const struct entry *entry, void *arg)
{
	struct listing *listing = arg;
	struct error unused;
	int r;

	(void)index;
	if (rados_name_check(entry->name, &unused) < 0)
		return 0; /* no host that checks has made it, and no client can name it */
	r = listing->each(entry->name, &entry->file, listing->arg);
	return r ? r : ++listing->n_files == RADOS_LIST_MAX;
}

/* `next` is two hex digits of the shard, and the last key there. */
static int names_list(struct rados_store *store, const char *prefix, char next[RADOS_NAME_MAX + 8],
		      int (*each)(const char *name, const struct rados_entry *entry, void *arg),
		      void *arg, struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct listing listing = { .each = each, .arg = arg };
	char after[ENTRY_KEY_BYTES], start[ENTRY_KEY_BYTES];
	unsigned shard = 0;
	int n = 0, r;

	if (next[0] && (sscanf(next, "%2x%n", &shard, &n) != 1 || shard >= ENTRY_N_SHARDS))
		return error_set(error, -EINVAL, "store %s: list: next is not of an earlier list",
				 store_settings(store)->store);
	(void)snprintf(after, sizeof(after), "%s", next + n);
	entry_key(ENTRY_FILE, prefix, 0, start);
	r = index_open(store, prefix, &index, error);
	for (index.shard = shard; !r && index.shard < ENTRY_N_SHARDS; index.shard += !r) {
		r = index_each(&index, start, after, list_each, &listing, error);
		if (!r)
			after[0] = 0;
	}
	if (r < 0)
		return r;
	next[0] = 0;
	if (r)
		(void)snprintf(next, RADOS_NAME_MAX + 8, "%02x%s", index.shard, after);
	return 0;
}

extern const struct rados_plugin dsaiod_rados_plugin_1;
const struct rados_plugin dsaiod_rados_plugin_1 = {
	.engine = &engine_rados,
	.store_open = keeper_open,
	.store_close = keeper_close,
	.store_state = keeper_state,
	.open = names_open,
	.create = names_create,
	.open_token = names_open_token,
	.commit = names_commit,
	.abandon = names_abandon,
	.remove = names_remove,
	.stat = names_stat,
	.list = names_list,
	.hold = sweep_hold,
	.release = sweep_release,
};
