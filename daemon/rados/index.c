#include "daemon/rados/index.h"

#include "daemon/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE_KEYS 1000 /* Ceph's own limit is 1,024 */

static const char *what_failed(int r)
{
	if (r == -ETIMEDOUT)
		return "no answer from the cluster in op_timeout; a change may still happen";
	if (r == -ESHUTDOWN)
		return "the cluster has fenced this daemon, which connects anew: try again";
	if (r == -ECANCELED)
		return "another host has changed it meanwhile; try again";
	return "the index";
}

/* The end of an op on the shard's object. */
static int finish(const struct index *index, int r, struct error *error)
{
	r = conn_note(index->conn, r);
	if (r >= 0)
		return r;
	return error_set(error, r == -ESHUTDOWN ? -EHOSTDOWN : r, "store %s: object index.%02x: %s",
			 store_settings(index->store)->store, index->shard, what_failed(r));
}

/* ---- reads ---- */

struct read {
	rados_read_op_t op;
	rados_omap_iter_t iter;
	int result;
	char *last; /* its key, up to a zero */
	int (*each)(const struct index *index, const struct entry *entry, void *arg);
	void *arg;
};

/* A stranger may have written it. */
static int damaged(const struct index *index, const char *key, int key_bytes, struct error *error)
{
	static _Thread_local struct log_limit limit;

	(void)error_set(error, -EUCLEAN,
			"store %s: object index.%02x: the value of key %.*s is damaged; remove the "
			"key with rados rmomapkey",
			store_settings(index->store)->store, index->shard, key_bytes, key);
	log_clean(error->text);
	log_client(&limit, "%s", error->text);
	return -EUCLEAN;
}

/* Returns 0, what each() has returned if not 0, or an error: -EUCLEAN is that of the last damaged entry. */
static int read_run(const struct index *index, struct read *read, struct error *error)
{
	char object[ENTRY_OBJECT_BYTES];
	struct entry entry;
	char *key, *value;
	size_t key_bytes, value_bytes;
	int damage = 0, r;

	entry_index_object(index->shard, object);
	r = rados_read_op_operate(read->op, conn_io(index->conn), object, 0);
	if (!r)
		r = read->result;
	/* The first file of the shard makes the object. */
	r = r == -ENOENT ? 0 : finish(index, r, error);
	while (!r && !rados_omap_get_next2(read->iter, &key, &value, &key_bytes, &value_bytes) &&
	       key) {
		if (!entry_decode(index->shard, key, key_bytes, value, value_bytes, &entry))
			r = read->each(index, &entry, read->arg);
		else
			damage = damaged(index, key, (int)key_bytes, error);
		(void)snprintf(read->last, ENTRY_KEY_BYTES, "%.*s", (int)key_bytes, key);
	}
	rados_omap_get_end(read->iter);
	rados_release_read_op(read->op);
	return r ? r : damage;
}

static int look_each(const struct index *index, const struct entry *entry, void *arg)
{
	struct index_look *look = arg;

	(void)index;
	if (entry->kind == ENTRY_FILE)
		look->file = *entry;
	else if (entry->kind == ENTRY_WRITTEN)
		look->written = *entry;
	else
		look->trash = *entry;
	return 0;
}

int index_look(const struct index *index, const char *name, uint64_t id,
	       struct index_look *ret_look, struct error *error)
{
	static const enum entry_kind kinds[] = { ENTRY_FILE, ENTRY_WRITTEN, ENTRY_TRASH };
	char keys[3][ENTRY_KEY_BYTES], last[ENTRY_KEY_BYTES];
	const char *const key[] = { keys[0], keys[1], keys[2] };
	size_t key_bytes[3];
	struct read read = {
		.op = rados_create_read_op(), .last = last, .each = look_each, .arg = ret_look
	};

	memset(ret_look, 0, sizeof(*ret_look));
	for (unsigned i = 0; i < 3; i++) {
		entry_key(kinds[i], name, id, keys[i]);
		key_bytes[i] = strlen(keys[i]);
	}
	rados_read_op_omap_get_vals_by_keys2(read.op, key, 3, key_bytes, &read.iter, &read.result);
	return read_run(index, &read, error);
}

int index_each(const struct index *index, const char *prefix, char after[ENTRY_KEY_BYTES],
	       int (*each)(const struct index *index, const struct entry *entry, void *arg),
	       void *arg, struct error *error)
{
	struct read read = { .last = after, .each = each, .arg = arg };
	char before[ENTRY_KEY_BYTES];
	unsigned char has_more;
	int r;

	do {
		memcpy(before, after, sizeof(before));
		has_more = false;
		read.op = rados_create_read_op();
		rados_read_op_omap_get_vals2(read.op, before, prefix, PAGE_KEYS, &read.iter,
					     &has_more, &read.result);
		r = read_run(index, &read, error);
		if (r == -EUCLEAN)
			r = 0;
		/* A page of keys that are no strings, or too long, ends the shard. */
	} while (!r && has_more && strcmp(before, after) != 0);
	return r;
}

/* ---- changes ---- */

static void change_add(rados_write_op_t op, const struct index_change *change)
{
	const struct entry *entry = change->new ? change->new : change->old;
	uint8_t value[ENTRY_VALUE_BYTES];
	char key[ENTRY_KEY_BYTES];
	const char *keys = key, *values = (const char *)value;
	size_t key_bytes, value_bytes = change->old ? entry_encode(change->old, value) : 0;

	entry_key(entry->kind, entry->name, entry->file.id, key);
	key_bytes = strlen(key);
	/* A key that is absent compares like an empty value. */
	rados_write_op_omap_cmp2(op, key, LIBRADOS_CMPXATTR_OP_EQ, values, key_bytes, value_bytes,
				 NULL);
	if (!change->new) {
		rados_write_op_omap_rm_keys2(op, &keys, &key_bytes, 1);
		return;
	}
	value_bytes = entry_encode(change->new, value);
	rados_write_op_omap_set2(op, &keys, &values, &key_bytes, &value_bytes, 1);
}

int index_change(const struct index *index, const struct index_change *changes, size_t n,
		 struct error *error)
{
	rados_write_op_t op = rados_create_write_op();
	char object[ENTRY_OBJECT_BYTES];
	int r;

	entry_index_object(index->shard, object);
	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	for (size_t i = 0; i < n; i++)
		change_add(op, &changes[i]);
	r = rados_write_op_operate2(op, conn_io(index->conn), object, NULL, 0);
	rados_release_write_op(op);
	return finish(index, r, error);
}

int index_discard(const struct index *index, const struct entry *entry, struct error *error)
{
	struct entry trash = *entry;

	trash.is_abandoned = entry->kind == ENTRY_WRITTEN;
	trash.file.time_sec = trash.is_abandoned ? 0 : entry_now();
	trash.kind = ENTRY_TRASH;
	return index_change(index, (struct index_change[]){ { entry, NULL }, { NULL, &trash } }, 2,
			    error);
}
