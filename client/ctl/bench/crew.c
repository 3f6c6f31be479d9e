#include "client/ctl/bench/crew.h"

#include "client/ctl/bench/buffer.h"
#include "client/ctl/bench/gpu.h"
#include "client/ctl/bench/huge_pages.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/stop.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MSEC 250

/* The barrier: shared by the parent and all processes. */
struct bench_board {
	_Atomic uint32_t n_waiting;
	_Atomic uint32_t round;	    /* the futex word; processes and parent, release */
	_Atomic uint32_t is_broken; /* set before round: no process waits until the next call */
	uint32_t n_processes;
};

struct child {
	pid_t pid; /* 0: there is none */
	int fd;	   /* our end of its socket; -1: none */
	bool is_busy;
	struct bench_memory memory;
};

struct bench_crew {
	struct bench_crew_options options;
	struct bench_board *board;
	char *shared;
	size_t shared_bytes; /* of all */
	struct child *children;
};

/* The message to a process.  fn is valid there, because the process is a fork of this one. */
struct crew_call {
	bench_crew_fn *fn;
	char arg[BENCH_CREW_ARG_BYTES];
};
struct crew_answer {
	int r;
	char text[BENCH_TEXT_BYTES];
	struct bench_memory memory;
};

/* ---- in a process ---- */

static void wake_all(struct bench_board *board)
{
	/* release: with the acquire load in bench_process_barrier() */
	atomic_fetch_add_explicit(&board->round, 1, memory_order_release);
	(void)syscall(SYS_futex, &board->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int bench_process_barrier(struct bench_process *process)
{
	struct bench_board *board = process->board;
	uint32_t round = atomic_load_explicit(&board->round, memory_order_acquire);

	if (atomic_load(&board->is_broken))
		return -ECANCELED;
	if (atomic_fetch_add(&board->n_waiting, 1) + 1 == board->n_processes) {
		atomic_store(&board->n_waiting, 0);
		wake_all(board);
		return 0;
	}
	while (atomic_load_explicit(&board->round, memory_order_acquire) == round)
		(void)syscall(SYS_futex, &board->round, FUTEX_WAIT, round, NULL, NULL, 0);
	return atomic_load(&board->is_broken) ? -ECANCELED : 0;
}

static int process_prepare(struct bench_process *process, const struct bench_crew_options *options)
{
	struct dsaio_connect_options connect = DSAIO_CONNECT_OPTIONS_INIT;
	int r = 0;

	connect.socket_path = process->socket_path;
	connect.flags = DSAIO_NO_RECONNECT | (options->is_gpu_direct_only ? DSAIO_GPU_DIRECT : 0);
	if (dsaio_connect(&connect, &process->client) < 0)
		return bench_process_fail(process, "%s", dsaio_error());
	if (!process->buffer_bytes)
		return 0;
	if (options->gpus)
		r = bench_gpu_open(process, options->gpus[process->id],
				   options->is_gpu_direct_only);
	else if (dsaio_alloc(process->client, process->buffer_bytes, NULL, &process->buffer) < 0)
		r = bench_process_fail(process, "%s", dsaio_error());
	if (r < 0 || options->leaves_zeros)
		return r;
	r = bench_process_fill(process, process->buffer_bytes);
	if (r == 0 && !process->gpu)
		process->memory.huge_bytes = huge_pages_bytes(process->buffer,
							      process->buffer_bytes);
	return r;
}

static int process_answer(int fd, const struct bench_process *process, int r)
{
	struct crew_answer answer = { .r = r, .memory = process->memory };

	memcpy(answer.text, process->text, sizeof(answer.text));
	return send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer) ? 0 : -EPIPE;
}

/* Does calls until the parent closes the socket.  Returns the exit status. */
static int process_run(struct bench_process *process, int fd,
		       const struct bench_crew_options *options)
{
	struct crew_call call;
	int r = process_prepare(process, options);

	while (process_answer(fd, process, r) == 0 && recv(fd, &call, sizeof(call), 0) > 0) {
		process->text[0] = '\0';
		r = call.fn(process, call.arg);
	}
	(void)dsaio_disconnect(process->client);
	return 0;
}

/* ---- in the parent ---- */

int bench_crew_status(const struct ctl *ctl, int r, const char *text)
{
	if (r == -EINTR)
		return stop_status();
	return r < 0 ? ctl_fail(ctl, "%s", text) : CTL_OK;
}

void *bench_crew_shared(struct bench_crew *crew, unsigned i)
{
	return crew->shared + i * crew->options.shared_bytes;
}

const struct bench_memory *bench_crew_memory(const struct bench_crew *crew, unsigned i)
{
	return &crew->children[i].memory;
}

struct bench_gpu_paths bench_crew_paths(const struct bench_crew *crew)
{
	struct bench_gpu_paths sum = { 0 };

	for (unsigned i = 0; i < crew->options.n_processes; i++)
		bench_gpu_sum_paths(&sum, &crew->children[i].memory.paths);
	return sum;
}

void bench_crew_note_gpus(const struct ctl *ctl, const struct bench_crew *crew, const char *cufile,
			  struct json_object *gpus, struct json_object *paths)
{
	const struct bench_gpu_paths sum = bench_crew_paths(crew);
	char names[BENCH_TEXT_BYTES], text[BENCH_GPU_PATHS_BYTES];

	for (unsigned i = 0; i < crew->options.n_processes; i++)
		bench_gpu_add(gpus, crew->children[i].memory.gpu);
	bench_gpu_add(paths, bench_gpu_paths_text(&sum, cufile, text));
	ctl_note(ctl, "buffers: in the memory of %s: %s", bench_gpu_list(gpus, names), text);
}

static int child_start(struct bench_crew *crew, unsigned i, char *text)
{
	struct bench_process process = { .id = i,
					 .n_processes = crew->options.n_processes,
					 .folder = crew->options.folders ? crew->options.folders[i]
									 : NULL,
					 .files = crew->options.files,
					 .socket_path = crew->options.socket_path,
					 .buffer_bytes = crew->options.buffer_bytes,
					 .shared = bench_crew_shared(crew, i),
					 .board = crew->board,
					 .memory.huge_bytes = UINT64_MAX };
	struct child *child = &crew->children[i];
	pid_t parent = getpid();
	int fds[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		r = -errno;
		(void)snprintf(text, BENCH_TEXT_BYTES, "cannot make a socket for a process: %s",
			       strerror(-r));
		return r;
	}
	child->pid = fork();
	if (child->pid < 0) {
		r = -errno;
		(void)close(fds[0]);
		(void)close(fds[1]);
		child->pid = 0;
		(void)snprintf(text, BENCH_TEXT_BYTES, "cannot start process %u of %u: %s", i + 1,
			       crew->options.n_processes, strerror(-r));
		return r;
	}
	if (child->pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		stop_ignore();
		(void)close(fds[0]);
		/*
		 * With a sibling's socket open, that sibling would not see the parent close its
		 * end.
		 */
		for (unsigned k = 0; k < crew->options.n_processes; k++)
			if (crew->children[k].fd >= 0)
				(void)close(crew->children[k].fd);
		_exit(process_run(&process, fds[1], &crew->options));
	}
	(void)close(fds[1]);
	child->fd = fds[0];
	child->is_busy = true; /* it prepares, and answers */
	return 0;
}

/* Its end of the socket is closed: it is dead, or about to be.  Writes to text how it ended. */
static void child_reap(struct bench_crew *crew, unsigned i, char *text)
{
	struct child *child = &crew->children[i];
	int status = 0;

	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		(void)snprintf(text, BENCH_TEXT_BYTES, "process %u: ended by signal %d", i,
			       WTERMSIG(status));
	else
		(void)snprintf(text, BENCH_TEXT_BYTES, "process %u: ended with exit status %d", i,
			       WEXITSTATUS(status));
	(void)close(child->fd);
	*child = (struct child){ .fd = -1 };
}

/* After a failure: releases the processes that wait at the barrier. */
static void break_barrier(struct bench_crew *crew)
{
	atomic_store(&crew->board->is_broken, 1);
	wake_all(crew->board);
}

/* The socket of process i is readable.  Returns 0, or -EIO (it failed) and its message in text. */
static int child_read(struct bench_crew *crew, unsigned i, char *text)
{
	struct child *child = &crew->children[i];
	struct crew_answer answer;

	if (recv(child->fd, &answer, sizeof(answer), 0) != sizeof(answer)) {
		child_reap(crew, i, text);
		break_barrier(crew);
		return -EIO;
	}
	child->is_busy = false;
	child->memory = answer.memory;
	if (answer.r == 0 || answer.r == -ECANCELED)
		return 0; /* cancelled: another process failed, and reports */
	memcpy(text, answer.text, sizeof(answer.text));
	break_barrier(crew);
	return -EIO;
}

/* Waits until no process is busy.  Returns as bench_crew_call(). */
static int wait_for_all(struct bench_crew *crew, char *text)
{
	unsigned n = crew->options.n_processes, n_busy;
	_cleanup_(freep) struct pollfd *polls = NEW_ARRAY(struct pollfd, n);
	char later[BENCH_TEXT_BYTES] = ""; /* only the first failure is reported */
	int r = 0;

	for (;;) {
		int n_ready;

		n_busy = 0;
		for (unsigned i = 0; i < n; i++) {
			polls[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
			if (crew->children[i].is_busy) {
				polls[i].fd = crew->children[i].fd;
				n_busy++;
			}
		}
		if (n_busy == 0)
			return r;
		polls[n] = (struct pollfd){ .fd = stop_fd(), .events = POLLIN };
		n_ready = poll(polls, n + 1, crew->options.tick ? TICK_MSEC : -1);
		if (stop_signal())
			return -EINTR;
		if (n_ready == 0)
			crew->options.tick(crew->options.tick_data);
		for (unsigned i = 0; i < n && n_ready > 0; i++)
			if (polls[i].revents && child_read(crew, i, r == 0 ? text : later) < 0)
				r = -EIO;
	}
}

/* Starts the processes that are not there, and waits until they are ready.  Returns as bench_crew_call(). */
static int start_missing(struct bench_crew *crew, char *text)
{
	for (unsigned i = 0; i < crew->options.n_processes; i++) {
		const int r = crew->children[i].pid ? 0 : child_start(crew, i, text);

		if (r < 0)
			return r;
	}
	return wait_for_all(crew, text);
}

int bench_crew_call(struct bench_crew *crew, bench_crew_fn *fn, const void *arg, size_t arg_bytes,
		    char *text)
{
	struct crew_call call = { .fn = fn };
	int r = start_missing(crew, text);

	if (r < 0)
		return r;
	assert(arg_bytes <= sizeof(call.arg));
	if (arg_bytes)
		memcpy(call.arg, arg, arg_bytes);
	memset(crew->shared, 0, crew->shared_bytes);
	atomic_store(&crew->board->n_waiting, 0);
	atomic_store(&crew->board->is_broken, 0);
	for (unsigned i = 0; i < crew->options.n_processes; i++) {
		/* A dead process does not get it; poll(2) will report that. */
		(void)send(crew->children[i].fd, &call, sizeof(call), MSG_NOSIGNAL);
		crew->children[i].is_busy = true;
	}
	return wait_for_all(crew, text);
}

static void *map_shared(size_t bytes)
{
	void *map = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return need_memory(map == MAP_FAILED ? NULL : map);
}

int bench_crew_start(const struct ctl *ctl, const struct bench_crew_options *options,
		     struct bench_crew **ret_crew)
{
	struct bench_crew *crew = NEW_ARRAY(struct bench_crew, 1);
	char text[BENCH_TEXT_BYTES];
	int r;

	crew->options = *options;
	crew->options.shared_bytes = (options->shared_bytes + 63) & ~(size_t)63; /* alignment */
	crew->shared_bytes = crew->options.shared_bytes * options->n_processes;
	crew->children = NEW_ARRAY(struct child, options->n_processes);
	crew->board = map_shared(sizeof(*crew->board));
	crew->shared = map_shared(crew->shared_bytes);
	crew->board->n_processes = options->n_processes;
	for (unsigned i = 0; i < options->n_processes; i++)
		crew->children[i].fd = -1;
	r = bench_crew_status(ctl, start_missing(crew, text), text);
	if (r == CTL_OK)
		*ret_crew = crew;
	else
		bench_crew_free(crew);
	return r;
}

void bench_crew_kill(struct bench_crew *crew)
{
	char text[BENCH_TEXT_BYTES];

	for (unsigned i = 0; i < crew->options.n_processes; i++) {
		if (crew->children[i].pid <= 0)
			continue;
		(void)kill(crew->children[i].pid, SIGKILL); /* ours, and not yet waited for */
		child_reap(crew, i, text);
	}
}

void bench_crew_free(struct bench_crew *crew)
{
	if (!crew)
		return;
	for (unsigned i = 0; i < crew->options.n_processes; i++) {
		struct child *child = &crew->children[i];

		/* After a signal none may wait for a daemon that is stopped. */
		if (child->pid > 0 && (child->is_busy || stop_signal()))
			(void)kill(child->pid, SIGKILL); /* ours, and not yet waited for */
		if (child->fd >= 0 && child->pid > 0)
			(void)close(child->fd);
	}
	for (unsigned i = 0; i < crew->options.n_processes; i++)
		while (crew->children[i].pid > 0 && waitpid(crew->children[i].pid, NULL, 0) < 0 &&
		       errno == EINTR)
			;
	(void)munmap(crew->shared, crew->shared_bytes ? crew->shared_bytes : 1);
	(void)munmap(crew->board, sizeof(*crew->board));
	free(crew->children);
	free(crew);
}
