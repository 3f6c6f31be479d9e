#include "client/ctl/cmd/destination.h"

#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static int refuse(char *text, int r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, DESTINATION_TEXT_BYTES, format, args);
	va_end(args);
	return r;
}

/* O_EXCL: not one that is mounted. */
static int open_device(struct destination *d, char *text)
{
	d->side->fd = open(d->side->path, O_RDWR | O_EXCL | O_CLOEXEC);
	if (d->side->fd < 0)
		return refuse(text, -errno, "%s: %s", d->side->path, strerror(errno));
	return 0;
}

/*
 * In a directory with the sticky bit only root and the directory's owner can replace another user's
 * file.  Where others may write, that user may have put it there, and it would get the bytes.
 */
static bool is_sticky_against_us(const struct destination *d)
{
	uid_t uid = geteuid(), owner = d->old.st_uid;
	struct stat st;

	if (fstat(d->dir_fd, &st) < 0 || !(st.st_mode & S_ISVTX) || owner == uid)
		return false;
	return (uid != 0 && uid != st.st_uid) || ((st.st_mode & 022) && owner != st.st_uid);
}

/* The part of a path after its last slash. */
static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * realpath(3) reads links that the kernel may refuse to follow, those of other users in sticky
 * directories.  So what it found must be the file that stat(2) found.
 */
static int check_old(const struct destination *d, const char *name)
{
	int r = newfile_check_name(d->dir_fd, name, d->old.st_dev, d->old.st_ino);

	if (r < 0)
		return r;
	return faccessat(d->dir_fd, name, W_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static int open_directory(struct destination *d, const char *dir_path)
{
	d->dir_fd = open(dir_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->dir_fd < 0)
		return -errno;
	return d->was_there ? check_old(d, last_name(d->place)) : 0;
}

static int make_temporary(struct destination *d, mode_t mode)
{
	int r = newfile_open(d->dir_fd, last_name(d->place), d->was_there ? 0600 : mode, &d->temp);
	if (r < 0)
		return r;
	d->side->fd = fcntl(d->temp.fd, F_DUPFD_CLOEXEC, 0);
	return d->side->fd < 0 ? -errno : 0;
}

/* A link stays a link: the file that it leads to is replaced. */
static int open_temporary(struct destination *d, mode_t mode, char *text)
{
	const char *path = d->side->path;
	_cleanup_(freep) char *dir_path = NULL;
	int r;

	if (d->was_there && d->old.st_nlink > 1)
		return refuse(text, -EMLINK,
			      "%s: has %ju names (hard links), and a copy would replace this one "
			      "alone: remove it first, or write to all with cp(1) or dd(1)",
			      path, (uintmax_t)d->old.st_nlink);
	d->place = d->was_there ? realpath(path, NULL) : text_new("%s", path);
	if (!d->place)
		return refuse(text, -errno, "%s: %s", path, strerror(errno));
	dir_path = text_new("%s", d->place);
	r = open_directory(d, dirname(dir_path));
	if (r < 0)
		return refuse(text, r, "%s: %s", path,
			      r == -ESTALE ? "was replaced meanwhile: nothing was done"
					   : strerror(-r));
	if (d->was_there && is_sticky_against_us(d))
		return refuse(text, -EPERM,
			      "%s: cannot be replaced: it belongs to user %ju, and its directory "
			      "has the sticky bit: use cp(1) or dd(1)",
			      path, (uintmax_t)d->old.st_uid);
	r = make_temporary(d, mode);
	if (r == 0)
		return 0;
	if (!d->was_there)
		return refuse(text, r, "%s: %s", path, strerror(-r));
	return refuse(text, r,
		      "%s: cannot be replaced in its directory: %s: allow that, or use cp(1) or "
		      "dd(1)",
		      path, strerror(-r));
}

int destination_check(struct destination *d, struct side *side, const char *from_path,
		      const struct stat *from_stat, char *text)
{
	struct stat *st = &d->old;
	const char *path = side->path;

	d->side = side;
	d->was_there = stat(path, st) == 0;
	if (d->was_there) {
		if (st->st_dev == from_stat->st_dev && st->st_ino == from_stat->st_ino)
			return refuse(text, -EINVAL,
				      "%s and %s are the same file: nothing was done", from_path,
				      path);
		if (S_ISDIR(st->st_mode))
			return refuse(text, -EISDIR, "%s: is a directory: name a file in it", path);
		d->is_device = S_ISBLK(st->st_mode);
		if (!S_ISREG(st->st_mode) && !d->is_device)
			return refuse(text, -EINVAL,
				      "%s: is no regular file and no block device: use cp(1) or "
				      "dd(1)",
				      path);
		return 0;
	}
	if (errno != ENOENT)
		return refuse(text, -errno, "%s: %s", path, strerror(errno));
	if (lstat(path, st) == 0 && S_ISLNK(st->st_mode))
		return refuse(text, -ENOENT,
			      "%s: is a symbolic link to nothing: remove it, or name its target",
			      path);
	if (path[strlen(path) - 1] == '/')
		return refuse(text, -ENOENT, "%s: no such directory: make it first", path);
	return 0;
}

int destination_open(struct destination *d, mode_t mode, char *text)
{
	return d->is_device ? open_device(d, text) : open_temporary(d, mode, text);
}

/* A copy that does not fit must not overwrite the first part of the device. */
static int check_device_size(const struct destination *d, uint64_t end, char *text)
{
	const off_t has = lseek(d->side->fd, 0, SEEK_END);
	char size[UNITS_TEXT_BYTES], device_size[UNITS_TEXT_BYTES];

	if (has < 0 || end <= (uint64_t)has)
		return 0;
	return refuse(text, -ENOSPC, "%s: the device has %s, which is too small for %s",
		      d->side->path, units_format_size(device_size, (uint64_t)has),
		      units_format_size(size, end));
}

int destination_reserve(struct destination *d, uint64_t off, uint64_t len, char *text)
{
	char size[UNITS_TEXT_BYTES];
	int r;

	if (d->is_device)
		return check_device_size(d, off + len, text);
	do
		r = newfile_reserve(d->temp.fd, off, len);
	while (r == -EINTR && !stop_signal());
	if (r == 0)
		return 0;
	return refuse(text, r, "%s: cannot reserve %s%s: %s%s", d->side->path,
		      units_format_size(size, len), d->was_there ? " beside the old file" : "",
		      r == -EINTR ? "interrupted" : strerror(-r),
		      d->was_there && r == -ENOSPC
			      ? ": remove that first, or write to it with cp(1) or dd(1)"
			      : "");
}

int destination_sync(struct destination *d, struct dsaio_handle *handle, char *text)
{
	const struct side *side = d->side;
	int r;

	if (side->file)
		r = dsaio_fsync(handle, side->file, 0);
	else
		r = fsync(side->fd) < 0 ? -errno : 0;
	if (r < 0)
		return refuse(text, r, "%s: fsync: %s", side->path,
			      side->file ? dsaio_error() : strerror(-r));
	return 0;
}

static int keep_owner(const struct destination *d, const struct ctl *ctl, char *text)
{
	const struct stat *old = &d->old;
	const int fd = d->temp.fd;
	mode_t mode = old->st_mode & 0777;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return refuse(text, -errno, "%s: %s", d->side->path, strerror(errno));
	if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
	    fchown(fd, old->st_uid, old->st_gid) < 0) {
		ctl_note(ctl, "%s: gets another owner: it cannot stay that of user %ju: %s",
			 d->side->path, (uintmax_t)old->st_uid, strerror(errno));
		/* Another group must not get more rights than all other users have. */
		if (st.st_gid != old->st_gid && fchown(fd, (uid_t)-1, old->st_gid) < 0)
			mode &= ~(mode_t)070 | (mode & 07) << 3;
	}
	if (fchmod(fd, mode) < 0)
		return refuse(text, -errno, "%s: chmod: %s", d->side->path, strerror(errno));
	return 0;
}

/* After a crash a new file can be found only if its name is on the device. */
static int sync_directory(const struct destination *d, char *text)
{
	_cleanup_(closep) int fd = openat(d->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A directory that may be searched but not read cannot be synced.  cp(1) syncs none. */
	if (fd >= 0 && fsync(fd) < 0 && errno != EINVAL)
		return refuse(text, -errno, "%s: is complete, but fsync of its directory: %s",
			      d->side->path, strerror(errno));
	return 0;
}

int destination_place(struct destination *d, const struct ctl *ctl, bool is_synced, char *text)
{
	int r;

	if (d->is_device)
		return 0;
	r = d->was_there ? keep_owner(d, ctl, text) : 0;
	if (r < 0)
		return r;
	/* A file that appeared where none was belongs to another process, and stays. */
	r = newfile_rename(&d->temp, d->was_there);
	if (r == -ESTALE)
		return refuse(text, r,
			      "%s: another process removed or replaced the temporary file beside "
			      "it: nothing was done",
			      d->side->path);
	if (r < 0)
		return refuse(text, r, "%s: rename: %s%s", d->side->path, strerror(-r),
			      d->was_there ? ": use cp(1) or dd(1)" : "");
	return is_synced ? sync_directory(d, text) : 0;
}

void destination_deinit(struct destination *d)
{
	newfile_discard(&d->temp);
	free(d->place);
	d->place = NULL;
	closep(&d->dir_fd);
	d->dir_fd = -1;
}
