#include "client/ctl/cmd/trace_files.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
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

int trace_read_lane(const struct ctl *ctl, const char *socket_path, const char *kind, unsigned i,
		    uint64_t first, bool is_noted, struct trace_file *ret_file)
{
	char path[SOCKET_PATH_BYTES + RECORDING_SUFFIX_BYTES], text[256];
	_cleanup_(closep) int fd = -1;
	int r;

	*ret_file = (struct trace_file){ 0 };
	(void)snprintf(path, sizeof(path), "%s.%s.%u", socket_path, kind, i);
	/* It may be a FIFO of a stranger. */
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? CTL_OK
							   : fail_to_open(ctl, path, errno);
	r = trace_file_read(fd, first, ret_file, text, sizeof(text));
	if (r == -EINVAL && is_noted) /* a daemon may be making it */
		ctl_note(ctl, "%s %s: left out", path, text);
	return r < 0 && r != -EINVAL ? ctl_fail(ctl, "%s: %s", path, text) : CTL_OK;
}
