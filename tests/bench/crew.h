/*
 * The processes of a side that does its work in C: forked once for a point, then idle until the
 * parent starts a slice.
 *
 * Each has a socket to the parent, and a page with its results that both map.  A slice starts at
 * the same moment for all, announced some milliseconds ahead.  It ends for each process after its
 * time (or number of ops), when its ops in flight have ended.  A child ends when its parent closes the socket, or
 * dies, and ignores what a terminal sends to stop the bench.
 *
 * The parent calls from one thread; the members' functions run in the children.
 */
#ifndef DSAIO_TESTS_BENCH_CREW_H
#define DSAIO_TESTS_BENCH_CREW_H

#include <sys/types.h>

#include "tests/bench/histogram.h"
#include "tests/bench/side.h"

/*
 * A child's slice: what is to be done, and what it tells.  A child that wakes after its end starts one
 * op all the same.
 */
struct work {
	int64_t start_nsec, end_nsec; /* CLOCK_MONOTONIC; set before; end: stop starting ops */
	uint64_t ops, bytes;
	int64_t done_nsec;
	int64_t cpu_nsec;
	uint64_t sleeps;
	unsigned block_bytes, depth; /* as served; 0: as asked for */
	struct histogram histogram;
	int error;
	char why[512];
};

/* The functions of each process; all run in the child. */
struct crew_member {
	/* Gives *ret_state; 0, or a negative errno and text in why (of size bytes). */
	int (*open)(const struct point *point, unsigned index, const void *argument,
		    void **ret_state, char *why, size_t size);
	int (*run)(void *state, struct work *work);
	void (*close)(void *state); /* NULL is fine */
};

struct crew;

/* argument: borrowed until the return.  On an error *ret_crew is NULL and side->why says why. */
int crew_new(struct side *side, const struct crew_member *member, const void *argument,
	     struct crew **ret_crew);
void crew_free(struct crew *crew); /* NULL is fine */

/* Runs a slice of a side; other_pid: a process whose CPU time and sleeps count, too (the daemon),
   or 0. */
int crew_slice(struct side *side, struct crew *crew, pid_t other_pid, struct result *ret_result);

/* The functions of a side that is a crew alone, which is its state. */
int crew_side_open(struct side *side, const struct crew_member *member);
int crew_side_run(struct side *side, struct result *ret_result);
void crew_side_close(struct side *side);

/* Where a process is: the offset of its next op. */
struct offsets {
	uint64_t n, next, seed;
	uint64_t op_bytes;
	bool is_random;
};
void offsets_init(struct offsets *offsets, const struct point *point);
uint64_t offsets_next(struct offsets *offsets);

#endif
