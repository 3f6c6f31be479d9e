/*
 * Ops of a bench's process on a handle and a file of its own: the caller says which comes next, and when.
 *
 * stream_begin(); then ops; stream_finish(); stream_close().  The results are in the process's shared memory, a struct
 * bench_totals.
 *
 * All functions but the last return 0 or bench_process_fail()'s value.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_STREAM_H
#define DSAIO_CLIENT_CTL_BENCH_STREAM_H

#include "client/ctl/bench/histogram.h"
#include "client/ctl/bench/process.h"

#include <stdint.h>

/* Zero at first. */
struct bench_totals {
	uint64_t bytes;
	uint64_t nsec; /* from the start to the last op's end */
	struct bench_histogram latencies;
};

struct stream {
	struct bench_process *process; /* these two: set by the caller */
	const char *name;	       /* for messages */
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint64_t n_started, n_ended;
	uint64_t start_nsec;
	uint64_t *
		ends; /* owned: when ops ended, in that order, with room for all; NULL: is not kept */
};

/*
 * Opens the handle and the process's file, syncs it, which opens the channel and is not measured, and waits at the
 * barrier.  The process gets a buffer of that size, unless it has one.
 */
int stream_begin(struct stream *stream, enum dsaio_class io_class, uint64_t buffer_bytes);

/* Starts the op; its latency counts from that time.  With many thousands under way, waits for room. */
int stream_submit(struct stream *stream, struct dsaio_io *io, uint64_t since_nsec);

/* Waits until so many ops have ended, or until that time; takes all that end meanwhile. */
int stream_await(struct stream *stream, uint64_t n_ended);
int stream_sleep(struct stream *stream, uint64_t until_nsec);

/* Waits for all ops: the stream has ended. */
int stream_finish(struct stream *stream);

void stream_close(struct stream *stream);

#endif
