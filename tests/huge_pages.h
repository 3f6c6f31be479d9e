/*
 * The host's count of reserved huge pages, which tests change and compare: one test at a time.
 *
 * The holder of the lock may change the count.  No other test takes or frees such pages meanwhile.
 */
#ifndef DSAIO_TESTS_HUGE_PAGES_H
#define DSAIO_TESTS_HUGE_PAGES_H

#include <fcntl.h>
#include <sys/file.h>

#define HUGE_PAGES_PATH "/proc/sys/vm/nr_hugepages"

/* The descriptor for flock(2); -1: this host has no huge pages.  The lock lasts while it is open. */
static inline int huge_pages_open(void)
{
	return open(HUGE_PAGES_PATH, O_RDONLY | O_CLOEXEC);
}

#endif
