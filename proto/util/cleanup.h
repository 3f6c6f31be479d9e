/*
 * Locals that own: _cleanup_(fn) on a local calls fn(&local) at the end of its scope.  TAKE_PTR and
 * TAKE_FD pass the ownership on.
 */
#ifndef DSAIO_PROTO_UTIL_CLEANUP_H
#define DSAIO_PROTO_UTIL_CLEANUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

/* Defines fn##p(), which _cleanup_() takes for a pointer: it calls fn() unless that is NULL. */
#define CLEANUP_FUNCTION(type, fn)             \
	static inline void fn##p(type **place) \
	{                                      \
		if (*place)                    \
			fn(*place);            \
	}

/* Evaluates to the value and sets the local to NULL (-1). */
#define TAKE_PTR(p)                        \
	__extension__({                    \
		__typeof__(p) *pp_ = &(p); \
		__typeof__(p) v_ = *pp_;   \
		*pp_ = NULL;               \
		v_;                        \
	})
#define TAKE_FD(fd)               \
	__extension__({           \
		int *fp_ = &(fd); \
		int v_ = *fp_;    \
		*fp_ = -1;        \
		v_;               \
	})

/* The struct that contains the member at ptr. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		(void)fclose(*f); /* only for files opened for reading: nothing to lose */
}

/* Errors of close() are ignored: data that must last was synced before. */
static inline void closep(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void unlockp(pthread_mutex_t **m)
{
	if (*m)
		(void)pthread_mutex_unlock(*m); /* this thread has locked it: cannot fail */
}

static inline pthread_mutex_t *mutex_locked(pthread_mutex_t *m)
{
	(void)pthread_mutex_lock(m); /* a plain mutex: cannot fail */
	return m;
}

/* From here up to the end of the scope the mutex is locked. */
#define LOCKED(mutex) \
	_cleanup_(unlockp) __attribute__((unused)) pthread_mutex_t *locked_ = mutex_locked(mutex)

#endif
