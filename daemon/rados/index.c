#include "daemon/rados/index.h"

#include "daemon/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Ceph's own limit is 1,024. */
#define PAGE_KEYS 1000

void index_init(struct index *index, struct rados_store *store, struct rados_conn *conn,
		unsigned shard)
{
	*index = (struct index){ .store = store, .conn = conn, .shard = shard };
	entry_index_object(shard, index->object);
}

int index_failed(const struct index *index, const char *name, const char *what, int r,
		 struct error *error)
{
	const struct rados_settings *settings = store_settings(index->store);

	if (r == -ETIMEDOUT)
		return error_set(
			error, r,
			"store %s: %s: %s: no answer from the cluster in %u s; a change may still happen",
			settings->store, name, what, settings->op_timeout_msec / 1000);
	if (r == -ESHUTDOWN)
		return error_set(
			error, -EHOSTDOWN,
			"store %s: %s: %s: the cluster has fenced this daemon, which connects anew: try again",
			settings->store, name, what);
	return error_set(error, r, "store %s: %s: %s", settings->store, name, what);
}

/* ---- reads ---- */

static void look_take(struct index_look *look, char kind, const struct entry *entry)
{
	if (kind == ENTRY_FILE)
		look->file = *entry;
	else if (kind == ENTRY_WRITTEN)
		look->written = *entry;
	else
		look->trash = *entry;
}

static int look_read(const struct index *index, rados_omap_iter_t iter, struct index_look *look,
		     struct error *error)
{
	struct entry entry;
	char *key, *value;
	size_t key_bytes, value_bytes;

	while (!rados_omap_get_next2(iter, &key, &value, &key_bytes, &value_bytes) && key) {
		if (entry_decode(index->shard, key, key_bytes, value, value_bytes, &entry) < 0)
			return error_set(
				error, -EUCLEAN,
				"store %s: object %s: the value of key %s is damaged; remove the key with "
				"rados rmomapkey",
				store_settings(index->store)->store, index->object, key);
		look_take(look, key[0], &entry);
	}
	return 0;
}

int index_look(const struct index *index, const char *name, uint64_t id,
	       struct index_look *ret_look, struct error *error)
{
	static const enum entry_kind kinds[] = { ENTRY_FILE, ENTRY_WRITTEN, ENTRY_TRASH };
	rados_read_op_t op = rados_create_read_op();
	struct index_look look = { .file.is_unsized = false };
	char keys[3][ENTRY_KEY_BYTES];
	const char *key[3];
	size_t key_bytes[3], first = name ? 0 : 1, end = id ? 3 : 1;
	rados_omap_iter_t iter;
	int r, read = 0;

	for (size_t i = first; i < end; i++) {
		entry_key(kinds[i], name, id, keys[i]);
		key[i] = keys[i];
		key_bytes[i] = strlen(keys[i]);
	}
	rados_read_op_omap_get_vals_by_keys2(op, key + first, end - first, key_bytes + first, &iter,
					     &read);
	r = conn_note(index->conn,
		      rados_read_op_operate(op, conn_io(index->conn), index->object, 0));
	if (!r)
		r = read;
	if (r == -ENOENT)
		r = 0; /* the first file of the shard makes the object */
	else if (r < 0)
		r = index_failed(index, name ? name : index->object, "reading the index", r, error);
	else
		r = look_read(index, iter, &look, error);
	rados_omap_get_end(iter);
	rados_release_read_op(op);
	if (!r)
		*ret_look = look;
	return r;
}

/* A line about a key that a stranger may have written. */
static void report_damage(const struct index *index, const char *key, size_t key_bytes)
{
	static _Thread_local struct log_limit limit;
	char text[80];

	(void)snprintf(text, sizeof(text), "%.*s",
		       (int)(key_bytes < sizeof(text) ? key_bytes : sizeof(text)), key);
	log_clean(text);
	log_client(&limit, "store %s: object %s: key %s: skipped, its name or value is damaged",
		   store_settings(index->store)->store, index->object, text);
}

static int page_read(const struct index *index, rados_omap_iter_t iter, char after[ENTRY_KEY_BYTES],
		     int (*each)(const struct index *index, const struct entry *entry, void *arg),
		     void *arg)
{
	struct entry entry;
	char *key, *value;
	size_t key_bytes, value_bytes;
	bool has_moved = false;
	int r = 0;

	while (!r && !rados_omap_get_next2(iter, &key, &value, &key_bytes, &value_bytes) && key) {
		if (!entry_decode(index->shard, key, key_bytes, value, value_bytes, &entry))
			r = each(index, &entry, arg);
		else
			report_damage(index, key, key_bytes);
		/* librados takes the place as a string; a key that is none is read again, and skipped again */
		if (r < 0 || key_bytes >= ENTRY_KEY_BYTES || memchr(key, 0, key_bytes))
			continue;
		memcpy(after, key, key_bytes);
		after[key_bytes] = 0;
		has_moved = true;
	}
	if (!r && !has_moved)
		return -EUCLEAN;
	return r;
}

int index_page(const struct index *index, const char *prefix, char after[ENTRY_KEY_BYTES],
	       int (*each)(const struct index *index, const struct entry *entry, void *arg),
	       void *arg)
{
	rados_read_op_t op = rados_create_read_op();
	unsigned char has_more = 0;
	rados_omap_iter_t iter;
	int r, read = 0;

	rados_read_op_omap_get_vals2(op, after, prefix, PAGE_KEYS, &iter, &has_more, &read);
	r = conn_note(index->conn,
		      rados_read_op_operate(op, conn_io(index->conn), index->object, 0));
	if (!r)
		r = read;
	if (!r)
		r = page_read(index, iter, after, each, arg);
	rados_omap_get_end(iter);
	rados_release_read_op(op);
	if (r == -ENOENT || (r == -EUCLEAN && !has_more))
		return 0;
	return !r && has_more ? INDEX_MORE : r;
}

/* ---- changes ---- */

struct index_change index_change_new(void)
{
	return (struct index_change){ .op = rados_create_write_op() };
}

static void condition(struct index_change *change, enum entry_kind kind, const struct entry *entry,
		      uint8_t compare, const void *value, size_t value_bytes)
{
	char key[ENTRY_KEY_BYTES];

	entry_key(kind, entry->name, entry->file.id, key);
	rados_write_op_omap_cmp2(change->op, key, compare, value, strlen(key), value_bytes, NULL);
}

/* A key that is absent compares like an empty value. */
void index_if_present(struct index_change *change, enum entry_kind kind, const struct entry *entry)
{
	condition(change, kind, entry, LIBRADOS_CMPXATTR_OP_GT, "", 0);
}

void index_if_absent(struct index_change *change, enum entry_kind kind, const struct entry *entry)
{
	condition(change, kind, entry, LIBRADOS_CMPXATTR_OP_EQ, "", 0);
}

void index_if_same(struct index_change *change, enum entry_kind kind, const struct entry *entry)
{
	uint8_t value[ENTRY_VALUE_BYTES];
	size_t n = entry_encode(kind, entry, value);

	condition(change, kind, entry, LIBRADOS_CMPXATTR_OP_EQ, value, n);
}

void index_set(struct index_change *change, enum entry_kind kind, const struct entry *entry)
{
	uint8_t value[ENTRY_VALUE_BYTES];
	size_t value_bytes = entry_encode(kind, entry, value), key_bytes;
	char key[ENTRY_KEY_BYTES];
	const char *keys = key, *values = (const char *)value;

	entry_key(kind, entry->name, entry->file.id, key);
	key_bytes = strlen(key);
	rados_write_op_omap_set2(change->op, &keys, &values, &key_bytes, &value_bytes, 1);
}

void index_drop(struct index_change *change, enum entry_kind kind, const struct entry *entry)
{
	char key[ENTRY_KEY_BYTES];
	const char *keys = key;
	size_t key_bytes;

	entry_key(kind, entry->name, entry->file.id, key);
	key_bytes = strlen(key);
	rados_write_op_omap_rm_keys2(change->op, &keys, &key_bytes, 1);
}

int index_apply(const struct index *index, struct index_change *change)
{
	int r = rados_write_op_operate2(change->op, conn_io(index->conn), index->object, NULL, 0);

	rados_release_write_op(change->op);
	r = conn_note(index->conn, r);
	return r == -ENOENT ? -ECANCELED : r;
}
