#include "client/ctl/cmd/trace_files.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int trace_find_socket(const struct ctl *ctl, char path[SOCKET_PATH_BYTES])
{
	const char *named = ctl->socket_path ? ctl->socket_path : getenv("DSAIO_SOCKET");
	struct socket_dir dir = { .fd = -1 };
	char text[512];

	if (!named || !*named) {
		named = SOCKET_SYSTEM;
		if (access(named, F_OK) < 0 &&
		    socket_dir_open(false, &dir, text, sizeof(text)) == 0) {
			closep(&dir.fd);
			named = dir.path;
		}
	}
	if (strlen(named) >= SOCKET_PATH_BYTES)
		return ctl_fail(ctl, "the socket path %s has %zu bytes: at most %d are possible",
				named, strlen(named), SOCKET_PATH_BYTES - 1);
	(void)strcpy(path, named);
	return CTL_OK;
}

static int fail_to_open(const struct ctl *ctl, const char *path, int error)
{
	const struct passwd *user = NULL;
	struct stat st;

	if (error != EACCES)
		return ctl_fail(ctl, "%s: %s", path, strerrordesc_np(error));
	if (lstat(path, &st) == 0 && st.st_uid)
		user = getpwuid(st.st_uid);
	return ctl_fail(ctl,
			"%s: it shows the ops of all users: only root%s%s may read it: run this "
			"command as root, for example with sudo",
			path, user ? " and the daemon's user, " : "", user ? user->pw_name : "");
}

int trace_open(const struct ctl *ctl, const char *path, int *ret_fd)
{
	/* It may be a FIFO of a stranger. */
	*ret_fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (*ret_fd >= 0 || errno == ENOENT || errno == ENOTDIR)
		return CTL_OK;
	return fail_to_open(ctl, path, errno);
}
