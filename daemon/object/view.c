#include "daemon/object/view.h"

#include "daemon/object/file.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/map.h"
#include "proto/util/size.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* A file that was changed later than this ago may change again within the same tick of its clock. */
#define SETTLED_NSEC (2 * NSEC_PER_SEC)
/* A client that was asked to read a piece has so long to begin. */
#define ASKED_NSEC NSEC_PER_SEC
/* A read that has begun is waited for so long: longer than 64 MiB take on a slow disk. */
#define FILL_NSEC (10 * NSEC_PER_SEC)
#define THREADS 4u
#define PROBE_BYTES 4096u

/* A tick looks at so many pieces that may be mapped, half a microsecond each; the next goes on with the others. */
#define LOOKS_MAX 1024u
/* The part of the pool that processes which are no clients can keep. */
#define LEFT_DIVISOR 4u
/* The part of the daemon's descriptors that their memory can take. */
#define LEFT_FDS_DIVISOR 8u

struct view_piece {
	struct slab slab; /* its memory; a reference for each use, and one while it is filled */
	struct list_node node;
	struct views *views;
	struct view_version version;
	uint64_t off, len; /* in the file */
	int fd, own_fd; /* read-only: for clients; when they have gone, a description for the lease; -1: not made */
	bool is_made, is_served; /* one of its uses, ever */
	struct list openers, uses, waiters;
	uint32_t n_uses;
	enum view_state state;
	uint64_t asked_nsec; /* a client was asked to read it; 0: none */
	/* The main thread sets it, and the lane whose read begins takes it: the read happens between. */
	_Atomic bool may_fill;
	/* A read, or a copy from the page cache, has begun; 0: none.  Both set it, for the main thread. */
	_Atomic uint64_t begun_nsec;
	_Atomic uint64_t first_nsec; /* likewise: the first one that others have waited for since */
	/* Those of a read are set by its lane, before it posts message; else of the copy from the page cache. */
	struct file *file;
	int64_t result;
	struct message message;
	struct job look;
	struct view_version found;
	struct charge charge; /* without uses */
};

struct view_use {
	struct slab slab;
	struct list_node node;
	bool is_served; /* its client knows that it is ready */
};

static struct view_piece *view_of(const struct slab *slab)
{
	return container_of((struct slab *)(uintptr_t)slab, struct view_piece, slab);
}

/* ---- versions ---- */

int view_look(const struct file *file, struct view_version *ret_version, struct error *error)
{
	const struct file_facts *facts = &file->facts;
	struct timespec now;
	struct stat st;
	long generation = 0;

	memset(ret_version, 0, sizeof(*ret_version));
	if (file->target.kind != TARGET_FILE || facts->is_block_device || facts->is_foreign ||
	    !facts->can_read)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"view of %s: only of files on local file systems, open for reading, since no "
			"other tells when its bytes change: read it into memory of your own",
			file->name);
	if (fstat(file->target.fd, &st) < 0)
		return error_set(error, -errno, "view of %s: fstat", file->name);
	(void)ioctl(file->target.fd, FS_IOC_GETVERSION, &generation); /* not all have one */
	ret_version->inode = (struct inode_id){ .dev = facts->ino_dev, .ino = st.st_ino };
	ret_version->generation = (uint32_t)generation; /* the kernel writes an int */
	ret_version->size = (uint64_t)st.st_size;
	ret_version->mtime = st.st_mtim;
	ret_version->ctime = st.st_ctim;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if ((now.tv_sec - st.st_ctim.tv_sec) * (int64_t)NSEC_PER_SEC + now.tv_nsec -
		    st.st_ctim.tv_nsec <
	    (int64_t)SETTLED_NSEC)
		return error_set_plain(
			error, -EAGAIN,
			"view of %s: it was changed less than 2 s ago, so that a further change might "
			"not be seen: try again, or read it into memory of your own",
			file->name);
	return 0;
}

static bool is_version(const struct view_version *a, const struct view_version *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- shares ---- */

/* The bytes that each of n uses is charged. */
static uint64_t share_of(const struct view_piece *view, uint32_t n)
{
	return (view->slab.map_bytes + n - 1) / n;
}

static void shares_set(struct view_piece *view, uint32_t n)
{
	LIST_EACH(struct view_use, use, &view->uses, node)
		quota_adjust(&use->slab.bytes_charge, share_of(view, n));
}

/* ---- the memory ---- */

/* A new description of the file. */
static int reopen(int fd)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* On the work queue.  Only the mapping keeps the description that can write. */
static int view_make(struct slab *slab)
{
	int r = slab_make_memory(slab);

	if (r < 0)
		return r;
	r = view_of(slab)->fd = reopen(slab->fd);
	(void)close(TAKE_FD(slab->fd));
	return r < 0 ? error_set(&slab->error, r, "view: its memory") : 0;
}

static void made_less(struct views *views)
{
	views->n_made--;
	views->on_left(views);
}

static void close_start(struct view_piece *view);

/* Mappings of others have descriptions of their own, and clients may have the one that they got. */
static bool has_own(struct view_piece *view)
{
	if (view->own_fd < 0) {
		view->own_fd = reopen(view->fd);
		if (view->own_fd >= 0)
			(void)close(TAKE_FD(view->fd));
	}
	return view->own_fd >= 0; /* else it is tried again */
}

/* EAGAIN: others have it open, or map it. */
static bool is_mapped(struct view_piece *view)
{
	return !has_own(view) || fcntl(view->own_fd, F_SETLEASE, F_WRLCK) < 0;
}

static void view_freed(struct slab *slab)
{
	struct view_piece *view = view_of(slab);
	struct views *views = view->views;

	if (!is_mapped(view)) {
		close_start(view);
		return;
	}
	list_push(&views->leaving, &view->node);
	views->left_bytes += view->slab.map_bytes;
	views->n_left++;
	made_less(views);
}

static const struct slab_kind kind_view = {
	.struct_bytes = sizeof(struct view_piece),
	.quota = QUOTA_POOL_BYTES,
	.is_of_view = true,
	.seals = F_SEAL_FUTURE_WRITE,
	.make = view_make,
	.unmake = slab_unmake,
	.freed = view_freed,
};

static void cache_start(struct view_piece *view);

static void openers_call(struct view_piece *view, int result, const struct error *error)
{
	struct list_node *node;

	while ((node = list_pop(&view->openers))) {
		struct view_opener *opener = list_entry(node, struct view_opener, node);

		opener->on_made(opener, view, result, error);
	}
}

static void on_made(struct slab *slab, int result, const struct error *error, void *arg)
{
	struct view_piece *view = arg;

	(void)slab;
	view->is_made = true;
	view->slab.work_queue = view->views->work_queue; /* it may outlive its maker's user */
	/* The uses are charged in its place. */
	quota_discharge(&view->slab.bytes_charge);
	quota_discharge(&view->slab.slab_charge);
	if (result == 0 && view->file)
		cache_start(view);
	openers_call(view, result, error);
	if (result < 0 && view->file)
		file_unref(view->file);
	if (view->n_uses)
		return;
	list_remove(&view->views->all, &view->node);
	if (result == 0) {
		slab_unref(&view->slab);
		return;
	}
	closep(&view->fd);
	made_less(view->views);
}

static int view_new(struct views *views, struct file *file, const struct view_version *version,
		    uint64_t off, struct quota *quota, struct work_queue *work_queue,
		    struct view_piece **ret_view, struct error *error)
{
	const uint64_t left = version->size - off,
		       len = left < VIEW_PIECE_BYTES ? left : VIEW_PIECE_BYTES;
	const uint64_t page = len < MAP_HUGE_BYTES ? (uint64_t)sysconf(_SC_PAGESIZE)
						   : MAP_HUGE_BYTES;
	const uint64_t bytes = (len + page - 1) / page * page;
	struct slab *slab;
	struct view_piece *view;
	int r = slab_new_of(&kind_view, views->pool, quota, work_queue, bytes, bytes, &slab, error);

	if (r < 0)
		return r;
	view = view_of(slab);
	view->views = views;
	view->version = *version;
	view->off = off;
	view->len = len;
	if (target_buffered_fd(&file->target) >= 0) {
		view->file = file;
		file_ref(file);
	}
	view->fd = view->own_fd = -1;
	view->may_fill = true;
	views->n_made++;
	list_push(&views->all, &view->node);
	*ret_view = view;
	return 0;
}

/* ---- its states ---- */

static int say_stale(struct error *error)
{
	return error_set_plain(error, -ESTALE,
			       "view: the file was changed meanwhile: open it again");
}

/* Others have waited for reads for long enough: for one, or for several that were begun and given up. */
static bool is_late(const struct view_piece *view)
{
	const uint64_t now = clock_nsec(), first = view->first_nsec;

	return first && now > first && now - first >= FILL_NSEC;
}

static int say_late(struct error *error)
{
	return error_set_plain(error, -ETIMEDOUT,
			       "view: the read of another client takes too long");
}

/* The first one of a piece has it read; all others need not. */
static void use_served(struct slab *use, struct view_piece *view)
{
	bool *is_served = &container_of(use, struct view_use, slab)->is_served;

	if (!*is_served && view->is_served)
		view->views->saved_bytes += use->size_bytes;
	*is_served = view->is_served = true;
}

/* Where there is something to fill, all are asked to: the first that begins does, and the others come back. */
static void waiters_call(struct view_piece *view, int result, const struct error *error)
{
	const bool fills = result == 0 && view->state == VIEW_EMPTY;
	struct list_node *node;

	if (fills && view->waiters.first)
		view->asked_nsec = clock_nsec();
	while ((node = list_pop(&view->waiters))) {
		struct view_waiter *waiter = list_entry(node, struct view_waiter, node);

		if (result == 0 && !fills)
			use_served(waiter->use, view);
		waiter->on_state(waiter, result, fills, error);
	}
}

static void state_set(struct view_piece *view, enum view_state state)
{
	struct error error;

	view->state = state;
	view->asked_nsec = 0;
	view->may_fill = state == VIEW_EMPTY;
	waiters_call(view, state == VIEW_STALE ? say_stale(&error) : 0, &error);
}

static struct view_piece *view_find(struct views *views, const struct view_version *version,
				    uint64_t off)
{
	struct view_piece *found = NULL;

	LIST_EACH(struct view_piece, view, &views->all, node) {
		if (inode_id_compare(&view->version.inode, &version->inode) != 0)
			continue;
		if (!is_version(&view->version, version)) {
			if (view->state == VIEW_EMPTY)
				state_set(view, VIEW_STALE);
		} else if (view->off == off && view->state != VIEW_STALE) {
			found = view;
		}
	}
	return found;
}

int views_open(struct views *views, struct file *file, const struct view_version *version,
	       uint64_t off, struct quota *quota, struct work_queue *work_queue,
	       struct view_opener *opener, struct error *error)
{
	const struct quota *all = &views->pool->quota;
	struct view_piece *view;
	int r;

	if (off % VIEW_PIECE_BYTES || off >= version->size)
		return error_set_plain(error, -EINVAL,
				       "view from byte %" PRIu64
				       " on: must be a multiple of %s, before the end of the "
				       "file, %" PRIu64,
				       off, SIZE_TEXT(VIEW_PIECE_BYTES), version->size);
	view = view_find(views, version, off);
	if (!view && (views->left_bytes >= all->limit[QUOTA_POOL_BYTES] / LEFT_DIVISOR ||
		      views->n_left >= all->n_descriptors / LEFT_FDS_DIVISOR))
		return error_set_plain(error, -ENOMEM,
				       "view: processes still map %" PRIu32
				       " pieces that no client has any more, of %s: at most a "
				       "quarter of the pool, and %" PRIu64 " of them: end them",
				       views->n_left, SIZE_TEXT(views->left_bytes),
				       all->n_descriptors / LEFT_FDS_DIVISOR);
	if (view && view->is_made) {
		opener->on_made(opener, view, 0, NULL);
		return 0;
	}
	if (!view) {
		r = view_new(views, file, version, off, quota, work_queue, &view, error);
		if (r < 0)
			return r;
		slab_start(&view->slab, on_made, view);
	}
	list_push(&view->openers, &opener->node);
	return 0;
}

/* ---- uses ---- */

static void use_freed(struct slab *slab)
{
	struct view_piece *view = view_of(slab->view);
	struct view_use *use = container_of(slab, struct view_use, slab);
	struct error error;

	list_remove(&view->uses, &use->node);
	LIST_EACH(struct view_waiter, waiter, &view->waiters, node) {
		if (waiter->use != slab)
			continue;
		list_remove(&view->waiters, &waiter->node);
		waiter->on_state(
			waiter, error_set_plain(&error, -ECANCELED, "view: it was freed meanwhile"),
			false, &error);
	}
	if (--view->n_uses) {
		shares_set(view, view->n_uses);
	} else {
		/* Any of those that had it may map it: until its memory is gone it is the pool's. */
		view->charge = (struct charge){ .quota = &view->views->pool->quota,
						.kind = QUOTA_POOL_BYTES };
		quota_adjust(&view->charge, view->slab.map_bytes);
		list_remove(&view->views->all, &view->node);
	}
	free(use);
	slab_unref(&view->slab);
}

static const struct slab_kind kind_use = {
	.struct_bytes = sizeof(struct view_use),
	.quota = QUOTA_POOL_BYTES,
	.is_of_view = true,
	.sends_fd = true,
	.freed = use_freed,
};

const struct slab_kind slab_kind_kept = {
	.struct_bytes = sizeof(struct slab),
	.quota = QUOTA_POOL_BYTES,
	.is_of_view = true,
};

int view_join(struct view_piece *view, struct quota *quota, struct work_queue *work_queue,
	      struct slab **ret_slab, struct error *error)
{
	const uint32_t n = view->n_uses + 1;
	struct slab *slab;
	int r;

	shares_set(view, n);
	r = slab_new_of(&kind_use, view->views->pool, quota, work_queue, view->len,
			share_of(view, n), &slab, error);
	if (r < 0) {
		if (view->n_uses)
			shares_set(view, view->n_uses);
		return r;
	}
	view->n_uses = n;
	list_push(&view->uses, &container_of(slab, struct view_use, slab)->node);
	slab->region = view->slab.region;
	slab->is_locked = view->slab.is_locked;
	slab->fd = view->fd;
	slab->view = &view->slab;
	if (n > 1)
		slab_ref(&view->slab); /* the first has the maker's */
	*ret_slab = slab;
	return 0;
}

int view_ask(struct slab *use, struct error *error)
{
	struct view_piece *view = view_of(use->view);

	if (view->state == VIEW_STALE)
		return say_stale(error);
	if (view->state == VIEW_READY) {
		use_served(use, view);
		return 0;
	}
	/* Those that wait come first. */
	if (view->begun_nsec || view->waiters.first ||
	    (view->asked_nsec && clock_nsec() - view->asked_nsec < ASKED_NSEC))
		return is_late(view) ? say_late(error) : -EBUSY;
	view->first_nsec = 0;
	view->asked_nsec = clock_nsec();
	return 1;
}

void view_wait(struct slab *use, struct view_waiter *waiter)
{
	waiter->use = use;
	list_push(&view_of(use->view)->waiters, &waiter->node);
}

const struct view_version *view_version_of(const struct slab *use)
{
	return &view_of(use->view)->version;
}

/* ---- the read ---- */

static void note_begun(struct view_piece *view)
{
	view->begun_nsec = clock_nsec();
	if (!view->first_nsec)
		view->first_nsec = view->begun_nsec;
	slab_ref(&view->slab);
}

int view_fill_begin(struct slab *use, const struct file *file, const struct ring_entry *entry)
{
	struct view_piece *view = view_of(use->view);
	bool may = true;

	if (entry->opcode != RING_OP_READ || entry->off != view->off ||
	    entry->len != use->size_bytes || entry->slab_off ||
	    file->facts.ino_dev != view->version.inode.dev ||
	    file->facts.ino != view->version.inode.ino)
		return EPERM;
	if (!atomic_compare_exchange_strong(&view->may_fill, &may, false))
		return EBUSY;
	note_begun(view);
	return 0;
}

static void look_run(struct job *job)
{
	struct view_piece *view = container_of(job, struct view_piece, look);
	struct error error;

	/* One that was changed a moment ago has another version. */
	(void)view_look(view->file, &view->found, &error);
}

static void look_done(struct job *job)
{
	struct view_piece *view = container_of(job, struct view_piece, look);
	const bool is_whole = (uint64_t)view->result == view->len;

	file_unref(TAKE_PTR(view->file));
	view->begun_nsec = 0;
	if (view->state == VIEW_EMPTY && view->result < 0)
		state_set(view, VIEW_EMPTY);
	else if (view->state == VIEW_EMPTY)
		state_set(view, is_whole && is_version(&view->found, &view->version) ? VIEW_READY
										     : VIEW_STALE);
	slab_unref(&view->slab);
}

static void look_start(struct view_piece *view, void (*run)(struct job *job))
{
	job_submit(view->file->work_queue, &view->look, view->views->pool->main_mailbox, run,
		   look_done);
}

/* All of it, or what is not there has to be read: then the read is of all of it.  A page at first, because the kernel
   reads ahead for what is not there. */
static void cache_run(struct job *job)
{
	struct view_piece *view = container_of(job, struct view_piece, look);
	uint64_t done = 0;
	ssize_t n = 1;

	while (done < view->len && n > 0) {
		const uint64_t left = view->len - done;
		struct iovec to = { view->slab.region.base + done,
				    done || left < PROBE_BYTES ? left : PROBE_BYTES };

		n = preadv2(target_buffered_fd(&view->file->target), &to, 1,
			    (off_t)(view->off + done), RWF_NOWAIT);
		if (n > 0)
			done += (uint64_t)n;
	}
	view->result = done == view->len ? (int64_t)done : -EAGAIN;
	look_run(job);
}

static void cache_start(struct view_piece *view)
{
	view->may_fill = false;
	note_begun(view);
	look_start(view, cache_run);
}

static void on_filled(struct message *message)
{
	struct view_piece *view = container_of(message, struct view_piece, message);

	look_start(view, look_run);
}

void view_fill_end(struct slab *use, struct file *file, int64_t result)
{
	struct view_piece *view = view_of(use->view);

	file_ref(file);
	view->file = file;
	view->result = result;
	if (result >= 0) /* slow or not, it is there: the look at the version is waited for */
		view->first_nsec = clock_nsec();
	mailbox_post(view->views->pool->main_mailbox, &view->message, on_filled);
}

/* ---- all of them ---- */

int views_init(struct views *views, struct pool *pool)
{
	views->pool = pool;
	return work_queue_new("views", THREADS, &views->work_queue);
}

/* Its memory is gone. */
static void view_forget(struct view_piece *view)
{
	quota_discharge(&view->charge);
	free(view);
}

/* The last close frees the memory, which takes time; and ends the lease. */
static void close_run(struct job *job)
{
	(void)close(container_of(job, struct view_piece, look)->own_fd);
}

static void close_done(struct job *job)
{
	struct view_piece *view = container_of(job, struct view_piece, look);
	struct views *views = view->views;

	view_forget(view);
	made_less(views);
}

static void close_start(struct view_piece *view)
{
	job_submit(view->views->work_queue, &view->look, view->views->pool->main_mailbox, close_run,
		   close_done);
}

void views_deinit(struct views *views)
{
	struct list_node *node;

	assert(!views->n_made);
	work_queue_free(views->work_queue);
	while ((node = list_pop(&views->leaving))) {
		struct view_piece *view = list_entry(node, struct view_piece, node);

		closep(&view->fd);
		closep(&view->own_fd);
		view_forget(view);
	}
}

/* Those that wait for too long, for a client that was asked to read and does not, or for a read that has begun. */
static void waiters_look(struct view_piece *view)
{
	struct error error;

	if (!view->begun_nsec && view->asked_nsec && clock_nsec() - view->asked_nsec >= ASKED_NSEC)
		waiters_call(view, 0, NULL);
	else if (is_late(view))
		waiters_call(view, say_late(&error), &error);
}

bool views_tick(struct views *views)
{
	bool has_waiters = false;

	for (uint32_t n = views->n_left < LOOKS_MAX ? views->n_left : LOOKS_MAX; n; n--) {
		struct view_piece *view = list_entry(list_pop(&views->leaving), struct view_piece,
						     node);

		if (is_mapped(view)) {
			list_push(&views->leaving, &view->node);
			continue;
		}
		views->left_bytes -= view->slab.map_bytes;
		views->n_left--;
		views->n_made++;
		close_start(view);
	}
	LIST_EACH(struct view_piece, view, &views->all, node) {
		if (view->waiters.first)
			waiters_look(view);
		has_waiters |= view->waiters.first != NULL;
	}
	return has_waiters || views->leaving.first;
}

struct views_sum views_sum(const struct views *views)
{
	struct views_sum sum = { .left_bytes = views->left_bytes,
				 .saved_bytes = views->saved_bytes,
				 .n_refused = views->n_refused };

	LIST_EACH(const struct view_piece, view, &views->all, node) {
		sum.n++;
		sum.n_uses += view->n_uses;
		sum.bytes += view->slab.map_bytes;
	}
	return sum;
}
