/*
 * Files by name: each call reads what the index has, and changes it in one op of one object, on the condition that it
 * still is so.  An op that loses that race, or is not answered, is judged by what the index has then.
 *
 * A file's bytes have an id of their own, so a reader's never change; t<id> keeps them for trash_after, and an entry
 * there with time 0 was never committed.
 */
#include "daemon/rados/names.h"

#include "daemon/rados/index.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define REMOVE_TRIES 8 /* a guess: each lost one means that another host has committed */

static void index_close(struct index *index)
{
	if (index->conn)
		conn_put(index->conn);
}

static int index_open(struct rados_store *store, unsigned shard, struct index *ret_index,
		      struct error *error)
{
	struct rados_conn *conn;
	int r = conn_take(store, &conn, error);

	if (!r)
		index_init(ret_index, store, conn, shard);
	return r;
}

static struct rados_file entry_target(const struct entry *entry, bool is_writable)
{
	return (struct rados_file){
		.id = entry->file.id,
		.size = entry->file.size,
		.object_bytes = entry->file.object_bytes,
		.is_sparse = entry->file.is_sparse,
		.is_writable = is_writable,
	};
}

static uint64_t now_sec(void)
{
	return (uint64_t)time(NULL);
}

/* ---- open, stat ---- */

static int file_look(struct rados_store *store, const char *name, struct entry *ret_entry,
		     struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct index_look look;
	int r = index_open(store, entry_shard(name), &index, error);

	if (!r)
		r = index_look(&index, name, 0, &look, error);
	if (r < 0)
		return r;
	if (!look.file.file.id)
		return index_failed(&index, name, "no such file", -ENOENT, error);
	*ret_entry = look.file;
	return 0;
}

int names_open(struct rados_store *store, const char *name, struct rados_file *ret_file,
	       struct error *error)
{
	struct entry entry;
	int r = file_look(store, name, &entry, error);

	if (!r)
		*ret_file = entry_target(&entry, false);
	return r;
}

int names_stat(struct rados_store *store, const char *name, struct rados_entry *ret_entry,
	       struct error *error)
{
	struct entry entry;
	int r = file_look(store, name, &entry, error);

	if (!r)
		*ret_entry = entry.file;
	return r;
}

/* ---- create, open_token ---- */

static int size_check(const struct rados_store *store, const char *name, uint64_t size,
		      uint32_t object_bytes, struct error *error)
{
	if (size <= entry_size_max(object_bytes))
		return 0;
	return error_set(error, -EFBIG,
			 "store %s: %s: %" PRIu64 " bytes: at most %" PRIu64
			 " with objects of %u bytes",
			 store_settings(store)->store, name, size, entry_size_max(object_bytes),
			 object_bytes);
}

int names_create(struct rados_store *store, const char *name, uint64_t size, bool is_sparse,
		 struct rados_file *ret_file, struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct index_change change;
	struct entry entry = {
		.file = { .size = size, .time_sec = now_sec(), .is_sparse = is_sparse },
		.is_unsized = !size,
	};
	unsigned shard = entry_shard(name);
	int r;

	entry.file.object_bytes = store_settings(store)->object_bytes;
	(void)stpncpy(entry.name, name, RADOS_NAME_MAX);
	if (getrandom(&entry.file.id, sizeof(entry.file.id), 0) != sizeof(entry.file.id))
		return error_set(error, -errno, "%s: getrandom", name);
	entry.file.id = (entry.file.id | ENTRY_N_SHARDS) / ENTRY_N_SHARDS * ENTRY_N_SHARDS + shard;

	r = size_check(store, name, size, entry.file.object_bytes, error);
	if (!r)
		r = index_open(store, shard, &index, error);
	if (r < 0)
		return r;
	change = index_change_new();
	rados_write_op_create(change.op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	index_if_absent(&change, ENTRY_WRITTEN, &entry);
	index_set(&change, ENTRY_WRITTEN, &entry);
	r = index_apply(&index, &change);
	if (r < 0)
		return index_failed(&index, name, "create", r, error);
	*ret_file = entry_target(&entry, true);
	return 0;
}

static int stale(const struct index *index, const char *name, uint64_t id, struct error *error)
{
	return error_set(error, -ESTALE,
			 "store %s: %s: no file %016" PRIx64
			 " is being written: it was committed, abandoned, or not "
			 "renewed for trash_after; create it again",
			 store_settings(index->store)->store, name, id);
}

int names_open_token(struct rados_store *store, const char *name, uint64_t id,
		     struct rados_file *ret_file, struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct index_look look = { .file.is_unsized = false };
	int r = index_open(store, entry_shard(name), &index, error);

	if (!r && entry_id_shard(id) == index.shard)
		r = index_look(&index, name, id, &look, error);
	if (r < 0)
		return r;
	if (!look.written.file.id || strcmp(look.written.name, name) != 0)
		return stale(&index, name, id, error);
	*ret_file = entry_target(&look.written, true);
	return 0;
}

/* ---- commit, abandon, remove ---- */

/* A file that was committed, and perhaps replaced or removed since. */
static bool was_committed(const struct index_look *look, uint64_t id)
{
	return look->file.file.id == id || (look->trash.file.id == id && look->trash.file.time_sec);
}

/* The bytes of an entry are to be removed, from that time on. */
static void set_trash(struct index_change *change, const struct entry *entry, uint64_t time_sec)
{
	struct entry trash = *entry;

	trash.file.time_sec = time_sec;
	index_set(change, ENTRY_TRASH, &trash);
}

static int commit_apply(const struct index *index, const struct index_look *look, uint64_t size)
{
	struct index_change change = index_change_new();
	struct entry entry = look->written;

	entry.file.size = size;
	entry.file.time_sec = now_sec();
	if (look->file.file.id) {
		index_if_same(&change, ENTRY_FILE, &look->file);
		set_trash(&change, &look->file, entry.file.time_sec);
	} else {
		index_if_absent(&change, ENTRY_FILE, &entry);
	}
	index_if_present(&change, ENTRY_WRITTEN, &entry);
	index_set(&change, ENTRY_FILE, &entry);
	index_drop(&change, ENTRY_WRITTEN, &entry);
	return index_apply(index, &change);
}

/* Looks whether a commit without success has happened. */
static int commit_judge(const struct index *index, const char *name, uint64_t id, int r,
			struct error *error)
{
	struct index_look look;
	struct error unused;

	if ((r == -ECANCELED || r == -ETIMEDOUT) && !index_look(index, name, id, &look, &unused)) {
		if (was_committed(&look, id))
			return 0;
		if (r == -ECANCELED && !look.written.file.id)
			return stale(index, name, id, error);
	}
	if (r == -ECANCELED)
		return index_failed(index, name, "another commit came between; commit again", r,
				    error);
	return index_failed(index, name, "commit", r, error);
}

int names_commit(struct rados_store *store, const char *name, const struct rados_file *file,
		 uint64_t size, struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct index_look look;
	const struct entry *written = &look.written;
	int r = index_open(store, entry_shard(name), &index, error);

	if (!r)
		r = index_look(&index, name, file->id, &look, error);
	if (r < 0)
		return r;
	if (was_committed(&look, file->id))
		return 0;
	if (!written->file.id || strcmp(written->name, name) != 0)
		return stale(&index, name, file->id, error);
	if (!written->is_unsized && size && size != written->file.size)
		return error_set(error, -EINVAL,
				 "store %s: %s: commit of %" PRIu64 " bytes: created with %" PRIu64,
				 store_settings(store)->store, name, size, written->file.size);
	if (!written->is_unsized)
		size = written->file.size;
	r = size_check(store, name, size, written->file.object_bytes, error);
	if (r < 0)
		return r;
	r = commit_apply(&index, &look, size);
	return r < 0 ? commit_judge(&index, name, file->id, r, error) : 0;
}

int names_abandon(struct rados_store *store, const char *name, const struct rados_file *file,
		  struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct index_change change;
	struct index_look look;
	struct entry entry = {
		.file = { .id = file->id, .size = file->size, .object_bytes = file->object_bytes },
		.is_unsized = !file->size,
	};
	int r = index_open(store, entry_shard(name), &index, error);

	if (r < 0)
		return r;
	(void)stpncpy(entry.name, name, RADOS_NAME_MAX);
	change = index_change_new();
	index_if_present(&change, ENTRY_WRITTEN, &entry);
	index_drop(&change, ENTRY_WRITTEN, &entry);
	set_trash(&change, &entry, 0);
	r = index_apply(&index, &change);
	if (r != -ECANCELED)
		return r < 0 ? index_failed(&index, name, "abandon", r, error) : 0;
	r = index_look(&index, name, file->id, &look, error);
	return !r && look.file.file.id == file->id ? stale(&index, name, file->id, error) : r;
}

int names_remove(struct rados_store *store, const char *name, struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct index_change change;
	struct index_look look;
	int r = index_open(store, entry_shard(name), &index, error);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < REMOVE_TRIES; i++) {
		r = index_look(&index, name, 0, &look, error);
		if (r < 0)
			return r;
		if (!look.file.file.id)
			return index_failed(&index, name, "no such file", -ENOENT, error);
		change = index_change_new();
		index_if_same(&change, ENTRY_FILE, &look.file);
		index_drop(&change, ENTRY_FILE, &look.file);
		set_trash(&change, &look.file, now_sec());
		r = index_apply(&index, &change);
		if (r != -ECANCELED)
			break;
	}
	return r < 0 ? index_failed(&index, name, "remove", r, error) : 0;
}

/* ---- list ---- */

struct listing {
	int (*each)(const char *name, const struct rados_entry *entry, void *arg);
	void *arg;
	unsigned n_files;
	int result; /* of each() */
};

static int list_entry_each(const struct index *index, const struct entry *entry, void *arg)
{
	struct listing *listing = arg;
	struct error unused;

	(void)index;
	if (rados_name_check(entry->name, &unused) < 0)
		return 0; /* no host that checks has made it, and no client can name it */
	listing->result = listing->each(entry->name, &entry->file, listing->arg);
	if (listing->result)
		return -ECANCELED;
	return ++listing->n_files == RADOS_LIST_MAX;
}

/* `next` is two hex digits of the shard, and the last name there.  Returns whether it is sound. */
static bool next_read(const char *next, unsigned *ret_shard, char ret_after[ENTRY_KEY_BYTES])
{
	size_t n = strnlen(next, RADOS_NAME_MAX + 8);
	unsigned shard;

	*ret_shard = 0;
	ret_after[0] = 0;
	if (!n)
		return true;
	if (n < 2 || n > 2 + RADOS_NAME_MAX ||
	    sscanf((char[]){ next[0], next[1], 0 }, "%2x", &shard) != 1 || shard >= ENTRY_N_SHARDS)
		return false;
	*ret_shard = shard;
	if (n > 2)
		entry_key(ENTRY_FILE, next + 2, 0, ret_after);
	return true;
}

int names_list(struct rados_store *store, const char *prefix, char next[RADOS_NAME_MAX + 8],
	       int (*each)(const char *name, const struct rados_entry *entry, void *arg), void *arg,
	       struct error *error)
{
	_cleanup_(index_close) struct index index = { .conn = NULL };
	struct listing listing = { .each = each, .arg = arg };
	char after[ENTRY_KEY_BYTES], start[ENTRY_KEY_BYTES];
	unsigned shard;
	int r;

	if (!next_read(next, &shard, after))
		return error_set(error, -EINVAL, "store %s: list: next is not of an earlier list",
				 store_settings(store)->store);
	entry_key(ENTRY_FILE, prefix, 0, start);
	r = index_open(store, shard, &index, error);
	while (!r && shard < ENTRY_N_SHARDS && listing.n_files < RADOS_LIST_MAX) {
		index_init(&index, store, index.conn, shard);
		r = index_page(&index, start, after, list_entry_each, &listing);
		if (listing.result)
			return listing.result;
		if (r == -EUCLEAN)
			r = 0; /* the rest of the shard was reported */
		if (r < 0)
			return index_failed(&index, prefix, "list", r, error);
		if (!r) {
			shard++;
			after[0] = 0;
		}
		r = 0;
	}
	if (r < 0)
		return r;
	next[0] = 0;
	if (shard < ENTRY_N_SHARDS)
		(void)snprintf(next, RADOS_NAME_MAX + 8, "%02x%s", shard,
			       after[0] ? after + 1 : "");
	return 0;
}
