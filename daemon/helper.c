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

/* System calls and messages only: no deep stacks.  Pages that are not touched cost nothing. */
#define STACK_BYTES (256u << 10)

struct helper {
	char name[16]; /* a thread's name has 15 characters */
	pthread_mutex_t lock;
	pthread_cond_t has_work;
	/* under lock */
	struct work *first, **last_next;
	bool is_stopping;
	unsigned max_threads, n_threads, n_idle, n_queued;
	pthread_t threads[];
};

int helper_new(const char *name, unsigned max_threads, struct helper **ret_helper)
{
	struct helper *helper = calloc(1, sizeof(*helper) + max_threads * sizeof(pthread_t));

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

static void *helper_main(void *arg)
{
	struct helper *helper = arg;

	(void)pthread_mutex_lock(&helper->lock); /* of the default kind: can not fail */
	for (;;) {
		struct work *work;

		while (!helper->first && !helper->is_stopping) {
			helper->n_idle++;
			(void)pthread_cond_wait(&helper->has_work, &helper->lock);
			helper->n_idle--;
		}
		work = helper->first;
		if (!work)
			break;
		helper->first = work->next;
		if (!helper->first)
			helper->last_next = &helper->first;
		helper->n_queued--;
		(void)pthread_mutex_unlock(&helper->lock);
		work->run(work);
		(void)pthread_mutex_lock(&helper->lock);
	}
	(void)pthread_mutex_unlock(&helper->lock);
	return NULL;
}

/* Under the lock.  All signals are the main thread's: a thread begins with its maker's mask. */
static int thread_start(struct helper *helper)
{
	pthread_t *thread = &helper->threads[helper->n_threads];
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* over PTHREAD_STACK_MIN */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails for a wrong first argument */
	r = pthread_create(thread, &attr, helper_main, helper);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	if (r)
		return -r;
	(void)pthread_setname_np(*thread, helper->name); /* a name is for people only */
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
	work->run(work);
}

void helper_free(struct helper *helper)
{
	if (!helper)
		return;
	(void)pthread_mutex_lock(&helper->lock);
	helper->is_stopping = true;
	(void)pthread_cond_broadcast(&helper->has_work);
	(void)pthread_mutex_unlock(&helper->lock);
	for (unsigned i = 0; i < helper->n_threads; i++)
		(void)pthread_join(helper->threads[i], NULL); /* started, and joined only here */
	assert(!helper->first);
	(void)pthread_cond_destroy(&helper->has_work);
	(void)pthread_mutex_destroy(&helper->lock);
	free(helper);
}
