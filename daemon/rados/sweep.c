/*
 * What happens to files while nobody asks: held ones, which are being written by clients of this daemon, are renewed;
 * bytes that are due are removed by the daemon that has the lock; what no daemon renewed is due at once.
 *
 * The keeper's thread, in turns of about a second.  The lock only spares work: two daemons that sweep at once do no
 * harm, as an id is never used again.  Hosts' clocks may differ by less than a half of trash_after.
 */
#include "daemon/base/log.h"
#include "daemon/rados/index.h"
#include "daemon/rados/names.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/list.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define TURN_NSEC UINT64_C(1000000000)
#define INTERVAL_MIN_NSEC UINT64_C(100000000)
#define LOCK_SEC 30
#define LOCK_NAME "sweeper"
#define N_REMOVALS 16 /* in flight: a guess */
#define N_MISSES 64   /* in a row: behind an unsized file's last object */

struct held {
	struct list_node node;
	uint64_t id;
	unsigned n_refs;
	uint32_t round;	 /* of its last renewal */
	bool is_missing; /* was reported */
};

/* The held files, and the keeper's place in a sweep. */
struct held_files {
	pthread_mutex_t lock; /* files */
	struct list files;

	/* The keeper's. */
	uint32_t round;
	uint64_t next_nsec; /* of renewal and sweep */
	bool is_sweeping;
	unsigned shard;
	enum entry_kind kind;
	char after[ENTRY_KEY_BYTES];
	uint64_t removing_id, removing_index; /* a file of many objects goes in several turns */
	unsigned n_misses;
	uint64_t deadline_nsec;
	struct log_limit log;
};

int held_files_new(struct held_files **ret_held)
{
	struct held_files *held = calloc(1, sizeof(*held));

	if (!held)
		return -ENOMEM;
	(void)pthread_mutex_init(&held->lock, NULL); /* cannot fail without attributes */
	*ret_held = held;
	return 0;
}

void held_files_free(struct held_files *held)
{
	if (!held)
		return;
	(void)pthread_mutex_destroy(&held->lock); /* nobody has it */
	free(held);
}

static struct held *held_find(struct held_files *held, uint64_t id)
{
	LIST_EACH(struct held, file, &held->files, node)
		if (file->id == id)
			return file;
	return NULL;
}

int names_hold(struct rados_store *store, const struct rados_file *file)
{
	struct held_files *held = store_held(store);
	LOCKED(&held->lock);
	struct held *mine = held_find(held, file->id);

	if (!mine) {
		mine = calloc(1, sizeof(*mine));
		if (!mine)
			return -ENOMEM;
		mine->id = file->id;
		list_push(&held->files, &mine->node);
	}
	mine->n_refs++;
	return 0;
}

void names_release(struct rados_store *store, const struct rados_file *file)
{
	struct held_files *held = store_held(store);
	LOCKED(&held->lock);
	struct held *mine = held_find(held, file->id);

	if (!mine || --mine->n_refs)
		return;
	list_remove(&held->files, &mine->node);
	free(mine);
}

/* ---- renewal ---- */

/* Returns whether a file waits to be renewed in this round: its id. */
static bool held_next(struct held_files *held, uint64_t *ret_id)
{
	LOCKED(&held->lock);

	LIST_EACH(struct held, file, &held->files, node) {
		if (file->round == held->round || file->is_missing)
			continue;
		file->round = held->round;
		*ret_id = file->id;
		return true;
	}
	return false;
}

static void held_missing(struct held_files *held, const char *store, uint64_t id)
{
	LOCKED(&held->lock);
	struct held *file = held_find(held, id);

	if (!file)
		return;
	file->is_missing = true;
	log_client(&held->log,
		   "store %s: file %016" PRIx64
		   ", which a client writes, is no more: committed, abandoned, not "
		   "renewed for trash_after, or damaged",
		   store, id);
}

/* A change that comes between renewed it too, or ended it. */
static int renew(struct held_files *held, const struct index *index, uint64_t id)
{
	struct index_change change;
	struct index_look look;
	struct error error;
	struct entry entry;
	int r = index_look(index, NULL, id, &look, &error);

	if (r < 0 && r != -EUCLEAN)
		return r;
	if (r == -EUCLEAN || !look.written.file.id) {
		held_missing(held, store_settings(index->store)->store, id);
		return 0;
	}
	entry = look.written;
	entry.file.time_sec = (uint64_t)time(NULL);
	change = index_change_new();
	index_if_same(&change, ENTRY_WRITTEN, &look.written);
	index_set(&change, ENTRY_WRITTEN, &entry);
	r = index_apply(index, &change);
	return r == -ECANCELED ? 0 : r;
}

static bool is_late(const struct held_files *held)
{
	return clock_nsec() >= held->deadline_nsec;
}

/* Returns 0, INDEX_MORE if the turn is over, or an error. */
static int renew_all(struct held_files *held, struct rados_store *store, struct rados_conn *conn)
{
	struct index index;
	uint64_t id;
	int r = 0;

	while (!r && held_next(held, &id)) {
		index_init(&index, store, conn, entry_id_shard(id));
		r = renew(held, &index, id);
		if (!r && is_late(held))
			return INDEX_MORE;
	}
	return r;
}

/* ---- removal ---- */

/* A time of the future by more than trash_after is some host's mistake. */
static bool is_due(struct held_files *held, const struct index *index, const struct entry *entry)
{
	const struct rados_settings *settings = store_settings(index->store);
	uint64_t now = (uint64_t)time(NULL);

	if (entry->file.time_sec > now + settings->trash_after_sec)
		log_client(&held->log,
			   "store %s: object %s: the time of file %016" PRIx64 " is %" PRIu64
			   " s ahead: compare the "
			   "clocks of the hosts",
			   settings->store, index->object, entry->file.id,
			   entry->file.time_sec - now);
	return entry->file.time_sec + settings->trash_after_sec <= now;
}

/* Removes some objects of a file, at once; counts those in a row that were absent. */
static int remove_some(struct held_files *held, const struct index *index, uint64_t id, uint64_t n)
{
	rados_completion_t removals[N_REMOVALS];
	char object[ENTRY_OBJECT_BYTES];
	unsigned n_started = 0;
	int r = 0;

	for (; !r && n_started < n; n_started++) {
		entry_data_object(id, held->removing_index + n_started, object);
		r = rados_aio_create_completion2(NULL, NULL, &removals[n_started]);
		if (r < 0)
			break;
		r = rados_aio_remove(conn_io(index->conn), object, removals[n_started]);
		if (r < 0)
			rados_aio_release(removals[n_started]);
		if (r < 0)
			break;
	}
	for (unsigned i = 0; i < n_started; i++) {
		int result;

		(void)rados_aio_wait_for_complete(removals[i]); /* always 0 */
		result = rados_aio_get_return_value(removals[i]);
		rados_aio_release(removals[i]);
		held->n_misses = result == -ENOENT ? held->n_misses + 1 : 0;
		if (result < 0 && result != -ENOENT && !r)
			r = result;
	}
	if (!r)
		held->removing_index += n;
	return conn_note(index->conn, r);
}

/* Returns how many of the file's objects may be removed next. */
static uint64_t removals_left(const struct held_files *held, const struct entry *entry)
{
	uint64_t n = (entry->file.size + entry->file.object_bytes - 1) / entry->file.object_bytes;

	if (held->removing_index < n)
		n -= held->removing_index;
	else
		n = entry->is_unsized && held->n_misses < N_MISSES &&
				    held->removing_index <= UINT32_MAX - N_REMOVALS
			    ? N_REMOVALS
			    : 0;
	return n < N_REMOVALS ? n : N_REMOVALS;
}

/* Returns 0, INDEX_LATE, or an error. */
#define INDEX_LATE (-EAGAIN) /* the turn is over, before this entry */
static int remove_file(struct held_files *held, const struct index *index,
		       const struct entry *entry)
{
	struct index_change change;
	uint64_t n;
	int r;

	if (held->removing_id != entry->file.id) {
		held->removing_id = entry->file.id;
		held->removing_index = 0;
		held->n_misses = 0;
	}
	while ((n = removals_left(held, entry))) {
		r = remove_some(held, index, entry->file.id, n);
		if (r < 0)
			return r;
		if (is_late(held))
			return INDEX_LATE;
	}
	held->removing_id = 0;
	change = index_change_new();
	index_drop(&change, ENTRY_TRASH, entry);
	return index_apply(index, &change);
}

/* ---- the sweep ---- */

static int expire(const struct index *index, const struct entry *entry)
{
	struct index_change change = index_change_new();
	struct entry trash = *entry;
	int r;

	trash.file.time_sec = 0;
	index_if_same(&change, ENTRY_WRITTEN, entry);
	index_drop(&change, ENTRY_WRITTEN, entry);
	index_set(&change, ENTRY_TRASH, &trash);
	r = index_apply(index, &change);
	return r == -ECANCELED ? 0 : r;
}

static int sweep_entry(const struct index *index, const struct entry *entry, void *arg)
{
	struct held_files *held = arg;

	if (is_late(held))
		return INDEX_LATE;
	if (!is_due(held, index, entry))
		return 0;
	return held->kind == ENTRY_WRITTEN ? expire(index, entry) : remove_file(held, index, entry);
}

/* Goes on with the sweep.  Returns 0 at its end, INDEX_LATE, or an error. */
static int sweep_turn(struct held_files *held, struct rados_store *store, struct rados_conn *conn)
{
	struct index index;

	for (; held->shard < ENTRY_N_SHARDS; held->shard++, held->kind = ENTRY_WRITTEN) {
		index_init(&index, store, conn, held->shard);
		while (held->kind) {
			int r = index_page(&index, (char[]){ (char)held->kind, 0 }, held->after,
					   sweep_entry, held);

			if (r < 0 && r != -EUCLEAN)
				return r;
			if (r == INDEX_MORE)
				continue;
			held->after[0] = 0;
			held->kind = held->kind == ENTRY_WRITTEN ? ENTRY_TRASH : 0;
		}
	}
	return 0;
}

static int sweep_locked(struct held_files *held, struct rados_store *store, struct rados_conn *conn)
{
	struct timeval lease = { .tv_sec = LOCK_SEC };
	int r = conn_note(conn,
			  rados_lock_exclusive(conn_io(conn), LOCK_NAME, LOCK_NAME, LOCK_NAME,
					       "dsaiod", &lease, LIBRADOS_LOCK_FLAG_MAY_RENEW));

	if (r < 0)
		return r;
	r = sweep_turn(held, store, conn);
	if (!r)
		(void)rados_unlock(conn_io(conn), LOCK_NAME, LOCK_NAME,
				   LOCK_NAME); /* else it ends by itself */
	return r;
}

uint64_t sweep_run(struct rados_store *store, struct rados_conn *conn, uint64_t now_nsec)
{
	const struct rados_settings *settings = store_settings(store);
	struct held_files *held = store_held(store);
	uint64_t interval = settings->trash_after_sec * UINT64_C(1000000000) / 4;
	int r;

	if (now_nsec < held->next_nsec && !held->is_sweeping)
		return held->next_nsec;
	if (!held->is_sweeping) {
		held->is_sweeping = true;
		held->round++;
		held->shard = 0;
		held->kind = ENTRY_WRITTEN;
		held->after[0] = 0;
		held->next_nsec = now_nsec +
				  (interval > INTERVAL_MIN_NSEC ? interval : INTERVAL_MIN_NSEC);
	}
	held->deadline_nsec = clock_nsec() + TURN_NSEC;
	r = renew_all(held, store, conn);
	if (!r)
		r = sweep_locked(held, store, conn);
	if (r == INDEX_MORE || r == INDEX_LATE)
		return now_nsec;

	held->is_sweeping = false;
	if (r < 0 && r != -EBUSY)
		log_client(&held->log,
			   "store %s: sweep: stopped at object index.%02x: %s; it is tried again",
			   settings->store, held->shard, strerror(-r));
	return held->next_nsec;
}
