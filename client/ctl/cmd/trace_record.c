/*
 * dsaioctl trace record: the ops of a job, into a file for dsaioctl bench replay (bench/ops_file.h).
 *
 * It follows the flight recorder of each lane, and asks no daemon.  Ops stay in memory until the end, when the
 * file is written as a whole.
 */
#include "client/ctl/bench/ops_file.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/trace_files.h"
#include "client/ctl/cmd/trace_follow.h"
#include "client/ctl/cmd/trace_ops.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/newfile.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/plural.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <search.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* At a million events a second, a lane needs 16 ms to write over its oldest ones. */
#define LOOK_NSEC 1000000
#define SCAN_LOOKS 50u	/* looks from one look for new files to the next */
#define LANES_MAX 1024u /* also those of daemons that were started meanwhile: a guess */
#define NSEC_PER_SEC UINT64_C(1000000000)

static const char help[] =
	"dsaioctl trace record - the ops of a job, into a file for dsaioctl bench replay\n"
	"\n"
	"    dsaioctl trace record job.ops -- python3 train.py\n"
	"                                 until the program ends: its ops, and its children's\n"
	"    dsaioctl trace record job.ops --user anna --seconds 60\n"
	"    dsaioctl trace record job.ops --store nvme0\n"
	"                                 until Ctrl-C\n"
	"    dsaioctl bench replay job.ops --dir /nvme\n"
	"                                 the same ops again, on any host\n"
	"\n"
	"An op is a row of dsaioctl trace that began and ended meanwhile, and did not fail.  The\n"
	"file has the time, place, length and latency of each, and no bytes of any file.  It is\n"
	"written at the end; one of that name is replaced.  Only root and the daemon's user may\n"
	"record, since the trace shows what all users do.  PROGRAM runs with the rights of this\n"
	"command: write sudo -u anna before it where these should be less.\n"
	"\n"
	"    --seconds N    end after so many seconds (PROGRAM goes on)\n"
	"    --store NAME   only ops on this store\n"
	"    --pid N        only this process's\n"
	"    --user USER    only this user's: a name or a number\n"
	"    --json         the numbers as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 done, 1 failed, or no op came, 2 wrong usage; else that of PROGRAM; 129, 130 and 143\n"
	"after a signal (what came until then is in the file)\n";

static uint32_t n_seconds;
static const char *store_name;
static struct trace_filter filter;

static const struct flag flags[] = {
	{ "seconds", FLAG_COUNT, &n_seconds, 1, OPS_FILE_NSEC_MAX / NSEC_PER_SEC },
	{ "store", FLAG_STRING, &store_name, 0, 0 },
	TRACE_FILTER_FLAGS(filter),
};

/* Looked at with its first op: at the end of the record it may be gone. */
struct seen_process {
	uint32_t pid;
	bool is_ours;
	char command[TRACE_COMMAND_BYTES];
};

struct record {
	const struct ctl *ctl;
	char socket_path[SOCKET_PATH_BYTES];
	struct trace_follow lanes[LANES_MAX];
	unsigned n_lanes;
	struct recording_event *events; /* room for one read */
	struct trace_ops ops;		/* below n_kept: those of the filter */
	size_t n_kept;
	pid_t program; /* 0: none */
	struct seen_process *seen;
	size_t n_seen;
	struct newfile file;
	/* The result. */
	struct ops_file_header header;
	struct ops_file_stream streams[OPS_FILE_STREAMS_MAX];
	struct ops_file_file *files;
	struct ops_file_op *done; /* in the order of ops, then of the file */
};

static void record_freep(struct record **record)
{
	for (unsigned i = 0; i < (*record)->n_lanes; i++)
		closep(&(*record)->lanes[i].fd);
	newfile_discard(&(*record)->file);
	trace_ops_deinit(&(*record)->ops);
	free((*record)->events);
	free((*record)->seen);
	free((*record)->files);
	free((*record)->done);
	free(*record);
}

/* ---- lanes ---- */

static bool is_followed(const struct record *record, int fd)
{
	struct stat st, lane;

	for (unsigned i = 0; fstat(fd, &st) == 0 && i < record->n_lanes; i++)
		if (fstat(record->lanes[i].fd, &lane) == 0 && lane.st_ino == st.st_ino &&
		    lane.st_dev == st.st_dev)
			return true;
	return false;
}

/* is_old: the file was there before the record began. */
static int scan(struct record *record, bool is_old)
{
	char path[TRACE_PATH_BYTES], text[256];

	for (unsigned i = 0; i < RECORDING_FILES_MAX && record->n_lanes < LANES_MAX; i++) {
		struct trace_follow *lane = &record->lanes[record->n_lanes];
		int fd, r;

		(void)snprintf(path, sizeof(path), "%s." RECORDING_NOW ".%u", record->socket_path,
			       i);
		r = trace_open(record->ctl, path, &fd);
		if (r != CTL_OK)
			return r;
		if (fd < 0 || is_followed(record, fd)) {
			closep(&fd);
			continue;
		}
		/* A daemon may be making it: the next scan looks again. */
		r = trace_follow_start(fd, is_old, lane, text, sizeof(text));
		if (r == 0)
			record->n_lanes++;
		else if (r != -EINVAL)
			return ctl_fail(record->ctl, "%s: %s", path, text);
	}
	return CTL_OK;
}

/* ---- the choice of ops ---- */

/* 0: there is none. */
static pid_t parent_of(pid_t pid)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[32], line[512], *end;
	pid_t parent;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return 0;
	end = strrchr(line, ')'); /* the name in parentheses may contain anything */
	return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Is it a child of this process?  One that has ended before anybody looked passes for one, too. */
static bool is_child(pid_t pid)
{
	pid_t parent = parent_of(pid);

	if (!parent)
		return true;
	while (parent > 1 && parent != getpid())
		parent = parent_of(parent);
	return parent > 1;
}

/* NULL: out of memory. */
static const struct seen_process *process_of(struct record *record, const struct trace_op *op)
{
	struct seen_process *seen;

	for (size_t i = record->n_seen; i-- > 0;)
		if (record->seen[i].pid == op->pid)
			return &record->seen[i];
	seen = reallocarray(record->seen, record->n_seen + 1, sizeof(*seen));
	if (!seen)
		return NULL;
	record->seen = seen;
	seen += record->n_seen++;
	*seen = (struct seen_process){ .pid = op->pid };
	seen->is_ours = !record->program || is_child((pid_t)(op->pid & INT32_MAX));
	(void)trace_op_command(op, seen->command);
	for (char *c = seen->command; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return seen;
}

static void choose(struct record *record)
{
	struct trace_ops *ops = &record->ops;
	size_t n = record->n_kept;

	for (size_t i = n; i < ops->n; i++) {
		const struct trace_op *op = &ops->ops[i];
		const char *store = record->lanes[op->lane].file.store;
		const struct seen_process *process = process_of(record, op);

		if (process && process->is_ours && trace_filter_has(&filter, op, 0) &&
		    (!store_name || strcmp(store, store_name) == 0))
			ops->ops[n++] = *op;
	}
	ops->n = record->n_kept = n;
}

static int add(struct record *record, unsigned lane, const struct recording_event *event)
{
	const struct trace_op op = { .pid = event->pid, .taken_nsec = event->nsec };

	/* Now, since the process may have ended with the op. */
	if (event->kind == RECORDING_TAKEN)
		(void)process_of(record, &op);
	return trace_ops_add(&record->ops, lane, event);
}

static int look(struct record *record)
{
	for (unsigned i = 0; i < record->n_lanes; i++) {
		const int n = trace_follow_read(&record->lanes[i], record->events);

		if (n < 0)
			return ctl_fail(record->ctl, "store %s: the flight recorder's file: %s",
					record->lanes[i].file.store, strerrordesc_np(-n));
		for (int k = 0; k < n; k++)
			if (add(record, i, &record->events[k]) < 0)
				return ctl_fail(record->ctl, "out of memory");
	}
	choose(record);
	return CTL_OK;
}

/* ---- the job ---- */

static int program_start(struct record *record, char **args)
{
	int r;

	(void)prctl(PR_SET_CHILD_SUBREAPER,
		    1); /* without it, daemons of the program are not its children */
	r = posix_spawnp(&record->program, args[0], NULL, NULL, args, environ);
	return r ? ctl_fail(record->ctl, "%s: %s", args[0], strerrordesc_np(r)) : CTL_OK;
}

/* Waits for the end.  *ret_status: of the program, as a shell has it. */
static int follow(struct record *record, int *ret_status)
{
	const struct timespec pause = { .tv_nsec = LOOK_NSEC };
	const uint64_t end_nsec = clock_nsec() +
				  (n_seconds ? n_seconds * NSEC_PER_SEC : OPS_FILE_NSEC_MAX);
	bool is_end = false, is_passed = false;
	int status, r = CTL_OK;

	*ret_status = 0;
	for (unsigned n = 0; r == CTL_OK && !is_end; n++) {
		/* First, or the last ops could be missing. */
		is_end = clock_nsec() >= end_nsec || record->ops.n >= OPS_FILE_OPS_MAX ||
			 (stop_signal() && !record->program);
		if (record->program && stop_signal() && !is_passed) {
			is_passed = true;
			(void)kill(record->program, stop_signal()); /* it may have ended */
		}
		if (record->program && waitpid(record->program, &status, WNOHANG) > 0) {
			is_end = true;
			*ret_status = WIFEXITED(status) ? WEXITSTATUS(status)
							: 128 + WTERMSIG(status);
		}
		if (is_end || n % SCAN_LOOKS == 0)
			r = scan(record, false);
		if (r == CTL_OK)
			r = look(record);
		if (!is_end)
			(void)nanosleep(&pause, NULL); /* a signal ends it: the better */
	}
	return r;
}

/* ---- the file ---- */

/* A client's number for a file or a channel. */
struct number {
	uint32_t daemon, client, number;
	uint32_t index; /* in the file that is made */
};

static int compare_numbers(const void *a, const void *b)
{
	return memcmp(a, b, offsetof(struct number, index));
}

/* The index of that number, a new one up to max; UINT32_MAX: too many. */
static uint32_t index_of(void **tree, struct number key, uint32_t *n, uint32_t max)
{
	struct number **found = tfind(&key, tree, compare_numbers), *number;

	if (found)
		return (*found)->index;
	number = *n < max ? malloc(sizeof(*number)) : NULL;
	if (!number)
		return UINT32_MAX;
	*number = key;
	number->index = *n;
	if (!tsearch(number, tree, compare_numbers)) {
		free(number);
		return UINT32_MAX;
	}
	return (*n)++;
}

/* Its ops are one after the other by their start. */
static void grow_file(struct ops_file_file *file, bool *is_grown, const struct trace_op *op,
		      const struct ops_file_op *done)
{
	const uint64_t end = done->off + done->done;

	if (end > file->end && done->done)
		file->end = end;
	/* Bytes that the job has written itself need not be there at the start. */
	if (*is_grown || !done->done)
		return;
	*is_grown = op->extends;
	if ((op->extends ? done->off : end) > file->size)
		file->size = op->extends ? done->off : end;
}

static bool is_recorded(const struct trace_op *op, struct ops_file_op *ret_done)
{
	const uint64_t done = ring_result_done(op->result);

	*ret_done = (struct ops_file_op){ .at_nsec = op->taken_nsec,
					  .latency_nsec = op->ended_nsec - op->taken_nsec,
					  .off = op->off,
					  .len = op->len,
					  .done = done,
					  .kind = op->opcode };
	/* The kinds are the opcodes. */
	static_assert((int)OPS_FILE_READ == (int)RING_OP_READ &&
			      (int)OPS_FILE_FDATASYNC == (int)RING_OP_FDATASYNC,
		      "part of both formats");
	return op->ended_nsec >= op->taken_nsec && !ring_result_errno(op->result) &&
	       op->ended_nsec - op->taken_nsec <= OPS_FILE_NSEC_MAX && *trace_op_kind(op) &&
	       op->len <= OPS_FILE_BYTES_MAX && op->off <= OPS_FILE_BYTES_MAX - op->len &&
	       done <= op->len && (op->opcode == RING_OP_READ || done == op->len) &&
	       (op->opcode <= RING_OP_WRITE || (!op->len && !op->off));
}

static void name_stream(struct record *record, struct ops_file_stream *stream,
			const struct trace_op *op)
{
	const struct seen_process *process = process_of(record, op);

	*stream = (struct ops_file_stream){
		.client = op->client, .channel = op->channel, .pid = op->pid, .uid = op->uid
	};
	if (process)
		(void)strcpy(stream->command, process->command);
	(void)strcpy(stream->store, record->lanes[op->lane].file.store);
}

/* Fills in the result, except the order of done, whose streams go to stream_of. */
static void convert(struct record *record, uint32_t *stream_of, bool *is_grown)
{
	struct ops_file_header *header = &record->header;
	void *streams = NULL, *files = NULL;
	uint64_t start_nsec = 0;

	for (size_t i = 0; i < record->ops.n; i++) {
		const struct trace_op *op = &record->ops.ops[i];
		const struct trace_file *lane = &record->lanes[op->lane].file;
		const struct number channel = { lane->pid, op->client, op->channel, 0 };
		const struct number number = { lane->pid, op->client, op->file, 0 };
		const uint32_t n_streams = header->n_streams;
		struct ops_file_op *done = &record->done[header->n_ops];
		uint32_t stream = UINT32_MAX;

		if (is_recorded(op, done))
			stream = index_of(&streams, channel, &header->n_streams,
					  OPS_FILE_STREAMS_MAX);
		if (stream == n_streams)
			name_stream(record, &record->streams[stream], op);
		done->file = stream == UINT32_MAX ? stream
						  : index_of(&files, number, &header->n_files,
							     OPS_FILE_FILES_MAX);
		if (done->file == UINT32_MAX || header->n_ops == OPS_FILE_OPS_MAX) {
			header->n_left_out++;
			continue;
		}
		if (!header->n_ops) {
			start_nsec = op->taken_nsec;
			header->start_real_nsec = trace_file_real_nsec(lane, start_nsec);
		}
		done->at_nsec -= start_nsec;
		if (done->at_nsec + done->latency_nsec > header->duration_nsec)
			header->duration_nsec = done->at_nsec + done->latency_nsec;
		grow_file(&record->files[done->file], &is_grown[done->file], op, done);
		record->streams[stream].n_ops++;
		stream_of[header->n_ops++] = stream;
	}
	tdestroy(streams, free);
	tdestroy(files, free);
}

/* The ops of a stream one after the other, as in the file. */
static int sort_by_stream(struct record *record, const uint32_t *stream_of)
{
	uint64_t next[OPS_FILE_STREAMS_MAX] = { 0 };
	struct ops_file_op *sorted = calloc(record->header.n_ops + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (uint32_t i = 1; i < record->header.n_streams; i++)
		next[i] = next[i - 1] + record->streams[i - 1].n_ops;
	for (uint64_t i = 0; i < record->header.n_ops; i++)
		sorted[next[stream_of[i]]++] = record->done[i];
	free(record->done);
	record->done = sorted;
	return 0;
}

static int make_result(struct record *record)
{
	_cleanup_(freep) uint32_t *stream_of = NULL;
	_cleanup_(freep) bool *is_grown = calloc(OPS_FILE_FILES_MAX, sizeof(*is_grown));

	if (trace_ops_end(&record->ops) < 0)
		return ctl_fail(record->ctl, "out of memory");
	record->n_kept = 0; /* sorted anew, and with those that are open */
	choose(record);
	stream_of = calloc(record->ops.n + 1, sizeof(*stream_of));
	record->done = calloc(record->ops.n + 1, sizeof(*record->done));
	record->files = calloc(OPS_FILE_FILES_MAX, sizeof(*record->files));
	if (!is_grown || !stream_of || !record->done || !record->files)
		return ctl_fail(record->ctl, "out of memory");
	record->header.n_left_out = record->ops.n_lost;
	convert(record, stream_of, is_grown);
	if (!record->header.n_ops)
		return ctl_fail(record->ctl,
				"no op came: nothing is written; the daemon may have no flight "
				"recorder (its log says so), or the choice of ops has none");
	return sort_by_stream(record, stream_of) < 0 ? ctl_fail(record->ctl, "out of memory")
						     : CTL_OK;
}

static int write_file(struct record *record, const char *path)
{
	struct ops_file_header *header = &record->header;
	const struct {
		const void *bytes;
		size_t len;
	} parts[] = {
		{ header, sizeof(*header) },
		{ record->streams, header->n_streams * sizeof(record->streams[0]) },
		{ record->files, header->n_files * sizeof(record->files[0]) },
		{ record->done, header->n_ops * sizeof(record->done[0]) },
	};
	int r = 0;

	memcpy(header->magic, OPS_FILE_MAGIC, sizeof(header->magic));
	header->version = OPS_FILE_VERSION;
	for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
		r = write_all(record->file.fd, parts[i].bytes, parts[i].len);
	if (r == 0)
		r = newfile_commit(&record->file);
	return r < 0 ? ctl_fail(record->ctl, "%s: %s", path, strerrordesc_np(-r)) : CTL_OK;
}

static int report(const struct record *record, const char *path)
{
	const struct ops_file_header *header = &record->header;
	struct json_object *object;
	char size[UNITS_TEXT_BYTES], time[UNITS_TEXT_BYTES];
	uint64_t n_lost = 0, bytes = 0;

	for (unsigned i = 0; i < record->n_lanes; i++)
		n_lost += record->lanes[i].n_lost;
	for (uint64_t i = 0; i < header->n_ops; i++)
		bytes += record->done[i].done;
	if (n_lost)
		ctl_note(record->ctl,
			 "%" PRIu64 " events were lost, since this host was too busy to read them "
			 "in time: their ops are missing",
			 n_lost);
	if (record->ops.n >= OPS_FILE_OPS_MAX)
		ctl_note(record->ctl, "it ended early: a file has at most %" PRIu64 " ops",
			 OPS_FILE_OPS_MAX);
	if (record->ctl->is_json) {
		object = json_object_new_object();
		json_add_text(object, "file", path);
		json_add_number(object, "ops", header->n_ops);
		json_add_number(object, "streams", header->n_streams);
		json_add_number(object, "files", header->n_files);
		json_add_number(object, "bytes", bytes);
		json_add_number(object, "duration_nsec", header->duration_nsec);
		json_add_number(object, "ops_left_out", header->n_left_out);
		json_add_number(object, "events_lost", n_lost);
		return ctl_print_json(record->ctl, object);
	}
	(void)ctl_print_line(
		record->ctl,
		"%s: %" PRIu64 " op%s, %s in %s, %" PRIu32 " stream%s, %" PRIu32 " file%s", path,
		header->n_ops, plural(header->n_ops), units_format_size(size, bytes),
		units_format_nsec(time, header->duration_nsec), header->n_streams,
		plural(header->n_streams), header->n_files, plural(header->n_files));
	if (header->n_left_out)
		(void)printf("left out: %" PRIu64 " op%s that failed, or had not ended\n",
			     header->n_left_out, plural(header->n_left_out));
	return ctl_flush(record->ctl);
}

/* ---- the command ---- */

static int open_file(struct record *record, const char *path, int *ret_dir_fd)
{
	const char *slash = strrchr(path, '/');
	_cleanup_(freep) char *dir = slash ? strndup(path, (size_t)(slash - path) + 1)
					   : strdup(".");
	int r;

	*ret_dir_fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	r = *ret_dir_fd < 0
		    ? -errno
		    : newfile_open(*ret_dir_fd, slash ? slash + 1 : path, 0644, &record->file);
	return r < 0 ? ctl_fail(record->ctl, "%s: %s", path, strerrordesc_np(-r)) : CTL_OK;
}

static int run(struct record *record, char **args, int n_args)
{
	_cleanup_(closep) int dir_fd = -1;
	int status = 0, r = open_file(record, args[0], &dir_fd);

	if (r == CTL_OK)
		r = trace_find_socket(record->ctl, record->socket_path);
	if (r == CTL_OK)
		r = scan(record, true);
	if (r == CTL_OK && n_args > 1)
		r = program_start(record, args + 1);
	else if (r == CTL_OK && isatty(STDERR_FILENO))
		ctl_note(record->ctl, "recording%s", n_seconds ? "" : ": Ctrl-C ends it");
	if (r == CTL_OK)
		r = follow(record, &status);
	if (r == CTL_OK)
		r = make_result(record);
	if (r == CTL_OK)
		r = write_file(record, args[0]);
	if (r == CTL_OK)
		r = report(record, args[0]);
	return r == CTL_OK ? status : r;
}

static int record_run(struct ctl *ctl)
{
	_cleanup_(record_freep) struct record *record = calloc(1, sizeof(*record));
	int r;

	if (ctl->n_args < 1)
		return ctl_usage(ctl,
				 "where to? name a file, as in: dsaioctl trace record job.ops");
	if (ctl->is_private)
		return ctl_usage(ctl, "--private: a daemon for this command alone has no ops of "
				      "others: leave it out");
	if (record)
		record->events = calloc(RECORDING_EVENTS_MAX, sizeof(*record->events));
	if (!record || !record->events)
		return ctl_fail(ctl, "out of memory");
	record->ctl = ctl;
	record->file = NEWFILE_NONE;
	r = trace_filter_check(ctl, &filter);
	if (r != CTL_OK)
		return r;
	r = stop_catch((int)SA_RESETHAND); /* a second signal ends it without a file */
	if (r < 0)
		return ctl_fail(ctl, "signals: %s", strerrordesc_np(-r));
	ctl->args[ctl->n_args] = NULL; /* argv has room: there was "record", at least */
	return run(record, ctl->args, ctl->n_args);
}

const struct command command_trace_record = {
	"trace record", record_run,	   "the ops of a job, into a file for bench replay",
	help,		FLAG_TABLE(flags), NULL
};
