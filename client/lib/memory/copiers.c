#include "client/lib/memory/copiers.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/thread.h"
#include "proto/util/cleanup.h"
#include "proto/util/cpu.h"

#define CPUS_LEFT 2u

unsigned copiers_wanted(void)
{
	const unsigned n = cpu_count();

	return n <= CPUS_LEFT ? 0 : n - CPUS_LEFT < COPIERS_MAX ? n - CPUS_LEFT : COPIERS_MAX;
}

void copiers_init(struct copiers *copiers, unsigned n_max)
{
	*copiers = (struct copiers){ .n_max = n_max };
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

static void *copier_main(void *arg)
{
	struct copiers *copiers = arg;
	LOCKED(&copiers->lock);

	for (;;) {
		while (!copiers->n_queued && !copiers->is_stopping)
			(void)pthread_cond_wait(&copiers->posted, &copiers->lock);
		if (!copiers->n_queued)
			return NULL;
		copiers->n_idle--;
		make(copiers, container_of(copiers->copies.first, struct copy, node));
		copiers->n_idle++;
		(void)pthread_cond_broadcast(&copiers->done); /* its owner may be gone now */
	}
}

/* The new thread waits for the lock. */
static void start_one(struct copiers *copiers)
{
	if (copiers->n_max == COPIERS_ASK)
		copiers->n_max = copiers_wanted();
	if (copiers->n_threads >= copiers->n_max ||
	    thread_start("dsaio-copy", copier_main, copiers,
			 &copiers->threads[copiers->n_threads]) < 0)
		return;
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
	(void)pthread_mutex_unlock(&copiers->lock);
	for (unsigned i = 0; i < copiers->n_threads; i++)
		(void)pthread_join(copiers->threads[i], NULL); /* it is ours: cannot fail */
	(void)pthread_cond_destroy(&copiers->posted);
	(void)pthread_cond_destroy(&copiers->done);
	(void)pthread_mutex_destroy(&copiers->lock);
}

bool copiers_post(struct copiers *copiers, struct copy *copy)
{
	bool is_posted;
	LOCKED(&copiers->lock);

	if (copiers->n_queued >= copiers->n_idle)
		start_one(copiers);
	is_posted = copiers->n_threads;
	if (is_posted) {
		copy->state = COPY_QUEUED;
		list_push(&copiers->copies, &copy->node);
		copiers->n_queued++;
		(void)pthread_cond_signal(&copiers->posted);
	}
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
