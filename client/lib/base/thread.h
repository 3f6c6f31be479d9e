/*
 * The library's own threads.  They block all signals, which belong to the program.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_THREAD_H
#define DSAIO_CLIENT_LIB_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a thread with all signals blocked, to be joined.  Returns 0 or a negative errno. */
static inline int thread_start(const char *name, void *(*run)(void *), void *arg,
			       pthread_t *ret_thread)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret_thread, NULL, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return -r;
	(void)pthread_setname_np(*ret_thread, name); /* the name only helps people */
	return 0;
}

#endif
