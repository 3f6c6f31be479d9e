/*
 * How much of this process's shared memory is in huge pages.
 *
 * The daemon makes the slabs, and the kernel may have had no huge page left for some of them.  The
 * library maps them where the kernel can use huge pages, so /proc/self/smaps tells, once the memory
 * has been touched.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_HUGE_PAGES_H
#define DSAIO_CLIENT_CTL_BENCH_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* memory: of a shared mapping.  Returns bytes, len at most; UINT64_MAX: not known. */
uint64_t huge_pages_bytes(const void *memory, size_t len);

#endif
