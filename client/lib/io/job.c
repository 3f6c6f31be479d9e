#include "client/lib/io/job.h"

#include "client/lib/base/deadline.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/wait.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* Memory that is there is copied three times as fast, memory whose pages are not at half of this. */
#define SLOW_BYTES_PER_NSEC 4u
/* Reads of that may have copiers: a guess; shorter ones are over soon after those are awake. */
#define SHARE_BYTES_MIN (16u << 20)

/* ---- states of a piece ---- */

#define TO(state) (1u << (state))
/* At each state: those that may follow. */
static const uint8_t follows[] = {
	[PIECE_FREE] = TO(PIECE_FILLING) | TO(PIECE_IN_FLIGHT) | TO(PIECE_ENDED),
	[PIECE_FILLING] = TO(PIECE_IN_FLIGHT) | TO(PIECE_ENDED),
	[PIECE_IN_FLIGHT] = TO(PIECE_ENDED),
	[PIECE_ENDED] = TO(PIECE_EMPTYING) | TO(PIECE_COPIED) | TO(PIECE_FREE),
	[PIECE_EMPTYING] = TO(PIECE_COPIED),
	[PIECE_COPIED] = TO(PIECE_FREE),
};

/* Moves the piece, which must be allowed to follow, and puts it into job->copies or takes it out. */
static void piece_move(struct job_piece *piece, enum piece_state state)
{
	struct bounce_job *job = piece->job;
	unsigned in_copies = job->gpu < 0 ? 0 : TO(PIECE_FILLING) | TO(PIECE_EMPTYING);

	assert(follows[piece->state] & TO(state));
	if (in_copies & TO(piece->state))
		list_remove(job->copies, &piece->copy_node);
	piece->state = state;
	if (in_copies & TO(state))
		list_push(job->copies, &piece->copy_node);
}

void job_init(struct bounce_job *job, struct dsaio_op *op, struct dsaio_handle *via,
	      struct handle_channel *channel, const struct job_memory *memory,
	      struct copiers *copiers, struct gpus *gpus)
{
	job->op = op;
	job->via = via;
	job->channel = channel;
	job->gpus = gpus;
	job->gpu = memory ? memory->gpu : -1;
	if (job->gpu < 0 && op->opcode == RING_OP_READ && op->len >= SHARE_BYTES_MIN)
		job->copiers = copiers;
	job->buf = memory ? memory->buf : NULL;
	job->next = op->off;
	job->end = op->off + op->len;
	job->deadline_nsec = deadline_in_msec(op->timeout_msec);
}

/* ---- the start of a piece ---- */

/* There will be no slot, for that error. */
static void job_has_no_slot(struct bounce_job *job, int r)
{
	job->stop = r == -ENOTCONN ? -ECONNRESET : r; /* the op is open, and the daemon lost */
	if (r == -ENOMEM &&
	    asprintf(&job->why,
		     "%s of %" PRIu64 " bytes at %" PRIu64
		     ": memory that is not from dsaio_alloc() "
		     "is copied through the pool, which has none left: %s",
		     op_verb(job->op), job->op->len, job->op->off, dsaio_error()) < 0)
		job->why = NULL; /* the errno has to do */
	job->why_error = r;
}

/* The GPU could not copy, for that errno.  Takes why. */
static int job_has_no_copy(struct bounce_job *job, int r, const char *memory, uint64_t len,
			   char *why)
{
	if (r < 0 && !job->why &&
	    asprintf(&job->why,
		     "%s of %" PRIu64 " bytes at %" PRIu64 ": %" PRIu64
		     " bytes of GPU memory at %p: %s%s",
		     op_verb(job->op), job->op->len, job->op->off, len, (const void *)memory,
		     why ? why : strerrordesc_np(-r),
		     r == -EFAULT
			     ? ": the range must lie within one allocation, which is not freed "
			       "before the op ends"
			     : "") < 0)
		job->why = NULL; /* the errno has to do */
	if (r < 0)
		job->why_error = r;
	free(why);
	return r;
}

/* Queues the copy from the buffer to the slot.  Returns 0 or a negative errno. */
static int piece_start_fill(struct job_piece *piece, char *from)
{
	const struct slice *slice = &piece->slice;
	struct bounce_job *job = piece->job;
	char *why = NULL;
	int r = gpus_copy(job->gpus, job->gpu, true, &piece->slot, slice->slot_off, from,
			  slice->len, &piece->gpu_copy, &why);

	if (r < 0)
		return job_has_no_copy(job, r, from, slice->len, why);
	piece_move(piece, PIECE_FILLING);
	return 0;
}

/* Makes the piece's op, and puts it into the ring.  Returns 0, also if the daemon is lost; -EAGAIN: there is no
   room while it is away; or -ENOMEM. */
static int piece_put(struct job_piece *piece, bool is_blocking)
{
	struct bounce_job *job = piece->job;
	int r;

	piece->op = handle_op_new(job->via, false, is_blocking, job->channel);
	if (!piece->op)
		return -ENOMEM;
	op_set_io(piece->op, job->op->opcode, piece->slice.io_off, piece->slice.io_len,
		  &(struct buffer_place){
			  .slab = &piece->slot.slab->mapped->slab,
			  .slab_off = slot_off(&piece->slot) + piece->slice.io_slot_off,
		  });
	piece->op->part_of = piece;
	piece->op->is_dsync = job->op->is_dsync;
	piece->op->file = job->op->file; /* borrowed */
	piece->op->grow_end = job->op->grow_end;
	piece->op->timeout_msec = deadline_left_msec(job->deadline_nsec);
	r = is_blocking ? wait_put(piece->op, false) : channel_put(piece->op, false);
	if (r == -EAGAIN) {
		op_change_state(piece->op, OP_ENDED);
		piece->op->file = NULL;
		handle_op_unref(TAKE_PTR(piece->op));
		return r;
	}
	piece_move(piece, r == 0 ? PIECE_IN_FLIGHT : PIECE_ENDED);
	if (r == 0)
		return 0;
	/* The daemon is lost, or does not have its memory; or its time was over before there was room. */
	if (r == -ENOTCONN)
		r = -ECONNRESET;
	if (is_blocking) {
		end_op(piece->op, r, 0);
	} else {
		op_set_result(piece->op, r, 0);
		op_change_state(piece->op, OP_ENDED);
	}
	return 0;
}

void job_look_at_op(struct bounce_job *job)
{
	if (atomic_load(&job->op->is_cancelled))
		job->stop = -ECANCELED;
	else if (deadline_is_over(job->deadline_nsec))
		job->stop = -ETIMEDOUT;
	else if (conn_was_lost(job->op->handle->client->conn))
		job->stop = -ECONNRESET;
}

int job_start_piece(struct bounce_job *job, bool is_blocking, bool is_further)
{
	struct dsaio_op *op = job->op;
	struct slice_align align = { op->file->session.offset_align,
				     op->file->session.memory_align };
	bool is_write = op->opcode == RING_OP_WRITE, is_queued = job->gpu >= 0;
	struct job_piece *piece = &job->pieces[(job->first + job->n) % JOB_PIECES_MAX];
	uint64_t bytes = slice_bytes(job->next, job->end, align);
	uint64_t wish = is_queued ? slice_wish_queued(op->len)
				  : slice_wish(op->off, job->next, job->end, is_write);
	uint64_t done;
	char *from = job->buf + (job->next - op->off);
	int r;

	job_look_at_op(job);
	if (job->stop)
		return 0;
	*piece = (struct job_piece){ .job = job };
	if ((is_blocking || is_queued) && bytes > wish)
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
	piece->slice = slice_cut(job->next, job->end, slot_bytes(&piece->slot), align, is_write);
	if (is_write && is_queued) {
		r = piece_start_fill(piece, from);
	} else {
		if (is_write)
			r = slot_fill(&piece->slot, piece->slice.slot_off, from, piece->slice.len,
				      &done);
		if (r == 0)
			r = piece_put(piece, is_blocking);
	}
	if (r < 0) {
		if (r != -EAGAIN)
			job->stop = r;
		slots_release(&piece->slot);
		return r == -EAGAIN ? r : 0;
	}
	job->next += piece->slice.len;
	job->n++;
	return 0;
}

void job_end_piece(struct job_piece *piece)
{
	op_change_state(piece->op, OP_ENDED);
	piece_move(piece, PIECE_ENDED);
}

/* Wanted bytes that an ended piece has done. */
static uint64_t piece_done(const struct job_piece *piece)
{
	uint64_t skip = piece->slice.slot_off - piece->slice.io_slot_off;
	uint64_t done = piece->op ? piece->op->done : 0;

	done = done > skip ? done - skip : 0;
	return done < piece->slice.len ? done : piece->slice.len;
}

/* The place in the program's buffer of the bytes of a read. */
static char *piece_buf(const struct job_piece *piece)
{
	const struct slice *slice = &piece->slice;
	uint64_t at = slice->io_off + (slice->slot_off - slice->io_slot_off) - piece->job->op->off;

	return piece->job->buf + at;
}

/* Copies the bytes read.  Any thread. */
static void piece_copy(struct copy *copy)
{
	struct job_piece *piece = container_of(copy, struct job_piece, copy);
	const uint64_t start = clock_nsec();

	piece->error = slot_empty(&piece->slot, piece->slice.slot_off, piece_buf(piece),
				  piece_done(piece), &piece->n_copied);
	piece->is_slow = piece->n_copied < (clock_nsec() - start) * SLOW_BYTES_PER_NSEC;
}

/*
 * Posts the copies of ended pieces, except the first one's, which the caller makes.  Only where a copy
 * was slow, as into memory whose pages are not there yet.  Elsewhere one thread keeps up, and others
 * only cost cores and cache (400 MiB from a disk into memory that is there: 0.80 and 0.91 of pinned
 * with their help, 1.05 and 0.95 without).  Stops at the first piece that is not whole, since nothing
 * is written into the buffer behind the end of the file.
 */
static void job_share(struct bounce_job *job)
{
	for (unsigned i = 0; i < job->n; i++) {
		struct job_piece *piece = job_piece(job, i);

		if (piece->state == PIECE_IN_FLIGHT || piece->op->result < 0 ||
		    piece_done(piece) < piece->slice.len)
			return;
		if (i && piece->state == PIECE_ENDED) {
			piece->copy.run = piece_copy;
			if (!copiers_post(job->copiers, &piece->copy))
				return;
			piece_move(piece, PIECE_EMPTYING);
		}
	}
}

/* The first piece's copy was posted: copies others until it is made. */
static void job_await_copy(struct bounce_job *job)
{
	struct job_piece *first = job_piece(job, 0);

	for (unsigned i = 0; i < job->n && !copiers_is_done(job->copiers, &first->copy); i++)
		if (job_piece(job, i)->state == PIECE_EMPTYING)
			copiers_make(job->copiers, &job_piece(job, i)->copy);
	copiers_await(job->copiers, &first->copy);
	piece_move(first, PIECE_COPIED);
}

/* ---- copies by a GPU ---- */

/* Queues the copy of the bytes read, unless a piece before was not whole: see job_share(). */
static void piece_start_empty(struct job_piece *piece)
{
	struct bounce_job *job = piece->job;
	uint64_t done = piece_done(piece);
	char *to = piece_buf(piece), *why = NULL;

	if (!job->is_over && done) {
		piece->error = gpus_copy(job->gpus, job->gpu, false, &piece->slot,
					 piece->slice.slot_off, to, done, &piece->gpu_copy, &why);
		(void)job_has_no_copy(job, piece->error, to, done, why);
		piece->n_copied = piece->error < 0 ? 0 : done;
	}
	piece_move(piece, piece->n_copied ? PIECE_EMPTYING : PIECE_COPIED);
	if (piece->error < 0 || piece->op->result < 0 || done < piece->slice.len)
		job->is_over = true;
}

void job_queue_copies(struct bounce_job *job)
{
	if (job->gpu < 0 || job->op->opcode == RING_OP_WRITE)
		return;
	for (unsigned i = 0; i < job->n && job_piece(job, i)->state != PIECE_IN_FLIGHT; i++)
		if (job_piece(job, i)->state == PIECE_ENDED)
			piece_start_empty(job_piece(job, i));
}

bool job_end_copy(struct job_piece *piece)
{
	struct bounce_job *job = piece->job;
	char *why = NULL;
	int r = gpu_copy_look(&piece->gpu_copy, &why);

	if (r == -EAGAIN)
		return false;
	piece->error = job_has_no_copy(job, r, piece_buf(piece), piece->slice.len, why);
	if (piece->state == PIECE_EMPTYING) {
		if (r < 0)
			piece->n_copied = 0;
		piece_move(piece, PIECE_COPIED);
		return true;
	}
	job_look_at_op(job);
	if (!piece->error)
		piece->error = job->stop ? job->stop : piece_put(piece, false);
	if (piece->error == -EAGAIN) {
		piece->error = 0;
		return false;
	}
	if (piece->error) {
		piece_move(piece, PIECE_ENDED);
		job->is_over = true;
	}
	return true;
}

/* ---- the end of a piece ---- */

bool job_may_finish(struct bounce_job *job)
{
	enum piece_state first = job_piece(job, 0)->state; /* PIECE_FREE: there is none */

	/* A copier's copy is awaited, a GPU's is not. */
	return first == PIECE_ENDED || first == PIECE_COPIED ||
	       (first == PIECE_EMPTYING && job->gpu < 0);
}

void job_finish_piece(struct bounce_job *job)
{
	struct job_piece *piece = job_piece(job, 0);
	const bool is_read = job->op->opcode == RING_OP_READ;

	if (job->copiers && job->is_slow && !job->is_over)
		job_share(job);
	if (piece->state == PIECE_EMPTYING)
		job_await_copy(job);
	if (!job->error && !job->is_at_end) {
		uint64_t done;

		if (is_read && piece->state == PIECE_ENDED)
			piece_copy(&piece->copy);
		done = is_read ? piece->n_copied : piece_done(piece);
		job->done += done;
		job->is_slow = piece->is_slow;
		if (piece->error < 0 || piece->op->result < 0)
			job->error = piece->error < 0 ? piece->error : (int)piece->op->result;
		else if (done < piece->slice.len && is_read)
			job->is_at_end = true;
		else if (done < piece->slice.len)
			job->error = -EIO; /* a write is whole, or fails */
		job->is_over |= job->error || job->is_at_end;
	}
	if (piece->op && job->error == piece->op->result && !job->op->because)
		job->op->because = piece->op->because;
	slots_release(&piece->slot);
	job->op->is_unknown |= piece->op && piece->op->is_unknown;
	if (piece->op)
		handle_op_unref(TAKE_PTR(piece->op));
	piece_move(piece, PIECE_FREE);
	job->first = (job->first + 1) % JOB_PIECES_MAX;
	job->n--;
}

void job_end_op(struct bounce_job *job)
{
	struct dsaio_op *op = job->op;

	int64_t result = (int64_t)job->done;

	if (job->error)
		result = job->error;
	else if (job->is_for_ring || (job->next < job->end && !job->is_at_end))
		result = job->stop;
	if (result < 0 && result == job->why_error)
		op_set_text(op, TAKE_PTR(job->why));
	free(job->why);
	slots_share_drop(job->share);
	end_op(op, result, job->done);
}

/* ---- blocking ops ---- */

/* Sleeps until the first piece's op has ended, and notes which others have. */
static void job_await_end(struct bounce_job *job)
{
	struct wait_for end = { .what = WAIT_OP, .op = job_piece(job, 0)->op };

	(void)wait_until(end.op->handle, &end, DEADLINE_NEVER);
	for (unsigned i = 0; i < job->n; i++)
		if (job_piece(job, i)->state == PIECE_IN_FLIGHT &&
		    op_has_ended(job_piece(job, i)->op))
			piece_move(job_piece(job, i), PIECE_ENDED);
}

void job_run(struct bounce_job *job)
{
	while (job->n || job_has_more(job)) {
		int r = 0;

		while (r == 0 && job_may_start(job))
			r = job_start_piece(job, true, job->n);
		if (job->n) {
			if (job->copiers) /* which of them have ended? */
				(void)wait_poll(job->op->handle, false);
			job_await_end(job);
			job_finish_piece(job);
		}
	}
	job_end_op(job);
}
