#include "client/ctl/bench/own_dir.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int own_dir_open(int dir_fd, const char *name)
{
	_cleanup_(closep) int fd = openat(dir_fd, name,
					  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid == geteuid() ? TAKE_FD(fd) : -EPERM;
}
