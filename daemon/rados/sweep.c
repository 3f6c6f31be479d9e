/*
 * The keeper's work on files.  It renews the held ones, which clients of this daemon write.  If it gets the lock, it
 * removes bytes that are due; a file that no daemon has renewed for trash_after is due at once.
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

#define TURN_NSEC UINT64_C(500000000) /* one of renewal, one of the sweep */
#define INTERVAL_MIN_NSEC UINT64_C(100000000)
#define LOCK_SEC 30
#define LOCK_NAME "sweeper"
#define N_REMOVALS 16 /* in flight: a guess */
#define N_MISSES 64   /* in a row: behind an unsized file's last object */

/* A turn is over, behind the entry or before it. */
#define TURN_OVER 1
#define TURN_OVER_BEFORE (-EAGAIN)

struct held {
	struct list_node node;
	uint64_t id;
	unsigned n_refs;
	uint32_t round; /* of its last renewal */
	bool is_ended;
	char name[RADOS_NAME_MAX + 1]; /* "": not renewed yet */
};

/* The held files, and the keeper's place in a sweep. */
struct held_files {
	pthread_mutex_t lock; /* files */
	struct list files;

	/* The keeper's. */
	uint32_t round;
	uint64_t next_nsec; /* of renewal and sweep */
	bool is_sweeping;
	unsigned
		step; /* of N_STEPS: of each shard what is being written, then what is to be removed */
	char after[ENTRY_KEY_BYTES];
	uint64_t removing_id, removing_index; /* a file of many objects goes in several turns */
	unsigned n_misses;
	uint64_t deadline_nsec;
	struct log_limit log;
};
#define N_STEPS (2 * ENTRY_N_SHARDS)

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

/* Returns whether a file waits to be renewed in this round: a copy. */
static bool held_next(struct held_files *held, struct held *ret_file)
{
	LOCKED(&held->lock);

	LIST_EACH(struct held, file, &held->files, node) {
		if (file->round == held->round || file->is_ended)
			continue;
		file->round = held->round;
		*ret_file = *file;
		return true;
	}
	return false;
}

static void held_update(struct held_files *held, uint64_t id, const struct entry *written)
{
	LOCKED(&held->lock);
	struct held *file = held_find(held, id);

	if (!file)
		return;
	file->is_ended = !written->file.id;
	if (!file->is_ended)
		memcpy(file->name, written->name, sizeof(file->name));
}

/* A change that comes between renewed it too, or ended it. */
static int renew(struct held_files *held, const struct index *index, const struct held *file)
{
	struct index_change change;
	struct index_look look = { .file.is_unsized = false };
	struct error error;
	struct entry entry;
	int r = index_look(index, file->name[0] ? file->name : NULL, file->id, &look, &error);

	if (r < 0 && r != -EUCLEAN)
		return r;
	held_update(held, file->id, &look.written);
	if (!look.written.file.id) {
		if (file->name[0] && look.file.file.id != file->id && !look.trash.file.time_sec)
			log_client(&held->log,
				   "store %s: %s: file %016" PRIx64
				   " is no longer being written: abandoned, not "
				   "renewed for trash_after, or damaged",
				   store_settings(index->store)->store, file->name, file->id);
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

/* Returns 0, TURN_OVER, or an error. */
static int renew_all(struct held_files *held, struct rados_store *store, struct rados_conn *conn)
{
	struct index index;
	struct held file;
	int r = 0;

	held->deadline_nsec = clock_nsec() + TURN_NSEC;
	while (!r && held_next(held, &file)) {
		index_init(&index, store, conn, entry_id_shard(file.id));
		r = renew(held, &index, &file);
		if (!r && is_late(held))
			return TURN_OVER;
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

/* Returns 0, TURN_OVER_BEFORE, or an error. */
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
			return TURN_OVER_BEFORE;
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

static enum entry_kind step_kind(const struct held_files *held)
{
	return held->step % 2 ? ENTRY_TRASH : ENTRY_WRITTEN;
}

static int sweep_entry(const struct index *index, const struct entry *entry, void *arg)
{
	struct held_files *held = arg;
	int r = 0;

	if (is_due(held, index, entry))
		r = step_kind(held) == ENTRY_WRITTEN ? expire(index, entry)
						     : remove_file(held, index, entry);
	return !r && is_late(held) ? TURN_OVER : r;
}

/* Goes on with the sweep.  Returns 0 at its end, TURN_OVER or TURN_OVER_BEFORE, or an error. */
static int sweep_turn(struct held_files *held, struct rados_store *store, struct rados_conn *conn)
{
	struct index index;
	int r;

	held->deadline_nsec = clock_nsec() + TURN_NSEC;
	while (held->step < N_STEPS) {
		index_init(&index, store, conn, held->step / 2);
		r = index_page(&index, (char[]){ (char)step_kind(held), 0 }, held->after,
			       sweep_entry, held);
		if (r == TURN_OVER || (r < 0 && r != -EUCLEAN))
			return r;
		if (r != INDEX_MORE) {
			held->step++;
			held->after[0] = 0;
		}
		if (is_late(held))
			return TURN_OVER;
	}
	return 0;
}

static int sweep_locked(struct held_files *held, struct rados_store *store, struct rados_conn *conn)
{
	struct timeval lease = { .tv_sec = LOCK_SEC };
	int r = conn_note(conn,
			  rados_lock_exclusive(conn_io(conn), LOCK_NAME, LOCK_NAME, LOCK_NAME,
					       "dsaiod", &lease, LIBRADOS_LOCK_FLAG_MAY_RENEW));

	/* Where the pool is full the lock's object cannot be made, and all the more has to be removed. */
	if (r < 0 && r != -EDQUOT && r != -ENOSPC)
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

	if (now_nsec >= held->next_nsec) {
		held->round++; /* also while a sweep lasts longer */
		held->next_nsec = now_nsec +
				  (interval > INTERVAL_MIN_NSEC ? interval : INTERVAL_MIN_NSEC);
		if (!held->is_sweeping) {
			held->step = 0;
			held->after[0] = 0;
		}
		held->is_sweeping = true;
	}
	if (!held->is_sweeping)
		return held->next_nsec;
	r = renew_all(held, store, conn);
	if (!r)
		r = sweep_locked(held, store, conn);
	if (r == TURN_OVER || r == TURN_OVER_BEFORE)
		return now_nsec;

	held->is_sweeping = false;
	if (r < 0 && r != -EBUSY)
		log_client(&held->log,
			   "store %s: sweep: stopped at object index.%02x: %s; it is tried again",
			   settings->store, held->step / 2, strerror(-r));
	return held->next_nsec;
}
