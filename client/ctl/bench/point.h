/*
 * One point of a bench: a profile, measured by all processes of a crew side by side.
 *
 * In a repetition (a loop) each process moves io_size bytes of its own file by one op.  All processes
 * start together.  In ds_io's terms "task" is the time of the op, and "e2e" includes the wait for the
 * other processes.  The barrier is behind the op, so a repetition ends with the last byte of all
 * processes.  (ds_io has a barrier before each loop.)  Before the first loop an op opens the channel;
 * a barrier that is not measured follows it.  The slowest process's times count, in each repetition
 * and in the sum over them.
 *
 * The bench is a guest: its handles have the class background.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_POINT_H
#define DSAIO_CLIENT_CTL_BENCH_POINT_H

#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/measure.h"
#include "proto/profile.h"

#include <stdbool.h>

enum bench_op { BENCH_READ, BENCH_WRITE };
const char *bench_op_name(enum bench_op op); /* "read", "write" */

bool bench_same_profile(const struct profile *a, const struct profile *b);

struct bench_repetition {
	double at_sec; /* when it began: seconds since 1970 */
	double task_sec, e2e_sec;
	uint64_t bytes; /* of all processes */
};

struct bench_task {
	enum bench_op op;
	struct profile profile;
	uint64_t io_size;      /* of each process: at most the crew's buffer */
	uint32_t warmup_loops; /* before the first measured one */
	uint32_t loops;	       /* at most those the crew has room for: bench_point_shared_bytes() */
};

/* The traffic of all processes for a point, warm-up included, also if the point failed. */
struct bench_moved {
	uint64_t bytes, ops;
	uint64_t nsec; /* of the slowest, from its first transfer to the end of its last */
};

/* The shared_bytes that the crew's options need for so many measured loops. */
size_t bench_point_shared_bytes(uint32_t loops);

/*
 * Measures.  Process i uses the test file of place i.
 * ret_repetitions: room for task->loops of them.
 * Returns as bench_crew_call().
 */
int bench_point_run(struct bench_crew *crew, unsigned n_processes, const struct bench_task *task,
		    struct bench_repetition *ret_repetitions, struct measure *ret_total,
		    struct bench_moved *ret_moved, char *text);

/* ---- in a process ---- */

/* A handle of a guest with that profile.  Returns 0 or bench_process_fail()'s value. */
int bench_open_handle(struct bench_process *process, const struct profile *profile,
		      struct dsaio_handle **ret_handle);

/*
 * Opens such a handle and the process's test file (files.h), and moves len bytes, which opens the channel and is not
 * measured.  path: of PATH_MAX, a name for messages.
 */
int bench_open_channel(struct bench_process *process, const struct profile *profile,
		       enum bench_op op, uint64_t len, struct dsaio_handle **ret_handle,
		       struct dsaio_file **ret_file, char *path);

/* Moves len bytes at the file's start from or to the process's buffer, and waits. */
int bench_transfer(struct bench_process *process, struct dsaio_handle *handle,
		   struct dsaio_file *file, const char *path, enum bench_op op, uint64_t len);

#endif
