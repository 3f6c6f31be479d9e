/*
 * dsaioctl bench io: one measurement, with the flags and the result lines of DeepSpeed's ds_io.
 *
 * A crew (crew.h) with a process for each task does two calls.  The first opens handles and files.
 * The second runs the loops, with a barrier after each.  The disks' counters are read between the
 * two.  Unlike the other benches, this one leaves its files in the folder, under ds_io's names, and
 * uses files that it finds there.
 */
#include "client/ctl/bench/buffer.h"
#include "client/ctl/bench/crew.h"
#include "client/ctl/bench/gpu.h"
#include "client/ctl/bench/guest.h"
#include "client/ctl/bench/measure.h"
#include "client/ctl/bench/options.h"
#include "client/ctl/bench/place.h"
#include "client/ctl/bench/point.h"
#include "client/ctl/bench/results.h"
#include "client/ctl/cmd/bench_io_files.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/progress.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/profile.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROCESSES_MAX 1024u /* a guess: more is a mistake */
#define PAGE_BYTES 4096u

static struct {
	const char *folder, *engine;
	struct flag_list mapping;
	uint64_t io_size, block_size;
	uint32_t multi_process, queue_depth, io_parallel, loops, warmup_loops;
	bool is_read, single_submit, sequential_requests, validate, include_warmup_time,
		different_files, exclusive;
	/* Options of ds_io that need a GPU or torch. */
	struct bench_gpu_options gpu;
	bool use_gds, legacy_save, accelerator_memory, slow_bounce;
	const char *fast_io_size;
} options = {
	.engine = "aio_handle",
	.block_size = 1u << 20,
	.multi_process = 1,
	.queue_depth = 32,
	.io_parallel = 1,
	.loops = 3,
	.warmup_loops = 1,
};

static const struct flag flags[] = {
	FLAG_NAMES("dir", "folder", FLAG_STRING, &options.folder, 0, 0),
	{ "folder_to_device_mapping", FLAG_LIST, &options.mapping, 0, 0 },
	{ "io_size", FLAG_SIZE, &options.io_size, 1, BENCH_IO_SIZE_MAX },
	{ "read", FLAG_BOOL, &options.is_read, 0, 0 },
	{ "multi_process", FLAG_COUNT, &options.multi_process, 1, PROCESSES_MAX },
	{ "block_size", FLAG_SIZE, &options.block_size, 1, UINT32_MAX },
	{ "queue_depth", FLAG_COUNT, &options.queue_depth, 0, UINT32_MAX },
	{ "single_submit", FLAG_BOOL, &options.single_submit, 0, 0 },
	{ "sequential_requests", FLAG_BOOL, &options.sequential_requests, 0, 0 },
	{ "validate", FLAG_BOOL, &options.validate, 0, 0 },
	{ "engine", FLAG_STRING, &options.engine, 0, 0 },
	{ "loops", FLAG_COUNT, &options.loops, 1, 1000000 },
	FLAG_NAMES("parallel", "io_parallel", FLAG_COUNT, &options.io_parallel, 0, UINT32_MAX),
	{ "warmup_loops", FLAG_COUNT, &options.warmup_loops, 0, 1000000 },
	{ "include_warmup_time", FLAG_BOOL, &options.include_warmup_time, 0, 0 },
	{ "different_file_each_iteration", FLAG_BOOL, &options.different_files, 0, 0 },
	{ "exclusive", FLAG_BOOL, &options.exclusive, 0, 0 },
	BENCH_GPU_FLAGS(options.gpu),
	{ "use_gds", FLAG_BOOL, &options.use_gds, 0, 0 },
	{ "torch_legacy_save", FLAG_BOOL, &options.legacy_save, 0, 0 },
	{ "fast_io_size", FLAG_STRING, &options.fast_io_size, 0, 0 },
	{ "use_accelerator_pin_memory", FLAG_BOOL, &options.accelerator_memory, 0, 0 },
	{ "slow_bounce_buffer", FLAG_BOOL, &options.slow_bounce, 0, 0 },
};

static const char help[] =
	"dsaioctl bench io - one measurement, with the flags and result lines of ds_io\n"
	"\n"
	"    dsaioctl bench io --dir /nvme --io_size 400M --read\n"
	"    dsaioctl bench io --dir /nvme --io_size 400M --multi_process 4\n"
	"    dsaioctl bench io --folder_to_device_mapping /nvme0:0 /nvme1:1 --io_size 1G\n"
	"    dsaioctl bench io --dir . --io_size 1G --read --private --json\n"
	"\n"
	"    --dir, --folder DIR    where the test files lie, or:\n"
	"    --folder_to_device_mapping DIR:DEV ...\n"
	"                           a process for each (with --gpu: in the memory of GPU DEV)\n"
	"    --io_size N[K|M|G|T]   bytes that one loop of one process moves\n"
	"    --read                 read; else write\n"
	"    --multi_process N      so many processes on the folder (1)\n"
	"    --block_size N[K|M|G]  bytes of one request to the device (1M)\n"
	"    --queue_depth N        requests in flight (32)\n"
	"    --single_submit        hand over requests one by one\n"
	"    --sequential_requests  fill the queue, then wait for all of it\n"
	"    --parallel, --io_parallel N\n"
	"                           multiplies the queue depth (1)\n"
	"    --loops N              measured loops (3)\n"
	"    --warmup_loops N       loops before them (1)\n"
	"    --include_warmup_time  measure these, too\n"
	"    --different_file_each_iteration\n"
	"                           a file of its own for each loop\n"
	"    --validate             read each file again and compare\n"
	"    --engine aio_handle    no other is there\n"
	"    --exclusive            refuse to begin while others use the store or its disk\n" BENCH_GPU_HELP
	"    --use_gds              the same as --gds\n"
	"    --torch_legacy_save, --fast_io_size N, --use_accelerator_pin_memory,\n"
	"    --slow_bounce_buffer   refused: they concern ds_io's torch engines\n"
	"    --json                 the numbers as JSON, with the block size and depth served\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n"
	"The files are called _aio_read_SIZE.pt.TASK_LOOP and _aio_write_SIZE.pt.TASK_LOOP; they\n"
	"stay for a later run, and those to be read are made, of random bytes, where they are\n"
	"missing.\n"
	"1 GB is 1024^3 bytes.  \"Task\" is the time of the transfers alone, \"E2E\" has the wait for\n"
	"the other processes, too; a latency is the slowest process's, over all loops.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 129, 130 and 143\n"
	"interrupted (files that the run made to write to are removed)\n";

/* A process's result, in its shared memory. */
struct result {
	struct measure_part part;
	struct bench_moved moved; /* also what does not count */
	uint64_t validated_bytes; /* read without the daemon */
};

/* The state of a process, beside the crew's. */
struct task {
	struct dsaio_handle *handle;
	struct dsaio_file **files; /* n_files() */
};

/* Shared by all processes: what this run made, for each file of each of them. */
static struct bench_io_made *made;

/* The call that the crew is in, for its tick. */
struct io_progress {
	struct bench_crew *crew; /* NULL: files are made */
	unsigned n;
	struct progress progress;
};

static struct profile make_profile(void)
{
	return (struct profile){ .block_size = (uint32_t)options.block_size,
				 .queue_depth = options.queue_depth,
				 .single_submit = options.single_submit,
				 .overlap_events = !options.sequential_requests,
				 .intra_op_parallelism = options.io_parallel };
}

static unsigned total_loops(void)
{
	return options.loops + options.warmup_loops;
}

/* The number of files of each process. */
static unsigned n_files(void)
{
	return options.different_files ? total_loops() : 1;
}

static void tick(void *data)
{
	struct io_progress *io = data;
	uint64_t done = 0;

	/* Other processes write these numbers, and one that is old or torn is only shown. */
	for (unsigned i = 0; io->crew && i < io->n; i++)
		done += ((const struct result *)bench_crew_shared(io->crew, i))->moved.bytes;
	for (unsigned i = 0; !io->crew && i < io->n * n_files(); i++)
		done += made[i].done_bytes;
	progress_update(&io->progress, done);
}

/* The crew's two calls, each with its progress. */
static int call_crew(struct ctl *ctl, struct io_progress *io, struct bench_crew *crew,
		     bench_crew_fn *fn, const char *label, uint64_t total_bytes)
{
	char text[BENCH_TEXT_BYTES];
	int r;

	progress_start(&io->progress, label, total_bytes);
	r = bench_crew_call(crew, fn, NULL, 0, text);
	progress_stop(&io->progress);
	return bench_crew_status(ctl, r, text);
}

/* As ds_io does, the test files stay: a later run uses them. */
static void note_files(struct ctl *ctl, const char *const *folders, unsigned n)
{
	char size[UNITS_TEXT_BYTES];

	(void)units_format_size(size, options.io_size);
	for (unsigned i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && folders[k] == folders[i]; k++)
			;
		ctl_note(ctl,
			 "%u test file%s of %s stay%s for a later run: %s/_aio_%s_%" PRIu64 ".pt.*",
			 (k - i) * n_files(), (k - i) * n_files() == 1 ? "" : "s", size,
			 (k - i) * n_files() == 1 ? "s" : "", folders[i],
			 options.is_read ? "read" : "write", options.io_size);
	}
}

/* The crew's first call: opens the handle and the files.  The end of the process closes them. */
static int prepare_task(struct bench_process *process, const void *arg)
{
	struct task *task = process->state = NEW_ARRAY(struct task, 1);
	char path[PATH_MAX];
	struct profile profile = make_profile();
	int r = bench_open_handle(process, &profile, &task->handle);

	(void)arg; /* there is none */
	if (r < 0)
		return r;
	task->files = NEW_ARRAY(struct dsaio_file *, n_files());
	for (unsigned i = 0; i < n_files(); i++) {
		_cleanup_(closep) int fd = -1;
		struct bench_io_made *file = &made[process->id * n_files() + i];

		bench_io_path(process, options.is_read, options.io_size, i, path);
		r = options.is_read ? bench_io_open_read(process, path, options.io_size, &fd, file)
				    : bench_io_open_write(process, path, &fd, file);
		if (r < 0)
			return r;
		if (dsaio_file_from_fd(process->client, fd, &task->files[i]) < 0)
			return bench_process_fail(process, "%s: %s", path, dsaio_error());
	}
	return 0;
}

static double seconds(uint64_t from_nsec, uint64_t to_nsec)
{
	return (double)(to_nsec - from_nsec) / 1e9;
}

static int task_loop(struct bench_process *process, unsigned loop)
{
	const struct task *task = process->state;
	struct result *result = process->shared;
	unsigned i = options.different_files ? loop : 0;
	bool is_counted = loop >= options.warmup_loops || options.include_warmup_time;
	uint64_t start, done, end;
	char path[PATH_MAX];
	int r;

	bench_io_path(process, options.is_read, options.io_size, i, path);
	/* Bytes of an earlier loop must not look like this loop's. */
	r = 0;
	if (options.validate && options.is_read)
		r = bench_process_set(process, 0x5a, options.io_size);
	else if (options.validate)
		r = bench_process_fill(process, options.io_size);
	if (r == 0 && options.validate)
		r = bench_process_barrier(process);
	if (r < 0)
		return r;

	start = clock_nsec();
	r = bench_transfer(process, task->handle, task->files[i], path,
			   options.is_read ? BENCH_READ : BENCH_WRITE, options.io_size);
	done = clock_nsec();
	if (r == 0)
		r = bench_process_barrier(process);
	end = clock_nsec();
	if (r < 0)
		return r;
	result->moved.bytes += options.io_size;
	result->moved.ops++;
	if (is_counted) {
		result->part.task_sec += seconds(start, done);
		result->part.e2e_sec += seconds(start, end);
		result->part.bytes += options.io_size;
	}
	if (options.validate)
		result->validated_bytes += options.io_size;
	if (!options.validate)
		return 0;
	return bench_io_validate(process, path, options.io_size, options.is_read);
}

/* The second one. */
static int run_task(struct bench_process *process, const void *arg)
{
	int r = bench_process_barrier(process);

	(void)arg; /* there is none */
	for (unsigned loop = 0; r == 0 && loop < total_loops(); loop++)
		r = task_loop(process, loop);
	return r;
}

/* Removes files after a failure or a signal, when no process is left. */
static void remove_partial(const struct ctl *ctl, const char *const *folders, unsigned n)
{
	char path[PATH_MAX];
	unsigned n_removed = 0;

	for (unsigned i = 0; i < n * n_files(); i++) {
		struct bench_process process;

		process = (struct bench_process){ .id = i / n_files(),
						  .folder = folders[i / n_files()] };
		bench_io_path(&process, options.is_read, options.io_size, i % n_files(), path);
		n_removed += bench_io_remove(path, &made[i]);
	}
	if (stop_signal())
		(void)ctl_fail(
			ctl,
			"interrupted: the transfers are stopped, and the files that this run "
			"%s are removed (%u)",
			options.is_read ? "did not complete" : "made", n_removed);
}

/* Bytes that others on the devices have moved since before.  UINT64_MAX: not known. */
static uint64_t find_others(struct ctl *ctl, struct bench_crew *crew,
			    const struct bench_place *places, unsigned n,
			    const struct bench_traffic *before, bool *ret_is_disturbed)
{
	struct bench_traffic own = { 0 };
	uint64_t others = UINT64_MAX;
	char text[UNITS_TEXT_BYTES];

	for (unsigned i = 0; i < n; i++) {
		const struct result *result = bench_crew_shared(crew, i);

		if (options.is_read)
			own.read_bytes += result->moved.bytes;
		else
			own.write_bytes += result->moved.bytes;
		own.read_bytes += result->validated_bytes;
	}
	/* The unaligned part of other sizes is buffered, so the devices move more. */
	if (options.io_size % PAGE_BYTES == 0)
		others = bench_place_others(places, n, before, &own);
	*ret_is_disturbed = bench_is_disturbed(others, own.read_bytes + own.write_bytes);
	if (*ret_is_disturbed)
		ctl_note(ctl, "disturbed: others on this device moved %s meanwhile",
			 units_format_size(text, others));
	return others;
}

static int print_result(struct ctl *ctl, struct bench_guest *guest, struct bench_crew *crew,
			const struct bench_place *places, unsigned n,
			const struct bench_traffic *before)
{
	_cleanup_(freep) struct measure_part *parts = NEW_ARRAY(struct measure_part, n);
	struct profile profile = make_profile();
	struct bench_served served;
	_cleanup_(json_putp) struct json_object *gpus = json_object_new_array();
	_cleanup_(json_putp) struct json_object *paths = json_object_new_array();
	struct json_object *object;
	uint64_t others_bytes;
	bool is_disturbed;
	struct measure m;
	int r;

	for (unsigned i = 0; i < n; i++)
		parts[i] = ((const struct result *)bench_crew_shared(crew, i))->part;
	measure_sum(parts, n, &m);
	others_bytes = find_others(ctl, crew, places, n, before, &is_disturbed);
	r = bench_guest_look(guest); /* for what is known of cuFile */
	if (r != CTL_OK)
		return r;
	if (options.gpu.gpu.is_given)
		bench_crew_note_gpus(ctl, crew, guest->cufile, gpus, paths);
	if (!ctl->is_json) {
		measure_print(&m, options.is_read, stdout);
		return ctl_flush(ctl);
	}
	served = bench_guest_served(guest, &profile);
	if (!served.block_size)
		return ctl_fail(ctl, "%s", dsaio_error());
	profile.block_size = served.block_size;
	profile.queue_depth = served.queue_depth;
	object = json_profile(&profile);
	json_add_text(object, "op", options.is_read ? "read" : "write");
	json_add_number(object, "processes", n);
	json_add_number(object, "loops", options.loops);
	json_add_number(object, "warmup_loops", options.warmup_loops);
	json_add_number(object, "io_size", options.io_size);
	json_add_number(object, "bytes", m.bytes);
	json_add_bool(object, "is_validated", options.validate);
	json_object_object_add(object, "gpus", TAKE_PTR(gpus));
	json_object_object_add(object, "gpu_paths", TAKE_PTR(paths));
	json_add_float(object, "task_latency_sec", m.task_sec);
	json_add_float(object, "task_speed_gb_per_sec", m.task_speed);
	json_add_float(object, "e2e_latency_sec", m.e2e_sec);
	json_add_float(object, "e2e_speed_gb_per_sec", m.e2e_speed);
	json_object_object_add(object, "others_bytes", bench_bytes_json(others_bytes));
	json_add_bool(object, "is_disturbed", is_disturbed);
	return ctl_print_json(ctl, object);
}

static int refuse_what_is_not_there(const struct ctl *ctl)
{
	const char *name = options.legacy_save		? "torch_legacy_save"
			   : options.fast_io_size	? "fast_io_size"
			   : options.accelerator_memory ? "use_accelerator_pin_memory"
			   : options.slow_bounce	? "slow_bounce_buffer"
							: NULL;

	if (strcmp(options.engine, "aio_handle") != 0)
		return ctl_usage(ctl,
				 "--engine %s: dsaioctl has aio_handle only; aio_basic, "
				 "torch_io and torch_fastio are in ds_io",
				 options.engine);
	if (name)
		return ctl_usage(ctl,
				 "--%s: concerns how ds_io uses torch, and there is no torch here: "
				 "leave it out",
				 name);
	return CTL_OK;
}

static int check_usage(const struct ctl *ctl)
{
	struct profile profile = make_profile();
	char text[256];

	if (bench_gpu_check_args(ctl, &options.gpu) != CTL_OK)
		return CTL_USAGE;
	if (refuse_what_is_not_there(ctl) != CTL_OK)
		return CTL_USAGE;
	if (options.folder && options.mapping.n_items)
		return ctl_usage(ctl, "--dir and --folder_to_device_mapping: only one of "
				      "them");
	if (!options.folder && !options.mapping.n_items)
		return ctl_usage(ctl, "where to? give --dir DIR or "
				      "--folder_to_device_mapping DIR:DEV ...");
	if (!options.io_size)
		return ctl_usage(ctl, "how much? give --io_size, for example --io_size 400M");
	if (options.mapping.n_items && options.multi_process > 1)
		return ctl_usage(ctl, "--multi_process goes with --dir; a mapping has a "
				      "process for each folder");
	if (options.mapping.n_items && options.gpu.gpu.has_number)
		return ctl_usage(ctl, "--gpu=N goes with --dir; a mapping names the GPU of each "
				      "folder: give --gpu alone");
	if (profile_check(&profile, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "%s", text);
	options.gpu.gds |= options.use_gds;
	return bench_gpu_check(ctl, &options.gpu, options.use_gds ? "use_gds" : "gds");
}

static bool read_gpu(const char *text, int *ret_gpu)
{
	uint64_t number;

	if (size_parse(text, &number) < 0 || number > BENCH_GPU_MAX)
		return false;
	*ret_gpu = (int)number;
	return true;
}

/*
 * Fills in the folder of each process, borrowed from the options, its place and its GPU.  Cuts ":DEV"
 * off the mappings.
 */
static int list_folders(const struct ctl *ctl, const char **folders, struct bench_place *places,
			int *gpus, unsigned n)
{
	char text[BENCH_TEXT_BYTES];

	for (unsigned i = 0; i < n; i++) {
		folders[i] = options.folder;
		gpus[i] = bench_gpu_number(&options.gpu);
		if (!options.folder) {
			char *item = options.mapping.items[i], *colon = strrchr(item, ':');

			if (!colon || colon == item || colon[1] == '\0')
				return ctl_usage(ctl,
						 "--folder_to_device_mapping %s: write "
						 "FOLDER:DEVICE, for example /nvme0:0",
						 item);
			*colon = '\0';
			folders[i] = item;
			if (options.gpu.gpu.is_given && !read_gpu(colon + 1, &gpus[i]))
				return ctl_usage(ctl,
						 "--folder_to_device_mapping %s:%s: with --gpu the "
						 "device is the number of a GPU, for example %s:0",
						 item, colon + 1, item);
		}
		if (bench_place_find(folders[i], &places[i], text, sizeof(text)) < 0)
			return ctl_fail(ctl, "%s", text);
	}
	return CTL_OK;
}

static int measure_io(struct ctl *ctl, const char *const *folders, struct bench_place *places,
		      const int *gpus, unsigned n)
{
	struct io_progress io = { .n = n };
	struct bench_crew_options crew_options = { .folders = folders,
						   .gpus = options.gpu.gpu.is_given ? gpus : NULL,
						   .is_gpu_direct_only = options.gpu.gds,
						   .n_processes = n,
						   .buffer_bytes = options.io_size,
						   .leaves_zeros = options.is_read,
						   .shared_bytes = sizeof(struct result),
						   .tick = tick,
						   .tick_data = &io };
	struct bench_guest guest;
	struct bench_crew *crew = NULL;
	struct bench_traffic before;
	bool is_prepared, is_measured;
	int r = bench_guest_start(ctl, folders, places, n, &guest);

	if (r == CTL_OK && options.exclusive)
		r = bench_guest_check_alone(&guest);
	/* Nothing has to be removed yet, so until here a signal may end the process at once. */
	if (r == CTL_OK && stop_catch(SA_RESTART) < 0)
		r = ctl_fail(ctl, "signals: %s", strerror(errno));
	if (r != CTL_OK)
		return r;
	crew_options.socket_path = ctl->socket_path; /* a private daemon's */
	r = bench_crew_start(ctl, &crew_options, &crew);
	if (r == CTL_OK)
		r = call_crew(ctl, &io, crew, prepare_task, "making test files",
			      (uint64_t)n * n_files() * options.io_size);
	is_prepared = r == CTL_OK;
	io.crew = crew;
	before = bench_place_traffic(places, n);
	if (r == CTL_OK)
		r = call_crew(ctl, &io, crew, run_task, options.is_read ? "reading" : "writing",
			      (uint64_t)n * total_loops() * options.io_size);
	is_measured = r == CTL_OK;
	if (is_measured)
		r = print_result(ctl, &guest, crew, places, n, &before);
	if (is_measured || (is_prepared && options.is_read)) /* also after Ctrl-C */
		note_files(ctl, folders, n);
	bench_crew_free(crew);
	if (!is_measured)
		remove_partial(ctl, folders, n);
	return r;
}

static int io_run(struct ctl *ctl)
{
	const unsigned n = options.folder ? options.multi_process
					  : (unsigned)options.mapping.n_items;
	_cleanup_(freep) const char **folders = NEW_ARRAY(const char *, n);
	_cleanup_(freep) struct bench_place *places = NEW_ARRAY(struct bench_place, n);
	_cleanup_(freep) int *gpus = NEW_ARRAY(int, n);
	int r = check_usage(ctl);

	if (r != CTL_OK)
		return r;
	made = mmap(NULL, n * n_files() * sizeof(*made), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	(void)need_memory(made == MAP_FAILED ? NULL : made);
	r = list_folders(ctl, folders, places, gpus, n);
	if (r == CTL_OK)
		r = measure_io(ctl, folders, places, gpus, n);
	free(options.mapping.items);
	return r;
}

const struct command command_bench_io = COMMAND(
	"bench io", io_run, "one measurement, as ds_io makes it", help, .flags = FLAG_TABLE(flags));
