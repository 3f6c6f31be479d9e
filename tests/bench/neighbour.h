/*
 * A neighbour: another process that reads or writes the file beside others on command, and records
 * when each op began and ended.
 *
 * It is forked off once and serves many slices: what it opened and the pages of its memory are
 * there by then.  It ends with neighbour_stop(), or with its parent.
 */
#ifndef DSAIO_TESTS_BENCH_NEIGHBOUR_H
#define DSAIO_TESTS_BENCH_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/dsaio.h"

struct neighbour_job {
	const char *path;
	uint64_t file_bytes; /* of its start, a multiple of op_bytes */
	/* A client of the daemon there.  NULL: libaio in its own process; n_queued is 1 then. */
	const char *socket_path;
	bool is_write;
	uint64_t op_bytes; /* under 1 MiB at random offsets, else one after the other */
	unsigned n_queued; /* ops in flight or waiting, NEIGHBOUR_QUEUED_MAX at most */
	uint32_t weight;
	enum dsaio_class io_class;
	const struct dsaio_profile *profile; /* NULL: the store's */
	int64_t late_nsec;		     /* it starts so long after a slice's start */
	int64_t early_nsec;		     /* and stops so long before its end */
};
#define NEIGHBOUR_QUEUED_MAX 16

/* A slice's ops, in the order of their ends.  Beside other slices' at most NEIGHBOUR_OPS_MAX. */
#define NEIGHBOUR_OPS_MAX (1u << 17)
struct neighbour_log {
	uint32_t n;
	int64_t start; /* when the first was submitted, as now_nsec() tells it */
	int64_t begins[NEIGHBOUR_OPS_MAX];
	int64_t ends[NEIGHBOUR_OPS_MAX];
};

struct neighbour {
	struct neighbour_job job;
	struct neighbour_log *log; /* shared with it; its alone while a slice runs */
	pid_t pid;		   /* 0: none */
	int fd;			   /* a slice's end goes there, and a byte comes back */
};

/* Returns when it is ready.  0 or -errno; says on stderr why.  job's texts are borrowed. */
int neighbour_start(struct neighbour *neighbour, const struct neighbour_job *job);
void neighbour_stop(struct neighbour *neighbour);

/* All of them run until then and have nothing in flight after.  0 or -errno, as above. */
int neighbours_run(struct neighbour *const neighbours[], unsigned n, int64_t end_nsec);

/* Bytes per second that the last slice moved between the two times. */
double neighbour_bandwidth(const struct neighbour *neighbour, int64_t from_nsec, int64_t to_nsec);
/* The latency below which the share q of the ops lies that began between the times; 0: none. */
double neighbour_latency_usec(const struct neighbour *neighbour, int64_t from_nsec, int64_t to_nsec,
			      double q);

#endif
