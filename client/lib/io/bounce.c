#include "client/lib/io/bounce.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/base/thread.h"
#include "client/lib/io/bounce_thread.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/inode.h"
#include "client/lib/io/wait.h"

#include <stdlib.h>
#include <string.h>

static void wake_for_room(struct slots *slots)
{
	client_poke(container_of(slots, struct client_bounce, slots)->client);
}

static void forget_map(struct slots *slots, void *map)
{
	gpus_forget(&container_of(slots, struct client_bounce, slots)->gpus, map);
}

struct client_bounce *bounce_new(struct dsaio_client *client)
{
	struct client_bounce *bounce = calloc(1, sizeof(*bounce));

	if (!bounce)
		return NULL;
	bounce->client = client;
	bounce->wake_fd = -1;
	slots_init(&bounce->slots, &client->buffers, wake_for_room);
	bounce->slots.on_unmap = forget_map;
	gpus_init(&bounce->gpus);
	copiers_init(&bounce->copiers, COPIERS_ASK);
	(void)pthread_mutex_init(&bounce->lock, NULL); /* default attributes: cannot fail */
	(void)pthread_cond_init(&bounce->jobs_ended, NULL);
	return bounce;
}

void bounce_reserve(struct dsaio_client *client)
{
	slots_reserve(&client->bounce->slots);
}

void bounce_stop(struct dsaio_client *client)
{
	struct client_bounce *bounce = client->bounce;

	(void)pthread_mutex_lock(&bounce->lock);
	bounce->is_stopping = true;
	(void)pthread_mutex_unlock(&bounce->lock);
	if (bounce->has_thread) {
		client_poke(client);
		(void)pthread_join(bounce->thread, NULL); /* it is ours: cannot fail */
	}
	atomic_store(&client->poke_fd, 0);
	copiers_deinit(&bounce->copiers);
	slots_deinit(&bounce->slots);
	gpus_deinit(&bounce->gpus);
	closep(&bounce->wake_fd);
}

int bounce_start(struct dsaio_client *client)
{
	struct client_bounce *bounce = client->bounce;
	int r = 0;

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
	struct client_bounce *bounce = client->bounce;
	bool must_wake;

	(void)pthread_mutex_lock(&bounce->lock);
	job->op->handle->n_jobs++;
	list_push(&bounce->inbox, &job->node);
	must_wake = bounce->is_asleep;
	(void)pthread_mutex_unlock(&bounce->lock);
	if (must_wake)
		client_poke(client);
}

void bounce_submit(struct dsaio_op *op, struct dsaio_handle *companion,
		   struct handle_channel *channel, const struct job_memory *memory)
{
	struct dsaio_client *client = op->handle->client;
	struct client_bounce *bounce = client->bounce;
	struct bounce_job *job = calloc(1, sizeof(*job));

	if (job)
		job->share = slots_share_get(&bounce->slots, op->file->session.store);
	if (!job || !job->share) {
		free(job);
		end_op(op, -ENOMEM, 0);
		return;
	}
	job_init(job, op, companion, channel, memory, &bounce->copiers, &bounce->gpus);
	/* An op that was to be copied (submit.c) has a reason. */
	if (job->gpu >= 0 && !op_has_why(op))
		op_take_why(op, gpu_memory_why(&client->gpu, job->buf));
	job->copies = &bounce->copies;
	job_post(client, job);
}

void bounce_defer(struct dsaio_op *op)
{
	struct bounce_job *job = calloc(1, sizeof(*job));
	int r = job ? bounce_start(op->handle->client) : -ENOMEM;

	if (r < 0) {
		if (job)
			op_set_text(op, strdup(dsaio_error())); /* NULL: the errno has to do */
		free(job);
		end_op(op, r, 0);
		return;
	}
	inode_leave_ring(op->file->inode, op);
	job_init(job, op, NULL, NULL, NULL, NULL, NULL);
	job->is_for_ring = true;
	job_post(op->handle->client, job);
}

int bounce_await_earlier(struct dsaio_op *op, bool is_in_ring, uint64_t deadline_nsec)
{
	struct dsaio_op *earlier;
	int r = 0;

	while (r == 0 && (earlier = inode_conflict(op->file->inode, op, is_in_ring))) {
		struct wait_for end = { .what = WAIT_OP, .op = earlier };

		r = wait_until(earlier->handle, &end, deadline_nsec);
		handle_op_unref(earlier);
	}
	return r;
}

void bounce_run(struct dsaio_op *op, struct handle_channel *channel,
		const struct job_memory *memory)
{
	struct client_bounce *bounce = op->handle->client->bounce;
	struct bounce_job job = { .n = 0 };

	job_init(&job, op, op->handle, channel, memory, &bounce->copiers, NULL);
	job.share = slots_share_get(&bounce->slots, op->file->session.store);
	/* Its pieces go by the handle's ring, after the ops that are in it. */
	job.stop = job.share ? bounce_await_earlier(op, true, job.deadline_nsec) : -ENOMEM;
	job_run(&job);
}

void bounce_cancel(struct dsaio_client *client)
{
	struct client_bounce *bounce = client->bounce;

	LOCKED(&bounce->lock);

	bounce->must_look = true;
	client_poke(client);
}

void bounce_end_handle(struct dsaio_handle *handle)
{
	struct client_bounce *bounce = handle->client->bounce;
	LOCKED(&bounce->lock);
	if (handle->n_jobs) {
		handle->is_ending = true;
		bounce->must_look = true;
		client_poke(handle->client);
		while (handle->n_jobs)
			(void)pthread_cond_wait(&bounce->jobs_ended, &bounce->lock);
	}
}

/* ---- recovery ---- */

void bounce_park(struct dsaio_client *client)
{
	struct client_bounce *bounce = client->bounce;
	LOCKED(&bounce->lock);
	bounce->must_park = true;
	client_poke(client);
	while (bounce->has_thread && !bounce->is_parked)
		(void)pthread_cond_wait(&bounce->jobs_ended, &bounce->lock);
}

void bounce_unpark(struct dsaio_client *client)
{
	struct client_bounce *bounce = client->bounce;
	LOCKED(&bounce->lock);
	bounce->must_park = false;
	(void)pthread_cond_broadcast(&bounce->jobs_ended);
}
