#include "client/ctl/ui/newfile.h"

#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* As in dsaio/_replace.py: each removes what processes of the other left. */
#define PREFIX ".dsaio-"
#define SUFFIX ".new"
#define TRIES 100 /* a guess: other processes hardly ever lock a new file first */

/* ---- names ---- */

static int make_temporary_name(struct newfile *file)
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -EIO; /* impossible after boot, when the kernel has random bytes */
	(void)snprintf(file->temporary, sizeof(file->temporary), PREFIX "%016" PRIx64 SUFFIX,
		       number);
	return 0;
}

static bool is_temporary_name(const char *name)
{
	return strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
	       strspn(name + strlen(PREFIX), "0123456789abcdef") == 16 &&
	       strcmp(name + strlen(PREFIX) + 16, SUFFIX) == 0;
}

int newfile_check_name(int dir_fd, const char *name, dev_t dev, ino_t ino)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return st.st_dev == dev && st.st_ino == ino ? 0 : -ESTALE;
}

/* The same for the open file fd. */
static int check_name_of(int dir_fd, const char *name, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return newfile_check_name(dir_fd, name, st.st_dev, st.st_ino);
}

static int check_temporary(const struct newfile *file)
{
	return check_name_of(file->dir_fd, file->temporary, file->fd);
}

/* ---- what killed processes left ---- */

/* Others' files are not opened: open(2) of a FIFO waits, and that of a device may do anything. */
static bool may_be_ours(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == geteuid();
}

/* The lock of the process that writes it is free if that process is dead. */
static void remove_leftover(int dir_fd, const char *name)
{
	_cleanup_(closep) int fd = -1;

	if (!may_be_ours(dir_fd, name))
		return;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	/* It may have been renamed into its place before the lock was free. */
	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && check_name_of(dir_fd, name, fd) == 0)
		(void)unlinkat(dir_fd, name, 0); /* where that fails, it stays */
}

/* A directory that may not be read keeps them. */
static void remove_leftovers(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		closep(&fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (is_temporary_name(entry->d_name))
			remove_leftover(dir_fd, entry->d_name);
	(void)closedir(dir);
}

/* ---- the file ---- */

/* Fails if another process removes it as a leftover, or has done so.  Where there are no locks, that
   process gets none either. */
static bool lock_named(const struct newfile *file)
{
	if (flock(file->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return false;
	return check_temporary(file) == 0;
}

/* For file systems without O_TMPFILE. */
static int open_named(struct newfile *file, mode_t mode)
{
	for (int i = 0; i < TRIES; i++) {
		int r = make_temporary_name(file);

		if (r < 0)
			return r;
		file->fd = openat(file->dir_fd, file->temporary,
				  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (file->fd < 0)
			return -errno;
		if (lock_named(file))
			return 0;
		if (check_temporary(file) == 0)
			(void)unlinkat(file->dir_fd, file->temporary, 0); /* the next one does it */
		closep(&file->fd);
	}
	return -EAGAIN;
}

int newfile_open(int dir_fd, const char *name, mode_t mode, struct newfile *ret_file)
{
	struct newfile file = { .dir_fd = dir_fd, .name = name };
	int r = 0;

	remove_leftovers(dir_fd);
	file.fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	if (file.fd < 0)
		r = open_named(&file, mode);
	if (r == 0)
		*ret_file = file;
	return r;
}

/* Gives a file of O_TMPFILE a name, which must be free. */
static int link_as(const struct newfile *file, const char *name)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd); /* fits */
	return linkat(AT_FDCWD, path, file->dir_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* linkat(2) replaces no file: that takes a name to rename, for a moment. */
static int link_temporary(struct newfile *file)
{
	int r = make_temporary_name(file);

	(void)flock(file->fd, LOCK_EX | LOCK_NB); /* free: nobody else could open it */
	if (r == 0)
		r = link_as(file, file->temporary);
	if (r < 0)
		file->temporary[0] = '\0';
	return r;
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

static int rename_temporary(const struct newfile *file, bool replaces)
{
	int r = check_temporary(file);

	if (r < 0)
		return r;
	return replaces ? rename_over(file) : rename_to_free_name(file);
}

int newfile_rename(struct newfile *file, bool replaces)
{
	int r = 0;

	if (!file->temporary[0] && !replaces) {
		r = link_as(file, file->name);
	} else {
		if (!file->temporary[0])
			r = link_temporary(file);
		if (r == 0)
			r = rename_temporary(file, replaces);
	}
	if (r < 0)
		return r;
	file->temporary[0] = '\0';
	file->is_placed = true;
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
	/* One that was placed and then replaced may have readers. */
	if (!file->is_placed &&
	    (!file->temporary[0] ||
	     (check_temporary(file) == 0 && unlinkat(file->dir_fd, file->temporary, 0) == 0)))
		free_room(file->fd);
	closep(&file->fd);
	*file = NEWFILE_NONE;
}

int newfile_reserve(int fd, uint64_t off, uint64_t len)
{
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) == 0 || errno == EOPNOTSUPP)
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
