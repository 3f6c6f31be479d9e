#include "daemon/base/memfd.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>

int memfd_new(const char *name, uint64_t size_bytes, unsigned flags)
{
	_cleanup_(closep) int fd = -1;

	flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
	fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* an older kernel refuses the unknown flag */
		fd = memfd_create(name, flags);
	if (fd < 0 || ftruncate(fd, (off_t)size_bytes) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int memfd_seal(int fd, int seals)
{
	/* SEAL too: a client that added FUTURE_WRITE would make punching fail. */
	seals |= F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

int memfd_new_sealed(const char *name, uint64_t size_bytes, unsigned flags)
{
	_cleanup_(closep) int fd = memfd_new(name, size_bytes, flags);
	int r = fd < 0 ? fd : memfd_seal(fd, 0);

	return r < 0 ? r : TAKE_FD(fd);
}
