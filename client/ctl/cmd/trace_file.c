#include "client/ctl/cmd/trace_file.h"

#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/units.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/process.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void trace_file_deinit(struct trace_file *file)
{
	free(file->recording);
	*file = (struct trace_file){ 0 };
}

/* NULL: it is a file of the flight recorder, with its length; or of zeros. */
static const char *what_is_wrong(const struct recording *header, size_t len, uint32_t n_events_max)
{
	static const struct recording none;

	if (memcmp(header->magic, none.magic, sizeof(none.magic)) == 0)
		return NULL;
	if (memcmp(header->magic, RECORDING_MAGIC, sizeof(header->magic)) != 0)
		return "is no file of the flight recorder";
	if (header->version != RECORDING_VERSION ||
	    header->event_bytes != sizeof(struct recording_event))
		return "has another version: use the dsaioctl that belongs to that daemon";
	if (header->n_events < 2 * RECORDING_MARGIN || header->n_events > n_events_max ||
	    len != RECORDING_BYTES(header->n_events))
		return "is damaged";
	return NULL;
}

int trace_file_read(const struct ctl *ctl, const char *path, int fd, uint32_t n_events_max,
		    struct trace_file *file)
{
	const struct recording *before = file->recording;
	struct recording header = { .magic = "" }, later;
	uint64_t first, n_written, oldest;
	const char *wrong = "is no file of the flight recorder";
	struct stat st;

	if (fstat(fd, &st) < 0)
		return ctl_fail(ctl, "%s: %s", path, strerrordesc_np(errno));
	if (S_ISREG(st.st_mode) &&
	    (!st.st_size || pread(fd, &header, sizeof(header), 0) == sizeof(header)))
		wrong = what_is_wrong(&header, (size_t)st.st_size, n_events_max);
	if (wrong)
		return ctl_fail(ctl, "%s %s", path, wrong);
	/* relaxed: a copy of our own; so is the other one */
	n_written = atomic_load_explicit(&header.n_written, memory_order_relaxed);
	first = before && before->start_nsec == header.start_nsec ? file->n_written : 0;
	if (first > n_written) /* a stranger's */
		first = n_written;
	if (before && first == n_written) {
		file->first = file->n_written = n_written;
		file->n_lost = 0;
		return CTL_OK;
	}
	trace_file_deinit(file);
	if (!header.magic[0]) /* it is being made */
		return CTL_OK;
	file->recording = need_memory(aligned_alloc(alignof(struct recording), (size_t)st.st_size));
	if (pread(fd, file->recording, (size_t)st.st_size, 0) != st.st_size ||
	    pread(fd, &later, sizeof(later), 0) != sizeof(later))
		return ctl_fail(ctl, "%s: became shorter while it was read", path);
	header.store[sizeof(header.store) - 1] = header.program[sizeof(header.program) - 1] = '\0';
	memcpy(file->recording, &header, sizeof(header)); /* which has been checked */
	/* The lane has gone on meanwhile, and may be writing over some more. */
	oldest = atomic_load_explicit(&later.n_written, memory_order_relaxed);
	oldest = oldest > n_written ? oldest : n_written;
	oldest -= oldest < header.n_events - RECORDING_MARGIN ? oldest
							      : header.n_events - RECORDING_MARGIN;
	oldest = oldest < n_written ? oldest : n_written;
	file->first = first > oldest ? first : oldest;
	file->n_written = n_written;
	file->n_lost = file->first - first;
	return CTL_OK;
}

/* In another pid namespace there is no such process here, but its start lock shows it. */
static bool holds_lock(const struct recording *recording, const char *socket_path)
{
	char path[PATH_MAX], text[64] = "";
	_cleanup_(closep) int fd = -1;
	unsigned long long started;
	uint32_t pid;

	(void)snprintf(path, sizeof(path), "%s.lock", socket_path);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) > 0 &&
	       sscanf(text, "%" SCNu32 " %llu", &pid, &started) == 2 && pid == recording->pid &&
	       started == recording->process_ticks && flock(fd, LOCK_SH | LOCK_NB) < 0;
}

bool trace_file_is_live(const struct recording *recording, const char *socket_path)
{
	struct process process;

	if (recording->pid <= INT32_MAX && process_look((pid_t)recording->pid, &process) &&
	    process.started == recording->process_ticks)
		return process.state != 'Z';
	return holds_lock(recording, socket_path);
}

uint64_t trace_file_real_nsec(const struct recording *recording, uint64_t nsec)
{
	return recording->start_real_nsec +
	       (nsec - recording->start_nsec); /* wraps for a stranger's values */
}

/* ---- all of a daemon ---- */

void trace_files_deinit(struct trace_files *files)
{
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++)
		trace_file_deinit(&files->files[i]);
}

static const char *find_socket(const struct ctl *ctl)
{
	static struct socket_dir dir;
	const char *named = ctl->socket_path ? ctl->socket_path : getenv("DSAIO_SOCKET");
	char text[512];

	if (named && *named)
		return named;
	if (access(SOCKET_SYSTEM, F_OK) == 0 ||
	    socket_dir_open(false, &dir, text, sizeof(text)) < 0)
		return SOCKET_SYSTEM;
	closep(&dir.fd);
	return dir.path;
}

static int read_lane(const struct ctl *ctl, struct trace_files *files, const char *kind, unsigned i)
{
	char path[PATH_MAX];
	_cleanup_(closep) int fd = -1;

	(void)snprintf(path, sizeof(path), "%s.%s.%u", files->socket_path, kind, i);
	/* It may be a FIFO of a stranger. */
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		return trace_file_read(ctl, path, fd, RECORDING_EVENTS_MAX, &files->files[i]);
	trace_file_deinit(&files->files[i]);
	if (errno == ENOENT || errno == ENOTDIR)
		return CTL_OK;
	return ctl_fail(ctl, "%s: %s%s", path, strerrordesc_np(errno),
			errno == EACCES ? ": it shows the ops of all users: only root and the "
					  "daemon's user may read it: run this command as root, "
					  "for example with sudo"
					: "");
}

int trace_files_read(const struct ctl *ctl, struct trace_files *files, const char *kind)
{
	int r = CTL_OK;

	if (!files->socket_path)
		files->socket_path = find_socket(ctl);
	for (unsigned i = 0; r == CTL_OK && i < RECORDING_FILES_MAX; i++)
		r = read_lane(ctl, files, kind, i);
	return r;
}

/* ---- the choice of ops ---- */

int trace_filter_check(const struct ctl *ctl, struct trace_filter *filter)
{
	if (filter->slower && units_parse_nsec(filter->slower, &filter->slower_nsec) < 0)
		return ctl_usage(ctl, "--slower %s: is no time: write for example 10ms, 500us, 2s",
				 filter->slower);
	if (filter->user && !show_find_uid(filter->user, &filter->uid))
		return ctl_fail(ctl, "--user %s: there is no such user: give a name or a number",
				filter->user);
	return CTL_OK;
}

bool trace_filter_has_event(const struct trace_filter *filter, const char *store,
			    const struct recording_event *event)
{
	return (!filter->store || strcmp(filter->store, store) == 0) &&
	       (!filter->pid || filter->pid == event->pid) &&
	       (!filter->user || filter->uid == event->uid);
}

bool trace_filter_has(const struct trace_filter *filter, const struct trace_op *op,
		      uint64_t now_nsec)
{
	const uint64_t end_nsec = op->ended_nsec ? op->ended_nsec : now_nsec;

	return (!filter->errors || ring_result_errno(op->result)) &&
	       (!filter->slower ||
		(end_nsec >= op->taken_nsec && end_nsec - op->taken_nsec >= filter->slower_nsec));
}

/* ---- ops ---- */

int trace_compare(const uint64_t *a, const uint64_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

/* Events by their ops, and of an op the first one first.  They are numbers of file's. */
static int compare_events(const void *a, const void *b, void *file)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	const struct recording_event *e = trace_file_event(file, x), *f = trace_file_event(file, y);

	return trace_compare((uint64_t[]){ e->client, e->channel, e->id, x },
			     (uint64_t[]){ f->client, f->channel, f->id, y }, 4);
}

static void add_event(struct trace_ops *ops, uint32_t lane, const struct recording_event *event)
{
	struct trace_op *op = ops->n ? &ops->ops[ops->n - 1] : NULL; /* the one that is open */

	if (op && (op->ended_nsec || op->client != event->client || op->channel != event->channel ||
		   op->id != event->id))
		op = NULL;
	switch (event->kind) {
	case RECORDING_TAKEN:
		ops->n_lost += op != NULL;
		op = op ? op : &ops->ops[ops->n++];
		*op = (struct trace_op){ .lane = lane,
					 .id = event->id,
					 .off = event->off,
					 .len = event->len,
					 .client = event->client,
					 .channel = event->channel,
					 .file = event->file,
					 .pid = event->pid,
					 .uid = event->uid,
					 .opcode = event->opcode,
					 .taken_nsec = event->nsec };
		break;
	case RECORDING_BLOCK_STARTED:
		if (op && !op->started_nsec)
			op->started_nsec = event->nsec;
		break;
	case RECORDING_BLOCK_DONE:
		if (op)
			op->done_nsec = event->nsec;
		break;
	case RECORDING_ENDED:
		if (op) {
			op->ended_nsec = event->nsec;
			op->result = event->result;
		}
		break;
	default:
		break;
	}
}

void trace_ops_add(struct trace_ops *ops, uint32_t lane, const struct trace_file *file,
		   const struct trace_filter *filter)
{
	const uint64_t n_all = file->n_written - file->first;
	_cleanup_(freep) uint64_t *numbers = NEW_ARRAY(uint64_t, n_all);
	size_t n = 0;

	ops->ops = need_memory(reallocarray(ops->ops, ops->n + n_all + 1, sizeof(*ops->ops)));
	for (uint64_t i = file->first; i < file->n_written; i++)
		if (trace_filter_has_event(filter, file->recording->store,
					   trace_file_event(file, i)))
			numbers[n++] = i;
	qsort_r(numbers, n, sizeof(*numbers), compare_events, (void *)(uintptr_t)file);
	for (size_t i = 0; i < n; i++)
		add_event(ops, lane, trace_file_event(file, numbers[i]));
}

void trace_ops_deinit(struct trace_ops *ops)
{
	free(ops->ops);
	*ops = (struct trace_ops){ 0 };
}

const char *trace_op_kind(const struct trace_op *op)
{
	static const char *const kinds[] = { "?", "read", "write", "fsync", "fdatasync" };

	return op->opcode < sizeof(kinds) / sizeof(kinds[0]) ? kinds[op->opcode] : "?";
}
