/*
 * Owners that clean up after themselves: _cleanup_(fn) on a local calls fn(&local) when it
 * leaves its scope; TAKE_PTR and TAKE_FD hand what it owns to somebody else.
 */
#ifndef DSAIO_PROTO_UTIL_CLEANUP_H
#define DSAIO_PROTO_UTIL_CLEANUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

/* Evaluates to the owner's value and leaves NULL (-1) behind. */
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

/* A container from a pointer to its member. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		(void)fclose(*f); /* only for files that were read */
}

/* An error of close() is not an error of ours: what had to last was synced before. */
static inline void closep(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void unlockp(pthread_mutex_t **m)
{
	if (*m)
		(void)pthread_mutex_unlock(*m); /* it is ours: can not fail */
}

#endif
