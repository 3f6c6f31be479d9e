/*
 * Shared memory by descriptor: the daemon makes it, clients map it.
 *
 * A memfd can not be executed, where the kernel knows MFD_NOEXEC_SEAL (Linux 6.3).  A sealed one
 * keeps its size, so the other side cannot make the daemon's accesses fail with SIGBUS.
 */
#ifndef DSAIO_DAEMON_BASE_MEMFD_H
#define DSAIO_DAEMON_BASE_MEMFD_H

#include <stdint.h>

/* flags: MFD_HUGETLB and a size, or 0.  A descriptor, or -errno. */
int memfd_new(const char *name, uint64_t size_bytes, unsigned flags);

/* From now on neither the size nor the seals can change.  seals: further ones.  0 or -errno. */
int memfd_seal(int fd, int seals);

/* Both. */
int memfd_new_sealed(const char *name, uint64_t size_bytes, unsigned flags);

#endif
