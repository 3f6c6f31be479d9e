#include "client/lib/io/view.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/submit.h"
#include "client/lib/io/wait.h"
#include "proto/util/map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (UINT64_C(64) << 20) /* as ViewOpen has them */
/* Pieces that are read while the first is waited for: one hides the pause between two, a second what varies. */
#define AHEAD 2u
/* Pieces that the daemon has waited for in vain, until those that another client reads are not waited for any more. */
#define LATE_MAX 3u
#define TICK_NSEC 20000000 /* more than the clock of a file's ctime needs for its next step */

enum mapped_state { PIECE_NONE, PIECE_OPEN, PIECE_READY, PIECE_PLAIN, PIECE_LOST };

struct mapped_piece {
	struct slab_name slab; /* of open, ready and lost ones that are not plain; id 0: none */
	_Atomic int state;     /* enum mapped_state; written under client.lock */
	size_t bytes;	       /* of the memfd */
	struct dsaio_op *op;   /* reads it; view.lock */
};

struct mapped_view {
	struct client_object object;
	struct dsaio_client *client;
	struct dsaio_file *file; /* referenced; NULL after dsaio_disconnect() */
	char *map, *memory;
	uint64_t len, first; /* of the range; where its first piece begins in the file */
	size_t map_bytes;
	bool is_writable;
	uint64_t file_bytes; /* the version that the file had at first */
	int64_t file_ctime_nsec;
	pthread_mutex_t lock;
	unsigned n_late; /* lock */
	size_t n;
	struct mapped_piece pieces[];
};

static int64_t nsec_of(const struct timespec *ts)
{
	return ts->tv_sec * (int64_t)NSEC_PER_SEC + ts->tv_nsec;
}

static int fail_stale(const struct mapped_view *view)
{
	return error_fail(-ESTALE, "view of %s: the file was changed meanwhile: open it again",
			  view->file->name);
}

/* The file as it is now.  Files of RADOS stores do not change, and of devices nothing tells. */
static int look(struct dsaio_file *file, uint64_t *ret_bytes, int64_t *ret_ctime_nsec)
{
	struct stat st;
	int64_t size;
	int fd, r = 0;

	*ret_ctime_nsec = 0;
	if (file->named.id || file->is_block_device) {
		size = file_size(file);
		*ret_bytes = size < 0 ? 0 : (uint64_t)size;
		return size < 0 ? error_fail_errno((int)size, "view of %s", file->name) : 0;
	}
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		r = error_fail_errno(-errno, "view of %s: fstat", file->name);
	file_fd_release(file);
	if (r == 0) {
		*ret_bytes = (uint64_t)st.st_size;
		*ret_ctime_nsec = nsec_of(&st.st_ctim);
	}
	return r;
}

/* Returns 0 or -ESTALE. */
static int check_version(const struct mapped_view *view)
{
	uint64_t bytes;
	int64_t ctime_nsec;
	int r = look(view->file, &bytes, &ctime_nsec);

	if (r < 0)
		return r;
	return bytes == view->file_bytes && ctime_nsec == view->file_ctime_nsec ? 0
										: fail_stale(view);
}

/* ---- pieces ---- */

static void piece_set(struct mapped_view *view, struct mapped_piece *piece, enum mapped_state state)
{
	LOCKED(&view->client->lock);

	if (state != PIECE_READY)
		piece->slab.id = 0;
	atomic_store(&piece->state, state);
}

/* An open piece is filled, unless it was lost meanwhile: then the next daemon is asked. */
static void piece_set_filled(struct mapped_view *view, struct mapped_piece *piece)
{
	LOCKED(&view->client->lock);

	if (atomic_load(&piece->state) == PIECE_OPEN)
		atomic_store(&piece->state, PIECE_READY);
}

static char *piece_memory(const struct mapped_view *view, const struct mapped_piece *piece)
{
	return view->map + (size_t)(piece - view->pieces) * PIECE_BYTES;
}

static uint64_t piece_off(const struct mapped_view *view, const struct mapped_piece *piece)
{
	return view->first + (uint64_t)(piece - view->pieces) * PIECE_BYTES;
}

static uint64_t piece_len(const struct mapped_view *view, const struct mapped_piece *piece)
{
	const uint64_t left = view->file_bytes - piece_off(view, piece);

	return left < PIECE_BYTES ? left : PIECE_BYTES;
}

/* Memory of this process alone.  Whole huge pages: a mapping of such, which it may replace, has to be replaced in whole
   ones. */
static int piece_make_plain(struct mapped_view *view, struct mapped_piece *piece)
{
	const size_t bytes = (piece_len(view, piece) + MAP_HUGE_BYTES - 1) / MAP_HUGE_BYTES *
			     MAP_HUGE_BYTES;
	const void *map = mmap(piece_memory(view, piece), bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (map == MAP_FAILED)
		return error_fail_errno(-errno, "view of %s", view->file->name);
	debug_log("view of %s: %" PRIu64 " bytes at %" PRIu64
		  " are read for this process alone: %s",
		  view->file->name, piece_len(view, piece), piece_off(view, piece), dsaio_error());
	piece_set(view, piece, PIECE_PLAIN);
	return 0;
}

/*
 * Not yet writable: of a process with mlockall(MCL_FUTURE) the kernel would copy what is not filled.  And without huge
 * pages reserved for copies that hardly anybody makes, which the pool would lack.
 */
static int piece_map(struct mapped_view *view, struct mapped_piece *piece, int fd)
{
	const int flags = MAP_FIXED |
			  (view->is_writable ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED);
	char *memory = piece_memory(view, piece);
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < piece_len(view, piece) ||
	    (uint64_t)st.st_size > PIECE_BYTES)
		return -EPROTO; /* pages behind its end would raise SIGBUS */
	piece->bytes = (size_t)st.st_size;
	map = mmap(memory, piece->bytes, PROT_READ, flags, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	(void)madvise(memory, piece->bytes, MADV_DONTDUMP); /* a failure does not matter */
	return 0;
}

static int piece_open(struct mapped_view *view, struct mapped_piece *piece)
{
	struct dsaio_conn *conn = view->client->conn;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(closep) int fd = -1;
	Wire__ViewOpen body = WIRE__VIEW_OPEN__INIT;
	const Wire__SlabNewReply *opened;
	bool is_of;
	int r;

	if (view->file->named.id)
		return piece_make_plain(view, piece);
	bounce_reserve(view->client);
	(void)file_need_buffered(view->file); /* without it nothing comes from the page cache */
	body.file = view->file->session.id;
	body.off = piece_off(view, piece);
	r = conn_call(conn, "view", &WIRE_REQUEST(VIEW_OPEN, view_open, &body), NULL, 0, &reply,
		      &fd);
	if (r == -ENOTCONN)
		return r;
	if (r < 0)
		return piece_make_plain(view, piece);
	opened = reply->view_open;
	piece->slab = (struct slab_name){ .id = opened->slab, .session = conn_answered_in() };
	r = opened->file_bytes == view->file_bytes &&
			    opened->file_ctime_nsec == view->file_ctime_nsec
		    ? piece_map(view, piece, fd)
		    : fail_stale(view);
	if (r == -EPROTO)
		conn_break(conn);
	if (r < 0) {
		slab_release(conn, &piece->slab, false);
		piece_set(view, piece, PIECE_NONE);
		return r == -ESTALE
			       ? r
			       : error_fail_errno(r, "view of %s: its memory", view->file->name);
	}
	(void)pthread_mutex_lock(&view->client->lock);
	is_of = conn_is_of(conn, piece->slab.session);
	atomic_store(&piece->state, is_of ? PIECE_OPEN : PIECE_NONE);
	(void)pthread_mutex_unlock(&view->client->lock);
	return 0;
}

static int piece_start(struct mapped_view *view, struct dsaio_handle *handle,
		       struct mapped_piece *piece)
{
	const struct buffer_place place = { .slab = &piece->slab };
	struct op_request q = { .function = "view_wait",
				.handle = handle,
				.file = view->file,
				.opcode = RING_OP_READ,
				.buf = piece_memory(view, piece),
				.len = piece_len(view, piece),
				.off = piece_off(view, piece) };

	if (atomic_load(&piece->state) != PIECE_PLAIN)
		q.place = &place;
	return submit_op(&q, &piece->op);
}

/* The end of its read.  Returns 0: look at the state again; or a negative errno with a message. */
static int piece_finish(struct mapped_view *view, struct mapped_piece *piece)
{
	struct dsaio_op *op = TAKE_PTR(piece->op);
	const bool is_plain = atomic_load(&piece->state) == PIECE_PLAIN;
	int64_t result;
	int r = 0;

	(void)wait_until(op->handle, &(struct wait_for){ .what = WAIT_OP, .op = op }, UINT64_MAX);
	result = op->result;
	if (is_plain || result < 0)
		r = check_version(view);
	if (r == 0 && is_plain && result >= 0 && (uint64_t)result != piece_len(view, piece))
		r = fail_stale(view);
	/* Another client's read came first, or the daemon is another: no failure. */
	if (r == 0 && result < 0 && result != -EBUSY && atomic_load(&piece->state) != PIECE_LOST)
		r = op->text ? error_fail((int)result, "%s", op->text)
			     : error_fail_errno((int)result, "view of %s", view->file->name);
	op_set_taken(op);
	handle_op_unref(op);
	if (r == 0 && is_plain) {
		if (!view->is_writable) /* our own mapping: cannot fail */
			(void)mprotect(piece_memory(view, piece), piece_len(view, piece),
				       PROT_READ);
		piece_set(view, piece, PIECE_READY);
	}
	return r;
}

/* Asks the daemon for an open piece's state.  Returns 0, or 1: it is busy and not needed; or a negative errno with a
   message. */
static int piece_ask(struct mapped_view *view, struct dsaio_handle *handle,
		     struct mapped_piece *piece, bool is_needed)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__ViewWait body = WIRE__VIEW_WAIT__INIT;
	int r;

	body.slab = piece->slab.id;
	body.may_wait = is_needed && view->n_late < LATE_MAX;
	r = conn_call(view->client->conn, "view", &WIRE_REQUEST(VIEW_WAIT, view_wait, &body), NULL,
		      0, &reply, NULL);
	if (r == -ETIMEDOUT)
		view->n_late++;
	if (r == -ETIMEDOUT ||
	    (r == 0 && is_needed && reply->view_wait->state == WIRE__VIEW_STATE__VIEW_BUSY)) {
		slab_release(view->client->conn, &piece->slab, false);
		return piece_make_plain(view, piece);
	}
	if (r < 0) /* where the daemon is another, it knows no such view */
		return atomic_load(&piece->state) == PIECE_LOST && r != -ENOTCONN ? 0 : r;
	if (reply->view_wait->state == WIRE__VIEW_STATE__VIEW_FILL)
		return piece_start(view, handle, piece);
	if (reply->view_wait->state == WIRE__VIEW_STATE__VIEW_READY) {
		if (view->is_writable &&
		    mprotect(piece_memory(view, piece), piece->bytes, PROT_READ | PROT_WRITE) < 0)
			return error_fail_errno(
				-errno,
				"view of %s: to make it writable (raise RLIMIT_DATA, or view it "
				"without DSAIO_VIEW_WRITABLE)",
				view->file->name);
		piece_set_filled(view, piece);
		return 0;
	}
	return 1;
}

/* Goes on with a piece: until it is ready, or, !is_needed, until only others can go on. */
static int piece_drive(struct mapped_view *view, struct dsaio_handle *handle,
		       struct mapped_piece *piece, bool is_needed)
{
	int r = 0;

	while (r == 0) {
		const enum mapped_state state = (enum mapped_state)atomic_load(&piece->state);

		if (state == PIECE_READY || (piece->op && !is_needed))
			return 0;
		if (piece->op) {
			r = piece_finish(view, piece);
		} else if (state == PIECE_NONE) {
			r = piece_open(view, piece);
		} else if (state == PIECE_LOST) {
			slab_release(view->client->conn, &piece->slab, false);
			piece_set(view, piece, PIECE_NONE);
		} else if (state == PIECE_PLAIN) {
			if (!is_needed) /* its read is done by this thread */
				return 0;
			r = piece_start(view, handle, piece);
		} else {
			r = piece_ask(view, handle, piece, is_needed);
		}
	}
	return r < 0 ? r : 0;
}

/* ---- views ---- */

/* The view that the address lies in; NULL: none.  Under client.lock. */
static struct mapped_view *find(struct dsaio_client *client, const char *memory)
{
	LIST_EACH(struct mapped_view, view, &client->objects[CLIENT_VIEW], object.node)
		if ((uintptr_t)memory >= (uintptr_t)view->memory &&
		    (uintptr_t)memory - (uintptr_t)view->memory < view->len)
			return view;
	return NULL;
}

/* The session has ended: the memory stays until it is freed. */
static int on_disconnect(struct client_object *object)
{
	struct mapped_view *view = container_of(object, struct mapped_view, object);

	file_drop_ref(TAKE_PTR(view->file));
	return 0;
}

int view_open(struct dsaio_client *client, struct dsaio_file *file, uint64_t off, size_t len,
	      bool is_writable, void **ret_memory)
{
	const struct timespec tick = { .tv_nsec = TICK_NSEC };
	struct timespec now;
	uint64_t bytes, end;
	int64_t ctime_nsec;
	struct mapped_view *view;
	size_t n, extra;
	void *map;
	int r = look(file, &bytes, &ctime_nsec);

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (r == 0 &&
	    nsec_of(&now) - ctime_nsec < TICK_NSEC) { /* a later change might not be seen */
		(void)nanosleep(&tick, NULL);
		r = look(file, &bytes, &ctime_nsec);
	}
	if (r < 0)
		return r;
	if (!len || __builtin_add_overflow(off, len, &end) || end > bytes)
		return error_fail(-EINVAL,
				  "view of %zu bytes at %" PRIu64 " of %s: must be at least 1, and "
				  "end at the end of the file, %" PRIu64 ", or before it",
				  len, off, file->name, bytes);
	n = (size_t)((end - 1) / PIECE_BYTES - off / PIECE_BYTES + 1);
	view = calloc(1, sizeof(*view) + n * sizeof(view->pieces[0]));
	/* Huge pages have to lie at their multiples. */
	map = view ? mmap(NULL, n * PIECE_BYTES + MAP_HUGE_BYTES, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
		   : MAP_FAILED;
	if (map == MAP_FAILED) {
		free(view);
		return error_fail_errno(-ENOMEM, "view of %zu bytes of %s", len, file->name);
	}
	extra = -(uintptr_t)map & (MAP_HUGE_BYTES - 1);
	view->map = (char *)map + extra;
	view->map_bytes = n * PIECE_BYTES;
	if (extra) /* whole pages of our own mapping: these cannot fail */
		(void)munmap(map, extra);
	(void)munmap(view->map + view->map_bytes, MAP_HUGE_BYTES - extra);
	view->object.kind = CLIENT_VIEW;
	view->object.on_disconnect = on_disconnect;
	view->client = client;
	view->file = file;
	view->first = off / PIECE_BYTES * PIECE_BYTES;
	view->memory = view->map + (off - view->first);
	view->len = len;
	view->is_writable = is_writable;
	view->file_bytes = bytes;
	view->file_ctime_nsec = ctime_nsec;
	view->n = n;
	(void)pthread_mutex_init(&view->lock, NULL); /* default attributes: cannot fail */
	file_add_ref(file);
	(void)pthread_mutex_lock(&client->lock);
	list_push_front(&client->objects[CLIENT_VIEW], &view->object.node);
	(void)pthread_mutex_unlock(&client->lock);
	*ret_memory = view->memory;
	return 0;
}

int view_wait(struct dsaio_handle *handle, const char *memory, size_t len)
{
	struct dsaio_client *client = handle->client;
	struct mapped_view *view;
	size_t first, end;
	int r = 0;

	(void)pthread_mutex_lock(&client->lock);
	view = find(client, memory);
	(void)pthread_mutex_unlock(&client->lock);
	if (!view || len > view->len - (size_t)(memory - view->memory))
		return error_fail(-EINVAL, "view_wait: %zu bytes at %p lie in no view", len,
				  (const void *)memory);
	first = (size_t)(memory - view->map) / PIECE_BYTES;
	end = len ? ((size_t)(memory - view->map) + len - 1) / PIECE_BYTES + 1 : first;
	while (first < end && atomic_load(&view->pieces[first].state) == PIECE_READY)
		first++;
	if (first == end)
		return 0;
	r = client_check_alive(client, "view_wait");
	LOCKED(&view->lock);
	for (size_t i = first; i < end && r == 0; i++) {
		/* An error of those ahead comes when they are waited for. */
		for (size_t ahead = 0; ahead <= AHEAD && i + ahead < view->n; ahead++)
			(void)piece_drive(view, handle, &view->pieces[i + ahead], false);
		r = piece_drive(view, handle, &view->pieces[i], true);
	}
	return r;
}

int view_free(struct dsaio_client *client, const char *memory)
{
	struct mapped_view *view;

	(void)pthread_mutex_lock(&client->lock);
	view = find(client, memory);
	if (view && view->memory == memory)
		list_remove(&client->objects[CLIENT_VIEW], &view->object.node);
	else
		view = NULL;
	(void)pthread_mutex_unlock(&client->lock);
	if (!view)
		return error_fail(-EINVAL, "view_free: no view begins at %p", (const void *)memory);
	for (size_t i = 0; i < view->n; i++) {
		struct mapped_piece *piece = &view->pieces[i];

		if (piece->op && client->is_disconnected) /* it has ended */
			handle_op_unref(piece->op);
		else if (piece->op)
			(void)piece_finish(view, piece);
	}
	/* First, so that the daemon finds that nobody maps it.  Our own mapping: cannot fail. */
	(void)munmap(view->map, view->map_bytes);
	for (size_t i = 0; i < view->n; i++) {
		struct mapped_piece *piece = &view->pieces[i];

		if (piece->slab.id && atomic_load(&piece->state) != PIECE_NONE &&
		    !client->is_disconnected)
			slab_release(client->conn, &piece->slab, false);
	}
	if (view->file)
		file_drop_ref(view->file);
	(void)pthread_mutex_destroy(&view->lock);
	free(view);
	return 0;
}

/* ---- recovery ---- */

/* A piece as recovery saw it. */
struct kept {
	struct mapped_view *view;
	size_t i;
	uint32_t id;
	size_t bytes;
};

static struct kept *kept_take(struct dsaio_client *client, size_t *ret_n)
{
	struct kept *kept;
	size_t n = 0;
	LOCKED(&client->lock);

	LIST_EACH(struct mapped_view, view, &client->objects[CLIENT_VIEW], object.node)
		n += view->n;
	kept = calloc(n ? n : 1, sizeof(*kept));
	*ret_n = 0;
	LIST_EACH(struct mapped_view, view, &client->objects[CLIENT_VIEW], object.node)
		for (size_t i = 0; i < view->n; i++) {
			struct mapped_piece *piece = &view->pieces[i];
			const int state = atomic_load(&piece->state);

			if (state == PIECE_NONE || state == PIECE_PLAIN || !piece->slab.id)
				continue;
			if (state == PIECE_OPEN)
				atomic_store(&piece->state, PIECE_LOST);
			piece->slab.session = conn_attempt(client->conn);
			/* Without memory for the list: nothing of it is the next daemon's. */
			atomic_store(&piece->slab.error, kept ? 0 : -ENOMEM);
			if (kept)
				kept[(*ret_n)++] = (struct kept){ view, i, piece->slab.id,
								  piece->bytes };
		}
	return kept;
}

/* It is no slab of the next session, if it is still that piece. */
static void note_refused(struct dsaio_client *client, const struct kept *kept, int error)
{
	LOCKED(&client->lock);

	LIST_EACH(struct mapped_view, view, &client->objects[CLIENT_VIEW], object.node)
		if (view == kept->view && kept->i < view->n &&
		    view->pieces[kept->i].slab.id == kept->id)
			atomic_store(&view->pieces[kept->i].slab.error, error);
}

int views_hand_over(struct dsaio_client *client, struct dsaio_conn *next)
{
	size_t n;
	_cleanup_(freep) struct kept *kept = kept_take(client, &n);
	int r = 0;

	for (size_t i = 0; i < n && r != -ENOTCONN; i++) {
		Wire__ViewKeep body = WIRE__VIEW_KEEP__INIT;

		body.slab = kept[i].id;
		body.size_bytes = kept[i].bytes;
		r = conn_call_for(next, "view", &WIRE_REQUEST(VIEW_KEEP, view_keep, &body), NULL, 0,
				  deadline_in_msec(60000), NULL, NULL);
		if (r < 0 && r != -ENOTCONN)
			note_refused(client, &kept[i], r);
	}
	return r == -ENOTCONN ? r : 0;
}
