#include "client/ctl/bench/replay.h"

#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/files.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define BATCH 64u /* completions taken at a time */
#define SPIN_NSEC \
	60000u /* a sleep ends so much late: measured, the kernel's timer slack is 50 us */
/* A recorded pause has the program's wake-up and its next submission, which a replay has anyway: measured. */
#define WAKE_NSEC 20000u
#define ENTRIES 4096u /* the most: deeper streams wait for room */
#define NSEC_PER_SEC 1000000000u

/* A stream that is replayed. */
struct stream {
	struct bench_process *process;
	const struct replay *replay;
	struct dsaio_handle *handle;
	struct dsaio_file **files; /* of the recording; NULL where the stream does not use one */
	const struct trace_op *ops;
	struct trace_op *replayed;
	struct ops_file_due *dues;
	uint64_t *ends; /* when ops ended, in that order */
	uint64_t n_ops, n_submitted, n_ended;
	uint64_t start_nsec, submitted_nsec; /* the last op */
};

static void stream_deinit(struct stream *stream)
{
	/* All ops have ended, unless it failed. */
	handle_closep(&stream->handle);
	for (uint32_t i = 0; stream->files && i < stream->replay->file->n_files; i++)
		dsaio_file_close(stream->files[i]);
	free(stream->files);
	free(stream->dues);
	free(stream->ends);
}

static int fail(struct stream *stream)
{
	(void)bench_process_fail(stream->process, "%s", dsaio_error()); /* -EIO */
	return -EIO;
}

/* ---- before the start ---- */

static int open_files(struct stream *stream)
{
	for (uint64_t i = 0; i < stream->n_ops; i++) {
		const uint32_t number = stream->ops[i].file;

		if (!stream->files[number] &&
		    dsaio_file_from_fd(stream->process->client,
				       bench_files_fd(stream->process->files, number, BENCH_WRITE),
				       &stream->files[number]) < 0)
			return fail(stream);
	}
	return 0;
}

static int prepare(struct stream *stream)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;

	stream->files = calloc(stream->replay->file->n_files, sizeof(struct dsaio_file *));
	stream->dues = calloc(stream->n_ops, sizeof(*stream->dues));
	stream->ends = calloc(stream->n_ops, sizeof(*stream->ends));
	if (!stream->files || !stream->dues || !stream->ends ||
	    ops_file_dues(stream->ops, stream->n_ops, stream->dues) < 0) {
		(void)bench_process_fail(stream->process, "out of memory"); /* -EIO */
		return -EIO;
	}
	options.io_class = DSAIO_CLASS_BACKGROUND;
	options.entries = ENTRIES;
	if (dsaio_handle_open(stream->process->client, &options, &stream->handle) < 0)
		return fail(stream);
	if (open_files(stream) < 0)
		return -EIO;
	/* It opens the channel, and is not measured. */
	return dsaio_fsync(stream->handle, stream->files[stream->ops[0].file], 0) < 0 ? fail(stream)
										      : 0;
}

/* ---- ops ---- */

/* Takes the ops that have ended; waits for one until that time; UINT64_MAX: without end. */
static int reap(struct stream *stream, uint64_t until_nsec)
{
	struct dsaio_completion ended[BATCH];
	const uint64_t began_nsec = clock_nsec();
	const uint64_t left = until_nsec > began_nsec ? (until_nsec - began_nsec) / 1000 : 0;
	const int n = dsaio_handle_reap(stream->handle, ended, sizeof(ended[0]), left ? 1 : 0,
					BATCH, until_nsec == UINT64_MAX ? -1 : (int64_t)left);
	const uint64_t now_nsec = clock_nsec();
	int r = n < 0 && n != -ETIMEDOUT ? fail(stream) : 0;

	for (int i = 0; i < n; i++) {
		struct trace_op *op = ended[i].user_data;

		if (ended[i].result < 0)
			r = bench_process_fail(stream->process, "%s", dsaio_op_error(ended[i].op));
		dsaio_op_free(ended[i].op);
		op->ended_nsec = now_nsec - stream->start_nsec;
		op->result = (int64_t)ended[i].bytes;
		stream->ends[stream->n_ended++] = now_nsec;
	}
	return r;
}

/* Meanwhile ops are taken that end. */
static int wait_until(struct stream *stream, uint64_t nsec)
{
	int r = 0;

	for (uint64_t now = clock_nsec(); r == 0 && now < nsec; now = clock_nsec()) {
		const uint64_t left = nsec - now > SPIN_NSEC ? nsec - now - SPIN_NSEC : 0;
		const struct timespec ts = { .tv_sec = (time_t)(left / NSEC_PER_SEC),
					     .tv_nsec = (long)(left % NSEC_PER_SEC) };

		if (stream->n_ended < stream->n_submitted)
			r = reap(stream, now + left);
		else if (left)
			(void)nanosleep(&ts, NULL); /* the loop looks again */
	}
	return r;
}

/* Waits until op i is due. */
static int wait_for_due(struct stream *stream, uint64_t i)
{
	const struct ops_file_due *due = &stream->dues[i];
	uint64_t since_nsec = stream->submitted_nsec;
	int r = 0;

	while (r == 0 && stream->n_ended < due->n_before)
		r = reap(stream, UINT64_MAX);
	if (r < 0 || stream->replay->is_fast)
		return r;
	if (due->n_before && stream->ends[due->n_before - 1] - WAKE_NSEC > since_nsec)
		since_nsec = stream->ends[due->n_before - 1] - WAKE_NSEC;
	return due->pause_nsec ? wait_until(stream, since_nsec + due->pause_nsec) : 0;
}

static int submit(struct stream *stream, uint64_t i)
{
	static const uint32_t opcodes[] = { [RING_OP_READ] = DSAIO_READ,
					    [RING_OP_WRITE] = DSAIO_WRITE,
					    [RING_OP_FSYNC] = DSAIO_FSYNC,
					    [RING_OP_FDATASYNC] = DSAIO_FSYNC };
	const struct trace_op *op = &stream->ops[i];
	struct dsaio_io io = {
		.opcode = opcodes[op->opcode],
		.flags = op->opcode == RING_OP_FDATASYNC ? DSAIO_DATASYNC : 0,
		.file = stream->files[op->file],
		.buf = op->len ? (char *)stream->process->buffer + op->off % REPLAY_PAGE : NULL,
		.len = op->len,
		.off = op->off,
		.user_data = &stream->replayed[i]
	};
	struct dsaio_op *submitted;

	stream->n_submitted++;
	stream->submitted_nsec = clock_nsec();
	stream->replayed[i].taken_nsec = stream->submitted_nsec - stream->start_nsec;
	return dsaio_submit(stream->handle, &io, sizeof(io), 1, 0, &submitted) < 0 ? fail(stream)
										   : 0;
}

static int run(struct stream *stream)
{
	int r = prepare(stream);

	if (r == 0)
		r = bench_process_barrier(stream->process);
	stream->start_nsec = stream->submitted_nsec = clock_nsec();
	for (uint64_t i = 0; r == 0 && i < stream->n_ops; i++) {
		r = wait_for_due(stream, i);
		if (r == 0)
			r = submit(stream, i);
	}
	while (r == 0 && stream->n_ended < stream->n_ops)
		r = reap(stream, UINT64_MAX);
	return r;
}

int bench_replay_stream(struct bench_process *process, const void *arg)
{
	const struct replay *replay = *(const struct replay *const *)arg;
	_cleanup_(stream_deinit) struct stream stream = { .process = process, .replay = replay };
	uint64_t first = 0;

	for (unsigned i = 0; i < process->id; i++)
		first += replay->file->stream_ops[i];
	stream.n_ops = replay->file->stream_ops[process->id];
	stream.ops = replay->file->ops + first;
	stream.replayed = replay->replayed + first;
	memcpy(stream.replayed, stream.ops, stream.n_ops * sizeof(*stream.ops));
	return run(&stream);
}
