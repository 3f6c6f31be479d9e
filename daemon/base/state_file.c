#include "daemon/base/state_file.h"

#include "daemon/base/log.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 256

/* Makes the directory and its missing parents. */
static int dir_make(const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	for (char *slash = copy + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		(void)mkdir(copy, 0755); /* the last mkdir(2) reports the error */
		*slash = '/';
	}
	return mkdir(copy, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

/* No daemon reads what a failure leaves. */
static int file_replace(int dir_fd, const char *name, const char *text)
{
	_cleanup_(closep) int fd = -1;
	const size_t len = strlen(text);
	char temporary[NAME_BYTES];
	ssize_t n;

	(void)snprintf(temporary, sizeof(temporary), ".%s.tmp", name);
	(void)unlinkat(dir_fd, temporary, 0);
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	n = write(fd, text, len);
	if (n < 0 || fsync(fd) < 0)
		return -errno;
	if ((size_t)n < len)
		return -ENOSPC;
	return renameat(dir_fd, temporary, dir_fd, name) < 0 ? -errno : 0;
}

FILE *state_file_open(int dir_fd, const char *name, off_t max_bytes)
{
	_cleanup_(closep) int fd = openat(dir_fd, name,
					  O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	FILE *file;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	if (!S_ISREG(st.st_mode) || st.st_size > max_bytes) {
		errno = EINVAL;
		return NULL;
	}
	file = fdopen(fd, "re");
	if (file)
		(void)TAKE_FD(fd); /* the stream owns it now */
	return file;
}

int state_file_write(const char *dir, const char *name, const char *text, bool is_damaged,
		     struct error *error)
{
	char aside[NAME_BYTES];
	_cleanup_(closep) int dir_fd = -1;
	int r = text ? dir_make(dir) : 0;

	if (r < 0)
		return error_set(error, r, "%s: making the directory", dir);
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0 && !text && (errno == ENOENT || errno == ENOTDIR))
		return 0; /* there is nothing to remove */
	if (dir_fd < 0)
		return error_set(error, -errno, "%s", dir);
	(void)snprintf(aside, sizeof(aside), "%s.damaged", name);
	if (is_damaged && renameat(dir_fd, name, dir_fd, aside) == 0)
		log_notice("%s/%s: damaged: renamed to %s", dir, name, aside);
	if (text)
		r = file_replace(dir_fd, name, text);
	else if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		r = -errno;
	if (r < 0)
		return error_set(error, r, "%s/%s", dir, name);
	if (fsync(dir_fd) < 0)
		return error_set(error, -errno, "%s: fsync", dir);
	return 0;
}
