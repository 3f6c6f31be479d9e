/*
 * The streams of a file of ops (ops_file.h), done again, each by a process of a crew.
 *
 * An op is submitted when as many ops of its stream have ended as in the recording, and then after the same pause:
 * so streams have the same depth, and a slower store makes the job longer.  The processes start together.  All
 * ops of a stream share its process's buffer, which has REPLAY_PAGE bytes more than the longest.
 *
 * A process is a guest: its handle has the class background, and the store's profile.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_REPLAY_H
#define DSAIO_CLIENT_CTL_BENCH_REPLAY_H

#include "client/ctl/bench/ops_file.h"
#include "client/ctl/bench/process.h"

#include <stdbool.h>

struct replay {
	const struct ops_file *file;
	bool is_fast; /* without pauses */
	/* As the file's ops, but with the times and results of this run; memory that processes share. */
	struct trace_op *replayed;
};

#define REPLAY_PAGE 4096u /* an op's bytes are as far from one as in the file */

/* The process's number is the stream's; its files (bench_files) are those of the file.  arg: a struct replay *. */
int bench_replay_stream(struct bench_process *process, const void *arg);

#endif
