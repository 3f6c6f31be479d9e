#include "daemon/base/work_queue.h"
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* System calls and messages need little, but the drivers of GPUs are called here, too: a guess.  Pages that
   are not touched cost nothing. */
#define STACK_BYTES (2u << 20)
/* A thread without work ends after that: a new one costs little, ten thousand idle ones don't. */
#define IDLE_SEC 1

struct work_queue {
	char name[16];	      /* a thread's name has 15 characters */
	pthread_mutex_t lock; /* before the spare's */
	pthread_cond_t has_work;
	pthread_cond_t is_quiet; /* no thread works for it any more */
	/* under lock */
	struct list works; /* struct work: queued */
	struct list rooms; /* struct work_room: wait for on_room() */
	bool is_stopping;
	bool is_left;	  /* stopping, and the last thread frees it */
	bool is_at_spare; /* which has it in its list, or works for it */
	bool is_starving; /* an ending thread will serve it */
	unsigned n_threads, n_idle, n_queued;
	unsigned n_shallow;		   /* works that are not is_deep, queued or running */
	unsigned max_threads, max_further; /* constant */
	/* under the spare's lock */
	struct list_node spare_node, starving_node;
	bool is_listed; /* in the list of starving queues */
};

/* The used part of WORK_QUEUE_FURTHER_MAX, changed under the lock of any queue.  Relaxed: it orders no
   other memory. */
static _Atomic unsigned n_further_free = WORK_QUEUE_FURTHER_MAX;

/* Never ends. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t has_work_queue;
	/* under lock */
	struct list work_queues, starving;
	bool is_there;
	struct log_limit log_limit;
} spare = { .lock = PTHREAD_MUTEX_INITIALIZER, .has_work_queue = PTHREAD_COND_INITIALIZER };

/* Under the lock: a thread has nothing to do. */
static void tell_of_room(struct work_queue *work_queue)
{
	struct work_room *room;

	while ((room = list_entry(list_pop(&work_queue->rooms), struct work_room, node))) {
		room->is_waiting = false;
		room->on_room(room);
	}
}

/* Under the lock: waits for work; false if the thread is to end. */
static bool wait_for_work(struct work_queue *work_queue)
{
	struct timespec until;
	int r = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* this clock is always there */
	until.tv_sec += IDLE_SEC;
	while (!work_queue->works.first && !work_queue->is_stopping && r != ETIMEDOUT) {
		work_queue->n_idle++;
		tell_of_room(work_queue);
		r = pthread_cond_clockwait(&work_queue->has_work, &work_queue->lock,
					   CLOCK_MONOTONIC, &until);
		work_queue->n_idle--;
	}
	return work_queue->works.first;
}

static void work_run(struct work *work)
{
	const bool may_hang = work->about.what; /* work may be gone when it has run */
	struct hung_call call;

	if (may_hang)
		hung_begin(&call, &work->about);
	work->run(work);
	if (may_hang)
		hung_end(&call);
}

/* Under the lock: the number of further threads of the queue. */
static unsigned n_further(const struct work_queue *work_queue)
{
	return work_queue->n_threads > work_queue->max_threads
		       ? work_queue->n_threads - work_queue->max_threads
		       : 0;
}

/* Under the lock: whether the limits allow another thread. */
static bool may_start(const struct work_queue *work_queue)
{
	if (work_queue->n_threads + work_queue->is_at_spare < work_queue->max_threads)
		return true;
	return !work_queue->is_at_spare && n_further(work_queue) < work_queue->max_further &&
	       n_further(work_queue) < atomic_load_explicit(&n_further_free, memory_order_relaxed);
}

/* Under the lock: counts another thread if the limits allow it; other queues do so concurrently. */
static bool thread_take(struct work_queue *work_queue)
{
	unsigned n = atomic_load_explicit(&n_further_free, memory_order_relaxed);

	if (!may_start(work_queue))
		return false;
	while (work_queue->n_threads >= work_queue->max_threads) {
		if (n <= n_further(work_queue))
			return false;
		if (atomic_compare_exchange_weak_explicit(
			    &n_further_free, &n, n - 1, memory_order_relaxed, memory_order_relaxed))
			break;
	}
	work_queue->n_threads++;
	return true;
}

/*
 * Under the lock: the same, but a queue that gets no further thread starves.  The second try finds a thread
 * that ended before the queue was in the list.
 */
static bool thread_take_or_starve(struct work_queue *work_queue)
{
	if (thread_take(work_queue))
		return true;
	if (work_queue->is_starving || work_queue->is_stopping ||
	    n_further(work_queue) >= work_queue->max_further)
		return false;
	work_queue->is_starving = true;
	(void)pthread_mutex_lock(&spare.lock);
	list_push(&spare.starving, &work_queue->starving_node);
	work_queue->is_listed = true;
	(void)pthread_mutex_unlock(&spare.lock);
	return thread_take(work_queue);
}

/* Under the lock: a thread ends.  Returns whether it was a further one. */
static bool thread_give(struct work_queue *work_queue)
{
	bool is_further = n_further(work_queue);

	if (is_further)
		(void)atomic_fetch_add_explicit(&n_further_free, 1, memory_order_relaxed);
	work_queue->n_threads--;
	return is_further;
}

/* Runs one piece of work.  Under the lock, which is released meanwhile; there must be work. */
static void first_run(struct work_queue *work_queue)
{
	struct work *work = list_entry(list_pop(&work_queue->works), struct work, node);
	const bool is_deep = work->is_deep; /* work may be gone when it has run */

	work_queue->n_queued--;
	(void)pthread_mutex_unlock(&work_queue->lock);
	work_run(work);
	(void)pthread_mutex_lock(&work_queue->lock);
	if (!is_deep) {
		/* The thread may go on with other work, which may hang. */
		work_queue->n_shallow--;
		tell_of_room(work_queue);
	}
}

static void queue_destroy(struct work_queue *work_queue)
{
	assert(!work_queue->works.first);
	(void)pthread_cond_destroy(&work_queue->has_work);
	(void)pthread_cond_destroy(&work_queue->is_quiet);
	(void)pthread_mutex_destroy(&work_queue->lock);
	free(work_queue);
}

/* Under the lock: no thread works for it, nor will. */
static bool is_over(const struct work_queue *work_queue)
{
	return work_queue->is_stopping && !work_queue->n_threads && !work_queue->is_at_spare &&
	       !work_queue->is_starving;
}

/*
 * Leaves the lock, as the last thing that a thread does with the queue.  The last thread frees a queue
 * that work_queue_leave() gave up, or lets work_queue_free() do so.
 */
static void queue_unlock(struct work_queue *work_queue)
{
	bool is_last = is_over(work_queue), is_left = work_queue->is_left;

	if (is_last)
		(void)pthread_cond_signal(&work_queue->is_quiet);
	(void)pthread_mutex_unlock(&work_queue->lock);
	if (is_last && is_left)
		queue_destroy(work_queue);
}

/* Under the work queue's lock. */
static void spare_take(struct work_queue *work_queue)
{
	(void)pthread_mutex_lock(&spare.lock);
	list_push(&spare.work_queues, &work_queue->spare_node);
	(void)pthread_cond_signal(&spare.has_work_queue);
	(void)pthread_mutex_unlock(&spare.lock);
}

static struct work_queue *spare_next(void)
{
	struct list_node *node;

	(void)pthread_mutex_lock(&spare.lock);
	while (!(node = list_pop(&spare.work_queues)))
		(void)pthread_cond_wait(&spare.has_work_queue, &spare.lock);
	(void)pthread_mutex_unlock(&spare.lock);
	return container_of(node, struct work_queue, spare_node);
}

static void *spare_main(void *arg)
{
	(void)arg;
	(void)pthread_setname_np(pthread_self(), "spare"); /* a name is for people only */
	privileges_serve_clients();
	for (;;) {
		struct work_queue *work_queue = spare_next();

		(void)pthread_mutex_lock(&work_queue->lock);
		if (work_queue->works.first) /* else a thread of the queue did the work */
			first_run(work_queue);
		if (work_queue->works.first)
			spare_take(work_queue);
		else
			work_queue->is_at_spare = false;
		if (!work_queue->is_at_spare)
			tell_of_room(work_queue);
		queue_unlock(work_queue);
	}
	return NULL;
}

/* The main thread handles all signals; a new thread inherits its creator's mask. */
static int thread_create(void *(*run)(void *arg), void *arg)
{
	pthread_t thread;
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* over PTHREAD_STACK_MIN */
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED); /* a known state */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails for a wrong first argument */
	r = pthread_create(&thread, &attr, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

static void *worker_main(void *arg);

/* Under the lock: starts the thread that thread_take() counted. */
static int thread_start(struct work_queue *work_queue)
{
	int r = thread_create(worker_main, work_queue);

	if (r < 0)
		(void)thread_give(
			work_queue); /* the host has none: others would not get it either */
	return r;
}

/* A further thread has ended: the starving queues start threads for what is queued, or starve on. */
static void starving_serve(void)
{
	struct work_queue *work_queue;
	struct list starving;

	(void)pthread_mutex_lock(&spare.lock);
	starving = spare.starving;
	spare.starving = (struct list){ 0 };
	LIST_EACH(struct work_queue, listed, &starving, starving_node)
		listed->is_listed = false;
	(void)pthread_mutex_unlock(&spare.lock);

	while ((work_queue = list_entry(list_pop(&starving), struct work_queue, starving_node))) {
		(void)pthread_mutex_lock(&work_queue->lock);
		work_queue->is_starving = false;
		for (unsigned n = work_queue->n_idle; n < work_queue->n_queued; n++)
			if (!thread_take_or_starve(work_queue) || thread_start(work_queue) < 0)
				break;
		tell_of_room(work_queue);
		queue_unlock(work_queue);
	}
}

static void *worker_main(void *arg)
{
	struct work_queue *work_queue = arg;
	bool was_further;

	(void)pthread_setname_np(pthread_self(), work_queue->name); /* a name is for people only */
	(void)pthread_mutex_lock(&work_queue->lock); /* of the default kind: cannot fail */
	while (wait_for_work(work_queue))
		first_run(work_queue);
	was_further = thread_give(work_queue);
	queue_unlock(work_queue);
	if (was_further)
		starving_serve();
	return NULL;
}

static int spare_start(void)
{
	int r = 0;

	(void)pthread_mutex_lock(&spare.lock);
	if (!spare.is_there)
		r = thread_create(spare_main, NULL);
	if (r == 0)
		spare.is_there = true;
	(void)pthread_mutex_unlock(&spare.lock);
	return r;
}

int work_queue_new_deep(const char *name, unsigned max_threads, unsigned max_further,
			struct work_queue **ret_queue)
{
	struct work_queue *work_queue;
	int r = spare_start();

	assert(max_threads > 0);
	if (r < 0)
		return r;
	work_queue = calloc(1, sizeof(*work_queue));
	if (!work_queue)
		return -ENOMEM;
	(void)snprintf(work_queue->name, sizeof(work_queue->name), "%s", name); /* cut is fine */
	(void)pthread_mutex_init(&work_queue->lock, NULL); /* of the default kind: cannot fail */
	(void)pthread_cond_init(&work_queue->has_work, NULL);
	(void)pthread_cond_init(&work_queue->is_quiet, NULL);
	work_queue->max_threads = max_threads;
	work_queue->max_further = max_further;
	*ret_queue = work_queue;
	return 0;
}

int work_queue_new(const char *name, unsigned max_threads, struct work_queue **ret_queue)
{
	return work_queue_new_deep(name, max_threads, 0, ret_queue);
}

static void log_submit(const struct work_queue *work_queue, int why)
{
	(void)pthread_mutex_lock(&spare.lock);
	log_client(&spare.log_limit,
		   "work queue %s: no thread can be started: %s: its work waits for the spare "
		   "thread",
		   work_queue->name, strerrordesc_np(-why));
	(void)pthread_mutex_unlock(&spare.lock);
}

/* Under the lock. */
static void queue_work(struct work_queue *work_queue, struct work *work, int why_no_thread)
{
	list_push(&work_queue->works, &work->node);
	work_queue->n_queued++;
	work_queue->n_shallow += !work->is_deep;
	(void)pthread_cond_signal(&work_queue->has_work);
	if (!work_queue->n_threads && !work_queue->is_at_spare) {
		work_queue->is_at_spare = true;
		log_submit(work_queue, why_no_thread);
		spare_take(work_queue);
	}
}

void work_queue_submit(struct work_queue *work_queue, struct work *work)
{
	int r = 0;

	(void)pthread_mutex_lock(&work_queue->lock);
	assert(!work_queue->is_stopping);
	if (work_queue->n_queued >= work_queue->n_idle && thread_take_or_starve(work_queue))
		r = thread_start(work_queue);
	queue_work(work_queue, work, r);
	(void)pthread_mutex_unlock(&work_queue->lock);
}

bool work_queue_try_submit(struct work_queue *work_queue, struct work *work, struct work_room *room)
{
	bool may_begin, has_room;
	int r = 0;

	(void)pthread_mutex_lock(&work_queue->lock);
	assert(!work_queue->is_stopping);
	may_begin = work->is_deep || work_queue->n_shallow < work_queue->max_threads;
	has_room = may_begin && work_queue->n_queued < work_queue->n_idle;
	if (may_begin && !has_room && thread_take_or_starve(work_queue)) {
		r = thread_start(work_queue);
		/* Without any thread the spare does one piece of work at a time. */
		has_room = r == 0 || (!work_queue->n_threads && !work_queue->is_at_spare);
	}
	if (has_room) {
		queue_work(work_queue, work, r);
	} else if (!room->is_waiting) {
		room->is_waiting = true;
		list_push(&work_queue->rooms, &room->node);
	}
	(void)pthread_mutex_unlock(&work_queue->lock);
	return has_room;
}

bool work_queue_stop_waiting(struct work_queue *work_queue, struct work_room *room)
{
	bool was_waiting;

	(void)pthread_mutex_lock(&work_queue->lock);
	was_waiting = room->is_waiting;
	if (was_waiting)
		list_remove(&work_queue->rooms, &room->node);
	room->is_waiting = false;
	(void)pthread_mutex_unlock(&work_queue->lock);
	return was_waiting;
}

/* Under the lock: idle threads end now, the others after what is queued. */
static void stop(struct work_queue *work_queue)
{
	work_queue->is_stopping = true;
	(void)pthread_cond_broadcast(&work_queue->has_work);
	(void)pthread_mutex_lock(&spare.lock);
	if (work_queue->is_listed) {
		list_remove(&spare.starving, &work_queue->starving_node);
		work_queue->is_listed = work_queue->is_starving = false;
	}
	(void)pthread_mutex_unlock(&spare.lock);
}

void work_queue_free(struct work_queue *work_queue)
{
	if (!work_queue)
		return;
	(void)pthread_mutex_lock(&work_queue->lock);
	stop(work_queue);
	while (!is_over(work_queue))
		(void)pthread_cond_wait(&work_queue->is_quiet, &work_queue->lock);
	(void)pthread_mutex_unlock(&work_queue->lock);
	queue_destroy(work_queue);
}

void work_queue_leave(struct work_queue *work_queue)
{
	if (!work_queue)
		return;
	(void)pthread_mutex_lock(&work_queue->lock);
	stop(work_queue);
	work_queue->is_left = true;
	queue_unlock(work_queue);
}
