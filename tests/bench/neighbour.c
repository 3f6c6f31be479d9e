#include "tests/bench/neighbour.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/files.h"
#include "tests/bench/statistics.h"
#include "tests/calls.h"

#define BLOCK_BYTES (UINT64_C(1) << 20)

/* In the child: what the ops go through. */
struct work {
	const struct neighbour_job *job;
	struct neighbour_log *log;
	uint64_t n_ops_in_file, next, seed;
	char *memory; /* n_queued ops */

	/* a client's */
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;

	/* libaio's */
	int fd;
	io_context_t context;
	unsigned n_blocks; /* of an op */
	struct iocb *iocbs, **batch;
	struct io_event *events;
};

static uint64_t next_offset(struct work *w)
{
	const uint64_t n = w->job->op_bytes < BLOCK_BYTES ? random_next(&w->seed) : w->next++;

	return n % w->n_ops_in_file * w->job->op_bytes;
}

static int note(struct work *w, int64_t begin, int64_t end)
{
	struct neighbour_log *log = w->log;

	if (log->n == NEIGHBOUR_OPS_MAX)
		return -ENOBUFS;
	log->begins[log->n] = begin;
	log->ends[log->n++] = end;
	return 0;
}

/* ---- a client ---- */

/* An op in flight; the queue holds them in the order of their submission. */
struct flying {
	TAILQ_ENTRY(flying) link;
	struct dsaio_op *op;
	char *memory;
	int64_t begin;
};
TAILQ_HEAD(queue, flying);

static int client_failed(void)
{
	fprintf(stderr, "bench: a neighbour: %s\n", dsaio_error());
	return -EIO;
}

static int client_open(struct work *w)
{
	const uint64_t len = w->job->op_bytes;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	void *memory;

	options.weight = w->job->weight;
	options.io_class = w->job->io_class;
	options.profile = w->job->profile;
	if (socket_connect(w->job->socket_path, &w->client) < 0 ||
	    dsaio_handle_open(w->client, &options, &w->handle) < 0 ||
	    dsaio_open(w->client, w->job->path, O_RDWR, NULL, &w->file) < 0 ||
	    dsaio_alloc(w->client, w->job->n_queued * len, NULL, &memory) < 0)
		return client_failed();
	w->memory = memory;
	for (unsigned i = 0; i < w->job->n_queued; i++)
		if (dsaio_pread(w->handle, w->file, w->memory + i * len, len, 0) != (int64_t)len)
			return client_failed();
	return 0;
}

static int client_submit(struct work *w, struct queue *queue, struct flying *f)
{
	const struct dsaio_io io = { .opcode = w->job->is_write ? DSAIO_WRITE : DSAIO_READ,
				     .file = w->file,
				     .buf = f->memory,
				     .len = w->job->op_bytes,
				     .off = next_offset(w),
				     .user_data = f };

	f->begin = now_nsec();
	if (dsaio_submit(w->handle, &io, sizeof(struct dsaio_io), 1, 0, &f->op) < 0)
		return client_failed();
	TAILQ_INSERT_TAIL(queue, f, link);
	return 0;
}

static int client_run(struct work *w, int64_t end)
{
	struct flying flying[NEIGHBOUR_QUEUED_MAX];
	struct queue queue = TAILQ_HEAD_INITIALIZER(queue);
	int r = 0;

	for (unsigned i = 0; r == 0 && i < w->job->n_queued; i++) {
		flying[i].memory = w->memory + i * w->job->op_bytes;
		r = client_submit(w, &queue, &flying[i]);
	}
	while (r == 0 && !TAILQ_EMPTY(&queue)) {
		struct dsaio_completion ended[NEIGHBOUR_QUEUED_MAX];
		int64_t now;
		int n;

		(void)dsaio_op_wait(TAILQ_FIRST(&queue)->op, -1, NULL); /* the result: below */
		n = dsaio_handle_reap(w->handle, ended, sizeof(ended[0]), 0, NEIGHBOUR_QUEUED_MAX,
				      0);
		now = now_nsec();
		r = n < 0 ? n : 0;
		for (int i = 0; r == 0 && i < n; i++) {
			struct flying *f = ended[i].user_data;

			if (ended[i].result != (int64_t)w->job->op_bytes) {
				fprintf(stderr, "bench: a neighbour: %s\n",
					dsaio_op_error(ended[i].op));
				return -EIO;
			}
			TAILQ_REMOVE(&queue, f, link);
			dsaio_op_free(ended[i].op);
			r = note(w, f->begin, now);
			if (r == 0 && now < end)
				r = client_submit(w, &queue, f);
		}
	}
	return r;
}

/* ---- libaio, in the order of arrival: an op's blocks are all handed over at once ---- */

static int arrival_open(struct work *w)
{
	const uint64_t block = w->job->op_bytes < BLOCK_BYTES ? w->job->op_bytes : BLOCK_BYTES;
	int r;

	w->n_blocks = (unsigned)(w->job->op_bytes / block);
	w->iocbs = calloc(w->n_blocks, sizeof(*w->iocbs));
	w->batch = calloc(w->n_blocks, sizeof(struct iocb *));
	w->events = calloc(w->n_blocks, sizeof(*w->events));
	w->fd = open(w->job->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	r = w->fd < 0 ? -errno : memory_new(w->job->op_bytes, &w->memory);
	if (r == 0)
		r = w->iocbs && w->batch && w->events ? io_setup((int)w->n_blocks, &w->context)
						      : -ENOMEM;
	if (r < 0)
		fprintf(stderr, "bench: a neighbour with libaio: %s\n", strerror(-r));
	return r;
}

static int arrival_op(struct work *w)
{
	const uint64_t off = next_offset(w), len = w->job->op_bytes / w->n_blocks;
	unsigned n = 0;
	int r;

	for (unsigned i = 0; i < w->n_blocks; i++) {
		const uint64_t at = off + i * len;

		w->batch[i] = &w->iocbs[i];
		(w->job->is_write ? io_prep_pwrite : io_prep_pread)(
			&w->iocbs[i], w->fd, w->memory + i * len, len, (long long)at);
	}
	for (; n < w->n_blocks; n += (unsigned)r) {
		r = io_submit(w->context, w->n_blocks - n, w->batch + n);
		if (r <= 0)
			return r < 0 ? r : -EAGAIN;
	}
	do
		r = io_getevents(w->context, w->n_blocks, w->n_blocks, w->events, NULL);
	while (r == -EINTR);
	for (int i = 0; i < r; i++)
		if (w->events[i].res != len)
			return -EIO;
	return r == (int)w->n_blocks ? 0 : r < 0 ? r : -EIO;
}

static int arrival_run(struct work *w, int64_t end)
{
	int64_t begin, now;
	int r;

	do {
		begin = now_nsec();
		r = arrival_op(w);
		now = now_nsec();
		if (r == 0)
			r = note(w, begin, now);
	} while (r == 0 && now < end);
	if (r < 0)
		fprintf(stderr, "bench: a neighbour with libaio: %s\n", strerror(-r));
	return r;
}

/* ---- the process ---- */

_Noreturn static void child(const struct neighbour *neighbour, int fd, pid_t parent)
{
	const struct neighbour_job *job = &neighbour->job;
	struct work w = { .job = job, .log = neighbour->log, .seed = random_seed() };
	const struct timespec late = { .tv_nsec = job->late_nsec };
	int64_t end;
	char done = 0;
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a known option */
	if (getppid() != parent)
		_exit(1);
	w.n_ops_in_file = job->file_bytes / job->op_bytes;
	w.next = (uint64_t)getpid(); /* those side by side read different parts */
	r = job->socket_path ? client_open(&w) : arrival_open(&w);
	while (r == 0 && write(fd, &done, 1) == 1 && read(fd, &end, sizeof(end)) == sizeof(end)) {
		end -= job->early_nsec;
		(void)nanosleep(&late, NULL); /* none of its signals returns */
		w.log->n = 0;
		w.log->start = now_nsec();
		r = job->socket_path ? client_run(&w, end) : arrival_run(&w, end);
	}
	_exit(r < 0);
}

/* The byte that says that it is ready, or done. */
static int await(const struct neighbour *neighbour)
{
	ssize_t n;
	char done;

	do
		n = read(neighbour->fd, &done, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -ECHILD; /* it has printed the cause */
}

int neighbour_start(struct neighbour *neighbour, const struct neighbour_job *job)
{
	const pid_t self = getpid();
	int fds[2], r;

	*neighbour = (struct neighbour){ .job = *job, .fd = -1 };
	neighbour->log = mmap(NULL, sizeof(*neighbour->log), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (neighbour->log == MAP_FAILED) {
		neighbour->log = NULL;
		return -errno;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	neighbour->pid = fork();
	if (neighbour->pid == 0) {
		(void)close(fds[0]);
		child(neighbour, fds[1], self);
	}
	r = neighbour->pid < 0 ? -errno : 0;
	(void)close(fds[1]); /* nothing is in it */
	neighbour->fd = fds[0];
	return r < 0 ? r : await(neighbour);
}

void neighbour_stop(struct neighbour *neighbour)
{
	if (neighbour->pid > 0) {
		(void)kill(neighbour->pid, SIGKILL); /* it is ours, and not reaped */
		while (waitpid(neighbour->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (neighbour->log)
		(void)munmap(neighbour->log, sizeof(*neighbour->log));
	if (neighbour->pid != 0)
		closep(&neighbour->fd);
	*neighbour = (struct neighbour){ .fd = -1 };
}

int neighbours_run(struct neighbour *const neighbours[], unsigned n, int64_t end_nsec)
{
	int r = 0;

	for (unsigned i = 0; i < n; i++)
		if (write(neighbours[i]->fd, &end_nsec, sizeof(end_nsec)) != sizeof(end_nsec))
			r = -ECHILD; /* it has printed the cause */
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = await(neighbours[i]);
	return r;
}

/* ---- what they noted ---- */

double neighbour_bandwidth(const struct neighbour *neighbour, int64_t from_nsec, int64_t to_nsec)
{
	const struct neighbour_log *log = neighbour->log;
	const double n_ops = ops_by(log->ends, log->n, log->start, to_nsec) -
			     ops_by(log->ends, log->n, log->start, from_nsec);

	return n_ops * (double)neighbour->job.op_bytes * 1e9 / (double)(to_nsec - from_nsec);
}

double neighbour_latency_usec(const struct neighbour *neighbour, int64_t from_nsec, int64_t to_nsec,
			      double q)
{
	static double usec[NEIGHBOUR_OPS_MAX];
	const struct neighbour_log *log = neighbour->log;
	size_t n = 0;

	for (uint32_t i = 0; i < log->n; i++)
		if (log->begins[i] >= from_nsec && log->begins[i] < to_nsec)
			usec[n++] = (double)(log->ends[i] - log->begins[i]) / 1e3;
	if (n == 0)
		return 0;
	sort_values(usec, n);
	return quantile(usec, n, q);
}
