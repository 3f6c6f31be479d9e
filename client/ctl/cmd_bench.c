/*
 * dsaioctl bench io: one measurement, with the flags and the result lines of DeepSpeed's ds_io.
 *
 * The command forks a process for each task, before anything is connected; each connects for
 * itself, as the ranks of a training job would.  They share one page: a barrier before and
 * behind each loop, and their results.  The first process that fails writes its sentence there
 * and exits; the others, which may sit at the barrier, are then ended by the parent.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/measure.h"
#include "client/ctl/progress.h"
#include "client/ctl/units.h"
#include "client/lib/conn.h"
#include "client/lib/file.h"
#include "proto/cleanup.h"
#include "proto/cpu.h"
#include "proto/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE_BYTES (8u << 20) /* at which files are made and compared */
#define PROCESSES_MAX 1024u    /* a guess: more is a mistake */
#define IO_SIZE_MAX ((uint64_t)1 << 46)

static struct {
	const char *folder, *engine;
	struct flag_list mapping;
	uint64_t io_size, block_size;
	uint32_t multi_process, queue_depth, io_parallel, loops, warmup_loops;
	bool is_read, single_submit, sequential_requests, validate, include_warmup_time,
		different_files;
	/* What only torch, or a GPU, could do. */
	bool gpu, use_gds, legacy_save, accelerator_memory, slow_bounce;
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
	{ "folder", FLAG_STRING, &options.folder, 0, 0 },
	{ "folder_to_device_mapping", FLAG_LIST, &options.mapping, 0, 0 },
	{ "io_size", FLAG_SIZE, &options.io_size, 1, IO_SIZE_MAX },
	{ "read", FLAG_BOOL, &options.is_read, 0, 0 },
	{ "multi_process", FLAG_COUNT, &options.multi_process, 1, PROCESSES_MAX },
	{ "block_size", FLAG_SIZE, &options.block_size, 1, UINT32_MAX },
	{ "queue_depth", FLAG_COUNT, &options.queue_depth, 0, UINT32_MAX },
	{ "single_submit", FLAG_BOOL, &options.single_submit, 0, 0 },
	{ "sequential_requests", FLAG_BOOL, &options.sequential_requests, 0, 0 },
	{ "validate", FLAG_BOOL, &options.validate, 0, 0 },
	{ "engine", FLAG_STRING, &options.engine, 0, 0 },
	{ "loops", FLAG_COUNT, &options.loops, 1, 1000000 },
	{ "io_parallel", FLAG_COUNT, &options.io_parallel, 0, UINT32_MAX },
	{ "warmup_loops", FLAG_COUNT, &options.warmup_loops, 0, 1000000 },
	{ "include_warmup_time", FLAG_BOOL, &options.include_warmup_time, 0, 0 },
	{ "different_file_each_iteration", FLAG_BOOL, &options.different_files, 0, 0 },
	{ "gpu", FLAG_BOOL, &options.gpu, 0, 0 },
	{ "use_gds", FLAG_BOOL, &options.use_gds, 0, 0 },
	{ "torch_legacy_save", FLAG_BOOL, &options.legacy_save, 0, 0 },
	{ "fast_io_size", FLAG_STRING, &options.fast_io_size, 0, 0 },
	{ "use_accelerator_pin_memory", FLAG_BOOL, &options.accelerator_memory, 0, 0 },
	{ "slow_bounce_buffer", FLAG_BOOL, &options.slow_bounce, 0, 0 },
};

static const char help[] =
	"dsaioctl bench io - one measurement, with the flags and result lines of ds_io\n"
	"\n"
	"    dsaioctl bench io --folder /nvme --io_size 400M --read\n"
	"    dsaioctl bench io --folder /nvme --io_size 400M --multi_process 4\n"
	"    dsaioctl bench io --folder_to_device_mapping /nvme0:0 /nvme1:1 --io_size 1G\n"
	"    dsaioctl bench io --folder . --io_size 1G --read --private --json\n"
	"\n"
	"    --folder DIR           where the test files lie, or:\n"
	"    --folder_to_device_mapping DIR:DEV ...\n"
	"                           a process for each (DEV counts with a GPU only)\n"
	"    --io_size N[K|M|G]     bytes that one loop of one process moves\n"
	"    --read                 read; else write\n"
	"    --multi_process N      so many processes on the folder (1)\n"
	"    --block_size N[K|M|G]  bytes of one request to the device (1M)\n"
	"    --queue_depth N        requests in flight (32)\n"
	"    --single_submit        hand over requests one by one\n"
	"    --sequential_requests  fill the queue, then wait for all of it\n"
	"    --io_parallel N        parts of a transfer that run side by side (1)\n"
	"    --loops N              measured loops (3)\n"
	"    --warmup_loops N       loops before them (1)\n"
	"    --include_warmup_time  measure these, too\n"
	"    --different_file_each_iteration\n"
	"                           a file of its own for each loop\n"
	"    --validate             read each file again and compare\n"
	"    --engine aio_handle    no other is there\n"
	"    --gpu, --use_gds       refused: this version has no GPU engine\n"
	"    --torch_legacy_save, --fast_io_size N, --use_accelerator_pin_memory,\n"
	"    --slow_bounce_buffer   refused: they concern ds_io's torch engines\n"
	"    --json                 the numbers as JSON, with the block size and depth served\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n"
	"The files are called _aio_read_SIZE.pt.TASK_LOOP and _aio_write_SIZE.pt.TASK_LOOP; they\n"
	"stay, and those to be read are made, of random bytes, where they are missing.\n"
	"1 GB is 1024^3 bytes.  \"Task\" is the time of the transfers alone, \"E2E\" has the wait for\n"
	"the other processes, too; a latency is the slowest process's, over all loops.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

/* What one process tells the parent.  It alone writes; the parent reads when it has exited. */
struct task {
	struct measure_part part;
	uint32_t block_size, queue_depth; /* as served */
	char error[1024];
};

/* Mapped by all. */
struct board {
	pthread_barrier_t barrier;
	struct task tasks[];
};

/* What a process has: all its own. */
struct worker {
	unsigned id;
	bool wants_served; /* finds out block size and depth as served */
	const char *folder, *socket_path;
	struct board *board;
	struct task *task;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	void *buffer;
	struct dsaio_file **files; /* one, or one for each loop */
	unsigned n_files;
};

__attribute__((format(printf, 2, 3))) static int worker_fail(struct worker *worker,
							     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(worker->task->error, sizeof(worker->task->error), format, args);
	va_end(args);
	return CTL_FAILED;
}

static unsigned total_loops(void)
{
	return options.loops + options.warmup_loops;
}

/* Random enough that no layer can compress or share it (splitmix64). */
static void fill_random(void *memory, size_t len)
{
	uint64_t state, word;
	uint8_t *byte = memory;

	if (getrandom(&state, sizeof(state), 0) != sizeof(state))
		state = clock_nsec(); /* no pool of random bytes: less random will do */
	for (size_t done = 0; done < len; done += sizeof(word)) {
		word = state += 0x9e3779b97f4a7c15;
		word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
		word = (word ^ word >> 27) * 0x94d049bb133111eb;
		word ^= word >> 31;
		memcpy(byte + done, &word, len - done < sizeof(word) ? len - done : sizeof(word));
	}
}

static void make_path(const struct worker *worker, unsigned loop, char *path, size_t size)
{
	(void)snprintf(path, size, "%s/_aio_%s_%" PRIu64 ".pt.%u_%u", worker->folder,
		       options.is_read ? "read" : "write", options.io_size, worker->id, loop);
}

/* Makes the file to be read, of random bytes, unless it is there in that size. */
static int make_read_file(struct worker *worker, const char *path)
{
	_cleanup_(freep) uint8_t *piece = NULL;
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == options.io_size)
		return CTL_OK;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return worker_fail(worker, "%s: can not make the file to read: %s", path,
				   strerror(errno));
	piece = malloc(PIECE_BYTES);
	if (!piece)
		return worker_fail(worker, "%s: out of memory", path);
	for (uint64_t done = 0; done < options.io_size;) {
		uint64_t left = options.io_size - done;
		size_t len = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
		ssize_t n;

		fill_random(piece, len);
		n = write(fd, piece, len);
		if (n < 0 && errno != EINTR)
			return worker_fail(worker,
					   "%s: can not make the file to read: %s after %" PRIu64
					   " bytes",
					   path, strerror(errno), done);
		done += n > 0 ? (uint64_t)n : 0;
	}
	/* Not measured later: the writing back of these pages. */
	if (fsync(fd) < 0)
		return worker_fail(worker, "%s: fsync: %s", path, strerror(errno));
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* only advice */
	return CTL_OK;
}

/* Reads the file past the page cache, where that can be, and compares it with the buffer. */
static int validate_file(struct worker *worker, const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	_cleanup_(freep) uint8_t *piece = NULL;
	const uint8_t *buffer = worker->buffer;
	uint64_t done = 0;

	if (fd < 0 && errno == EINVAL)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return worker_fail(worker, "%s: validate: %s", path, strerror(errno));
	piece = aligned_alloc(4096, PIECE_BYTES);
	if (!piece)
		return worker_fail(worker, "%s: validate: out of memory", path);
	while (done < options.io_size) {
		uint64_t left = options.io_size - done;
		size_t len = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, i = 0;
		ssize_t n = pread(fd, piece, PIECE_BYTES, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return worker_fail(worker, "%s: validate: pread at %" PRIu64 ": %s", path,
					   done, strerror(errno));
		if (n == 0)
			return worker_fail(worker,
					   "%s: validate: ends at byte %" PRIu64 " of %" PRIu64,
					   path, done, options.io_size);
		if ((size_t)n < len)
			len = (size_t)n;
		if (memcmp(piece, buffer + done, len) != 0) {
			while (piece[i] == buffer[done + i])
				i++;
			return worker_fail(
				worker, "%s: validate: byte %" PRIu64 " differs from what was %s",
				path, done + i, options.is_read ? "read" : "written");
		}
		done += len;
	}
	return CTL_OK;
}

/* Connects and makes all that the loops use. */
static int worker_prepare(struct worker *worker)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	profile.block_size = (uint32_t)options.block_size;
	profile.queue_depth = options.queue_depth;
	profile.single_submit = options.single_submit;
	profile.overlap_events = !options.sequential_requests;
	profile.intra_op_parallelism = options.io_parallel;
	worker->n_files = options.different_files ? total_loops() : 1;
	worker->files = calloc(worker->n_files, sizeof(struct dsaio_file *));
	if (!worker->files)
		return worker_fail(worker, "out of memory");
	if (dsaio_connect(worker->socket_path, &worker->client) < 0 ||
	    dsaio_handle_open(worker->client, &profile, &worker->handle) < 0 ||
	    dsaio_alloc(worker->client, options.io_size, &worker->buffer) < 0)
		return worker_fail(worker, "%s", dsaio_error());
	if (!options.is_read)
		fill_random(worker->buffer, options.io_size);
	for (unsigned i = 0; i < worker->n_files; i++) {
		int open_flags = options.is_read ? O_RDONLY : O_WRONLY | O_CREAT;
		char path[PATH_MAX];

		make_path(worker, i, path, sizeof(path));
		if (options.is_read && make_read_file(worker, path) != CTL_OK)
			return CTL_FAILED;
		if (dsaio_file_open(worker->client, path, open_flags, &worker->files[i]) < 0)
			return worker_fail(worker, "%s", dsaio_error());
	}
	return CTL_OK;
}

static int worker_transfer(struct worker *worker, struct dsaio_file *file, const char *path)
{
	struct dsaio_op *op;
	int64_t done;
	int r;

	r = options.is_read ? dsaio_pread_async(worker->handle, file, worker->buffer,
						options.io_size, 0, &op)
			    : dsaio_pwrite_async(worker->handle, file, worker->buffer,
						 options.io_size, 0, &op);
	if (r < 0)
		return worker_fail(worker, "%s", dsaio_error());
	done = dsaio_op_wait(op, -1);
	if (done < 0)
		(void)worker_fail(worker, "%s", dsaio_op_error(op));
	else if ((uint64_t)done != options.io_size)
		(void)worker_fail(worker,
				  "%s: became shorter: ends at byte %" PRId64 " of %" PRIu64, path,
				  done, options.io_size);
	dsaio_op_free(op);
	return done >= 0 && (uint64_t)done == options.io_size ? CTL_OK : CTL_FAILED;
}

static double seconds(uint64_t from_nsec, uint64_t to_nsec)
{
	return (double)(to_nsec - from_nsec) / 1e9;
}

static void wait_for_all(struct worker *worker)
{
	(void)pthread_barrier_wait(&worker->board->barrier); /* its value only elects one */
}

static int worker_loop(struct worker *worker, unsigned loop)
{
	unsigned i = options.different_files ? loop : 0;
	bool is_counted = loop >= options.warmup_loops || options.include_warmup_time;
	uint64_t start, done, end;
	char path[PATH_MAX];

	make_path(worker, i, path, sizeof(path));
	/* What an earlier loop left must not pass for this one's work. */
	if (options.validate && options.is_read)
		memset(worker->buffer, 0x5a, options.io_size);
	else if (options.validate)
		fill_random(worker->buffer, options.io_size);
	if (options.validate)
		wait_for_all(worker);

	start = clock_nsec();
	if (worker_transfer(worker, worker->files[i], path) != CTL_OK)
		return CTL_FAILED;
	done = clock_nsec();
	wait_for_all(worker);
	end = clock_nsec();
	if (is_counted) {
		worker->task->part.task_sec += seconds(start, done);
		worker->task->part.e2e_sec += seconds(start, end);
		worker->task->part.bytes += options.io_size;
	}
	return options.validate ? validate_file(worker, path) : CTL_OK;
}

/* Asks what the file's store serves of our profile, by a second, short-lived handle with it. */
static int worker_ask_served(struct worker *worker)
{
	struct dsaio_conn *conn = client_conn(worker->client);
	_cleanup_(wire_replyp) Wire__Reply *opened = NULL, *channel = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__HandleOpen open_handle = WIRE__HANDLE_OPEN__INIT;
	Wire__ChannelOpen open_channel = WIRE__CHANNEL_OPEN__INIT;
	Wire__Profile profile = WIRE__PROFILE__INIT;
	int fds[FRAME_FDS_MAX];
	unsigned n_fds = 0;

	profile.block_size = (uint32_t)options.block_size;
	profile.queue_depth = options.queue_depth;
	profile.single_submit = options.single_submit;
	profile.overlap_events = !options.sequential_requests;
	profile.intra_op_parallelism = options.io_parallel;
	open_handle.profile = &profile;
	request.body_case = WIRE__REQUEST__BODY_HANDLE_OPEN;
	request.handle_open = &open_handle;
	if (conn_call(conn, "handle", &request, NULL, 0, &opened, fds, &n_fds) < 0)
		return worker_fail(worker, "%s", dsaio_error());
	while (n_fds > 0)
		(void)close(fds[--n_fds]); /* its bell: nothing will ring */

	open_channel.handle = opened->handle_open->handle;
	open_channel.store = worker->files[0]->store;
	open_channel.without_rings = true;
	request.body_case = WIRE__REQUEST__BODY_CHANNEL_OPEN;
	request.channel_open = &open_channel;
	if (conn_call(conn, "channel", &request, NULL, 0, &channel, NULL, NULL) < 0)
		return worker_fail(worker, "%s", dsaio_error());
	worker->task->block_size = channel->channel_open->block_size;
	worker->task->queue_depth = channel->channel_open->queue_depth;
	return CTL_OK; /* both go with the session */
}

/* The whole life of a process.  Returns its exit status. */
static int worker_run(struct worker *worker)
{
	if (worker_prepare(worker) != CTL_OK)
		return CTL_FAILED;
	wait_for_all(worker);
	for (unsigned loop = 0; loop < total_loops(); loop++)
		if (worker_loop(worker, loop) != CTL_OK)
			return CTL_FAILED;
	if (worker->wants_served && worker_ask_served(worker) != CTL_OK)
		return CTL_FAILED;
	dsaio_disconnect(worker->client);
	return CTL_OK;
}

/* Waits for all; at the first that fails, ends the others.  Returns its number, or -1. */
static int wait_for_workers(pid_t *pids, unsigned n, struct board *board)
{
	int failed = -1;

	for (unsigned n_left = n; n_left > 0;) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);
		unsigned i = 0;

		if (pid < 0)
			continue; /* EINTR: there are children */
		while (i < n && pids[i] != pid)
			i++;
		if (i == n)
			continue; /* the keeper of a private daemon, which ended early */
		pids[i] = 0;
		n_left--;
		if (status == 0 || failed >= 0)
			continue;
		failed = (int)i;
		if (WIFSIGNALED(status))
			(void)snprintf(board->tasks[i].error, sizeof(board->tasks[i].error),
				       "process %u: ended by signal %d", i, WTERMSIG(status));
		for (unsigned k = 0; k < n; k++)
			if (pids[k] > 0)
				(void)kill(pids[k], SIGKILL); /* ours, and not yet waited for */
	}
	return failed;
}

/* Forks the processes and waits for them.  Returns CTL_OK, or CTL_FAILED (printed). */
static int run_workers(struct ctl *ctl, const char *const *folders, unsigned n, struct board *board)
{
	_cleanup_(freep) pid_t *pids = calloc(n, sizeof(*pids));
	pid_t parent = getpid();
	int failed;

	if (!pids)
		return ctl_fail(ctl, "out of memory");
	for (unsigned i = 0; i < n; i++) {
		struct worker worker = { .id = i,
					 .wants_served = ctl->is_json && i == 0,
					 .folder = folders[i],
					 .socket_path = ctl->socket_path,
					 .board = board,
					 .task = &board->tasks[i] };

		pids[i] = fork();
		if (pids[i] < 0) {
			int r = errno;

			while (i-- > 0)
				(void)kill(pids[i], SIGKILL);
			return ctl_fail(ctl, "can not start %u processes: %s", n, strerror(r));
		}
		if (pids[i] == 0) {
			if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
				_exit(CTL_FAILED);
			_exit(worker_run(&worker));
		}
	}
	failed = wait_for_workers(pids, n, board);
	if (failed >= 0)
		return ctl_fail(ctl, "io: %s", board->tasks[failed].error);
	return CTL_OK;
}

/* With no more digits than the value has. */
static void add_float(struct json_object *object, const char *key, double value)
{
	char text[UNITS_TEXT_BYTES];

	json_object_object_add(object, key,
			       json_object_new_double_s(value, units_format_float(text, value)));
}

static int print_result(struct ctl *ctl, const struct board *board, unsigned n)
{
	_cleanup_(freep) struct measure_part *parts = calloc(n, sizeof(*parts));
	struct json_object *object;
	struct measure m;

	if (!parts)
		return ctl_fail(ctl, "out of memory");
	for (unsigned i = 0; i < n; i++)
		parts[i] = board->tasks[i].part;
	measure_sum(parts, n, &m);
	if (!ctl->is_json) {
		measure_print(&m, options.is_read, stdout);
		return ctl_flush(ctl);
	}
	object = json_object_new_object();
	json_object_object_add(object, "op",
			       json_object_new_string(options.is_read ? "read" : "write"));
	json_object_object_add(object, "processes", json_object_new_int64(n));
	json_object_object_add(object, "loops", json_object_new_int64(options.loops));
	json_object_object_add(object, "warmup_loops", json_object_new_int64(options.warmup_loops));
	json_object_object_add(object, "io_size", json_object_new_uint64(options.io_size));
	json_object_object_add(object, "bytes", json_object_new_uint64(m.bytes));
	json_object_object_add(object, "block_size",
			       json_object_new_int64(board->tasks[0].block_size));
	json_object_object_add(object, "queue_depth",
			       json_object_new_int64(board->tasks[0].queue_depth));
	json_object_object_add(object, "single_submit",
			       json_object_new_boolean(options.single_submit));
	json_object_object_add(object, "overlap_events",
			       json_object_new_boolean(!options.sequential_requests));
	json_object_object_add(object, "intra_op_parallelism",
			       json_object_new_int64(options.io_parallel));
	json_object_object_add(object, "is_validated", json_object_new_boolean(options.validate));
	add_float(object, "task_latency_sec", m.task_sec);
	add_float(object, "task_speed_gb_per_sec", m.task_speed);
	add_float(object, "e2e_latency_sec", m.e2e_sec);
	add_float(object, "e2e_speed_gb_per_sec", m.e2e_speed);
	return ctl_print_json(ctl, object);
}

static int refuse_what_is_not_there(const struct ctl *ctl)
{
	if (options.gpu || options.use_gds)
		return ctl_usage(ctl,
				 "io: --%s: this version has no GPU engine: measure with CPU "
				 "memory, without --gpu and --use_gds",
				 options.gpu ? "gpu" : "use_gds");
	if (strcmp(options.engine, "aio_handle") != 0)
		return ctl_usage(ctl,
				 "io: --engine %s: dsaioctl has aio_handle only; aio_basic, "
				 "torch_io and torch_fastio are in ds_io",
				 options.engine);
	if (options.legacy_save)
		return ctl_usage(ctl, "io: --torch_legacy_save: chooses how torch_io saves, and "
				      "there is no torch here: leave it out");
	if (options.fast_io_size)
		return ctl_usage(ctl, "io: --fast_io_size: sizes the buffer of torch_fastio, and "
				      "there is no torch here: leave it out");
	if (options.accelerator_memory)
		return ctl_usage(ctl, "io: --use_accelerator_pin_memory: lets torch pin memory, "
				      "and here the daemon does: leave it out");
	if (options.slow_bounce)
		return ctl_usage(ctl, "io: --slow_bounce_buffer: concerns GPU memory, and this "
				      "version has no GPU engine: leave it out");
	return CTL_OK;
}

static int check_usage(const struct ctl *ctl)
{
	struct profile profile = { .block_size = (uint32_t)options.block_size,
				   .queue_depth = options.queue_depth,
				   .intra_op_parallelism = options.io_parallel };
	char text[256];

	if (ctl->n_args != 1 || strcmp(ctl->args[0], "io") != 0)
		return ctl_usage(ctl, "say what to measure: dsaioctl bench io --folder DIR "
				      "--io_size 400M: see dsaioctl bench --help");
	if (refuse_what_is_not_there(ctl) != CTL_OK)
		return CTL_USAGE;
	if (options.folder && options.mapping.n_items)
		return ctl_usage(ctl, "io: --folder and --folder_to_device_mapping: only one of "
				      "them");
	if (!options.folder && !options.mapping.n_items)
		return ctl_usage(ctl, "io: where to? give --folder DIR or "
				      "--folder_to_device_mapping DIR:DEV ...");
	if (!options.io_size)
		return ctl_usage(ctl, "io: how much? give --io_size, for example --io_size 400M");
	if (options.mapping.n_items && options.multi_process > 1)
		return ctl_usage(ctl, "io: --multi_process goes with --folder; a mapping has a "
				      "process for each folder");
	if (profile_check(&profile, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "io: %s", text);
	return CTL_OK;
}

/* The folder of each process: borrowed from the options.  Cuts ":DEV" off the mappings. */
static int list_folders(const struct ctl *ctl, const char **folders, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct stat st;

		folders[i] = options.folder;
		if (!options.folder) {
			char *item = options.mapping.items[i], *colon = strrchr(item, ':');

			if (!colon || colon == item || colon[1] == '\0')
				return ctl_usage(ctl,
						 "io: --folder_to_device_mapping %s: write "
						 "FOLDER:DEVICE, for example /nvme0:0",
						 item);
			*colon = '\0';
			folders[i] = item;
		}
		if (stat(folders[i], &st) < 0)
			return ctl_fail(ctl, "io: %s: %s: name an existing folder", folders[i],
					strerror(errno));
		if (!S_ISDIR(st.st_mode))
			return ctl_fail(ctl, "io: %s: is no folder", folders[i]);
	}
	return CTL_OK;
}

static int measure_io(struct ctl *ctl, const char *const *folders, unsigned n)
{
	size_t board_bytes = sizeof(struct board) + n * sizeof(struct task);
	struct board *board = mmap(NULL, board_bytes, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;
	int r;

	if (board == MAP_FAILED)
		return ctl_fail(ctl, "out of memory");
	r = pthread_barrierattr_init(&attr);
	if (r == 0)
		r = pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (r == 0)
		r = pthread_barrier_init(&board->barrier, &attr, n);
	if (r != 0)
		r = ctl_fail(ctl, "can not make a barrier: %s", strerror(r));
	else
		r = run_workers(ctl, folders, n, board);
	if (r == CTL_OK)
		r = print_result(ctl, board, n);
	(void)munmap(board, board_bytes);
	return r;
}

static int bench_run(struct ctl *ctl)
{
	unsigned n;
	int r = check_usage(ctl);

	if (r != CTL_OK)
		return r;
	n = options.folder ? options.multi_process : (unsigned)options.mapping.n_items;
	{
		_cleanup_(freep) const char **folders = calloc(n, sizeof(*folders));

		if (!folders)
			return ctl_fail(ctl, "out of memory");
		r = list_folders(ctl, folders, n);
		if (r == CTL_OK)
			r = ctl_start_private(ctl, folders, n);
		if (r == CTL_OK)
			r = measure_io(ctl, folders, n);
	}
	free(options.mapping.items);
	return r;
}

const struct command command_bench = { "bench", bench_run,
				       "measure the way to a store (bench io), as ds_io does", help,
				       FLAG_TABLE(flags) };
