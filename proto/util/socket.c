#include "proto/util/socket.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((format(printf, 4, 5))) static int fail(int error, char *text, size_t size,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, size, format, args); /* long text is truncated */
	va_end(args);
	return error;
}

/* The owner of a directory can rename its entries, and so can everybody with write access unless it
   is sticky. */
static int parent_check(int fd, const char *path, char *text, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return fail(-errno, text, size, "%s: %s", path, strerrordesc_np(errno));
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return fail(-EPERM, text, size,
			    "%s belongs to uid %u: set XDG_RUNTIME_DIR to a directory of your own, "
			    "or unset it",
			    path, st.st_uid);
	if ((st.st_mode & 022) && !(st.st_mode & S_ISVTX))
		return fail(-EPERM, text, size,
			    "others may write to %s: run chmod go-w on it, or set "
			    "XDG_RUNTIME_DIR to another directory",
			    path);
	return 0;
}

/* Opens the parent of our directory and gives the name of ours. */
static int parent_open(const char **ret_path, char *name, size_t name_size, int *ret_fd, char *text,
		       size_t size)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	_cleanup_(closep) int fd = -1;
	int r;

	if (runtime && *runtime == '/') { /* the XDG specification: ignore a relative path */
		fd = open(runtime, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno == ENOTDIR)
			return fail(
				-ENOTDIR, text, size,
				"XDG_RUNTIME_DIR=%s is a symbolic link, or no directory: set it "
				"to the directory itself, or unset it",
				runtime);
		if (fd < 0 && errno != ENOENT)
			return fail(-errno, text, size, "XDG_RUNTIME_DIR=%s: %s", runtime,
				    strerrordesc_np(errno));
		*ret_path = runtime;
		(void)snprintf(name, name_size, "dsaiod"); /* it fits */
	}
	if (fd < 0) {
		fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return fail(-errno, text, size, "/tmp: %s", strerrordesc_np(errno));
		*ret_path = "/tmp";
		(void)snprintf(name, name_size, "dsaiod-%u", geteuid()); /* it fits */
	}
	r = parent_check(fd, *ret_path, text, size);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int socket_dir_open(bool make, struct socket_dir *ret_dir, char *text, size_t size)
{
	_cleanup_(closep) int parent = -1, fd = -1;
	const char *path = NULL;
	struct stat st;
	char name[32];
	bool is_made;
	int r;

	r = parent_open(&path, name, sizeof(name), &parent, text, size);
	if (r < 0)
		return r;
	r = snprintf(ret_dir->path, sizeof(ret_dir->path), "%s/%s/" SOCKET_NAME, path, name);
	if (r >= (int)sizeof(ret_dir->path))
		return fail(-ENAMETOOLONG, text, size,
			    "the socket path %s/%s/" SOCKET_NAME " has %d bytes (limit %d): "
			    "set XDG_RUNTIME_DIR to a shorter path",
			    path, name, r, SOCKET_PATH_BYTES - 1);
	is_made = make && mkdirat(parent, name, 0700) == 0;
	if (make && !is_made && errno != EEXIST)
		return fail(-errno, text, size,
			    "%s/%s: cannot make the directory of the user's own socket: %s", path,
			    name, strerrordesc_np(errno));
	/* The umask may have removed bits.  Nobody else can have replaced the directory. */
	if (is_made && fchmodat(parent, name, 0700, 0) < 0)
		return fail(-errno, text, size, "%s/%s: chmod: %s", path, name,
			    strerrordesc_np(errno));
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return fail(-ENOTDIR, text, size,
			    "%s/%s is a symbolic link, or no directory: find out which user made "
			    "it, then remove it",
			    path, name);
	/* Without the right to open it, its owner can be seen nevertheless. */
	if (fd >= 0 ? fstat(fd, &st) < 0
		    : errno != EACCES || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(-errno, text, size, "%s/%s: %s", path, name, strerrordesc_np(errno));
	if (st.st_uid != geteuid())
		return fail(-EPERM, text, size,
			    "%s/%s belongs to uid %u and is not used; have it removed, or set "
			    "XDG_RUNTIME_DIR to a directory of your own",
			    path, name, st.st_uid);
	if (fd < 0)
		return fail(-EACCES, text, size, "%s/%s: %s", path, name, strerrordesc_np(EACCES));
	if (st.st_mode & 077)
		return fail(-EPERM, text, size,
			    "%s/%s is open to others (mode %04o) and is not used; check its "
			    "content, then run chmod 700 %s/%s",
			    path, name, st.st_mode & 07777, path, name);
	ret_dir->fd = TAKE_FD(fd);
	return 0;
}
