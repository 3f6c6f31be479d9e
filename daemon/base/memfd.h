/*
 * Shared memory by descriptor: the daemon makes it, clients map it.
 *
 * A memfd cannot be executed if the kernel has MFD_NOEXEC_SEAL (Linux 6.3).  A sealed memfd keeps its
 * size, so the other side cannot make the daemon's accesses fail with SIGBUS.
 */
#ifndef DSAIO_DAEMON_BASE_MEMFD_H
#define DSAIO_DAEMON_BASE_MEMFD_H

#include <stdint.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

/* flags: MFD_HUGETLB and a size, or 0.  A descriptor, or -errno. */
int memfd_new(const char *name, uint64_t size_bytes, unsigned flags);

/* Seals size and seals.  seals: additional ones.  Returns 0 or -errno. */
int memfd_seal(int fd, int seals);

/* memfd_new(), then memfd_seal(). */
int memfd_new_sealed(const char *name, uint64_t size_bytes, unsigned flags);

#endif
