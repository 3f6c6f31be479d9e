/*
 * Signals of the daemon's threads.  Those from outside are for the main thread.
 */
#ifndef DSAIO_DAEMON_BASE_SIGNALS_H
#define DSAIO_DAEMON_BASE_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* A thread crashes.  Where they are blocked, the kernel ends the process without calling their handler. */
static const int signals_crash[] = { SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE };
#define SIGNALS_CRASH (sizeof(signals_crash) / sizeof(*signals_crash))

/* Blocks all others in this thread, and so in a thread that it starts. */
static inline void signals_block(sigset_t *ret_before)
{
	sigset_t most;

	(void)sigfillset(&most);
	for (size_t i = 0; i < SIGNALS_CRASH; i++)
		(void)sigdelset(&most, signals_crash[i]);
	(void)pthread_sigmask(SIG_SETMASK, &most,
			      ret_before); /* fails for a wrong first argument */
}

#endif
