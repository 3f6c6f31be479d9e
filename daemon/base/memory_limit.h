/*
 * How much memory this process may use, and how much of it may be locked.
 *
 * The memory limit is the smallest one of its control groups and of those above them.  Beyond it the
 * kernel kills a process of the group (memory.max, memory.limit_in_bytes) or slows all of them down until
 * they hardly run (memory.high).  It may change at any time.
 *
 * Any thread.
 */
#ifndef DSAIO_DAEMON_BASE_MEMORY_LIMIT_H
#define DSAIO_DAEMON_BASE_MEMORY_LIMIT_H

#include "daemon/base/error.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct memory_limit {
	uint64_t bytes;	     /* UINT64_MAX: no limit is known */
	char path[PATH_MAX]; /* the kernel's file that has it */
};

/* root: what /proc and /sys are below; "" except in tests. */
void memory_limit_get(const char *root, struct memory_limit *ret_limit);

/* RLIMIT_MEMLOCK, for messages. */
void memory_lock_limit(char *text, size_t size);

/* Lets it lock more, for messages. */
#define MEMORY_LOCK_CURE                                                                            \
	"start the daemon with LimitMEMLOCK=infinity (ulimit -l unlimited), or, where that has no " \
	"effect, with AmbientCapabilities=CAP_IPC_LOCK"

/* Whether a pool of that size could be locked; nothing is locked.  0, or -ENOMEM with a message. */
int memory_lock_check(uint64_t pool_bytes, struct error *error);
/* Whether a pool of that size is below the memory limit.  0, or -ENOMEM with a message. */
int memory_limit_check(uint64_t pool_bytes, struct error *error);

#endif
