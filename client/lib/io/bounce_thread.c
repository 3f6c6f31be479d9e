#include "client/lib/io/bounce_thread.h"

#include "client/lib/base/deadline.h"
#include "client/lib/io/file.h"
#include "client/lib/io/inode.h"
#include "client/lib/io/wait.h"

#include <stdlib.h>

/*
 * Pauses between two looks at callers' rings, and at copies by a GPU while I/O may end, too: the first, and the
 * longest, as each is twice the one before.  Guesses: a GPU copies 1 MiB in 50 us, and a wake-up every 200 us costs
 * one core 3 percent.
 */
#define LOOK_MIN_NSEC 50000u
#define LOOK_MAX_NSEC 1000000u
#define COPIES_MAX_NSEC 200000u
#define SLEEP_FDS_MAX 64u /* a guess: with more handles the thread looks after LOOK_MAX_NSEC */
/* Pause before a job without a slot asks again, since the pool may have memory then.  A guess. */
#define SHORT_NSEC 100000000u

/* Adds the job behind those of its channel that may start pieces. */
static void starting_add(struct client_bounce *bounce, struct bounce_job *job)
{
	struct handle_channel *channel = job->channel;

	if (!channel->starting_jobs.first)
		list_push_front(&bounce->starting, &channel->starting_node);
	list_push(&channel->starting_jobs, &job->starting_node);
}

static void starting_remove(struct client_bounce *bounce, struct bounce_job *job)
{
	struct handle_channel *channel = job->channel;

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

/* The op has ended, or has gone into its ring. */
static void job_free(struct client_bounce *bounce, struct bounce_job *job,
		     struct dsaio_handle *handle)
{
	job_leave(bounce, job);
	if (job->earlier)
		handle_op_unref(job->earlier);
	free(job);
	LOCKED(&bounce->lock);
	if (--handle->n_jobs == 0) /* another thread may now close and free it */
		(void)pthread_cond_broadcast(&bounce->jobs_ended);
}

static void job_end(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_handle *handle = job->op->handle;

	job_end_op(job);
	job_free(bounce, job, handle);
}

/* Ends a job that has no piece in flight with that error. */
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

/* Moves the job to the list of its new state, after pieces were started or finished. */
static void job_settle(struct client_bounce *bounce, struct bounce_job *job)
{
	if (job_may_finish(job))
		job_touch(bounce, job);
	if (!job->n && !job_has_more(job))
		job_end(bounce, job);
	else if (job_may_start(job))
		job_move(bounce, job, JOB_STARTING);
	else
		job_move(bounce, job, JOB_FULL);
}

/* Consumes the completions of a caller's handle, at most once in a round. */
static void look_at_ring(struct client_bounce *bounce, struct dsaio_handle *handle)
{
	if (handle->polled == bounce->round)
		return;
	handle->polled = bounce->round;
	(void)wait_poll(handle, false);
	bounce->has_looked = true;
}

/* Finds the op that the job has to wait for.  False: there is none. */
static bool job_has_earlier(struct bounce_job *job)
{
	/* A linked sync waits for those in its ring, too. */
	const bool is_in_ring = job->is_for_ring && !job->op->is_linked;
	struct dsaio_op *earlier = inode_conflict(job->op->file->inode, job->op, is_in_ring);

	if (!earlier)
		return false;
	job->earlier = earlier;
	LOCKED(&earlier->handle->lock);
	/* If it has ended already, the thread notices before it sleeps. */
	earlier->is_awaited = true;
	return true;
}

/* Puts a job's op into the caller's ring.  False: there is no room. */
static bool job_put(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_op *op = job->op;
	struct dsaio_handle *handle = op->handle;
	int r;

	op->timeout_msec = deadline_left_msec(job->deadline_nsec);
	op_ref(op); /* the op may end, and be freed, at once */
	r = inode_put(op->file->inode, op);
	if (r == 0) {
		if (atomic_load(&op->is_cancelled)) /* before the daemon knew it */
			(void)channel_cancel(op);   /* fails only with the connection */
		handle_op_unref(op);
		job_free(bounce, job, handle);
		return true;
	}
	handle_op_unref(op);
	if (r == -EAGAIN)
		return false;
	job_fail(bounce, job, r == -ENOTCONN ? -ECONNRESET : r);
	return true;
}

/* A linked sync goes only if the writes before it were done: else the job has ended. */
static bool job_may_go(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_op *op = job->op;

	if (!op->is_linked || !inode_has_failed(op->file->inode, op->n_failed))
		return true;
	op_set_text(op, strdup("fsync: not started, since a write of the file that it is linked to "
			       "has failed: see the message of that op")); /* NULL: the errno */
	job_fail(bounce, job, -ECANCELED);
	return false;
}

/* Checks whether a waiting job may go on.  Returns true if its state changed. */
static bool job_look(struct client_bounce *bounce, struct bounce_job *job)
{
	struct dsaio_handle *handle = job->op->handle;

	job_look_at_op(job);
	if (job->stop) {
		job_end(bounce, job);
		return true;
	}
	if (job->earlier && !op_has_ended(job->earlier)) {
		/* This thread ends bounced ops, so there is nothing to consume for them. */
		if (op_state(job->earlier) != OP_BOUNCED)
			look_at_ring(bounce, handle);
		if (!op_has_ended(job->earlier))
			return false;
	}
	if (job->earlier) {
		handle_op_unref(TAKE_PTR(job->earlier));
		if (job_has_earlier(job))
			return true; /* it waits for another op: look again */
	}
	if (job->is_for_ring) {
		if (!job_may_go(bounce, job) || job_put(bounce, job))
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
	while ((job = list_entry(list_pop(&inbox), struct bounce_job, node))) {
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
		if (job_piece(job, i)->state == PIECE_IN_FLIGHT) {
			op_set_cancelled(job_piece(job, i)->op); /* for recovery */
			(void)channel_cancel(job_piece(job, i)->op);
		}
}

/* Cancels the jobs of cancelled ops, and jobs without progress of a handle that closes. */
static void look_for_cancels(struct client_bounce *bounce)
{
	bool must_look, is_ending;

	(void)pthread_mutex_lock(&bounce->lock);
	must_look = bounce->must_look;
	bounce->must_look = false;
	(void)pthread_mutex_unlock(&bounce->lock);
	for (int state = 0; must_look && state <= JOB_FULL; state++)
		LIST_EACH(struct bounce_job, job, &bounce->jobs[state], node) {
			(void)pthread_mutex_lock(&bounce->lock);
			is_ending = job->op->handle->is_ending;
			(void)pthread_mutex_unlock(&bounce->lock);
			if (atomic_load(&job->op->is_cancelled) ||
			    (is_ending && job->next == job->op->off))
				job_cancel(bounce, job);
		}
}

void bounce_end_pieces(struct client_bounce *bounce, const struct op_list *list)
{
	struct dsaio_handle **link, *companion;

	for (struct dsaio_op *op = list->first; op; op = op_next(op)) {
		job_end_piece(op->part_of);
		op->part_of->job->via->n_pieces--;
		job_touch(bounce, op->part_of->job);
	}
	/* This comes before jobs end, because the last job of a handle may free its companion. */
	for (link = &bounce->active; (companion = *link);)
		if (companion->n_pieces)
			link = &companion->next_active;
		else
			*link = companion->next_active;
}

/* Takes completed pieces.  When the daemon is lost these are all; while it is away, those that need no daemon. */
static bool collect(struct client_bounce *bounce)
{
	const struct dsaio_conn *conn = bounce->client->conn;
	struct op_list list = { NULL, NULL };
	int error = conn_was_gone(conn) && conn_was_lost(conn) ? -ECONNRESET : 0;

	for (struct dsaio_handle *companion = bounce->active; companion;
	     companion = companion->next_active) {
		wait_collect(companion, error, &list);
		if (conn_is_away(conn))
			CHANNEL_EACH(c, companion)
				channel_look_away(c, &list);
	}
	if (!list.first)
		return false;
	bounce_end_pieces(bounce, &list);
	return true;
}

/* Finishes one piece of each job, so that slots become free for all of them. */
static bool finish_pieces(struct client_bounce *bounce)
{
	struct bounce_job *job, *touched = TAKE_PTR(bounce->touched);
	bool did = touched;

	for (; (job = touched); job_settle(bounce, job)) {
		touched = job->next_touched;
		job->is_touched = false;
		job_queue_copies(job);
		if (job_may_finish(job)) {
			job->share->n_pieces--;
			job_finish_piece(job);
		}
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

/* There is always room for a daemon that is gone: the piece then ends at once. */
static bool has_room(const struct client_bounce *bounce, const struct bounce_job *job)
{
	return channel_room(job->channel) || conn_was_lost(bounce->client->conn);
}

/* Looks at copies by GPUs.  Those of a stream end in their order, so one that goes on answers for others. */
static bool look_at_copies(struct client_bounce *bounce)
{
	bool did = false;

	LIST_EACH(struct job_piece, piece, &bounce->copies, copy_node) {
		struct gpu_stream *stream = piece->gpu_copy.stream;
		struct bounce_job *job = piece->job;

		/* The room for a write comes with a completion, which wakes the thread. */
		if (stream->looked == bounce->round ||
		    (piece->state == PIECE_FILLING && !has_room(bounce, job)))
			continue;
		if (!job_end_copy(piece)) {
			stream->looked = bounce->round;
			continue;
		}
		if (piece->state == PIECE_IN_FLIGHT)
			activate(bounce, job->via);
		job_touch(bounce, job);
		did = true;
	}
	return did;
}

static bool look_at_waiting(struct client_bounce *bounce)
{
	bool did = false;

	LIST_EACH(struct bounce_job, job, &bounce->jobs[JOB_WAITING], node)
		did |= job_look(bounce, job);
	return did;
}

/* Starts a piece of the job.  False: there is no room or slot now. */
static bool start_piece(struct client_bounce *bounce, struct bounce_job *job)
{
	struct slots_share *share = job->share;
	unsigned n = job->n;

	/* This thread alone consumes the companion's ring, so a completion makes room and wakes it. */
	if ((share->refused == bounce->round || !channel_room(job->channel)) &&
	    !conn_was_lost(bounce->client->conn)) /* else the job ends */
		return false;
	if (job_start_piece(job, false, share->n_pieces) == -EAGAIN) {
		share->refused = bounce->round;
		bounce->is_short |= !share->n_pieces;
		return false;
	}
	if (job->n > n) {
		share->n_pieces++;
		if (job_piece(job, n)->state == PIECE_IN_FLIGHT)
			activate(bounce, job->via);
	}
	job_settle(bounce, job); /* moves it behind the others of its channel, or ends it */
	return true;
}

/*
 * Starts pieces while there are slots and room.  Channels take turns, as do the jobs of a channel.
 * A channel whose ring is full, or whose store has no slot, does not delay the others.
 */
static bool start_pieces(struct client_bounce *bounce)
{
	struct list_node *node, *next;
	bool did = false, goes_on = true;

	bounce->is_short = false;
	while (goes_on) {
		goes_on = false;
		for (node = bounce->starting.first; node; node = next) {
			struct handle_channel *channel = container_of(node, struct handle_channel,
								      starting_node);

			/* The next channel has a job, so its handle stays even if this job ends. */
			next = node->next;
			goes_on |= start_piece(bounce,
					       list_entry(channel->starting_jobs.first,
							  struct bounce_job, starting_node));
		}
		did |= goes_on;
	}
	return did;
}

/* Ends jobs that may start pieces after their deadline. */
static bool expire(struct client_bounce *bounce)
{
	bool did = false;

	LIST_EACH(struct bounce_job, job, &bounce->jobs[JOB_STARTING], node) {
		if (!deadline_is_over(job->deadline_nsec))
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
		LIST_EACH(const struct bounce_job, job, &bounce->jobs[state], node)
			if (job->deadline_nsec < deadline)
				deadline = job->deadline_nsec;
	return deadline;
}

/* How long the thread may sleep.  UINT64_MAX: until an event. */
static uint64_t sleep_nsec(struct client_bounce *bounce)
{
	uint64_t deadline = next_deadline(bounce), now, nsec = UINT64_MAX;

	if (deadline != UINT64_MAX) {
		now = clock_nsec();
		nsec = deadline > now ? deadline - now : 0;
	}
	if ((bounce->is_short || conn_is_away(bounce->client->conn)) && nsec > SHORT_NSEC)
		nsec = SHORT_NSEC; /* away: cancels and deadlines of pieces */
	if (bounce->copies.first || bounce->has_looked) {
		const uint64_t max = bounce->copies.first ? COPIES_MAX_NSEC : LOOK_MAX_NSEC;

		if (bounce->pause_nsec > max)
			bounce->pause_nsec = max;
		if (nsec > bounce->pause_nsec)
			nsec = bounce->pause_nsec;
		bounce->pause_nsec *= 2;
	}
	return nsec;
}

/* Sleeps until the session ends, the eventfd is written, or a companion's doorbell rings. */
static void sleep_on_all(struct client_bounce *bounce, uint64_t nsec)
{
	struct dsaio_handle *companion;
	struct pollfd fds[SLEEP_FDS_MAX];
	struct timespec ts;
	bool is_empty = true;
	size_t n = 2;

	fds[1] = (struct pollfd){ .fd = bounce->wake_fd, .events = POLLIN };
	for (companion = bounce->active; companion; companion = companion->next_active) {
		if (!wait_arm(companion))
			is_empty = false;
		if (n < SLEEP_FDS_MAX)
			fds[n++] = (struct pollfd){
				.fd = companion->is_doorbell_at_end ? -1 : companion->doorbell_fd,
				.events = POLLIN,
			};
		else if (nsec > LOOK_MAX_NSEC)
			nsec = LOOK_MAX_NSEC;
	}
	ts = timespec_of(nsec);
	if (is_empty &&
	    conn_sleep(bounce->client->conn, fds, n, nsec == UINT64_MAX ? NULL : &ts) > 0 &&
	    fds[1].revents) {
		eventfd_t count;

		(void)eventfd_read(bounce->wake_fd, &count); /* not blocking */
	}
	for (companion = bounce->active; companion; companion = companion->next_active)
		wait_disarm(companion);
}

bool bounce_round(struct client_bounce *bounce)
{
	bool did;

	bounce->round++;
	bounce->has_looked = false;
	did = take_inbox(bounce);
	look_for_cancels(bounce);
	did |= collect(bounce);
	did |= look_at_copies(bounce);
	did |= finish_pieces(bounce);
	did |= look_at_waiting(bounce);
	did |= start_pieces(bounce);
	client_collect(bounce->client);
	if (!did)
		did = expire(bounce);
	if (did)
		bounce->pause_nsec = LOOK_MIN_NSEC;
	return did;
}

/* Rests while recovery wants that. */
static void park(struct client_bounce *bounce)
{
	LOCKED(&bounce->lock);

	while (bounce->must_park) {
		bounce->is_parked = true;
		(void)pthread_cond_broadcast(&bounce->jobs_ended);
		(void)pthread_cond_wait(&bounce->jobs_ended, &bounce->lock);
	}
	bounce->is_parked = false;
}

void *bounce_main(void *arg)
{
	struct client_bounce *bounce = arg;
	bool must_stop = false;

	conn_never_waits();
	while (!must_stop) {
		bool may_sleep;

		park(bounce);
		if (bounce_round(bounce))
			continue;
		(void)pthread_mutex_lock(&bounce->lock);
		may_sleep = !bounce->inbox.first && !bounce->must_look && !bounce->must_park;
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
