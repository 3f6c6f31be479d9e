#include "client/ctl/bench/stream.h"

#include "client/ctl/bench/buffer.h"
#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/files.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define BATCH 64      /* completions taken at a time */
#define ENTRIES 4096u /* the most that a handle has */

static int fail(struct stream *stream)
{
	return bench_process_fail(stream->process, "%s: %s", stream->name, dsaio_error());
}

int stream_begin(struct stream *stream, enum dsaio_class io_class, uint64_t buffer_bytes)
{
	struct bench_process *process = stream->process;
	const int fd = process->files->fds[process->id][BENCH_WRITE];
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	int r = 0;

	options.io_class = io_class;
	options.entries = ENTRIES;
	(void)prctl(PR_SET_TIMERSLACK,
		    1); /* cannot fail: waits end when they should, not 50 us later */
	if (!process->buffer) {
		if (dsaio_alloc(process->client, buffer_bytes, NULL, &process->buffer) < 0)
			return fail(stream);
		r = bench_process_fill(process, buffer_bytes);
	}
	if (dsaio_handle_open(process->client, &options, &stream->handle) < 0 ||
	    dsaio_file_from_fd(process->client, fd, &stream->file) < 0 ||
	    dsaio_fsync(stream->handle, stream->file, 0) < 0)
		return fail(stream);
	if (r == 0)
		r = bench_process_barrier(process);
	stream->start_nsec = clock_nsec();
	return r;
}

int stream_submit(struct stream *stream, struct dsaio_io *io, uint64_t since_nsec)
{
	io->user_data = (void *)(uintptr_t)since_nsec;
	stream->n_started++;
	return dsaio_submit(stream->handle, io, sizeof(*io), 1, 0, NULL) < 0 ? fail(stream) : 0;
}

/* Takes ops that have ended, and waits for one until that time; UINT64_MAX: without end. */
static int reap(struct stream *stream, uint64_t until_nsec)
{
	struct bench_totals *totals = stream->process->shared;
	struct dsaio_completion ended[BATCH];
	const uint64_t began_nsec = clock_nsec();
	const uint64_t left = until_nsec > began_nsec ? (until_nsec - began_nsec) / 1000 : 0;
	const int n = dsaio_handle_reap(stream->handle, ended, sizeof(ended[0]), 1, BATCH,
					until_nsec == UINT64_MAX ? -1 : (int64_t)left);
	const uint64_t now_nsec = clock_nsec();
	int r = n < 0 && n != -ETIMEDOUT ? fail(stream) : 0;

	for (int i = 0; i < n; i++) {
		if (ended[i].result < 0)
			r = bench_process_fail(stream->process, "%s: %s", stream->name,
					       dsaio_op_error(ended[i].op));
		dsaio_op_free(ended[i].op); /* NULL: it was done */
		bench_histogram_record(&totals->latencies,
				       now_nsec - (uintptr_t)ended[i].user_data);
		totals->bytes += ended[i].bytes;
		if (stream->ends)
			stream->ends[stream->n_ended] = now_nsec;
		stream->n_ended++;
	}
	return r;
}

int stream_await(struct stream *stream, uint64_t n_ended)
{
	int r = 0;

	while (r == 0 && stream->n_ended < n_ended)
		r = reap(stream, UINT64_MAX);
	return r;
}

int stream_sleep(struct stream *stream, uint64_t until_nsec)
{
	const struct timespec ts = { .tv_sec = (time_t)(until_nsec / NSEC_PER_SEC),
				     .tv_nsec = (long)(until_nsec % NSEC_PER_SEC) };
	int r = 0;

	while (r == 0 && clock_nsec() < until_nsec)
		if (stream->n_ended < stream->n_started)
			r = reap(stream, until_nsec);
		else
			(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	return r;
}

int stream_finish(struct stream *stream)
{
	struct bench_totals *totals = stream->process->shared;
	const int r = stream_await(stream, stream->n_started);

	totals->nsec = clock_nsec() - stream->start_nsec;
	return r;
}

void stream_close(struct stream *stream)
{
	handle_closep(&stream->handle); /* all ops have ended, unless it failed */
	dsaio_file_close(stream->file);
	free(stream->ends);
}
