/*
 * The keeper's work on files.  It renews the held ones, which clients of this daemon write, and discards those that no
 * daemon has renewed for trash_after: only when its own rounds have succeeded for half of that, without a gap, so that
 * behind an outage all daemons renew theirs first.  If it gets the lock, it removes bytes that are due.  A turn
 * discards so many files and removes so many objects; the next one renews again.
 *
 * The lock only spares work: two daemons that sweep at once do no harm, as an id is never used again.  Hosts' clocks
 * may differ by less than a half of trash_after.
 */
#include "daemon/base/log.h"
#include "daemon/rados/index.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/list.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define INTERVAL_MIN_NSEC UINT64_C(100000000)
#define LOCK_SEC 30
#define LOCK_NAME "sweeper"
/* Objects that are removed at once: a guess.  Behind an unsized file's last one are so many that are absent. */
#define N_REMOVALS 64u
#define TURN_REMOVALS 512u /* a guess: about a second */
#define TURN_DISCARDS 256u /* the same, as each is waited for */
#define TURN_OVER 1

struct held {
	struct list_node node;
	struct rados_file *file;
	unsigned round; /* in which it was held, or last seen as a file that is being written */
};

struct held_files {
	pthread_mutex_t lock; /* files, round */
	struct list files;    /* one for each hold */
	unsigned round;	      /* of renewal */

	/* The keeper's. */
	uint64_t next_nsec;  /* of renewal and sweep */
	uint64_t since_nsec; /* of the first round that none has failed behind; 0: none */
	uint64_t round_nsec; /* of the last round */
	bool may_discard;    /* in this round */
	uint64_t removing_id, removing_index; /* a file of many objects goes in several turns */
	uint64_t n_removed;		      /* objects in this turn */
	unsigned n_discarded;		      /* files in this turn */
	struct log_limit log;
	struct error error; /* of what is under way */
	char logged[sizeof(((struct error *)0)->text)];
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

int sweep_hold(struct rados_store *store, struct rados_file *file)
{
	struct held_files *held = store_held(store);
	struct held *mine = calloc(1, sizeof(*mine));
	LOCKED(&held->lock);

	if (!mine)
		return -ENOMEM;
	mine->file = file;
	mine->round = held->round;
	list_push(&held->files, &mine->node);
	return 0;
}

void sweep_release(struct rados_store *store, const struct rados_file *file)
{
	struct held_files *held = store_held(store);
	LOCKED(&held->lock);

	LIST_EACH(struct held, mine, &held->files, node)
		if (mine->file == file) {
			list_remove(&held->files, &mine->node);
			free(mine);
			return;
		}
}

void sweep_ended(struct rados_store *store, uint64_t id)
{
	struct held_files *held = store_held(store);
	LOCKED(&held->lock);

	LIST_EACH(struct held, mine, &held->files, node)
		if (mine->file->id == id)
			mine->file->is_writable = false;
}

/* Whether it is held: then it is seen in this round. */
static bool held_see(struct held_files *held, uint64_t id)
{
	bool is_held = false;
	LOCKED(&held->lock);

	LIST_EACH(struct held, mine, &held->files, node)
		if (mine->file->id == id) {
			mine->round = held->round;
			is_held = true;
		}
	return is_held;
}

/* Those not seen in this round were committed, abandoned or discarded, by another client or host. */
static void held_end_round(struct held_files *held)
{
	LOCKED(&held->lock);

	LIST_EACH(struct held, mine, &held->files, node)
		if (mine->round != held->round)
			mine->file->is_writable = false;
}

/* Whether that many seconds are over. */
static bool is_past(const struct entry *entry, uint64_t after_sec)
{
	return entry->file.time_sec + after_sec <= entry_now();
}

/* ---- files that are being written ---- */

static int renew_each(const struct index *index, const struct entry *entry, void *arg)
{
	struct held_files *held = arg;
	const uint64_t trash_after = store_settings(index->store)->keys.trash_after_sec;
	struct entry renewed = *entry;
	int r = 0;

	renewed.file.time_sec = entry_now();
	if (held_see(held, entry->file.id)) {
		if (is_past(entry, trash_after / 8))
			r = index_change(index, &(struct index_change){ entry, &renewed }, 1,
					 &held->error);
	} else if (held->may_discard && held->n_discarded < TURN_DISCARDS &&
		   is_past(entry, trash_after)) {
		held->n_discarded++;
		r = index_discard(index, entry, &held->error);
	}
	return r == -ECANCELED ? 0 : r; /* another daemon has renewed it, or it was committed */
}

/* ---- bytes to be removed ---- */

/* Returns how many of these objects there were, or an error. */
static int remove_some(struct held_files *held, const struct index *index, uint64_t id,
		       uint64_t first, unsigned n)
{
	rados_completion_t removals[N_REMOVALS];
	char object[ENTRY_OBJECT_BYTES];
	int r = 0, n_removed = 0;

	for (unsigned i = 0; i < n; i++) {
		entry_data_object(id, first + i, object);
		/* These two never fail: the second one would for a snapshot. */
		(void)rados_aio_create_completion2(NULL, NULL, &removals[i]);
		(void)rados_aio_remove(conn_io(index->conn), object, removals[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		int result;

		(void)rados_aio_wait_for_complete(removals[i]); /* always 0 */
		result = rados_aio_get_return_value(removals[i]);
		rados_aio_release(removals[i]);
		n_removed += !result;
		if (result < 0 && result != -ENOENT)
			r = result;
	}
	if (conn_note(index->conn, r) < 0)
		return error_set(&held->error, r, "removing bytes of %016" PRIx64, id);
	return n_removed;
}

/* Removes some of the file's objects, from held->removing_index on.  Returns whether it had more, or an error. */
static int remove_next(struct held_files *held, const struct index *index,
		       const struct entry *entry)
{
	const struct rados_entry *file = &entry->file;
	const uint64_t n_objects = (file->size + file->object_bytes - 1) / file->object_bytes;
	uint64_t n = n_objects - held->removing_index;
	int r;

	if (entry->is_unsized || n > N_REMOVALS)
		n = N_REMOVALS;
	r = remove_some(held, index, file->id, held->removing_index, (unsigned)n);
	if (r < 0)
		return r;
	held->n_removed += n;
	held->removing_index += n;
	return held->removing_index < n_objects || (entry->is_unsized && r > 0);
}

static int remove_each(const struct index *index, const struct entry *entry, void *arg)
{
	struct held_files *held = arg;
	struct entry later = *entry;
	int r;

	if (!is_past(entry, store_settings(index->store)->keys.trash_after_sec))
		return 0;
	if (held->removing_id != entry->file.id)
		held->removing_index = 0;
	held->removing_id = entry->file.id;
	do {
		if (held->n_removed >= TURN_REMOVALS)
			return TURN_OVER;
		r = remove_next(held, index, entry);
	} while (r > 0);
	/* Another host may have written on, and is refused by trash_after: then once more. */
	later.file.time_sec = entry_now();
	if (!r)
		r = index_change(
			index,
			&(struct index_change){ entry, entry->is_abandoned && !entry->file.time_sec
							       ? &later
							       : NULL },
			1, &held->error);
	return r == -ECANCELED ? 0 : r; /* another daemon has */
}

/* ---- the sweep ---- */

static int each_shard(struct held_files *held, struct index *index, const char *kind,
		      int (*each)(const struct index *index, const struct entry *entry, void *arg))
{
	int r = 0;

	for (index->shard = 0; !r && index->shard < ENTRY_N_SHARDS; index->shard++) {
		char after[ENTRY_KEY_BYTES] = "";

		r = index_each(index, kind, after, each, held, &held->error);
	}
	return r;
}

static int renew_round(struct held_files *held, struct index *index, uint64_t now_nsec,
		       uint64_t trash_after_nsec)
{
	int r;

	/* While the store was offline there was none, and none of the others. */
	if (now_nsec - held->round_nsec > INTERVAL_MIN_NSEC + trash_after_nsec / 2)
		held->since_nsec = 0;
	held->round_nsec = now_nsec;
	held->n_discarded = 0;
	held->may_discard = held->since_nsec && now_nsec >= held->since_nsec + trash_after_nsec / 2;
	(void)pthread_mutex_lock(&held->lock);
	held->round++;
	(void)pthread_mutex_unlock(&held->lock);
	r = each_shard(held, index, "p", renew_each);
	if (r < 0)
		held->since_nsec = 0;
	else if (!held->since_nsec)
		held->since_nsec = now_nsec;
	if (!r)
		held_end_round(held);
	return r;
}

static int remove_turn(struct held_files *held, struct index *index)
{
	struct timeval lease = { .tv_sec = LOCK_SEC };
	rados_ioctx_t io = conn_io(index->conn);
	int r = conn_note(index->conn,
			  rados_lock_exclusive(io, LOCK_NAME, LOCK_NAME, LOCK_NAME, "dsaiod",
					       &lease, LIBRADOS_LOCK_FLAG_MAY_RENEW));

	/* Where the pool is full the lock's object cannot be made, and all the more has to be removed. */
	if (r < 0 && r != -EDQUOT && r != -ENOSPC)
		return error_set(&held->error, r, "its lock");
	held->n_removed = 0;
	r = each_shard(held, index, "t", remove_each);
	if (!r)
		(void)rados_unlock(io, LOCK_NAME, LOCK_NAME,
				   LOCK_NAME); /* else it ends by itself */
	return r;
}

uint64_t sweep_run(struct rados_store *store, struct rados_conn *conn, uint64_t now_nsec)
{
	const struct rados_settings *settings = store_settings(store);
	uint64_t trash_after_nsec = settings->keys.trash_after_sec * NSEC_PER_SEC;
	struct held_files *held = store_held(store);
	struct index index = { .store = store, .conn = conn };
	int r;

	if (now_nsec < held->next_nsec)
		return held->next_nsec;
	r = renew_round(held, &index, now_nsec, trash_after_nsec);
	if (!r)
		r = remove_turn(held, &index);
	if (r == TURN_OVER || (r >= 0 && held->n_discarded == TURN_DISCARDS))
		return now_nsec;
	if (r < 0 && r != -EBUSY) {
		if (strcmp(held->logged, held->error.text) != 0)
			log_client(&held->log, "store %s: sweep: %s; it is tried again",
				   settings->store, held->error.text);
		strcpy(held->logged, held->error.text);
		trash_after_nsec = 0;
	}
	held->next_nsec = now_nsec + INTERVAL_MIN_NSEC + trash_after_nsec / 4;
	return held->next_nsec;
}
