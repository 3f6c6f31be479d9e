#include "daemon/helper.h"
#include "daemon/log.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* System calls and messages only: no deep stacks.  Pages that are not touched cost nothing. */
#define STACK_BYTES (256u << 10)
/* A thread without work ends after that: a new one costs little, ten thousand idle ones don't. */
#define IDLE_SEC 1

/*
 * A thread that ends marks its place as its last act under the lock; whoever takes the place
 * next, or helper_free(), joins it, which does not wait.
 */
enum place_state { PLACE_FREE, PLACE_RUNS, PLACE_OVER };

struct place {
	enum place_state state;
	pthread_t thread;
	struct helper *helper;
};

struct helper {
	char name[16]; /* a thread's name has 15 characters */
	pthread_mutex_t lock;
	pthread_cond_t has_work;
	/* under lock */
	struct work *first, **last_next;
	bool is_stopping;
	unsigned max_threads, n_threads, n_idle, n_queued;
	struct place places[]; /* max_threads */
};

int helper_new(const char *name, unsigned max_threads, struct helper **ret_helper)
{
	struct helper *helper = calloc(1, sizeof(*helper) + max_threads * sizeof(struct place));

	assert(max_threads > 0);
	if (!helper)
		return -ENOMEM;
	(void)snprintf(helper->name, sizeof(helper->name), "%s", name); /* cut is fine */
	(void)pthread_mutex_init(&helper->lock, NULL); /* of the default kind: can not fail */
	(void)pthread_cond_init(&helper->has_work, NULL);
	helper->last_next = &helper->first;
	helper->max_threads = max_threads;
	*ret_helper = helper;
	return 0;
}

/* Under the lock: waits for work; false if the thread is to end. */
static bool wait_for_work(struct helper *helper)
{
	struct timespec until;
	int r = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* this clock is always there */
	until.tv_sec += IDLE_SEC;
	while (!helper->first && !helper->is_stopping && r != ETIMEDOUT) {
		helper->n_idle++;
		r = pthread_cond_clockwait(&helper->has_work, &helper->lock, CLOCK_MONOTONIC,
					   &until);
		helper->n_idle--;
	}
	return helper->first;
}

static void work_run(struct work *work)
{
	bool can_stick = work->about.what; /* work may be gone when it has run */
	struct stuck stuck;

	if (can_stick)
		stuck_begin(&stuck, &work->about);
	work->run(work);
	if (can_stick)
		stuck_end(&stuck);
}

static void *helper_main(void *arg)
{
	struct place *place = arg;
	struct helper *helper = place->helper;

	(void)pthread_mutex_lock(&helper->lock); /* of the default kind: can not fail */
	while (wait_for_work(helper)) {
		struct work *work = helper->first;

		helper->first = work->next;
		if (!helper->first)
			helper->last_next = &helper->first;
		helper->n_queued--;
		(void)pthread_mutex_unlock(&helper->lock);
		work_run(work);
		(void)pthread_mutex_lock(&helper->lock);
	}
	helper->n_threads--;
	place->state = PLACE_OVER;
	(void)pthread_mutex_unlock(&helper->lock);
	return NULL;
}

/* All signals are the main thread's: a thread begins with its maker's mask. */
static int thread_create(struct place *place)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* over PTHREAD_STACK_MIN */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails for a wrong first argument */
	r = pthread_create(&place->thread, &attr, helper_main, place);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

/* Under the lock, with fewer than max_threads. */
static int thread_start(struct helper *helper)
{
	struct place *place = helper->places;
	int r;

	while (place->state == PLACE_RUNS)
		place++;
	if (place->state == PLACE_OVER)
		(void)pthread_join(place->thread, NULL); /* started, and joined once */
	place->state = PLACE_FREE;
	place->helper = helper;
	r = thread_create(place);
	if (r < 0)
		return r;
	(void)pthread_setname_np(place->thread, helper->name); /* a name is for people only */
	place->state = PLACE_RUNS;
	helper->n_threads++;
	return 0;
}

void helper_submit(struct helper *helper, struct work *work)
{
	int r = 0;

	work->next = NULL;
	(void)pthread_mutex_lock(&helper->lock);
	assert(!helper->is_stopping);
	if (helper->n_queued >= helper->n_idle && helper->n_threads < helper->max_threads)
		r = thread_start(helper);
	if (helper->n_threads > 0) {
		*helper->last_next = work;
		helper->last_next = &work->next;
		helper->n_queued++;
		(void)pthread_cond_signal(&helper->has_work);
		(void)pthread_mutex_unlock(&helper->lock);
		return;
	}
	(void)pthread_mutex_unlock(&helper->lock);

	log_warning("helper %s: no thread, its work holds up its caller: %s", helper->name,
		    strerrordesc_np(-r));
	work_run(work);
}

void helper_free(struct helper *helper)
{
	if (!helper)
		return;
	(void)pthread_mutex_lock(&helper->lock);
	helper->is_stopping = true;
	(void)pthread_cond_broadcast(&helper->has_work);
	(void)pthread_mutex_unlock(&helper->lock);
	for (unsigned i = 0; i < helper->max_threads; i++) {
		bool is_there;

		(void)pthread_mutex_lock(&helper->lock);
		is_there = helper->places[i].state != PLACE_FREE; /* no new one is made now */
		(void)pthread_mutex_unlock(&helper->lock);
		if (is_there)
			(void)pthread_join(helper->places[i].thread, NULL); /* joined only once */
	}
	assert(!helper->first);
	(void)pthread_cond_destroy(&helper->has_work);
	(void)pthread_mutex_destroy(&helper->lock);
	free(helper);
}
