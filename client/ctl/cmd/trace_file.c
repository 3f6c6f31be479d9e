#include "client/ctl/cmd/trace_file.h"

#include "proto/util/cleanup.h"
#include "proto/util/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void trace_file_deinit(struct trace_file *file)
{
	free(file->events);
	*file = (struct trace_file){ 0 };
}

/* NULL: it is a file of the flight recorder, with its length. */
static const char *what_is_wrong(const struct recording *header, size_t len)
{
	if (memcmp(header->magic, RECORDING_MAGIC, sizeof(header->magic)) != 0)
		return "is no file of the flight recorder";
	if (header->version != RECORDING_VERSION ||
	    header->event_bytes != sizeof(struct recording_event))
		return "has another version: use the dsaioctl that belongs to that daemon";
	if (header->n_events < 2 * RECORDING_MARGIN || header->n_events > RECORDING_EVENTS_MAX ||
	    (header->n_events & (header->n_events - 1)) || len != RECORDING_BYTES(header->n_events))
		return "is damaged";
	return NULL;
}

/* The oldest event that the lane cannot be writing over. */
static uint64_t oldest_of(const struct recording *header, uint64_t n_written)
{
	const uint64_t most = header->n_events - RECORDING_MARGIN;

	return n_written > most ? n_written - most : 0;
}

/* The events up to file->n_written, which are fewer than all places, in up to two pieces. */
static int read_events(int fd, const struct recording *header, uint64_t first,
		       struct trace_file *file)
{
	uint64_t later, oldest, n = file->n_written - first;

	for (uint64_t i = 0; i < n;) {
		const uint64_t place = (first + i) % header->n_events;
		const uint64_t left = header->n_events - place;
		const size_t len = (left < n - i ? left : n - i) * sizeof(*file->events);

		if (pread(fd, file->events + i, len, (off_t)RECORDING_BYTES(place)) != (ssize_t)len)
			return -EIO;
		i += len / sizeof(*file->events);
	}
	if (pread(fd, &later, sizeof(later), offsetof(struct recording, n_written)) !=
	    sizeof(later))
		return -EIO;
	/* The lane has gone on meanwhile. */
	oldest = oldest_of(header, later);
	oldest = oldest > first ? oldest - first : 0;
	oldest = oldest < n ? oldest : n;
	file->n_lost += oldest;
	file->n_events = n - oldest;
	memmove(file->events, file->events + oldest, file->n_events * sizeof(*file->events));
	return 0;
}

int trace_file_read(const struct ctl *ctl, const char *path, int fd, struct trace_file *file)
{
	struct recording header;
	const char *wrong;
	uint64_t oldest, first;
	struct stat st;

	free(file->events);
	file->events = NULL;
	file->n_events = 0;
	if (fstat(fd, &st) < 0)
		return ctl_fail(ctl, "%s: %s", path, strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode) || pread(fd, &header, sizeof(header), 0) != sizeof(header))
		memset(&header, 0, sizeof(header));
	wrong = what_is_wrong(&header, (size_t)st.st_size);
	if (wrong && !file->is_left_out)
		ctl_note(ctl, "%s %s: left out", path, wrong);
	file->is_left_out = wrong;
	if (wrong)
		return CTL_OK;
	first = file->start_nsec == header.start_nsec ? file->n_written : 0;
	memcpy(file->store, header.store, sizeof(file->store) - 1);
	memcpy(file->program, header.program, sizeof(file->program) - 1);
	file->pid = header.pid;
	file->crash_signal = header.crash_signal;
	file->process_ticks = header.process_ticks;
	file->start_nsec = header.start_nsec;
	file->start_real_nsec = header.start_real_nsec;
	file->crash_nsec = header.crash_nsec;
	/* relaxed: a copy of our own */
	file->n_written = atomic_load_explicit(&header.n_written, memory_order_relaxed);
	if (first > file->n_written) /* a stranger's */
		first = file->n_written;
	oldest = oldest_of(&header, file->n_written);
	file->n_lost += oldest > first ? oldest - first : 0;
	first = oldest > first ? oldest : first;
	file->events = calloc(file->n_written - first + 1, sizeof(*file->events));
	if (!file->events)
		return ctl_fail(ctl, "out of memory");
	if (read_events(fd, &header, first, file) < 0)
		return ctl_fail(ctl, "%s: became shorter while it was read", path);
	return CTL_OK;
}

bool trace_file_is_live(const struct trace_file *file)
{
	struct process process;

	return file->pid <= INT32_MAX && process_look((pid_t)file->pid, &process) &&
	       process.started == file->process_ticks && process.state != 'Z';
}

uint64_t trace_file_real_nsec(const struct trace_file *file, uint64_t nsec)
{
	return file->start_real_nsec +
	       (nsec - file->start_nsec); /* wraps for a stranger's values */
}

/* ---- all of a daemon ---- */

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
		     const struct trace_filter *filter)
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
			if (trace_filter_has_event(filter, file->store, &file->events[k]) &&
			    trace_ops_add(&files->ops, file->pid, i, &file->events[k]) < 0)
				return ctl_fail(ctl, "out of memory");
	}
	return CTL_OK;
}
