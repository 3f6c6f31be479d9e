#include "client/ctl/cmd/trace_file.h"

#include "proto/util/process.h"

#include <errno.h>
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
