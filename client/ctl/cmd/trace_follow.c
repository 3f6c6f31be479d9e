#include "client/ctl/cmd/trace_follow.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* All of it, or -EIO. */
static int read_at(int fd, void *to, size_t len, uint64_t off)
{
	return pread(fd, to, len, (off_t)off) == (ssize_t)len ? 0 : -EIO;
}

static int read_n_written(int fd, uint64_t *ret_n)
{
	return read_at(fd, ret_n, sizeof(*ret_n), offsetof(struct recording, n_written));
}

int trace_follow_start(int fd_in, bool is_old, struct trace_follow *ret_follow, char *text,
		       size_t size)
{
	_cleanup_(closep) int fd = fd_in;
	struct trace_follow follow = { 0 };
	uint32_t n_places;
	int r = trace_file_read(fd, &follow.file, text, size);

	if (r < 0)
		return r;
	trace_file_deinit(&follow.file);
	if (read_at(fd, &n_places, sizeof(n_places), offsetof(struct recording, n_events)) < 0 ||
	    n_places < 2 * RECORDING_MARGIN || n_places > RECORDING_EVENTS_MAX ||
	    (is_old && read_n_written(fd, &follow.next) < 0)) {
		(void)snprintf(text, size, "changed while it was read");
		return -EINVAL;
	}
	follow.n_places = n_places;
	follow.fd = TAKE_FD(fd);
	*ret_follow = follow;
	return 0;
}

/* The oldest event that the lane cannot be writing over. */
static uint64_t oldest_of(const struct trace_follow *follow, uint64_t n_written)
{
	const uint64_t most = follow->n_places - RECORDING_MARGIN;

	return n_written > most ? n_written - most : 0;
}

/* The events from first to last - 1, which are fewer than all places, in up to two pieces. */
static int read_events(const struct trace_follow *follow, uint64_t first, uint64_t last,
		       struct recording_event *to)
{
	while (first < last) {
		const uint64_t place = first % follow->n_places;
		uint64_t n = follow->n_places - place;

		if (n > last - first)
			n = last - first;
		if (read_at(follow->fd, to, n * sizeof(*to), RECORDING_BYTES(place)) < 0)
			return -EIO;
		to += n;
		first += n;
	}
	return 0;
}

int trace_follow_read(struct trace_follow *follow, struct recording_event *ret_events)
{
	uint64_t first = follow->next, last, oldest, gone;

	if (read_n_written(follow->fd, &last) < 0)
		return -EIO;
	if (last <= first)
		return 0;
	oldest = oldest_of(follow, last);
	if (first < oldest)
		first = oldest;
	if (read_events(follow, first, last, ret_events) < 0 ||
	    read_n_written(follow->fd, &gone) < 0)
		return -EIO;
	/* The lane has gone on meanwhile. */
	oldest = oldest_of(follow, gone);
	gone = oldest > first ? oldest - first : 0;
	if (gone > last - first)
		gone = last - first;
	follow->n_lost += first + gone - follow->next;
	follow->next = last;
	memmove(ret_events, ret_events + gone, (last - first - gone) * sizeof(*ret_events));
	return (int)(last - first - gone);
}
