/*
 * The cost of an event to a lane: recorder_add() on a mapping in memory, a few at a time, with other work in
 * between, so that the ring leaves the core's caches as it does in a lane.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "daemon/account/recorder.h"
#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"

#define EVENTS 8u /* between two looks at the clock */
#define SLICES 100000u
#define OTHER_BYTES ((size_t)32 << 20) /* touched meanwhile: evicts the ring */

static char *other;

/* The mean over slices, each behind work that has evicted what the next events overwrite. */
static int add_events(struct recording *recording, double *ret_nsec)
{
	struct recording_event event = { .kind = RECORDING_TAKEN, .len = SMALL_BYTES };
	uint64_t spent = 0, empty = 0, at = 0;

	for (unsigned i = 0; i < SLICES; i++) {
		uint64_t start, end;

		for (unsigned k = 0; k < 64; k++, at = (at + 4096 + 64) % OTHER_BYTES)
			((volatile char *)other)[at]++;
		start = clock_nsec();
		end = clock_nsec();
		empty += end - start;
		start = clock_nsec();
		for (unsigned k = 0; k < EVENTS; k++) {
			event.nsec = start;
			event.id++;
			event.off += SMALL_BYTES;
			recorder_add(recording, &event);
		}
		spent += clock_nsec() - start;
	}
	*ret_nsec = spent > empty ? (double)(spent - empty) / (SLICES * EVENTS) : 0;
	return 0;
}

static struct recording *mapped;

static int ours(struct bench *b, double *ret_nsec)
{
	(void)b;
	return add_events(mapped, ret_nsec);
}

int measure_recorder(struct bench *b)
{
	const size_t bytes = RECORDING_BYTES(RECORDING_EVENTS);
	_cleanup_(closep) int fd = memfd_create("bench", MFD_CLOEXEC); /* tmpfs, too */
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	other = calloc(1, OTHER_BYTES);
	r = other ? repeat(b, &rows[ROW_RECORDER], ours) : -ENOMEM;
	free(other);
	(void)munmap(mapped, bytes);
	return r;
}
