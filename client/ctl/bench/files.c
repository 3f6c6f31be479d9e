#include "client/ctl/bench/files.h"

#include "client/ctl/bench/buffer.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define PREFIX "_dsaioctl_bench."
#define MARKER "made_by_dsaioctl"
#define READ_NAME "read"
#define WRITE_NAME "write"
#define PIECE_BYTES (8u << 20)	 /* at which files are filled */
#define SPARE_BYTES (4ull << 20) /* for what a file system needs beside the bytes: a guess */
#define MARKER_BYTES_MAX 4096	 /* of one that is ours */

#define NAME_TRIES 100 /* a guess: six random letters hardly meet a name that is taken */

/*
 * One folder's directory.  Another user may own the folder and put anything in the place of the
 * directory: all names are looked up relative to open directories, and no link is followed.
 */
struct dir {
	char path[PATH_MAX];	       /* "": not made */
	char name[sizeof(PREFIX) + 6]; /* in the folder */
	int folder_fd, fd, marker_fd;  /* -1: not open; the marker is locked while we live */
};

struct bench_files {
	struct dir *dirs;
	unsigned n_dirs;
};

const char *bench_files_folder(const struct bench_files *files, unsigned i)
{
	return files->dirs[i].path;
}

static const char *file_name(bool is_write)
{
	return is_write ? WRITE_NAME : READ_NAME;
}

const char *bench_files_path(const char *folder, bool is_write, char *path)
{
	if ((size_t)snprintf(path, PATH_MAX, "%s/%s", folder, file_name(is_write)) >= PATH_MAX)
		path[0] = '\0'; /* for messages only */
	return path;
}

/* A directory that a bench of this user made: no other user can have put anything into it. */
static int open_own(int folder_fd, const char *name)
{
	_cleanup_(closep) int fd = openat(folder_fd, name,
					  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid == geteuid() && (st.st_mode & 07777) == 0700 ? TAKE_FD(fd) : -EPERM;
}

int bench_files_open(const char *folder, bool is_write)
{
	_cleanup_(closep) int dir_fd = open_own(AT_FDCWD, folder);
	int fd;

	if (dir_fd < 0)
		return dir_fd;
	if (faccessat(dir_fd, MARKER, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return -EPERM; /* private, but no bench made it */
	fd = openat(dir_fd, file_name(is_write),
		    (is_write ? O_WRONLY : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* ---- removing: only what is listed, and still what it was ---- */

static bool is_our_file(int dir_fd, const char *name, uintmax_t inode)
{
	struct stat st;

	return (strcmp(name, READ_NAME) == 0 || strcmp(name, WRITE_NAME) == 0) &&
	       fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_ino == inode && st.st_uid == geteuid();
}

/*
 * Removes the files that the marker lists, the marker, and then the directory, unless something
 * else is in it.  Returns 0 or a negative errno.
 */
static int remove_listed(int folder_fd, const char *name, int dir_fd, int marker_fd)
{
	char list[MARKER_BYTES_MAX + 1], *rest = list, *line;
	ssize_t n = pread(marker_fd, list, MARKER_BYTES_MAX, 0);

	if (n < 0)
		return -errno;
	list[n] = '\0';
	while ((line = strsep(&rest, "\n"))) {
		char listed[16];
		uintmax_t inode;

		if (sscanf(line, "%15s %ju", listed, &inode) == 2 &&
		    is_our_file(dir_fd, listed, inode) && unlinkat(dir_fd, listed, 0) < 0)
			return -errno;
	}
	if (unlinkat(dir_fd, MARKER, 0) < 0 || unlinkat(folder_fd, name, AT_REMOVEDIR) < 0)
		return -errno;
	return 0;
}

/*
 * Locks the marker while this process lives.  It is a record lock, because the crew's processes
 * would inherit a lock of flock(2), and may live a little longer.
 */
static int lock_marker(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_SETLK, &lock) < 0 ? -errno : 0;
}

/* A directory that a bench which was killed left there: removes it, and says so. */
static void remove_leftover(const struct ctl *ctl, const char *folder, int folder_fd,
			    const char *name)
{
	_cleanup_(closep) int dir_fd = open_own(folder_fd, name);
	_cleanup_(closep) int marker_fd = -1;
	int r;

	if (dir_fd < 0)
		return;
	marker_fd = openat(dir_fd, MARKER, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (marker_fd < 0 || lock_marker(marker_fd) < 0)
		return; /* not one of ours, kept, or at work */
	r = remove_listed(folder_fd, name, dir_fd, marker_fd);
	if (r < 0)
		ctl_note(ctl, "%s/%s: left by an earlier bench, and cannot be removed: %s", folder,
			 name, strerror(-r));
	else
		ctl_note(ctl, "%s/%s: left by an earlier bench that was killed: removed", folder,
			 name);
}

static void remove_leftovers(const struct ctl *ctl, const char *folder, int folder_fd)
{
	int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (fd >= 0 && !dir)
		(void)close(fd);
	while (dir && (entry = readdir(dir)))
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0)
			remove_leftover(ctl, folder, folder_fd, entry->d_name);
	if (dir)
		(void)closedir(dir);
}

/* ---- making ---- */

static int check_space(const struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		       uint64_t bytes_each)
{
	for (unsigned i = 0; i < n_places; i++) {
		char needed_text[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
		uint64_t needed = 0, free_bytes;
		struct statvfs fs;

		for (unsigned k = 0; k < n_places; k++)
			if (places[k].file_system == places[i].file_system &&
			    __builtin_add_overflow(needed, bytes_each, &needed))
				needed = UINT64_MAX;
		if (statvfs(places[i].folder, &fs) < 0)
			return ctl_fail(ctl, "%s: %s", places[i].folder, strerror(errno));
		free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
		if (needed <= free_bytes && free_bytes - needed >= SPARE_BYTES)
			continue;
		return ctl_fail(ctl,
				"%s: the test files need %s, and %s has %s free: give a smaller "
				"size, or another folder",
				places[i].folder, units_format_size(needed_text, needed),
				places[i].mount, units_format_size(free_text, free_bytes));
	}
	return CTL_OK;
}

/* Returns 0 or a negative errno. */
static int make_random_dir(struct dir *dir)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

	for (int i = 0; i < NAME_TRIES; i++) {
		unsigned char bytes[7] = { 0 };

		if (getrandom(bytes, 6, 0) != 6)
			return -EIO; /* the kernel has no random bytes: it always has, after boot */
		for (unsigned k = 0; k < 6; k++)
			bytes[k] = (unsigned char)letters[bytes[k] % (sizeof(letters) - 1)];
		(void)snprintf(dir->name, sizeof(dir->name), "%s%s", PREFIX, (const char *)bytes);
		if (mkdirat(dir->folder_fd, dir->name, 0700) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int make_dir(const struct ctl *ctl, const char *folder, struct dir *dir)
{
	int r = make_random_dir(dir);

	if (r < 0)
		return ctl_fail(ctl, "%s: cannot make a directory for test files: %s", folder,
				strerror(-r));
	if ((size_t)snprintf(dir->path, sizeof(dir->path), "%s/%s", folder, dir->name) >=
	    sizeof(dir->path)) {
		(void)unlinkat(dir->folder_fd, dir->name, AT_REMOVEDIR); /* empty, and ours */
		dir->path[0] = '\0';
		return ctl_fail(ctl, "%s: its path is too long", folder);
	}
	dir->fd = open_own(dir->folder_fd, dir->name);
	if (dir->fd < 0)
		return ctl_fail(ctl, "%s: %s", dir->path, strerror(-dir->fd));
	dir->marker_fd = openat(dir->fd, MARKER, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				0600);
	if (dir->marker_fd < 0 || lock_marker(dir->marker_fd) < 0)
		return ctl_fail(ctl, "%s/%s: %s", dir->path, MARKER, strerror(errno));
	return CTL_OK;
}

/* The files that are being filled, and the progress callback. */
struct filling {
	struct ctl *ctl;
	uint64_t io_size, done_bytes; /* of a file; of all */
	void (*progress)(void *data, uint64_t done_bytes);
	void *data;
	uint8_t *piece;
};

/* Writes direct, so that the file is not in the page cache afterwards; only the unaligned tail is
   buffered. */
static int fill(struct filling *filling, int fd, const char *path)
{
	int r = posix_fallocate(fd, 0, (off_t)filling->io_size);

	if (r != 0 && r != EOPNOTSUPP && r != EINVAL)
		return ctl_fail(filling->ctl, "%s: no room for the file: %s", path, strerror(r));
	for (uint64_t done = 0; done < filling->io_size;) {
		uint64_t left = filling->io_size - done;
		size_t len = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
		ssize_t n;

		if (stop_signal())
			return stop_status();
		if (len % 4096 != 0)
			(void)fcntl(fd, F_SETFL, 0); /* O_DIRECT off */
		bench_fill_random(filling->piece, len);
		n = pwrite(fd, filling->piece, len, (off_t)done);
		if (n < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT)) {
			(void)fcntl(fd, F_SETFL, 0); /* not here */
			continue;
		}
		if (n < 0 && errno != EINTR)
			return ctl_fail(filling->ctl,
					"%s: cannot fill the file: %s after %" PRIu64 " bytes",
					path, strerror(errno), done);
		done += n > 0 ? (uint64_t)n : 0;
		filling->done_bytes += n > 0 ? (uint64_t)n : 0;
		if (filling->progress)
			filling->progress(filling->data, filling->done_bytes);
	}
	/* Synced now, so that write-back is not measured later. */
	if (fsync(fd) < 0)
		return ctl_fail(filling->ctl, "%s: fsync: %s", path, strerror(errno));
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* only advice */
	return CTL_OK;
}

static int make_file(struct filling *filling, const struct dir *dir, bool is_write)
{
	_cleanup_(closep) int fd = -1;
	char path[PATH_MAX];
	struct stat st;
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	const char *name = file_name(is_write);

	(void)bench_files_path(dir->path, is_write, path);
	fd = openat(dir->fd, name, flags | O_DIRECT, 0600);
	if (fd < 0 && errno == EINVAL) {
		(void)unlinkat(dir->fd, name, 0); /* some file systems have made it by then */
		fd = openat(dir->fd, name, flags, 0600);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return ctl_fail(filling->ctl, "%s: cannot make the file: %s", path,
				strerror(errno));
	if (dprintf(dir->marker_fd, "%s %ju\n", name, (uintmax_t)st.st_ino) < 0)
		return ctl_fail(filling->ctl, "%s/%s: %s", dir->path, MARKER, strerror(errno));
	return fill(filling, fd, path);
}

static int make_all(struct filling *filling, struct bench_files *files,
		    const struct bench_place *places, bool reads, bool writes)
{
	int r = CTL_OK;

	for (unsigned i = 0; r == CTL_OK && i < files->n_dirs; i++) {
		r = make_dir(filling->ctl, places[i].folder, &files->dirs[i]);
		if (r == CTL_OK && reads)
			r = make_file(filling, &files->dirs[i], false);
		if (r == CTL_OK && writes)
			r = make_file(filling, &files->dirs[i], true);
	}
	return r;
}

int bench_files_make(struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		     bool reads, bool writes, uint64_t io_size,
		     void (*progress)(void *data, uint64_t done_bytes), void *data,
		     struct bench_files **ret_files)
{
	_cleanup_(freep) uint8_t *piece = aligned_alloc(4096, PIECE_BYTES);
	struct filling filling = {
		.ctl = ctl, .io_size = io_size, .progress = progress, .data = data, .piece = piece
	};
	struct bench_files *files = calloc(1, sizeof(*files));
	int r = CTL_OK;

	if (files)
		files->dirs = calloc(n_places, sizeof(*files->dirs));
	if (!files || !files->dirs || !piece) {
		bench_files_free(ctl, files, false);
		return ctl_fail(ctl, "out of memory");
	}
	files->n_dirs = n_places;
	for (unsigned i = 0; i < n_places; i++) {
		struct dir *dir = &files->dirs[i];

		dir->fd = dir->marker_fd = -1;
		dir->folder_fd = open(places[i].folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir->folder_fd < 0 && r == CTL_OK)
			r = ctl_fail(ctl, "%s: %s", places[i].folder, strerror(errno));
		if (dir->folder_fd >= 0)
			remove_leftovers(ctl, places[i].folder, dir->folder_fd);
	}
	if (r == CTL_OK)
		r = check_space(ctl, places, n_places, io_size * (reads && writes ? 2u : 1u));
	if (r == CTL_OK)
		r = make_all(&filling, files, places, reads, writes);
	if (r != CTL_OK) {
		bench_files_free(ctl, files, false);
		return r;
	}
	*ret_files = files;
	return CTL_OK;
}

static void free_dir(struct ctl *ctl, const struct dir *dir, bool keep)
{
	int r;

	if (!dir->path[0])
		return;
	if (keep) {
		/* Without the marker no later bench takes it for a leftover. */
		if (dir->fd >= 0)
			(void)unlinkat(dir->fd, MARKER, 0);
		ctl_note(ctl, "the test files are kept in %s", dir->path);
		return;
	}
	if (dir->marker_fd < 0)
		r = unlinkat(dir->folder_fd, dir->name, AT_REMOVEDIR) < 0 ? -errno : 0;
	else
		r = remove_listed(dir->folder_fd, dir->name, dir->fd, dir->marker_fd);
	if (r < 0)
		ctl_note(ctl, "%s: cannot be removed: %s", dir->path, strerror(-r));
	else if (stop_signal())
		ctl_note(ctl, "interrupted: the test files in %s are removed", dir->path);
}

void bench_files_free(struct ctl *ctl, struct bench_files *files, bool keep)
{
	if (!files)
		return;
	for (unsigned i = 0; i < files->n_dirs; i++) {
		struct dir *dir = &files->dirs[i];

		free_dir(ctl, dir, keep);
		closep(&dir->marker_fd);
		closep(&dir->fd);
		closep(&dir->folder_fd);
	}
	free(files->dirs);
	free(files);
}
