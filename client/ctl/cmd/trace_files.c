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

void trace_files_deinit(struct trace_files *files)
{
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++)
		trace_file_deinit(&files->files[i]);
	trace_ops_deinit(&files->ops);
}

int trace_files_find(const struct ctl *ctl, struct trace_files *files)
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
	(void)strcpy(files->socket_path, named);
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

static int read_lane(const struct ctl *ctl, struct trace_files *files, const char *kind, unsigned i)
{
	char path[SOCKET_PATH_BYTES + RECORDING_SUFFIX_BYTES];
	_cleanup_(closep) int fd = -1;

	(void)snprintf(path, sizeof(path), "%s.%s.%u", files->socket_path, kind, i);
	/* It may be a FIFO of a stranger. */
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		return trace_file_read(ctl, path, fd, &files->files[i]);
	trace_file_deinit(&files->files[i]);
	return errno == ENOENT || errno == ENOTDIR ? CTL_OK : fail_to_open(ctl, path, errno);
}

int trace_files_read(const struct ctl *ctl, struct trace_files *files, const char *kind,
		     const char *store)
{
	files->first = NULL;
	files->n_lost = 0;
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++) {
		const struct trace_file *file = &files->files[i];

		if (read_lane(ctl, files, kind, i) != CTL_OK)
			return CTL_FAILED;
		files->n_lost += file->n_lost;
		if (file->events && !files->first)
			files->first = file;
		for (size_t k = 0; k < file->n_events; k++)
			if ((!store || strcmp(file->store, store) == 0) &&
			    trace_ops_add(&files->ops, file->pid, i, &file->events[k]) < 0)
				return ctl_fail(ctl, "out of memory");
	}
	return CTL_OK;
}
