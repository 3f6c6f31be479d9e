#include "daemon/base/work_queue.h"
#include "daemon/base/log.h"
#include "daemon/config/privileges.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
	char name[16];	      /* a thread's name has 15 characters */
	pthread_mutex_t lock; /* before the spare's */
	pthread_cond_t has_work, left_spare;
	/* under lock */
	struct work *first, **last_next;
	bool is_stopping;
	bool is_at_spare; /* which has it in its list, or works for it */
	unsigned n_threads, n_idle, n_queued;
	unsigned max_threads, max_further; /* constant */
	struct helper *next_at_spare;	   /* under the spare's lock */
	struct place places[];		   /* as many as both */
};

/* Of HELPER_FURTHER_MAX; taken and given back under the lock of some helper.  Relaxed: nothing else
   travels with it. */
static _Atomic unsigned n_further_free = HELPER_FURTHER_MAX;

/* Never ends. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t has_helper;
	/* under lock */
	struct helper *first, **last_next;
	bool is_there;
	struct log_limit log_limit;
} spare = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .has_helper = PTHREAD_COND_INITIALIZER,
	    .last_next = &spare.first };

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

/* Under the lock: threads that it has beyond its own. */
static unsigned n_further(const struct helper *helper)
{
	return helper->n_threads > helper->max_threads ? helper->n_threads - helper->max_threads
						       : 0;
}

/* Under the lock: may one more start, as far as numbers go? */
static bool may_start(const struct helper *helper)
{
	if (helper->n_threads + helper->is_at_spare < helper->max_threads)
		return true;
	return !helper->is_at_spare && n_further(helper) < helper->max_further &&
	       n_further(helper) < atomic_load_explicit(&n_further_free, memory_order_relaxed);
}

/* Under the lock: counts one more thread, if there may be; others take at the same time. */
static bool thread_take(struct helper *helper)
{
	unsigned n = atomic_load_explicit(&n_further_free, memory_order_relaxed);

	if (!may_start(helper))
		return false;
	while (helper->n_threads >= helper->max_threads) {
		if (n <= n_further(helper))
			return false;
		if (atomic_compare_exchange_weak_explicit(
			    &n_further_free, &n, n - 1, memory_order_relaxed, memory_order_relaxed))
			break;
	}
	helper->n_threads++;
	return true;
}

/* Under the lock: one less runs. */
static void thread_give(struct helper *helper)
{
	if (n_further(helper))
		(void)atomic_fetch_add_explicit(&n_further_free, 1, memory_order_relaxed);
	helper->n_threads--;
}

/* Under the lock, which is left meanwhile, and with work there. */
static void first_run(struct helper *helper)
{
	struct work *work = helper->first;

	helper->first = work->next;
	if (!helper->first)
		helper->last_next = &helper->first;
	helper->n_queued--;
	(void)pthread_mutex_unlock(&helper->lock);
	work_run(work);
	(void)pthread_mutex_lock(&helper->lock);
}

static void *helper_main(void *arg)
{
	struct place *place = arg;
	struct helper *helper = place->helper;

	(void)pthread_mutex_lock(&helper->lock); /* of the default kind: can not fail */
	while (wait_for_work(helper))
		first_run(helper);
	thread_give(helper);
	place->state = PLACE_OVER;
	(void)pthread_mutex_unlock(&helper->lock);
	return NULL;
}

/* Under the helper's lock. */
static void spare_take(struct helper *helper)
{
	(void)pthread_mutex_lock(&spare.lock);
	helper->next_at_spare = NULL;
	*spare.last_next = helper;
	spare.last_next = &helper->next_at_spare;
	(void)pthread_cond_signal(&spare.has_helper);
	(void)pthread_mutex_unlock(&spare.lock);
}

static struct helper *spare_next(void)
{
	struct helper *helper;

	(void)pthread_mutex_lock(&spare.lock);
	while (!spare.first)
		(void)pthread_cond_wait(&spare.has_helper, &spare.lock);
	helper = spare.first;
	spare.first = helper->next_at_spare;
	if (!spare.first)
		spare.last_next = &spare.first;
	(void)pthread_mutex_unlock(&spare.lock);
	return helper;
}

static void *spare_main(void *arg)
{
	(void)arg;
	privileges_serve_clients();
	for (;;) {
		struct helper *helper = spare_next();

		(void)pthread_mutex_lock(&helper->lock);
		if (helper->first) /* else a thread of its own was there first */
			first_run(helper);
		if (helper->first) {
			spare_take(helper);
		} else {
			helper->is_at_spare = false;
			(void)pthread_cond_signal(&helper->left_spare);
		}
		(void)pthread_mutex_unlock(&helper->lock);
	}
	return NULL;
}

/* All signals are the main thread's: a thread begins with its maker's mask. */
static int thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg)
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
	r = pthread_create(thread, &attr, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

static int spare_start(void)
{
	pthread_t thread;
	int r = 0;

	(void)pthread_mutex_lock(&spare.lock);
	if (!spare.is_there)
		r = thread_create(&thread, spare_main, NULL);
	if (!spare.is_there && r == 0) {
		(void)pthread_setname_np(thread, "spare"); /* a name is for people only */
		(void)pthread_detach(thread);
		spare.is_there = true;
	}
	(void)pthread_mutex_unlock(&spare.lock);
	return r;
}

int helper_new_deep(const char *name, unsigned max_threads, unsigned max_further,
		    struct helper **ret_helper)
{
	struct helper *helper;
	int r = spare_start();

	assert(max_threads > 0);
	if (r < 0)
		return r;
	helper = calloc(1, sizeof(*helper) + (max_threads + max_further) * sizeof(struct place));
	if (!helper)
		return -ENOMEM;
	(void)snprintf(helper->name, sizeof(helper->name), "%s", name); /* cut is fine */
	(void)pthread_mutex_init(&helper->lock, NULL); /* of the default kind: can not fail */
	(void)pthread_cond_init(&helper->has_work, NULL);
	(void)pthread_cond_init(&helper->left_spare, NULL);
	helper->last_next = &helper->first;
	helper->max_threads = max_threads;
	helper->max_further = max_further;
	*ret_helper = helper;
	return 0;
}

int helper_new(const char *name, unsigned max_threads, struct helper **ret_helper)
{
	return helper_new_deep(name, max_threads, 0, ret_helper);
}

/* Under the lock, and one is taken, so there is a place. */
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
	r = thread_create(&place->thread, helper_main, place);
	if (r < 0) {
		thread_give(helper);
		return r;
	}
	(void)pthread_setname_np(place->thread, helper->name); /* a name is for people only */
	place->state = PLACE_RUNS;
	return 0;
}

static void log_submit(const struct helper *helper, int why)
{
	(void)pthread_mutex_lock(&spare.lock);
	log_client(
		&spare.log_limit,
		"helper %s: no thread can be started for it: %s: its work waits for the one that "
		"is spare",
		helper->name, strerrordesc_np(-why));
	(void)pthread_mutex_unlock(&spare.lock);
}

void helper_submit(struct helper *helper, struct work *work)
{
	int r = 0;

	work->next = NULL;
	(void)pthread_mutex_lock(&helper->lock);
	assert(!helper->is_stopping);
	if (helper->n_queued >= helper->n_idle && thread_take(helper))
		r = thread_start(helper);
	*helper->last_next = work;
	helper->last_next = &work->next;
	helper->n_queued++;
	(void)pthread_cond_signal(&helper->has_work);
	if (!helper->n_threads && !helper->is_at_spare) {
		helper->is_at_spare = true;
		log_submit(helper, r);
		spare_take(helper);
	}
	(void)pthread_mutex_unlock(&helper->lock);
}

bool helper_has_room(struct helper *helper)
{
	bool has_room;

	(void)pthread_mutex_lock(&helper->lock);
	has_room = helper->n_queued < helper->n_idle || may_start(helper);
	(void)pthread_mutex_unlock(&helper->lock);
	return has_room;
}

void helper_free(struct helper *helper)
{
	if (!helper)
		return;
	(void)pthread_mutex_lock(&helper->lock);
	helper->is_stopping = true;
	(void)pthread_cond_broadcast(&helper->has_work);
	while (helper->is_at_spare)
		(void)pthread_cond_wait(&helper->left_spare, &helper->lock);
	(void)pthread_mutex_unlock(&helper->lock);
	for (unsigned i = 0; i < helper->max_threads + helper->max_further; i++) {
		bool is_there;

		(void)pthread_mutex_lock(&helper->lock);
		is_there = helper->places[i].state != PLACE_FREE; /* no new one is made now */
		(void)pthread_mutex_unlock(&helper->lock);
		if (is_there)
			(void)pthread_join(helper->places[i].thread, NULL); /* joined only once */
	}
	assert(!helper->first);
	(void)pthread_cond_destroy(&helper->has_work);
	(void)pthread_cond_destroy(&helper->left_spare);
	(void)pthread_mutex_destroy(&helper->lock);
	free(helper);
}
