/*
 * The memory limit of this process: the smallest one of its control groups and of those above them.
 *
 * Beyond it the kernel kills a process of the group (memory.max, memory.limit_in_bytes) or slows all of
 * them down until they hardly run (memory.high).  It may change at any time.
 *
 * Any thread.
 */
#ifndef DSAIO_DAEMON_BASE_MEMORY_LIMIT_H
#define DSAIO_DAEMON_BASE_MEMORY_LIMIT_H

#include <limits.h>
#include <stdint.h>

struct memory_limit {
	uint64_t bytes;	     /* UINT64_MAX: no limit is known */
	char path[PATH_MAX]; /* the kernel's file that has it */
};

/* root: what /proc and /sys are below; "" except in tests. */
void memory_limit_get(const char *root, struct memory_limit *ret_limit);

#endif
