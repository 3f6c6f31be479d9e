/*
 * How much of this process's shared memory is in huge pages.
 *
 * The daemon makes the slabs, and the kernel may have had no huge page left for some of them.  A
 * client's own mapping need not be aligned as a huge page's has to be, so /proc/self/smaps says
 * nothing about it: the memory is mapped once more, aligned, and touched once in each huge page.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_HUGE_PAGES_H
#define DSAIO_CLIENT_CTL_BENCH_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* memory: of a shared mapping.  Returns bytes, len at most; UINT64_MAX: not known. */
uint64_t huge_pages_bytes(const void *memory, size_t len);

#endif
