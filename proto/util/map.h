/*
 * Mapping shared memory so that the kernel can use huge pages for it.
 */
#ifndef DSAIO_PROTO_UTIL_MAP_H
#define DSAIO_PROTO_UTIL_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; glibc 2.37 */
#endif

/* The size that x86-64 and arm64 have beside their base page. */
#define MAP_HUGE_BYTES ((size_t)2 << 20)

/*
 * mmap(2) of a descriptor from byte 0 on, shared, for reading and writing, at a multiple of a huge page;
 * or anywhere, if another thread takes that address meanwhile.  MAP_FAILED: see errno.
 */
void *map_aligned(int fd, size_t bytes);

#define MAP_SHMEM_PATH "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
/* True: shared memory has huge pages only by MADV_COLLAPSE ("never"), or none ("deny"); sets ret_word. */
bool map_lacks_huge(char ret_word[8]);

#endif
