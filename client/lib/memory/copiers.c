#include "client/lib/memory/copiers.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/thread.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define CPUS_LEFT 2u
#define ASK_AGAIN_NSEC UINT64_C(1000000000) /* after a thread could not be started */

unsigned copiers_wanted(void)
{
	cpu_set_t set;
	unsigned n;

	/* EINVAL: there are more CPUs than a set holds, which is enough. */
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return errno == EINVAL ? COPIERS_MAX : 0;
	n = (unsigned)CPU_COUNT(&set);
	if (n <= CPUS_LEFT)
		return 0;
	return n - CPUS_LEFT < COPIERS_MAX ? n - CPUS_LEFT : COPIERS_MAX;
}

void copiers_init(struct copiers *copiers, unsigned n_max, uint64_t idle_nsec)
{
	*copiers = (struct copiers){
		.n_max = n_max < COPIERS_MAX ? n_max : COPIERS_MAX,
		.idle_nsec = idle_nsec,
	};
	(void)pthread_mutex_init(&copiers->lock, NULL); /* default attributes: cannot fail */
	(void)pthread_cond_init(&copiers->posted, NULL);
	(void)pthread_cond_init(&copiers->done, NULL);
}

/* ---- under the lock ---- */

/* Makes a queued copy, without the lock. */
static void make(struct copiers *copiers, struct copy *copy)
{
	list_remove(&copiers->copies, &copy->node);
	copiers->n_queued--;
	copy->state = COPY_RUNNING;
	(void)pthread_mutex_unlock(&copiers->lock);
	copy->run(copy);
	(void)pthread_mutex_lock(&copiers->lock);
	copy->state = COPY_DONE;
}

/* Sleeps for a copy; false: none has come for so long. */
static bool await_posted(struct copiers *copiers)
{
	const struct timespec until = timespec_of(clock_nsec() + copiers->idle_nsec);
	int r = 0;

	while (!copiers->n_queued && !copiers->is_stopping && r != ETIMEDOUT)
		r = pthread_cond_clockwait(&copiers->posted, &copiers->lock, CLOCK_MONOTONIC,
					   &until);
	return copiers->n_queued;
}

/* ---- the threads ---- */

static void *copier_main(void *arg)
{
	struct copier *self = arg;
	struct copiers *copiers = self->copiers;
	LOCKED(&copiers->lock);

	while (await_posted(copiers)) {
		copiers->n_idle--;
		make(copiers, container_of(copiers->copies.first, struct copy, node));
		copiers->n_idle++;
		(void)pthread_cond_broadcast(&copiers->done); /* its owner may be gone now */
	}
	copiers->n_idle--;
	copiers->n_threads--;
	self->state = COPIER_ENDED;
	(void)pthread_cond_broadcast(&copiers->done); /* for copiers_deinit() */
	return NULL;
}

/* A thread that has ended does not take the lock any more. */
static void join_ended(struct copier *copier)
{
	if (copier->state != COPIER_ENDED)
		return;
	(void)pthread_join(copier->thread, NULL); /* it is ours: cannot fail */
	copier->state = COPIER_NONE;
}

/* Under the lock, which the new thread waits for. */
static void start_one(struct copiers *copiers)
{
	struct copier *copier = copiers->threads;
	int r;

	if (copiers->n_threads >= copiers->n_max ||
	    (copiers->refused_nsec && clock_nsec() - copiers->refused_nsec < ASK_AGAIN_NSEC))
		return;
	while (copier->state == COPIER_LIVES) /* there is a place */
		copier++;
	join_ended(copier);
	copier->copiers = copiers;
	r = thread_start("dsaio-copy", copier_main, copier, &copier->thread);
	copiers->refused_nsec = r < 0 ? clock_nsec() : 0;
	if (r < 0) {
		debug_log("private memory: no further thread to copy: %s", strerror(-r));
		return;
	}
	copier->state = COPIER_LIVES;
	copiers->n_threads++;
	copiers->n_idle++;
	debug_log("private memory: %u threads help to copy", copiers->n_threads);
}

/* ---- for owners ---- */

void copiers_deinit(struct copiers *copiers)
{
	(void)pthread_mutex_lock(&copiers->lock);
	copiers->is_stopping = true;
	(void)pthread_cond_broadcast(&copiers->posted);
	while (copiers->n_threads)
		(void)pthread_cond_wait(&copiers->done, &copiers->lock);
	(void)pthread_mutex_unlock(&copiers->lock);
	for (unsigned i = 0; i < COPIERS_MAX; i++)
		join_ended(&copiers->threads[i]);
	(void)pthread_cond_destroy(&copiers->posted);
	(void)pthread_cond_destroy(&copiers->done);
	(void)pthread_mutex_destroy(&copiers->lock);
}

bool copiers_post(struct copiers *copiers, struct copy *copy)
{
	bool is_posted;

	if (!copiers->n_max)
		return false;
	(void)pthread_mutex_lock(&copiers->lock);
	if (copiers->n_queued >= copiers->n_idle)
		start_one(copiers);
	is_posted = copiers->n_threads;
	if (is_posted) {
		copy->state = COPY_QUEUED;
		list_push(&copiers->copies, &copy->node);
		copiers->n_queued++;
		(void)pthread_cond_signal(&copiers->posted);
	}
	(void)pthread_mutex_unlock(&copiers->lock);
	return is_posted;
}

void copiers_make(struct copiers *copiers, struct copy *copy)
{
	LOCKED(&copiers->lock);

	if (copy->state == COPY_QUEUED)
		make(copiers, copy);
}

bool copiers_is_done(struct copiers *copiers, const struct copy *copy)
{
	LOCKED(&copiers->lock);

	return copy->state == COPY_DONE;
}

void copiers_await(struct copiers *copiers, const struct copy *copy)
{
	LOCKED(&copiers->lock);

	while (copy->state != COPY_DONE)
		(void)pthread_cond_wait(&copiers->done, &copiers->lock);
}
