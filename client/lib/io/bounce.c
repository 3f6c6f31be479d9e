#include "client/lib/io/bounce.h"

#include "client/lib/memory/copiers.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/memory/slots.h"
#include "client/lib/base/thread.h"
#include "client/lib/io/submit.h"
#include "client/lib/io/wait.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Memory that is there is copied three times as fast, memory whose pages are not at half of this. */
#define SLOW_BYTES_PER_NSEC 4u
#define PIECES_MAX 8u /* of an op in flight: 8 MiB keep a device busy while one is copied */
/* Shorter ones cost more than they hide: 1 MiB in pieces of 128 KiB is no faster. */
#define PIECE_BYTES_MIN (256u << 10)
/* Reads of that may have copiers: a guess; shorter ones are over soon after those are awake. */
#define SHARE_BYTES_MIN (16u << 20)
#define PAGE 4096u
#define NSEC_PER_SEC UINT64_C(1000000000)
#define LOOK_MIN_NSEC 50000u   /* between two looks at a ring of the caller's, at first */
#define LOOK_MAX_NSEC 1000000u /* and when nothing comes */
/* A job without a slot asks again: the daemon's pool may have memory by then.  A guess. */
#define SHORT_NSEC 100000000u

struct bounce_job;

struct bounce_piece {
	struct bounce_job *job;
	struct dsaio_op *op; /* reads or writes the slot */
	struct slot slot;
	struct bounce_cut cut;
	bool has_ended; /* the thread's: it was collected; or it was never put into the ring */

	bool is_posted;	   /* to the copiers */
	struct copy copy;  /* of what was read */
	uint64_t n_copied; /* bytes */
	int copy_error;
	bool is_slow; /* its copy was */
};

/* An op that is bounced; or, in the thread, one that waits for its place in the caller's ring. */
struct bounce_job {
	struct dsaio_op *op;
	struct dsaio_handle *via; /* whose channel takes the pieces */
	struct channel *channel;
	struct slots_share *share; /* its store's; NULL: of a job for a ring */
	struct copiers *copiers;   /* NULL: it has none */
	bool is_slow;		   /* the last copy was: others shall help */
	char *buf;
	uint64_t next, end; /* bytes of the file: the next piece's first, and the op's end */
	uint64_t deadline_nsec;
	struct bounce_piece pieces[PIECES_MAX]; /* a ring, in the order of the file */
	unsigned first, n;
	int stop;	/* no further piece starts, for this errno; 0: more may */
	int error;	/* the first piece that failed */
	uint64_t done;	/* bytes, before the first piece that failed */
	bool is_at_end; /* of the file */
	char *why;	/* a sentence for -ENOMEM; or NULL */

	/* the thread's */
	bool is_for_ring;
	struct dsaio_op *earlier; /* waits for its end, and has a reference */
	enum job_state {
		JOB_WAITING,  /* for earlier, or (for a ring) for room */
		JOB_STARTING, /* may start pieces */
		JOB_FULL,     /* all pieces that it may have are in flight */
	} state;
	bool is_cancel_sent;
	bool is_touched; /* of its pieces some have ended, so n is not 0; it is in the list */
	struct bounce_job *next_touched;
	struct list_node node;		/* of its state's list, or the inbox */
	struct list_node starting_node; /* JOB_STARTING: of its channel's list */
};

struct client_bounce {
	struct client_object object;
	struct dsaio_client *client;
	struct slots slots;
	struct copiers copiers;
	int wake_fd; /* client->poke_fd */
	pthread_t thread;

	pthread_mutex_t lock; /* of all below, and of n_jobs and is_ending of handles */
	pthread_cond_t jobs_ended;
	struct list inbox;
	bool has_thread, is_stopping, is_asleep;
	bool must_look; /* jobs may have been cancelled */

	/* the thread's */
	struct list jobs[JOB_FULL + 1]; /* by state */
	struct list starting;		/* channels with jobs that may start pieces */
	bool is_short;			/* of these one has no slot, and waits for one */
	struct bounce_job *touched;
	struct dsaio_handle *active; /* companions with pieces in flight */
	uint64_t turn;
	uint64_t look_nsec; /* 0: no ring of a caller's is looked at */
};

/* ---- cutting ---- */

static uint64_t round_down(uint64_t n, uint64_t align)
{
	return n & ~(align - 1);
}

/* What a slot starts at a multiple of, in the file. */
static uint64_t bounce_unit(struct bounce_align align)
{
	uint64_t unit = align.offset > align.memory ? align.offset : align.memory;

	return unit > PAGE ? unit : PAGE;
}

uint64_t bounce_bytes(uint64_t off, uint64_t end, struct bounce_align align)
{
	return end - round_down(off, bounce_unit(align));
}

uint64_t bounce_wish(uint64_t off, uint64_t next, uint64_t end, bool is_write)
{
	uint64_t beside = (is_write ? 2 * (next - off) : end - next) / 4, bytes = PIECE_BYTES_MIN;

	while (bytes < SLOT_BYTES_MAX && bytes < beside)
		bytes *= 2;
	return bytes;
}

struct bounce_cut bounce_cut(uint64_t off, uint64_t end, uint64_t slot_bytes,
			     struct bounce_align align, bool is_write)
{
	uint64_t start = round_down(off, bounce_unit(align));
	uint64_t stop = end - start > slot_bytes ? start + slot_bytes : end;
	struct bounce_cut cut = { .len = stop - off, .slot_off = off - start };
	uint64_t io_end = round_down(stop + align.offset - 1, align.offset);

	cut.io_off = off;
	if (!is_write && io_end <= INT64_MAX) { /* no file has a block that passes that */
		cut.io_off = round_down(off, align.offset);
		stop = io_end;
	}
	cut.io_len = stop - cut.io_off;
	cut.io_slot_off = cut.io_off - start;
	return cut;
}

/* ---- time ---- */

uint64_t bounce_deadline(const struct dsaio_op *op)
{
	return op->timeout_msec ? clock_nsec() + (uint64_t)op->timeout_msec * 1000000 : UINT64_MAX;
}

static bool is_over(uint64_t deadline_nsec)
{
	return deadline_nsec != UINT64_MAX && clock_nsec() >= deadline_nsec;
}

uint32_t bounce_timeout_msec(uint64_t deadline_nsec)
{
	uint64_t now;

	if (deadline_nsec == UINT64_MAX)
		return 0;
	now = clock_nsec();
	return now >= deadline_nsec ? 1 : (uint32_t)((deadline_nsec - now) / 1000000 + 1);
}

/* ---- pieces ---- */

static void job_init(struct bounce_job *job, struct dsaio_op *op, struct dsaio_handle *via,
		     struct channel *channel, struct client_bounce *bounce, void *buf)
{
	job->op = op;
	job->via = via;
	job->channel = channel;
	job->share = bounce ? slots_share_get(&bounce->slots, channel->store) : NULL;
	if (bounce && op->opcode == RING_OP_READ && op->len >= SHARE_BYTES_MIN)
		job->copiers = &bounce->copiers;
	job->buf = buf;
	job->next = op->off;
	job->end = op->off + op->len;
	job->deadline_nsec = bounce_deadline(op);
}

static bool job_has_more(const struct bounce_job *job)
{
	return !job->stop && !job->error && !job->is_at_end && job->next < job->end;
}

/* No slot: the job ends with that. */
static void job_has_no_slot(struct bounce_job *job, int r)
{
	job->stop = r == -ENOTCONN ? -ECONNRESET : r; /* the op is open */
	if (r == -ENOMEM && asprintf(&job->why,
				     "%s of %" PRIu64 " bytes at %" PRIu64
				     ": memory that is not from dsaio_alloc() "
				     "is copied through the pool, which has none left: %s",
				     job->op->opcode == RING_OP_READ ? "pread" : "pwrite",
				     job->op->len, job->op->off, dsaio_error()) < 0)
		job->why = NULL; /* the errno has to do */
}

/*
 * Starts the next piece, or notes why there will be none.  is_blocking: in a caller's thread;
 * is_further: this thread has pieces in flight on this store (blocking: of this op).  Returns 0, or
 * -EAGAIN: not now.
 */
static int piece_start(struct bounce_job *job, bool is_blocking, bool is_further)
{
	struct dsaio_op *op = job->op;
	struct bounce_align align = { op->file->offset_align, op->file->memory_align };
	bool is_write = op->opcode == RING_OP_WRITE;
	struct bounce_piece *piece = &job->pieces[(job->first + job->n) % PIECES_MAX];
	uint64_t bytes = bounce_bytes(job->next, job->end, align), done;
	uint64_t wish = bounce_wish(op->off, job->next, job->end, is_write);
	int r;

	if (atomic_load(&op->is_cancelled))
		job->stop = -ECANCELED;
	else if (is_over(job->deadline_nsec))
		job->stop = -ETIMEDOUT;
	if (job->stop)
		return 0;
	*piece = (struct bounce_piece){ .job = job };
	if (is_blocking && bytes > wish)
		bytes = wish;
	if (is_blocking && !is_further)
		r = slots_await(job->share, bytes, job->deadline_nsec, &piece->slot);
	else
		r = slots_take(job->share, bytes, is_further, &piece->slot);
	if (r == -EAGAIN)
		return r;
	if (r < 0) {
		job_has_no_slot(job, r);
		return 0;
	}
	piece->cut = bounce_cut(job->next, job->end, slot_bytes(&piece->slot), align, is_write);
	if (is_write)
		job->stop = slot_fill(&piece->slot, piece->cut.slot_off,
				      job->buf + (job->next - op->off), piece->cut.len, &done);
	if (!job->stop) {
		piece->op = handle_op_new(job->via, false, is_blocking, job->channel);
		if (!piece->op)
			job->stop = -ENOMEM;
	}
	if (job->stop) {
		slots_give(&piece->slot);
		return 0;
	}
	op_set_io(piece->op, op->opcode, piece->cut.io_off, piece->cut.io_len,
		  &(struct buffer_place){
			  .slab = &piece->slot.slab->slab,
			  .slab_off = slot_off(&piece->slot) + piece->cut.io_slot_off,
		  });
	op_set_part(piece->op, piece, op);
	op_set_timeout(piece->op, bounce_timeout_msec(job->deadline_nsec));
	job->next += piece->cut.len;
	job->n++;
	r = is_blocking ? submit_put(piece->op) : channel_put(piece->op);
	if (r == 0)
		return 0;
	/* The daemon is gone; there was room. */
	piece->has_ended = true;
	if (is_blocking) {
		end_op(piece->op, -ECONNRESET, 0);
	} else {
		op_set_result(piece->op, -ECONNRESET, 0);
		op_change_state(piece->op, OP_ENDED);
	}
	return 0;
}

static struct bounce_piece *nth_piece(struct bounce_job *job, unsigned n)
{
	return &job->pieces[(job->first + n) % PIECES_MAX];
}

static struct bounce_piece *first_piece(struct bounce_job *job)
{
	return nth_piece(job, 0);
}

static bool piece_has_ended(const struct bounce_piece *piece)
{
	return piece->has_ended || op_has_ended(piece->op);
}

/* What was done of its bytes; it has ended. */
static uint64_t piece_done(const struct bounce_piece *piece)
{
	uint64_t skip = piece->cut.slot_off - piece->cut.io_slot_off, done = piece->op->done;

	done = done > skip ? done - skip : 0;
	return done < piece->cut.len ? done : piece->cut.len;
}

/* Copies what was read.  In any thread. */
static void piece_copy(struct copy *copy)
{
	struct bounce_piece *piece = container_of(copy, struct bounce_piece, copy);
	const struct bounce_cut *cut = &piece->cut;
	uint64_t at = cut->io_off + (cut->slot_off - cut->io_slot_off) - piece->job->op->off;
	const uint64_t start = clock_nsec();

	piece->copy_error = slot_empty(&piece->slot, cut->slot_off, piece->job->buf + at,
				       piece_done(piece), &piece->n_copied);
	piece->is_slow = piece->n_copied < (clock_nsec() - start) * SLOW_BYTES_PER_NSEC;
}

/*
 * Posts the copies of what has ended, but for the first piece's, which the caller makes.  Only where
 * a copy was slow, as into memory whose pages are not there yet: else one thread keeps up, and others
 * only cost cores and cache (400 MiB from a disk into memory that is there: 0.80 and 0.91 of pinned
 * with their help, 1.05 and 0.95 without).  Only behind what is whole: behind the end of the file
 * nothing is written into the buffer.
 */
static void job_share(struct bounce_job *job)
{
	for (unsigned i = 0; i < job->n; i++) {
		struct bounce_piece *piece = nth_piece(job, i);

		if (!piece_has_ended(piece) || piece->op->result < 0 ||
		    piece_done(piece) < piece->cut.len)
			return;
		if (i && !piece->is_posted) {
			piece->copy.run = piece_copy;
			piece->is_posted = copiers_post(job->copiers, &piece->copy);
			if (!piece->is_posted)
				return;
		}
	}
}

/* The first piece's copy was posted: it is made, and meanwhile others are. */
static void job_await_copy(struct bounce_job *job)
{
	struct bounce_piece *first = first_piece(job);

	for (unsigned i = 0; i < job->n && !copiers_is_done(job->copiers, &first->copy); i++)
		if (nth_piece(job, i)->is_posted)
			copiers_make(job->copiers, &nth_piece(job, i)->copy);
	copiers_await(job->copiers, &first->copy);
}

/* The first piece has ended: copies and counts what it did. */
static void piece_finish(struct bounce_job *job)
{
	struct bounce_piece *piece = first_piece(job);
	struct dsaio_op *op = job->op;
	uint64_t done = piece_done(piece);
	int64_t result = piece->op->result;

	if (job->copiers && job->is_slow && !job->error && !job->is_at_end)
		job_share(job);
	if (piece->is_posted)
		job_await_copy(job);
	if (!job->error && !job->is_at_end) {
		if (op->opcode == RING_OP_READ && done) {
			if (!piece->is_posted)
				piece_copy(&piece->copy);
			done = piece->n_copied;
			job->is_slow = piece->is_slow;
			if (piece->copy_error < 0)
				result = piece->copy_error;
		}
		job->done += done;
		if (result < 0)
			job->error = (int)result;
		else if (done < piece->cut.len && op->opcode == RING_OP_READ)
			job->is_at_end = true;
		else if (done < piece->cut.len)
			job->error = -EIO; /* a write is whole, or fails */
	}
	slots_give(&piece->slot);
	handle_op_unref(TAKE_PTR(piece->op));
	job->first = (job->first + 1) % PIECES_MAX;
	job->n--;
}

/* No piece is in flight, and none will be. */
static void job_end_op(struct bounce_job *job)
{
	struct dsaio_op *op = job->op;

	int64_t result = (int64_t)job->done;

	if (job->error)
		result = job->error;
	else if (job->is_for_ring || (job->next < job->end && !job->is_at_end))
		result = job->stop;
	if (result == -ENOMEM)
		op_set_text(op, TAKE_PTR(job->why));
	free(job->why);
	slots_share_drop(job->share);
	end_op(op, result, job->done);
}

/* ---- in a caller's thread ---- */

int bounce_await_earlier(struct dsaio_op *op, bool is_in_ring, uint64_t deadline_nsec)
{
	struct dsaio_op *earlier;
	int r = 0;

	while (r == 0 && (earlier = inode_conflict(op->inode, op, is_in_ring))) {
		struct wait_for end = { .what = WAIT_OP, .op = earlier };

		r = wait_until(earlier->handle, &end, deadline_nsec);
		handle_op_unref(earlier);
	}
	return r;
}

static struct client_bounce *bounce_get(struct dsaio_client *client);

void bounce_run(struct dsaio_op *op, struct channel *channel, void *buf)
{
	struct client_bounce *bounce = bounce_get(op->handle->client);
	struct bounce_job job = { .n = 0 };

	job_init(&job, op, op->handle, channel, bounce, buf);
	/* Its pieces are in the handle's ring: behind what is there. */
	job.stop = job.share ? bounce_await_earlier(op, true, job.deadline_nsec) : -ENOMEM;
	while (job.n || job_has_more(&job)) {
		int r = 0;

		while (r == 0 && job.n < PIECES_MAX && job_has_more(&job))
			r = piece_start(&job, true, job.n);
		if (job.n) {
			struct wait_for end = { .what = WAIT_OP, .op = first_piece(&job)->op };

			if (job.copiers) /* which of them have ended? */
				wait_poll(op->handle);
			(void)wait_until(op->handle, &end, UINT64_MAX); /* no time-out */
			piece_finish(&job);
		}
	}
	job_end_op(&job);
}

/* ---- jobs, for the thread ---- */

static struct bounce_job *job_of(struct list_node *node)
{
	return node ? container_of(node, struct bounce_job, node) : NULL;
}

static struct bounce_job *job_of_starting(struct list_node *node)
{
	return node ? container_of(node, struct bounce_job, starting_node) : NULL;
}

/* The last of its channel's jobs that may start pieces. */
static void starting_add(struct client_bounce *bounce, struct bounce_job *job)
{
	struct channel *channel = job->channel;

	if (!channel->starting_jobs.first)
		list_push_front(&bounce->starting, &channel->starting_node);
	list_push(&channel->starting_jobs, &job->starting_node);
}

static void starting_remove(struct client_bounce *bounce, struct bounce_job *job)
{
	struct channel *channel = job->channel;

	list_remove(&channel->starting_jobs, &job->starting_node);
	if (!channel->starting_jobs.first)
		list_remove(&bounce->starting, &channel->starting_node);
}

static void job_leave(struct client_bounce *bounce, struct bounce_job *job)
{
	list_remove(&bounce->jobs[job->state], &job->node);
	if (job->state == JOB_STARTING)
		starting_remove(bounce, job);
}

static void job_move(struct client_bounce *bounce, struct bounce_job *job, enum job_state state)
{
	job_leave(bounce, job);
	job->state = state;
	list_push(&bounce->jobs[state], &job->node);
	if (state == JOB_STARTING)
		starting_add(bounce, job);
}

/* Its op is not, or no more, the thread's. */
static void job_free(struct client_bounce *bounce, struct bounce_job *job,
		     struct dsaio_handle *handle)
{
	job_leave(bounce, job);
	if (job->earlier)
		handle_op_unref(job->earlier);
	free(job);
	(void)pthread_mutex_lock(&bounce->lock);
	if (--handle->n_jobs == 0) /* from here on it may be closed and freed */
		(void)pthread_cond_broadcast(&bounce->jobs_ended);
	(void)pthread_mutex_unlock(&bounce->lock);
}

static void job_end(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_handle *handle = job->op->handle;

	job_end_op(job);
	job_free(bounce, job, handle);
}

/* A job with nothing in flight ends with that. */
static void job_fail(struct client_bounce *bounce, struct bounce_job *job, int error)
{
	job->stop = error;
	job_end(bounce, job);
}

static void job_touch(struct client_bounce *bounce, struct bounce_job *job)
{
	if (job->is_touched)
		return;
	job->is_touched = true;
	job->next_touched = bounce->touched;
	bounce->touched = job;
}

/* After pieces were started or finished: where it belongs. */
static void job_settle(struct client_bounce *bounce, struct bounce_job *job)
{
	if (job->n && first_piece(job)->has_ended)
		job_touch(bounce, job);
	if (!job->n && !job_has_more(job))
		job_end(bounce, job);
	else if (job->n < PIECES_MAX && job_has_more(job))
		job_move(bounce, job, JOB_STARTING);
	else
		job_move(bounce, job, JOB_FULL);
}

/* The caller's handle is looked at, once in a turn. */
static void look_at_ring(struct client_bounce *bounce, struct dsaio_handle *handle)
{
	if (handle->polled == bounce->turn)
		return;
	handle->polled = bounce->turn;
	wait_poll(handle);
	if (!bounce->look_nsec)
		bounce->look_nsec = LOOK_MIN_NSEC;
}

/* Finds what the job waits for; false: nothing. */
static bool job_has_earlier(struct bounce_job *job)
{
	struct dsaio_op *earlier = inode_conflict(job->op->inode, job->op, job->is_for_ring);

	if (!earlier)
		return false;
	job->earlier = earlier;
	(void)pthread_mutex_lock(&earlier->handle->lock);
	op_set_awaited(earlier); /* has it ended meanwhile, the thread sees that before it sleeps */
	(void)pthread_mutex_unlock(&earlier->handle->lock);
	return true;
}

/* Puts a job's op into the caller's ring.  False: there is no room. */
static bool job_put(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_op *op = job->op;
	struct dsaio_handle *handle = op->handle;
	int r;

	op_set_timeout(op, bounce_timeout_msec(job->deadline_nsec));
	op_ref(op); /* it may end at once */
	r = inode_put(op->inode, op);
	if (r == 0) {
		if (atomic_load(&op->is_cancelled)) /* too early for the daemon to find it */
			(void)channel_cancel(op);   /* fails with the connection: then all end */
		handle_op_unref(op);
		job_free(bounce, job, handle);
		return true;
	}
	handle_op_unref(op);
	if (r == -EAGAIN)
		return false;
	job_fail(bounce, job, -ECONNRESET);
	return true;
}

/* A job that waits: what for, and is that still so?  Returns true if it waits no more. */
static bool job_look(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_handle *handle = job->op->handle;

	if (is_over(job->deadline_nsec)) {
		job_fail(bounce, job, -ETIMEDOUT);
		return true;
	}
	if (job->earlier && !op_has_ended(job->earlier)) {
		/* Bounced ones come to their end by themselves. */
		if (op_state(job->earlier) != OP_BOUNCED)
			look_at_ring(bounce, handle);
		if (!op_has_ended(job->earlier))
			return false;
	}
	if (job->earlier) {
		handle_op_unref(TAKE_PTR(job->earlier));
		if (job_has_earlier(job))
			return true; /* for another one: look again */
	}
	if (job->is_for_ring) {
		if (job_put(bounce, job))
			return true;
		look_at_ring(bounce, handle);
		return false;
	}
	job_move(bounce, job, JOB_STARTING);
	return true;
}

/* ---- the thread ---- */

static bool take_inbox(struct client_bounce *bounce)
{
	struct list inbox;
	struct bounce_job *job;
	bool did = false;

	(void)pthread_mutex_lock(&bounce->lock);
	inbox = bounce->inbox;
	bounce->inbox = (struct list){ NULL, NULL };
	(void)pthread_mutex_unlock(&bounce->lock);
	while ((job = job_of(list_pop(&inbox)))) {
		list_push(&bounce->jobs[JOB_WAITING], &job->node);
		if (!job_has_earlier(job))
			(void)job_look(bounce, job);
		did = true;
	}
	return did;
}

static void job_cancel(struct client_bounce *bounce, struct bounce_job *job)
{
	if (job->state == JOB_WAITING || !job->n) {
		job_fail(bounce, job, -ECANCELED);
		return;
	}
	if (job->is_cancel_sent)
		return;
	job->is_cancel_sent = true;
	if (!job->stop)
		job->stop = -ECANCELED;
	for (unsigned i = 0; i < job->n; i++)
		if (!nth_piece(job, i)->has_ended)
			(void)channel_cancel(nth_piece(job, i)->op);
}

/* Jobs whose ops were cancelled, or whose handle closes. */
static void look_for_cancels(struct client_bounce *bounce)
{
	bool must_look, is_ending;

	(void)pthread_mutex_lock(&bounce->lock);
	must_look = bounce->must_look;
	bounce->must_look = false;
	(void)pthread_mutex_unlock(&bounce->lock);
	for (int state = 0; must_look && state <= JOB_FULL; state++)
		for (struct bounce_job *job = job_of(bounce->jobs[state].first), *next; job;
		     job = next) {
			next = job_of(job->node.next);
			(void)pthread_mutex_lock(&bounce->lock);
			is_ending = job->op->handle->is_ending;
			(void)pthread_mutex_unlock(&bounce->lock);
			if (atomic_load(&job->op->is_cancelled) ||
			    (is_ending && job->next == job->op->off))
				job_cancel(bounce, job);
		}
}

/* Takes what the daemon has completed, or, when it is gone, all. */
static bool collect(struct client_bounce *bounce)
{
	struct op_list list = { NULL, NULL };
	struct dsaio_handle **link = &bounce->active, *companion;
	bool is_gone = conn_was_gone(bounce->client->link.conn);

	while ((companion = *link)) {
		if (is_gone)
			wait_collect_dead(companion, &list);
		else
			wait_collect(companion, &list);
		link = &companion->next_active;
	}
	if (!list.first)
		return false;
	for (struct dsaio_op *op = list.first; op; op = op_next(op)) {
		op_change_state(op, OP_ENDED);
		op->part_of->has_ended = true;
		op->part_of->job->via->n_pieces--;
		job_touch(bounce, op->part_of->job);
	}
	/* Before jobs end: with its last one a handle, and so its companion, may be freed. */
	for (link = &bounce->active; (companion = *link);)
		if (companion->n_pieces)
			link = &companion->next_active;
		else
			*link = companion->next_active;
	return true;
}

/* Of each job a piece in turn, so that what is copied leaves room for others meanwhile. */
static bool finish_pieces(struct client_bounce *bounce)
{
	struct bounce_job *job, *touched = TAKE_PTR(bounce->touched);
	bool did = touched;

	for (; (job = touched); job_settle(bounce, job)) {
		touched = job->next_touched;
		job->is_touched = false;
		if (first_piece(job)->has_ended) {
			job->share->n_pieces--;
			piece_finish(job);
		}
	}
	return did;
}

static void fail_waiting(struct client_bounce *bounce)
{
	struct bounce_job *job, *next;

	if (!conn_was_gone(bounce->client->link.conn))
		return;
	for (job = job_of(bounce->jobs[JOB_WAITING].first); job; job = next) {
		next = job_of(job->node.next);
		job_fail(bounce, job, -ECONNRESET);
	}
	for (job = job_of(bounce->jobs[JOB_STARTING].first); job; job = next) {
		next = job_of(job->node.next);
		if (!job->n)
			job_fail(bounce, job, -ECONNRESET);
	}
}

static bool look_at_waiting(struct client_bounce *bounce)
{
	bool did = false;

	for (struct bounce_job *job = job_of(bounce->jobs[JOB_WAITING].first), *next; job;
	     job = next) {
		next = job_of(job->node.next);
		did |= job_look(bounce, job);
	}
	return did;
}

static void activate(struct client_bounce *bounce, struct dsaio_handle *companion)
{
	if (companion->n_pieces++)
		return;
	companion->next_active = bounce->active;
	bounce->active = companion;
}

/* A piece of a job that may start some; false: not now. */
static bool start_piece(struct client_bounce *bounce, struct bounce_job *job)
{
	struct slots_share *share = job->share;
	unsigned n = job->n;

	/* The ring is ours to consume: completions make room, and wake us. */
	if (share->refused == bounce->turn || !ring_client_room(&job->channel->ring))
		return false;
	if (piece_start(job, false, share->n_pieces) == -EAGAIN) {
		share->refused = bounce->turn;
		bounce->is_short |= !share->n_pieces;
		return false;
	}
	if (job->n > n) {
		share->n_pieces++;
		if (!nth_piece(job, n)->has_ended)
			activate(bounce, job->via);
	}
	job_settle(bounce, job); /* behind its channel's others, or its end */
	return true;
}

/*
 * A piece of each channel in turn, and in each of its jobs in turn, as long as there are slots and room.
 * A channel whose ring is full, or whose store has no slot, holds up no other.
 */
static bool start_pieces(struct client_bounce *bounce)
{
	struct list_node *node, *next;
	bool did = false, goes_on = true;

	bounce->is_short = false;
	while (goes_on) {
		goes_on = false;
		for (node = bounce->starting.first; node; node = next) {
			struct channel *channel = container_of(node, struct channel, starting_node);

			/* It has a job, so its handle stays whatever ends now. */
			next = node->next;
			goes_on |= start_piece(bounce,
					       job_of_starting(channel->starting_jobs.first));
		}
		did |= goes_on;
	}
	return did;
}

/* Jobs that may start pieces, but have no time left. */
static bool expire(struct client_bounce *bounce)
{
	bool did = false;

	for (struct bounce_job *job = job_of(bounce->jobs[JOB_STARTING].first), *next; job;
	     job = next) {
		next = job_of(job->node.next);
		if (!is_over(job->deadline_nsec))
			continue;
		job->stop = -ETIMEDOUT;
		job_settle(bounce, job);
		did = true;
	}
	return did;
}

static uint64_t next_deadline(const struct client_bounce *bounce)
{
	uint64_t deadline = UINT64_MAX;

	for (int state = JOB_WAITING; state <= JOB_STARTING; state++)
		for (const struct bounce_job *job = job_of(bounce->jobs[state].first); job;
		     job = job_of(job->node.next))
			if (job->deadline_nsec < deadline)
				deadline = job->deadline_nsec;
	return deadline;
}

/* How long the thread may sleep; UINT64_MAX: until something comes. */
static uint64_t sleep_nsec(struct client_bounce *bounce)
{
	uint64_t deadline = next_deadline(bounce), now, nsec = UINT64_MAX;

	if (deadline != UINT64_MAX) {
		now = clock_nsec();
		nsec = deadline > now ? deadline - now : 0;
	}
	if (bounce->is_short && nsec > SHORT_NSEC)
		nsec = SHORT_NSEC;
	if (bounce->look_nsec) {
		if (nsec > bounce->look_nsec)
			nsec = bounce->look_nsec;
		bounce->look_nsec *= 2;
		if (bounce->look_nsec > LOOK_MAX_NSEC)
			bounce->look_nsec = LOOK_MAX_NSEC;
	}
	return nsec;
}

/* Sleeps on the control socket's end, its own eventfd and the companions' bells. */
static void sleep_on_all(struct client_bounce *bounce, uint64_t nsec)
{
	struct pollfd few[16], *fds = few;
	struct timespec ts = { .tv_sec = (time_t)(nsec / NSEC_PER_SEC),
			       .tv_nsec = (long)(nsec % NSEC_PER_SEC) };
	struct dsaio_handle *companion;
	bool is_empty = true;
	size_t n = 2;

	for (companion = bounce->active; companion; companion = companion->next_active)
		n++;
	if (n > sizeof(few) / sizeof(few[0]))
		fds = calloc(n, sizeof(*fds));
	if (!fds) { /* without the bells it has to look by itself */
		fds = few;
		n = 2;
		ts = (struct timespec){ .tv_nsec = LOOK_MAX_NSEC };
		nsec = LOOK_MAX_NSEC;
	}
	fds[0] = (struct pollfd){ .fd = bounce->client->link.conn->fd, .events = POLLRDHUP };
	fds[1] = (struct pollfd){ .fd = bounce->wake_fd, .events = POLLIN };
	n = 2;
	for (companion = bounce->active; companion; companion = companion->next_active) {
		if (!wait_arm(companion))
			is_empty = false;
		if (fds != few || n < sizeof(few) / sizeof(few[0]))
			fds[n++] = (struct pollfd){
				.fd = companion->is_bell_at_end ? -1 : companion->bell_fd,
				.events = POLLIN,
			};
	}
	if (is_empty && ppoll(fds, n, nsec == UINT64_MAX ? NULL : &ts, NULL) > 0) {
		eventfd_t count;

		if (fds[0].revents)
			(void)conn_is_gone(bounce->client->link.conn); /* remembers it */
		if (fds[1].revents)
			(void)eventfd_read(bounce->wake_fd, &count); /* not blocking */
	}
	for (companion = bounce->active; companion; companion = companion->next_active)
		wait_disarm(companion);
	if (fds != few)
		free(fds);
}

static void *bounce_main(void *arg)
{
	struct client_bounce *bounce = arg;
	bool must_stop = false;

	while (!must_stop) {
		bool did, may_sleep;

		bounce->turn++;
		did = take_inbox(bounce);
		look_for_cancels(bounce);
		did |= collect(bounce);
		did |= finish_pieces(bounce);
		fail_waiting(bounce);
		did |= look_at_waiting(bounce);
		did |= start_pieces(bounce);
		client_collect(bounce->client);
		if (did || expire(bounce)) {
			bounce->look_nsec = 0;
			continue;
		}
		(void)pthread_mutex_lock(&bounce->lock);
		may_sleep = !bounce->inbox.first && !bounce->must_look;
		must_stop = may_sleep && bounce->is_stopping;
		bounce->is_asleep = may_sleep;
		(void)pthread_mutex_unlock(&bounce->lock);
		if (!may_sleep || must_stop)
			continue;
		sleep_on_all(bounce, sleep_nsec(bounce));
		(void)pthread_mutex_lock(&bounce->lock);
		bounce->is_asleep = false;
		(void)pthread_mutex_unlock(&bounce->lock);
	}
	return NULL;
}

/* ---- for other threads ---- */

static void bounce_free(struct client_bounce *bounce)
{
	copiers_deinit(&bounce->copiers);
	slots_deinit(&bounce->slots);
	closep(&bounce->wake_fd);
	(void)pthread_cond_destroy(&bounce->jobs_ended);
	(void)pthread_mutex_destroy(&bounce->lock);
	free(bounce);
}

/* All handles are closed, so there is no job. */
static void bounce_on_disconnect(struct client_object *object)
{
	struct client_bounce *bounce = container_of(object, struct client_bounce, object);

	(void)pthread_mutex_lock(&bounce->lock);
	bounce->is_stopping = true;
	(void)pthread_mutex_unlock(&bounce->lock);
	if (bounce->has_thread) {
		client_poke(bounce->client);
		(void)pthread_join(bounce->thread, NULL); /* it is ours: can not fail */
	}
	bounce_free(bounce);
}

static void wake_for_room(struct slots *slots)
{
	client_poke(container_of(slots, struct client_bounce, slots)->client);
}

/* The client's, made at the first use; NULL: no memory. */
static struct client_bounce *bounce_get(struct dsaio_client *client)
{
	struct client_bounce *fresh, *seen = NULL;
	struct client_bounce *bounce = atomic_load_explicit(&client->bounce, memory_order_acquire);

	if (bounce)
		return bounce;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NULL;
	fresh->client = client;
	fresh->wake_fd = -1;
	fresh->object.kind = CLIENT_BOUNCE;
	fresh->object.on_disconnect = bounce_on_disconnect;
	slots_init(&fresh->slots, &client->buffers, wake_for_room);
	copiers_init(&fresh->copiers, copiers_wish(), COPIERS_IDLE_NSEC);
	(void)pthread_mutex_init(&fresh->lock, NULL); /* default attributes: can not fail */
	(void)pthread_cond_init(&fresh->jobs_ended, NULL);
	if (!atomic_compare_exchange_strong(&client->bounce, &seen, fresh)) {
		bounce_free(fresh);
		return seen;
	}
	client_add(client, &fresh->object);
	return fresh;
}

int bounce_start(struct dsaio_client *client)
{
	struct client_bounce *bounce = bounce_get(client);
	int r = 0;

	if (!bounce)
		return error_fail_errno(-ENOMEM, "an op on private memory");
	(void)pthread_mutex_lock(&bounce->lock);
	if (!bounce->has_thread) {
		if (bounce->wake_fd < 0)
			bounce->wake_fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		r = bounce->wake_fd < 0 ? -errno : 0;
		if (r == 0) {
			atomic_store(&client->poke_fd, bounce->wake_fd);
			r = thread_start("dsaio", bounce_main, bounce, &bounce->thread);
		}
		bounce->has_thread = r == 0;
		if (r == 0)
			debug_log("a thread copies for async ops on private memory");
	}
	(void)pthread_mutex_unlock(&bounce->lock);
	return r < 0 ? error_fail_errno(r, "a thread that copies private memory") : 0;
}

static void job_post(struct dsaio_client *client, struct bounce_job *job)
{
	struct client_bounce *bounce = bounce_get(client); /* it is there */
	bool must_wake;

	(void)pthread_mutex_lock(&bounce->lock);
	job->op->handle->n_jobs++;
	list_push(&bounce->inbox, &job->node);
	must_wake = bounce->is_asleep;
	(void)pthread_mutex_unlock(&bounce->lock);
	if (must_wake)
		client_poke(client);
}

static struct bounce_job *job_new(struct dsaio_op *op)
{
	struct bounce_job *job = calloc(1, sizeof(*job));

	if (!job) {
		end_op(op, -ENOMEM, 0);
	}
	return job;
}

void bounce_submit(struct dsaio_op *op, struct dsaio_handle *companion, struct channel *channel,
		   void *buf)
{
	struct dsaio_client *client = op->handle->client;
	struct bounce_job *job = job_new(op);

	if (!job)
		return;
	job_init(job, op, companion, channel, bounce_get(client), buf);
	if (!job->share) {
		job->stop = -ENOMEM;
		job_end_op(job);
		free(job);
		return;
	}
	job_post(client, job);
}

void bounce_defer(struct dsaio_op *op)
{
	struct dsaio_client *client = op->handle->client;
	struct bounce_job *job = job_new(op);

	if (!job)
		return;
	job_init(job, op, NULL, NULL, NULL, NULL);
	job->is_for_ring = true;
	job_post(client, job);
}

void bounce_cancel(struct dsaio_client *client)
{
	struct client_bounce *bounce = atomic_load_explicit(&client->bounce, memory_order_acquire);

	if (!bounce)
		return;
	(void)pthread_mutex_lock(&bounce->lock);
	bounce->must_look = true;
	(void)pthread_mutex_unlock(&bounce->lock);
	client_poke(client);
}

bool bounce_trim(struct dsaio_client *client)
{
	struct client_bounce *bounce = atomic_load_explicit(&client->bounce, memory_order_acquire);

	return bounce && slots_trim(&bounce->slots);
}

void bounce_end_handle(struct dsaio_handle *handle)
{
	struct client_bounce *bounce = atomic_load_explicit(&handle->client->bounce,
							    memory_order_acquire);

	if (!bounce)
		return;
	(void)pthread_mutex_lock(&bounce->lock);
	if (handle->n_jobs) {
		handle->is_ending = true;
		bounce->must_look = true;
		client_poke(handle->client);
		while (handle->n_jobs)
			(void)pthread_cond_wait(&bounce->jobs_ended, &bounce->lock);
	}
	(void)pthread_mutex_unlock(&bounce->lock);
}
