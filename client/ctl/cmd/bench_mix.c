/*
 * dsaioctl bench mix: what clients of different kinds get, each alone and all together.
 *
 * Each client of the job file is a process of the crew, with its own connection, handle, buffer and test file.  It
 * is measured alone, while the others are connected and idle; then all are, from one barrier on.  A client starts
 * ops for its runtime, up to its depth and at its rate, and then awaits those under way; its times are from the
 * start to the last op's end.  The latency of an op with a rate counts from when it was due, so a stall shows in
 * all ops that wait for it.
 */
#include "client/ctl/bench/mix_job.h"
#include "client/ctl/bench/results.h"
#include "client/ctl/bench/runs.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *dir;

static const struct flag flags[] = { { "dir", FLAG_STRING, &dir, 0, 0 } };

static const char help[] =
	"dsaioctl bench mix - clients of different kinds, each alone and all together\n"
	"\n"
	"    dsaioctl bench mix job.fio --dir /nvme\n"
	"    dsaioctl bench mix job.fio --dir /nvme --json > mix.json\n"
	"    dsaioctl bench report mix.json -o mix.html           the same as a picture\n"
	"\n"
	"The job file has a section for each client, and [global] of those behind it, in fio's words.\n"
	"    [checkpoint]\n"
	"    rw=write\n"
	"    bs=4M\n"
	"    [inference]\n"
	"    rate_iops=2000\n"
	"\n"
	"    rw=read|write|randread|randwrite|rw|randrw (read)    rwmixread=PERCENT of rw, randrw (50)\n"
	"    bs=SIZE of an op (4K)        iodepth=N ops under way (1)   size=SIZE of its file (64M)\n"
	"    rate=SIZE a second           rate_iops=N ops a second      runtime=TIME (5s)\n"
	"    class=normal|demand|background\n"
	"\n"
	"With a rate, a latency counts from when the op was due.  A percentile of too few ops is\n"
	"printed as -.\n"
	"\n"
	"    --dir DIR      where the test files lie: they have no names, and are gone at the end\n"
	"    --json         all numbers, in bytes and nanoseconds, for bench report, too\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted\n";

static const char *const names[] = { "alone", "together" };
static struct mix_job job;
static struct bench_pair pairs[MIX_CLIENTS_MAX];

struct mix_call {
	unsigned first, n; /* the clients that are measured */
};

/* ---- in a process ---- */

static int start_one(struct stream *stream, const struct mix_client *client,
		     unsigned short random[3], uint64_t since_nsec)
{
	const uint64_t n_places = client->size / client->block_size;
	const uint64_t place = mix_is_random(client) ? (uint64_t)nrand48(random)
						     : stream->n_started;
	const bool is_read = (uint64_t)nrand48(random) % 100 < client->read_percent;
	struct dsaio_io io = { .opcode = is_read ? DSAIO_READ : DSAIO_WRITE,
			       .file = stream->file,
			       .buf = (char *)stream->process->buffer +
				      stream->n_started % client->depth * client->block_size,
			       .len = client->block_size,
			       .off = place % n_places * client->block_size };

	return stream_submit(stream, &io, since_nsec);
}

static int measure(struct stream *stream, const struct mix_client *client)
{
	const uint64_t end = stream->start_nsec + client->runtime_nsec;
	const uint64_t interval = mix_interval_nsec(client);
	unsigned short random[3] = { (unsigned short)stream->process->id };
	uint64_t due = stream->start_nsec, now = due;
	int r = 0;

	for (; r == 0; due += interval) {
		if (stream->n_started >= client->depth)
			r = stream_await(stream, stream->n_started + 1 - client->depth);
		if (r == 0)
			r = stream_sleep(stream, due < end ? due : end);
		now = clock_nsec();
		if (r < 0 || now >= end)
			break;
		r = start_one(stream, client, random, interval ? due : now);
	}
	return r < 0 ? r : stream_finish(stream);
}

static int mix_in_process(struct bench_process *process, const void *arg)
{
	const struct mix_call *call = arg;
	const struct mix_client *client = &job.clients[process->id];
	_cleanup_(stream_close) struct stream stream = { .process = process, .name = client->name };
	int r;

	if (process->id - call->first >= call->n)
		return bench_process_barrier(process);
	r = stream_begin(&stream, (enum dsaio_class)client->io_class,
			 client->block_size * client->depth);
	return r < 0 ? r : measure(&stream, client);
}

/* ---- the command ---- */

static int read_job(struct ctl *ctl)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char text[1200];

	if (ctl->n_args != 1 || !dir)
		return ctl_usage(ctl, "name one job file and a directory: dsaioctl bench mix JOB "
				      "--dir DIR: see dsaioctl bench mix --help");
	file = fopen(ctl->args[0], "re");
	if (!file)
		return ctl_fail(ctl, "%s: %s", ctl->args[0], strerror(errno));
	if (mix_job_read(file, &job, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "%s: %s: see dsaioctl bench mix --help", ctl->args[0], text);
	return CTL_OK;
}

/* Each client alone, and then all. */
static int measure_all(struct bench_runs *runs)
{
	int r = CTL_OK;

	for (unsigned i = 0; r == CTL_OK && i <= job.n; i++) {
		const bool is_together = i == job.n;
		const struct mix_call call = { is_together ? 0 : i, is_together ? job.n : 1 };

		ctl_note(runs->ctl, "%s", is_together ? "all together" : job.clients[i].name);
		r = bench_runs_call(runs, mix_in_process, &call, sizeof(call));
		for (unsigned k = call.first; r == CTL_OK && k < call.first + call.n; k++)
			memcpy(&pairs[k].runs[is_together], bench_crew_shared(runs->crew, k),
			       sizeof(pairs[k].runs[0]));
	}
	return r;
}

static struct json_object *mix_json(void)
{
	struct json_object *object = json_object_new_object(), *array = json_object_new_array();

	for (unsigned i = 0; i < job.n; i++) {
		struct json_object *one = json_object_new_object();

		json_add_text(one, "name", pairs[i].name);
		bench_pair_json(one, &pairs[i], names);
		json_object_array_add(array, one);
	}
	json_add_text(object, "format", BENCH_FORMAT);
	json_add_text(object, "kind", "mix");
	json_object_object_add(object, "clients", array);
	return object;
}

static int mix_run(struct ctl *ctl)
{
	_cleanup_(bench_runs_deinit) struct bench_runs runs = { .ctl = ctl };
	uint64_t sizes[MIX_CLIENTS_MAX];
	int r = read_job(ctl);

	if (r != CTL_OK)
		return r;
	for (unsigned i = 0; i < job.n; i++) {
		sizes[i] = job.clients[i].size;
		pairs[i].name = job.clients[i].name;
	}
	r = bench_runs_start(&runs, dir, sizes, job.n);
	if (r == CTL_OK)
		r = measure_all(&runs);
	if (r != CTL_OK)
		return r;
	return ctl->is_json ? ctl_print_json(ctl, mix_json())
			    : bench_pairs_print(ctl, pairs, job.n, names);
}

const struct command command_bench_mix = COMMAND("bench mix", mix_run,
						 "clients of different kinds, alone and together",
						 help, .flags = FLAG_TABLE(flags));
