#include "client/ctl/cmd/destination.h"

#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "client/lib/io/file.h"
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

/* Such a path names an open file, or no file of a directory: it cannot be replaced. */
static bool is_device_path(const char *path)
{
	return strncmp(path, "/proc/", 6) == 0 ||
	       (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0);
}

bool destination_is_device(const struct destination *d)
{
	return is_device_path(d->side->path);
}

static int open_in_place(struct destination *d, int access_mode, mode_t mode, char *text)
{
	struct side *side = d->side;

	if (d->was_there)
		side->fd = open(side->path, access_mode | O_CLOEXEC);
	else
		side->fd = open(side->path, access_mode | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (side->fd < 0)
		return refuse(text, -errno, "%s: %s", side->path, strerror(errno));
	d->is_made = !d->was_there;
	return 0;
}

/* In a directory with the sticky bit, files of other users cannot be replaced. */
static bool is_sticky_against_us(int dir_fd, const struct stat *old)
{
	struct stat st;
	uid_t uid = geteuid();

	return uid != 0 && fstat(dir_fd, &st) == 0 && (st.st_mode & S_ISVTX) && st.st_uid != uid &&
	       old->st_uid != uid;
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

/* A link stays a link: the file that it leads to is replaced. */
static int open_temporary(struct destination *d, mode_t mode, char *text)
{
	const char *path = d->side->path;
	_cleanup_(freep) char *dir_path = NULL;
	int r = 0;

	if (d->was_there && d->old.st_nlink > 1)
		return refuse(text, -EMLINK,
			      "%s: has %ju names (hard links), and a copy would replace this one "
			      "alone: remove it first, or use --in-place to write all",
			      path, (uintmax_t)d->old.st_nlink);
	d->place = d->was_there ? realpath(path, NULL) : strdup(path);
	dir_path = d->place ? strdup(d->place) : NULL;
	if (!dir_path)
		return refuse(text, -errno, "%s: %s", path, strerror(errno));
	d->dir_fd = open(dirname(dir_path), O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->dir_fd >= 0 && d->was_there) {
		r = check_old(d, last_name(d->place));
		if (r < 0)
			return refuse(text, r, "%s: %s", path,
				      r == -ESTALE ? "was replaced meanwhile: nothing was done"
						   : strerror(-r));
	}
	if (d->dir_fd < 0)
		r = -errno;
	else if (d->was_there && is_sticky_against_us(d->dir_fd, &d->old))
		r = -EPERM;
	if (r == 0)
		r = newfile_open(d->dir_fd, last_name(d->place), d->was_there ? 0600 : mode,
				 &d->temp);
	d->side->fd = TAKE_FD(d->temp.fd);
	if (r == 0)
		return 0;
	if (!d->was_there)
		return refuse(text, r, "%s: %s", path, strerror(-r));
	return refuse(text, r,
		      "%s: cannot be replaced in its directory: %s: allow that, or use --in-place, "
		      "where a failure leaves it incomplete",
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
		if (!S_ISREG(st->st_mode))
			return refuse(text, -EINVAL, "%s: is no regular file: use cp(1) or dd(1)",
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

int destination_open(struct destination *d, int access_mode, mode_t mode, char *text)
{
	if (d->is_in_place || is_device_path(d->side->path))
		return open_in_place(d, access_mode, mode, text);
	return open_temporary(d, mode, text);
}

void destination_attached(struct destination *d)
{
	if (destination_has_temp(d))
		file_set_temporary(d->side->file);
}

int destination_reserve(struct destination *d, uint64_t bytes, char *text)
{
	char size[UNITS_TEXT_BYTES];
	int r;

	if (bytes == 0)
		return 0;
	do
		r = destination_has_temp(d) ? newfile_reserve(d->side->fd, bytes)
					    : newfile_check_room(d->side->fd, bytes);
	while (r == -EINTR && !stop_signal());
	if (r == 0)
		return 0;
	return refuse(text, r, "%s: cannot reserve %s%s: %s", d->side->path,
		      units_format_size(size, bytes),
		      destination_has_temp(d) && d->was_there
			      ? " beside the old file (--in-place needs no such room)"
			      : "",
		      r == -EINTR ? "interrupted" : strerror(-r));
}

int destination_cut(struct destination *d, uint64_t size, char *text)
{
	const struct side *side = d->side;
	struct stat st;
	int r;

	d->is_written = true;
	if (fstat(side->fd, &st) < 0)
		return refuse(text, -errno, "%s: %s", side->path, strerror(errno));
	if ((uint64_t)st.st_size <= size)
		return 0;
	/* We wrote nothing behind size, and the old file had nothing there. */
	if (st.st_size > (d->was_there ? d->old.st_size : 0))
		return refuse(text, -ESTALE,
			      "%s: another process made it longer meanwhile: what it wrote stays",
			      side->path);
	d->is_changed = true;
	if (side->file)
		r = dsaio_truncate(side->file, size);
	else
		r = ftruncate(side->fd, (off_t)size) < 0 ? -errno : 0;
	if (r < 0)
		return refuse(text, r, "%s: cannot cut off the rest of the old file: %s",
			      side->path, side->file ? dsaio_error() : strerror(-r));
	return 0;
}

int destination_keep_owner(struct destination *d, const struct ctl *ctl, char *text)
{
	const struct stat *old = &d->old;
	const int fd = d->side->fd;
	mode_t mode = old->st_mode & 0777;
	struct stat st;

	if (!destination_has_temp(d) || !d->was_there)
		return 0;
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

int destination_sync(struct destination *d, struct dsaio_handle *handle, char *text)
{
	const struct side *side = d->side;
	int r;

	if (side->file)
		r = dsaio_fsync(handle, side->file);
	else
		r = fsync(side->fd) < 0 ? -errno : 0;
	if (r < 0)
		return refuse(text, r, "%s: fsync: %s", side->path,
			      side->file ? dsaio_error() : strerror(-r));
	return 0;
}

/* After a crash a new file can be found only if its name is on the device. */
static int sync_directory(const struct destination *d, int dir_fd, const char *path, char *text)
{
	_cleanup_(closep) int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A directory that may be searched but not read cannot be synced.  cp(1) syncs none. */
	if (fd >= 0 && fsync(fd) < 0 && errno != EINVAL)
		return refuse(text, -errno, "%s: is complete, but fsync of its directory: %s",
			      d->side->path, strerror(errno));
	return 0;
}

int destination_place(struct destination *d, bool is_synced, char *text)
{
	int r;

	if (!destination_has_temp(d)) {
		_cleanup_(freep) char *path = strdup(d->side->path);

		d->is_complete = true;
		if (!path)
			return refuse(text, -ENOMEM, "out of memory");
		return is_synced && d->is_made ? sync_directory(d, AT_FDCWD, dirname(path), text)
					       : 0;
	}
	/* A file that appeared where none was belongs to another process, and stays. */
	r = newfile_rename(&d->temp, d->was_there);
	if (r == -ESTALE)
		return refuse(text, r,
			      "%s: another process removed or replaced the temporary file beside "
			      "it: nothing was done",
			      d->side->path);
	if (r < 0)
		return refuse(text, r, "%s: rename: %s%s", d->side->path, strerror(-r),
			      d->was_there ? ": use --in-place" : "");
	d->is_complete = true;
	return is_synced ? sync_directory(d, d->dir_fd, ".", text) : 0;
}

bool destination_is_empty(const struct destination *d)
{
	struct stat st;

	return fstat(d->side->fd, &st) == 0 && st.st_size == 0;
}

/* Its bytes may be those of another process, and its name that of another file. */
static void remove_empty(const struct destination *d)
{
	struct stat st;

	if (fstat(d->side->fd, &st) == 0 &&
	    newfile_check_name(AT_FDCWD, d->side->path, st.st_dev, st.st_ino) == 0 &&
	    destination_is_empty(d))
		(void)unlink(d->side->path); /* the failure was reported already */
}

void destination_deinit(struct destination *d, uint64_t n_bytes)
{
	if (destination_has_temp(d))
		d->temp.fd = TAKE_FD(d->side->fd);
	newfile_discard(&d->temp);
	if (d->is_made && !d->is_complete && n_bytes == 0)
		remove_empty(d);
	free(d->place);
	d->place = NULL;
	closep(&d->dir_fd);
	d->dir_fd = -1;
}
