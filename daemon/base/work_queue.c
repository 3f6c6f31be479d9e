#include "daemon/base/work_queue.h"
#include "daemon/base/signals.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
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
	char name[16]; /* a thread's name has 15 characters */
	pthread_mutex_t lock;
	pthread_cond_t has_work;
	pthread_cond_t is_quiet; /* no thread works for it any more */
	/* under lock */
	struct list works; /* struct work: queued */
	struct list rooms; /* struct work_room: wait for on_room() */
	bool is_stopping;
	bool is_left; /* stopping, and the last thread frees it */
	unsigned n_threads, n_queued;
	unsigned n_idle;    /* threads that run no work, though some may be queued for them */
	unsigned n_bounded; /* works that are not may_exceed_max, queued or running */
	unsigned max_threads, max_overflow; /* constant */
};

/* The free part of WORK_QUEUE_OVERFLOW_MAX, changed under the lock of any queue.  Relaxed: it orders no
   other memory. */
static _Atomic unsigned n_overflow_free = WORK_QUEUE_OVERFLOW_MAX;

/* Under the lock: a thread has nothing to do. */
static void report_room(struct work_queue *work_queue)
{
	struct work_room *room;

	while ((room = list_entry(list_pop(&work_queue->rooms), struct work_room, node))) {
		room->is_waiting = false;
		room->on_room(room);
	}
}

/* Under the lock: waits for work; false if the thread is to end.  The only thread waits without limit. */
static bool wait_for_work(struct work_queue *work_queue)
{
	struct timespec until;
	int r = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* this clock is always there */
	until.tv_sec += IDLE_SEC;
	while (!work_queue->works.first && !work_queue->is_stopping &&
	       (r != ETIMEDOUT || work_queue->n_threads == 1)) {
		report_room(work_queue);
		if (work_queue->n_threads == 1)
			r = pthread_cond_wait(&work_queue->has_work, &work_queue->lock);
		else
			r = pthread_cond_clockwait(&work_queue->has_work, &work_queue->lock,
						   CLOCK_MONOTONIC, &until);
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

/* Under the lock: the number of overflow threads of the queue. */
static unsigned n_overflow(const struct work_queue *work_queue)
{
	return work_queue->n_threads > work_queue->max_threads
		       ? work_queue->n_threads - work_queue->max_threads
		       : 0;
}

/* Under the lock: whether the limits allow another thread. */
static bool may_start(const struct work_queue *work_queue)
{
	if (work_queue->n_threads < work_queue->max_threads)
		return true;
	return n_overflow(work_queue) < work_queue->max_overflow &&
	       n_overflow(work_queue) <
		       atomic_load_explicit(&n_overflow_free, memory_order_relaxed);
}

/* Under the lock: counts another thread if the limits allow it; other queues do so concurrently. */
static bool thread_take(struct work_queue *work_queue)
{
	unsigned n = atomic_load_explicit(&n_overflow_free, memory_order_relaxed);

	if (!may_start(work_queue))
		return false;
	while (work_queue->n_threads >= work_queue->max_threads) {
		if (n <= n_overflow(work_queue))
			return false;
		if (atomic_compare_exchange_weak_explicit(&n_overflow_free, &n, n - 1,
							  memory_order_relaxed,
							  memory_order_relaxed))
			break;
	}
	work_queue->n_threads++;
	work_queue->n_idle++;
	return true;
}

/* Under the lock: a thread ends. */
static void thread_release(struct work_queue *work_queue)
{
	if (n_overflow(work_queue))
		(void)atomic_fetch_add_explicit(&n_overflow_free, 1, memory_order_relaxed);
	work_queue->n_threads--;
	work_queue->n_idle--;
}

/* Runs one piece of work.  Under the lock, which is released meanwhile; there must be work. */
static void first_run(struct work_queue *work_queue)
{
	struct work *work = list_entry(list_pop(&work_queue->works), struct work, node);
	const bool may_exceed_max = work->may_exceed_max; /* work may be gone when it has run */

	work_queue->n_queued--;
	work_queue->n_idle--;
	(void)pthread_mutex_unlock(&work_queue->lock);
	work_run(work);
	(void)pthread_mutex_lock(&work_queue->lock);
	work_queue->n_idle++;
	if (!may_exceed_max) {
		/* The thread may go on with other work, which may hang. */
		work_queue->n_bounded--;
		report_room(work_queue);
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
	return work_queue->is_stopping && !work_queue->n_threads;
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

static void *worker_main(void *arg);

/* The main thread handles all signals; a new thread inherits its creator's mask. */
static int thread_create(struct work_queue *work_queue)
{
	pthread_t thread;
	sigset_t before;
	pthread_attr_t attr;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* over PTHREAD_STACK_MIN */
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED); /* a known state */
	signals_block(&before);
	r = pthread_create(&thread, &attr, worker_main, work_queue);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

/* Under the lock: starts the thread that thread_take() counted. */
static int thread_start(struct work_queue *work_queue)
{
	int r = thread_create(work_queue);

	/* The host has none, and others would not get it either: the queue's threads do the work. */
	if (r < 0)
		thread_release(work_queue);
	return r;
}

static void *worker_main(void *arg)
{
	struct work_queue *work_queue = arg;

	(void)pthread_setname_np(pthread_self(), work_queue->name); /* a name is for people only */
	(void)pthread_mutex_lock(&work_queue->lock); /* of the default kind: cannot fail */
	while (wait_for_work(work_queue))
		first_run(work_queue);
	thread_release(work_queue);
	queue_unlock(work_queue);
	return NULL;
}

int work_queue_new_overflow(const char *name, unsigned max_threads, unsigned max_overflow,
			    struct work_queue **ret_queue)
{
	struct work_queue *work_queue = calloc(1, sizeof(*work_queue));
	int r;

	assert(max_threads > 0);
	if (!work_queue)
		return -ENOMEM;
	(void)snprintf(work_queue->name, sizeof(work_queue->name), "%s", name); /* cut is fine */
	(void)pthread_mutex_init(&work_queue->lock, NULL); /* of the default kind: cannot fail */
	(void)pthread_cond_init(&work_queue->has_work, NULL);
	(void)pthread_cond_init(&work_queue->is_quiet, NULL);
	work_queue->max_threads = max_threads;
	work_queue->max_overflow = max_overflow;
	work_queue->n_threads = work_queue->n_idle = 1;
	r = thread_create(work_queue);
	if (r < 0) {
		queue_destroy(work_queue);
		return r;
	}
	*ret_queue = work_queue;
	return 0;
}

int work_queue_new(const char *name, unsigned max_threads, struct work_queue **ret_queue)
{
	return work_queue_new_overflow(name, max_threads, 0, ret_queue);
}

/* Under the lock. */
static void queue_work(struct work_queue *work_queue, struct work *work)
{
	list_push(&work_queue->works, &work->node);
	work_queue->n_queued++;
	work_queue->n_bounded += !work->may_exceed_max;
	(void)pthread_cond_signal(&work_queue->has_work);
}

void work_queue_submit(struct work_queue *work_queue, struct work *work)
{
	LOCKED(&work_queue->lock);
	assert(!work_queue->is_stopping);
	if (work_queue->n_queued >= work_queue->n_idle && thread_take(work_queue))
		(void)thread_start(work_queue);
	queue_work(work_queue, work);
}

bool work_queue_try_submit(struct work_queue *work_queue, struct work *work, struct work_room *room)
{
	bool may_begin, has_room;

	LOCKED(&work_queue->lock);
	assert(!work_queue->is_stopping);
	may_begin = work->may_exceed_max || work_queue->n_bounded < work_queue->max_threads;
	has_room = may_begin && work_queue->n_queued < work_queue->n_idle;
	if (may_begin && !has_room && thread_take(work_queue))
		has_room = thread_start(work_queue) == 0;
	if (has_room) {
		queue_work(work_queue, work);
	} else if (!room->is_waiting) {
		room->is_waiting = true;
		list_push(&work_queue->rooms, &room->node);
	}
	return has_room;
}

bool work_queue_stop_waiting(struct work_queue *work_queue, struct work_room *room)
{
	LOCKED(&work_queue->lock);
	if (!room->is_waiting)
		return false;
	list_remove(&work_queue->rooms, &room->node);
	room->is_waiting = false;
	return true;
}

/* Under the lock: idle threads end now, the others after what is queued. */
static void stop(struct work_queue *work_queue)
{
	work_queue->is_stopping = true;
	(void)pthread_cond_broadcast(&work_queue->has_work);
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
