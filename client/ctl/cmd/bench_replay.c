/*
 * dsaioctl bench replay: the ops that dsaioctl trace record has recorded, again, on files of its own.
 *
 * Each stream is done by a process.  An op is submitted when as many ops of its stream have ended as in the recording,
 * and then after the same pause: so streams have the same depth, and a slower store makes the job longer.  The
 * processes start together.  All ops of a stream share its process's buffer, which has REPLAY_PAGE bytes more than the
 * longest.
 *
 * A process is a guest: its handle has the class background, and the store's profile.
 */
#include "client/ctl/bench/runs.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/replay.h"
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

/* A recorded pause has the program's wake-up and its next submission, which a replay has anyway: measured. */
#define WAKE_NSEC 20000u

static const char help[] =
	"dsaioctl bench replay - the ops of a recorded job again, on any host\n"
	"\n"
	"    dsaioctl trace record job.ops -- python3 train.py\n"
	"    dsaioctl bench replay job.ops --dir /nvme\n"
	"    dsaioctl bench replay job.ops --dir . --fast --private\n"
	"\n"
	"Each stream (a handle of the job, on one store) becomes a process with a handle.  It does the\n"
	"same ops in the same order, as many in flight, and with the same pauses between them.  The\n"
	"recorded latencies are the lane's; the replayed ones are those of a program, with its wake-up.\n"
	"The test files have no name and are gone at the end; they need as much room as the job's.\n"
	"\n"
	"    --dir DIR      where the test files lie\n"
	"    --fast         without the pauses\n"
	"    --json         the report as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted\n";

static const char *dir;
static bool is_fast;

static const struct flag flags[] = {
	{ "dir", FLAG_STRING, &dir, 0, 0 },
	{ "fast", FLAG_BOOL, &is_fast, 0, 0 },
};

static const char *const names[] = { "recorded", "replayed" };
static struct replay replay;
static struct bench_pair pair = { .name = "all" };

/* ---- in a process ---- */

static int start_one(struct stream *stream, const struct trace_op *op, uint64_t now_nsec)
{
	static const uint32_t opcodes[] = { [RING_OP_READ] = DSAIO_READ,
					    [RING_OP_WRITE] = DSAIO_WRITE,
					    [RING_OP_FSYNC] = DSAIO_FSYNC,
					    [RING_OP_FDATASYNC] = DSAIO_FSYNC };
	struct dsaio_io io = {
		.opcode = opcodes[op->opcode],
		.flags = op->opcode == RING_OP_FDATASYNC ? DSAIO_DATASYNC : 0,
		.file = stream->file,
		.buf = op->len ? (char *)stream->process->buffer + op->off % REPLAY_PAGE : NULL,
		.len = op->len,
		.off = op->off,
	};

	return stream_submit(stream, &io, now_nsec);
}

static int do_ops(struct stream *stream, const struct trace_op *ops, uint64_t n,
		  const struct replay_due *dues)
{
	uint64_t since = stream->start_nsec;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < n; i++) {
		const uint64_t n_before = dues[i].n_before;

		r = stream_await(stream, n_before);
		if (r == 0 && n_before && stream->ends[n_before - 1] - WAKE_NSEC > since)
			since = stream->ends[n_before - 1] - WAKE_NSEC;
		if (r == 0 && !is_fast && dues[i].pause_nsec)
			r = stream_sleep(stream, since + dues[i].pause_nsec);
		since = clock_nsec();
		if (r == 0)
			r = start_one(stream, &ops[i], since);
	}
	return r < 0 ? r : stream_finish(stream);
}

static int replay_in_process(struct bench_process *process, const void *arg)
{
	_cleanup_(stream_close) struct stream stream = { .process = process, .name = "a stream" };
	_cleanup_(freep) struct replay_due *dues = NULL;
	const uint64_t n = replay.stream_ops[process->id];
	const struct trace_op *ops = replay.ops;
	uint64_t longest = 0;
	int r;

	(void)arg; /* it is all in replay */
	for (unsigned i = 0; i < process->id; i++)
		ops += replay.stream_ops[i];
	for (uint64_t i = 0; i < n; i++)
		longest = ops[i].len > longest ? ops[i].len : longest;
	dues = NEW_ARRAY(struct replay_due, n);
	stream.ends = NEW_ARRAY(uint64_t, n);
	replay_dues(ops, n, stream.ends, dues);
	r = stream_begin(&stream, DSAIO_CLASS_BACKGROUND, longest + REPLAY_PAGE);
	return r < 0 ? r : do_ops(&stream, ops, n, dues);
}

/* ---- the command ---- */

static int read_ops(struct ctl *ctl, const char *path, struct trace_ops *ops)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(trace_file_deinit) struct trace_file file = { 0 };
	static const struct trace_filter all;
	int r;

	if (fd < 0)
		return ctl_fail(ctl, "%s: %s", path, strerrordesc_np(errno));
	r = trace_file_read(ctl, path, fd, TRACE_JOB_EVENTS_MAX + 2 * RECORDING_MARGIN, &file);
	if (r == CTL_OK && file.recording)
		trace_ops_add(ops, 0, &file, &all);
	return r == CTL_OK ? replay_init(ctl, path, ops, &replay) : r;
}

static int run_streams(struct bench_runs *runs)
{
	struct bench_totals *recorded = &pair.runs[0];
	int r = bench_runs_start(runs, dir, replay.stream_bytes, replay.n_streams);

	if (r == CTL_OK)
		r = bench_runs_call(runs, replay_in_process, NULL, 0);
	for (unsigned i = 0; r == CTL_OK && i < replay.n_streams; i++)
		bench_totals_add(&pair.runs[1], bench_crew_shared(runs->crew, i));
	for (const struct trace_op *op = replay.ops; op < replay.ops + replay.n_ops; op++) {
		bench_histogram_record(&recorded->latencies, op->ended_nsec - op->taken_nsec);
		recorded->bytes += (uint64_t)op->result;
	}
	recorded->nsec = replay.duration_nsec;
	return r;
}

static struct json_object *replay_json(const char *path)
{
	struct json_object *object = json_object_new_object();

	json_add_text(object, "file", path);
	json_add_bool(object, "is_fast", is_fast);
	json_add_number(object, "streams", replay.n_streams);
	json_add_number(object, "ops_left_out", replay.n_left_out);
	bench_pair_json(object, &pair, names);
	return object;
}

static int replay_run(struct ctl *ctl)
{
	_cleanup_(bench_runs_deinit) struct bench_runs runs = { .ctl = ctl };
	_cleanup_(trace_ops_deinit) struct trace_ops ops = { 0 };
	int r;

	if (ctl->n_args != 1)
		return ctl_usage(ctl, "which job? name one file of dsaioctl trace record");
	if (!dir)
		return ctl_usage(ctl, "where to? give --dir DIR");
	r = read_ops(ctl, ctl->args[0], &ops);
	if (r == CTL_OK && !ctl->is_json)
		ctl_note(ctl,
			 "streams: %" PRIu32 ", ops: %" PRIu64 ", and %" PRIu64
			 " that failed, had not ended, or were lost",
			 replay.n_streams, replay.n_ops, replay.n_left_out);
	if (r == CTL_OK)
		r = run_streams(&runs);
	if (r != CTL_OK)
		return r;
	return ctl->is_json ? ctl_print_json(ctl, replay_json(ctl->args[0]))
			    : bench_pairs_print(ctl, &pair, 1, names);
}

const struct command command_bench_replay = COMMAND("bench replay", replay_run,
						    "the ops of a recorded job again", help,
						    .flags = FLAG_TABLE(flags));
