#include "client/ctl/bench/point.h"

#include "client/ctl/bench/files.h"
#include "client/ctl/bench/gpu.h"
#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <time.h>

#define OPENING_BYTES 4096u /* of the op that opens the channel, which is not measured */

/* A process's results, in its shared memory. */
struct result {
	struct bench_moved moved;
	struct {
		double at_sec, task_sec, e2e_sec;
	} loops[];
};

const char *bench_op_name(enum bench_op op)
{
	return op == BENCH_READ ? "read" : "write";
}

bool bench_same_profile(const struct profile *a, const struct profile *b)
{
	return a->block_size == b->block_size && a->queue_depth == b->queue_depth &&
	       a->single_submit == b->single_submit && a->overlap_events == b->overlap_events &&
	       a->intra_op_parallelism == b->intra_op_parallelism;
}

size_t bench_point_shared_bytes(uint32_t loops)
{
	return sizeof(struct result) + loops * sizeof(((struct result *)NULL)->loops[0]);
}

int bench_open_handle(struct bench_process *process, const struct profile *profile,
		      struct dsaio_handle **ret_handle)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_profile public_profile = DSAIO_PROFILE_INIT;

	public_profile.block_size = profile->block_size;
	public_profile.queue_depth = profile->queue_depth;
	public_profile.single_submit = profile->single_submit ? DSAIO_YES : DSAIO_NO;
	public_profile.overlap_events = profile->overlap_events ? DSAIO_YES : DSAIO_NO;
	public_profile.intra_op_parallelism = profile->intra_op_parallelism;
	options.profile = &public_profile;
	options.io_class = DSAIO_CLASS_BACKGROUND;
	if (dsaio_handle_open(process->client, &options, ret_handle) < 0)
		return bench_process_fail(process, "%s", dsaio_error());
	return 0;
}

int bench_transfer(struct bench_process *process, struct dsaio_handle *handle,
		   struct dsaio_file *file, const char *path, enum bench_op op, uint64_t len)
{
	struct dsaio_op *running;
	int64_t done;
	int r;

	r = op == BENCH_READ ? dsaio_pread_async(handle, file, process->buffer, len, 0, &running)
			     : dsaio_pwrite_async(handle, file, process->buffer, len, 0, &running);
	if (r < 0)
		return bench_process_fail(process, "%s", dsaio_error());
	r = 0;
	if (dsaio_op_wait(running, -1, &done) < 0)
		r = bench_process_fail(process, "%s", dsaio_error());
	else if (done < 0)
		r = bench_process_fail(process, "%s", dsaio_op_error(running));
	else if ((uint64_t)done != len)
		r = bench_process_fail(process,
				       "%s: became shorter: ends at byte %" PRId64 " of %" PRIu64,
				       path, done, len);
	if (r == 0)
		bench_gpu_note(process, running);
	dsaio_op_free(running);
	return r;
}

int bench_open_channel(struct bench_process *process, const struct profile *profile,
		       enum bench_op op, uint64_t len, struct dsaio_handle **ret_handle,
		       struct dsaio_file **ret_file, char *path)
{
	const struct bench_gpu_paths before = process->memory.paths;
	const int fd = process->files->fds[process->id][op];
	int r = bench_open_handle(process, profile, ret_handle);

	(void)snprintf(path, PATH_MAX, "%.*s: the test file to %s", PATH_MAX - 32, process->folder,
		       bench_op_name(op));
	if (r == 0 && dsaio_file_from_fd(process->client, fd, ret_file) < 0)
		r = bench_process_fail(process, "%s: %s", path, dsaio_error());
	if (r == 0)
		r = bench_transfer(process, *ret_handle, *ret_file, path, op, len);
	process->memory.paths = before;
	return r;
}

static int measure_loop(struct bench_process *process, const struct bench_task *task,
			struct dsaio_handle *handle, struct dsaio_file *file, const char *path,
			unsigned loop)
{
	struct result *result = process->shared;
	double at_sec = (double)clock_nsec_of(CLOCK_REALTIME) / 1e9;
	uint64_t start = clock_nsec(), done;
	int r = bench_transfer(process, handle, file, path, task->op, task->io_size);

	if (r < 0)
		return r;
	done = clock_nsec();
	result->moved.bytes += task->io_size;
	result->moved.ops++;
	r = bench_process_barrier(process);
	if (r == 0 && loop >= task->warmup_loops) {
		unsigned i = loop - task->warmup_loops;

		result->loops[i].at_sec = at_sec;
		result->loops[i].task_sec = (double)(done - start) / 1e9;
		result->loops[i].e2e_sec = (double)(clock_nsec() - start) / 1e9;
	}
	return r;
}

static int measure(struct bench_process *process, const void *arg)
{
	_cleanup_(handle_closep) struct dsaio_handle *handle = NULL;
	_cleanup_(file_closep) struct dsaio_file *file = NULL;
	const struct bench_task *task = arg;
	struct result *result = process->shared;
	uint64_t opening = task->io_size < OPENING_BYTES ? task->io_size : OPENING_BYTES;
	char path[PATH_MAX];
	uint64_t start;
	int r;

	r = bench_open_channel(process, &task->profile, task->op, opening, &handle, &file, path);
	if (r < 0)
		return r;
	result->moved.bytes += opening;
	result->moved.ops++;
	r = bench_process_barrier(process);
	start = clock_nsec();
	for (unsigned loop = 0; r == 0 && loop < task->warmup_loops + task->loops; loop++)
		r = measure_loop(process, task, handle, file, path, loop);
	result->moved.nsec = clock_nsec() - start;
	return r;
}

int bench_point_run(struct bench_crew *crew, unsigned n_processes, const struct bench_task *task,
		    struct bench_repetition *ret_repetitions, struct measure *ret_total,
		    struct bench_moved *ret_moved, char *text)
{
	_cleanup_(freep) struct measure_part *parts = NEW_ARRAY(struct measure_part, n_processes);
	int r;

	*ret_moved = (struct bench_moved){ 0 };
	r = bench_crew_call(crew, measure, task, sizeof(*task), text);
	for (unsigned w = 0; w < n_processes; w++) {
		const struct result *result = bench_crew_shared(crew, w);

		ret_moved->bytes += result->moved.bytes;
		ret_moved->ops += result->moved.ops;
		if (result->moved.nsec > ret_moved->nsec)
			ret_moved->nsec = result->moved.nsec;
	}
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < task->loops; i++) {
		struct bench_repetition repetition = { .bytes = n_processes * task->io_size };

		for (unsigned w = 0; w < n_processes; w++) {
			const struct result *result = bench_crew_shared(crew, w);

			if (w == 0)
				repetition.at_sec = result->loops[i].at_sec;
			repetition.task_sec = fmax(repetition.task_sec, result->loops[i].task_sec);
			repetition.e2e_sec = fmax(repetition.e2e_sec, result->loops[i].e2e_sec);
			parts[w].task_sec += result->loops[i].task_sec;
			parts[w].e2e_sec += result->loops[i].e2e_sec;
			parts[w].bytes += task->io_size;
		}
		ret_repetitions[i] = repetition;
	}
	measure_sum(parts, n_processes, ret_total);
	return 0;
}
