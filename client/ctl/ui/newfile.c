#include "client/ctl/ui/newfile.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TRIES 100 /* a guess: names of 64 random bits hardly collide */

int newfile_open(int dir_fd, const char *name, mode_t mode, struct newfile *ret_file)
{
	struct newfile file = { .dir_fd = dir_fd, .fd = -1, .name = name };

	for (int i = 0; i < TRIES; i++) {
		uint64_t number;

		if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
			return -EIO; /* impossible after boot, when the kernel has random bytes */
		(void)snprintf(file.temporary, sizeof(file.temporary), ".dsaio-%016" PRIx64 ".tmp",
			       number);
		file.fd = openat(dir_fd, file.temporary,
				 O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (file.fd >= 0) {
			struct stat st;

			if (fstat(file.fd, &st) == 0) { /* fails on no file that is open */
				file.dev = st.st_dev;
				file.ino = st.st_ino;
			}
			*ret_file = file;
			return 0;
		}
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

int newfile_check_name(int dir_fd, const char *name, dev_t dev, ino_t ino)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return st.st_dev == dev && st.st_ino == ino ? 0 : -ESTALE;
}

static int check_temporary(const struct newfile *file)
{
	return newfile_check_name(file->dir_fd, file->temporary, file->dev, file->ino);
}

static int rename_over(const struct newfile *file)
{
	return renameat(file->dir_fd, file->temporary, file->dir_fd, file->name) < 0 ? -errno : 0;
}

static int rename_to_free_name(const struct newfile *file)
{
	struct stat st;

	if (renameat2(file->dir_fd, file->temporary, file->dir_fd, file->name, RENAME_NOREPLACE) ==
	    0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* The file system, such as NFS, cannot do that in one call. */
	if (fstatat(file->dir_fd, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return errno == ENOENT ? rename_over(file) : -errno;
}

int newfile_rename(struct newfile *file, bool replaces)
{
	int r = check_temporary(file);

	if (r == 0)
		r = replaces ? rename_over(file) : rename_to_free_name(file);
	if (r < 0)
		return r;
	file->temporary[0] = '\0';
	return 0;
}

int newfile_commit(struct newfile *file)
{
	int r = 0;

	if (fsync(file->fd) < 0 && errno != EINVAL) /* EINVAL: a file system without fsync */
		r = -errno;
	if (r == 0)
		r = newfile_rename(file, true);
	newfile_discard(file);
	return r;
}

/* Frees the blocks of a file that no name has any more.  Does nothing if it has one. */
static void free_room(int fd)
{
	struct stat st;

	/* Where it fails, the room is free when the last descriptor is closed. */
	if (fstat(fd, &st) == 0 && st.st_nlink == 0)
		(void)!ftruncate(fd, 0);
}

void newfile_discard(struct newfile *file)
{
	if (file->temporary[0] && check_temporary(file) == 0 &&
	    unlinkat(file->dir_fd, file->temporary, 0) == 0)
		free_room(file->fd);
	closep(&file->fd);
	*file = NEWFILE_NONE;
}

int write_all(int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

int newfile_reserve(int fd, uint64_t bytes)
{
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
		return 0;
	return -errno;
}

int newfile_check_room(int fd, uint64_t bytes)
{
	struct statvfs fs;
	struct stat st;
	uint64_t has;

	if (fstat(fd, &st) < 0 || fstatvfs(fd, &fs) < 0)
		return -errno;
	has = (uint64_t)st.st_blocks * 512;
	if (bytes <= has || !fs.f_blocks || !fs.f_frsize) /* some file systems do not report it */
		return 0;
	return (bytes - has) / fs.f_frsize > fs.f_bavail ? -ENOSPC : 0;
}
