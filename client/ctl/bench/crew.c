#include "client/ctl/bench/crew.h"

#include "client/ctl/ui/stop.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MSEC 250

/* The barrier: shared by the parent and all workers. */
struct bench_board {
	_Atomic uint32_t n_waiting;
	_Atomic uint32_t round;	    /* the futex word; workers and parent, release */
	_Atomic uint32_t is_broken; /* set before round: nobody waits until the next call */
	uint32_t n_workers;
};

struct slot {
	pid_t pid; /* 0: there is none */
	int fd;	   /* our end of its socket; -1: none */
	bool is_busy;
};

struct bench_crew {
	struct bench_crew_options options;
	struct bench_board *board;
	char *shared;
	size_t shared_bytes; /* of all */
	struct slot *slots;
};

/* What goes over a worker's socket.  The function is where it was before the fork. */
struct call {
	bench_crew_fn *fn;
	char arg[BENCH_CREW_ARG_BYTES];
};
struct answer {
	int r;
	char text[BENCH_TEXT_BYTES];
};

/* ---- in a worker ---- */

void bench_fill_random(void *memory, size_t len)
{
	uint64_t state, word;
	uint8_t *byte = memory;

	if (getrandom(&state, sizeof(state), 0) != sizeof(state))
		state = clock_nsec(); /* no pool of random bytes: less random will do */
	/* splitmix64 */
	for (size_t done = 0; done < len; done += sizeof(word)) {
		word = state += 0x9e3779b97f4a7c15;
		word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
		word = (word ^ word >> 27) * 0x94d049bb133111eb;
		word ^= word >> 31;
		memcpy(byte + done, &word, len - done < sizeof(word) ? len - done : sizeof(word));
	}
}

int bench_worker_fail(struct bench_worker *worker, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(worker->text, sizeof(worker->text), format, args);
	va_end(args);
	return -EIO;
}

static void wake_all(struct bench_board *board)
{
	/* release: with the acquire load in bench_worker_barrier() */
	atomic_fetch_add_explicit(&board->round, 1, memory_order_release);
	(void)syscall(SYS_futex, &board->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int bench_worker_barrier(struct bench_worker *worker)
{
	struct bench_board *board = worker->board;
	uint32_t round = atomic_load_explicit(&board->round, memory_order_acquire);

	if (atomic_load(&board->is_broken))
		return -ECANCELED;
	if (atomic_fetch_add(&board->n_waiting, 1) + 1 == board->n_workers) {
		atomic_store(&board->n_waiting, 0);
		wake_all(board);
		return 0;
	}
	while (atomic_load_explicit(&board->round, memory_order_acquire) == round)
		(void)syscall(SYS_futex, &board->round, FUTEX_WAIT, round, NULL, NULL, 0);
	return atomic_load(&board->is_broken) ? -ECANCELED : 0;
}

static int worker_prepare(struct bench_worker *worker, bool fills)
{
	if (dsaio_connect(worker->socket_path, &worker->client) < 0)
		return bench_worker_fail(worker, "%s", dsaio_error());
	if (worker->buffer_bytes &&
	    dsaio_alloc(worker->client, worker->buffer_bytes, &worker->buffer) < 0)
		return bench_worker_fail(worker, "%s", dsaio_error());
	if (fills && worker->buffer)
		bench_fill_random(worker->buffer, worker->buffer_bytes);
	return 0;
}

static int worker_answer(int fd, const struct bench_worker *worker, int r)
{
	struct answer answer = { .r = r };

	memcpy(answer.text, worker->text, sizeof(answer.text));
	return send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer) ? 0 : -EPIPE;
}

/* Does calls until the parent closes the socket.  Returns the exit status. */
static int worker_run(struct bench_worker *worker, int fd, bool fills)
{
	struct call call;
	int r = worker_prepare(worker, fills);

	while (worker_answer(fd, worker, r) == 0 && recv(fd, &call, sizeof(call), 0) > 0) {
		worker->text[0] = '\0';
		r = call.fn(worker, call.arg);
	}
	dsaio_disconnect(worker->client);
	return 0;
}

/* ---- in the parent ---- */

static int fail(char *text, int r, const char *what)
{
	(void)snprintf(text, BENCH_TEXT_BYTES, "%s: %s", what, strerror(-r));
	return r;
}

void *bench_crew_shared(struct bench_crew *crew, unsigned i)
{
	return crew->shared + i * crew->options.shared_bytes;
}

static int slot_start(struct bench_crew *crew, unsigned i, char *text)
{
	struct bench_worker worker = { .id = i,
				       .n_workers = crew->options.n_workers,
				       .folder = crew->options.folders[i],
				       .socket_path = crew->options.socket_path,
				       .buffer_bytes = crew->options.buffer_bytes,
				       .shared = bench_crew_shared(crew, i),
				       .board = crew->board };
	struct slot *slot = &crew->slots[i];
	pid_t parent = getpid();
	int fds[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return fail(text, -errno, "can not make a socket for a process");
	slot->pid = fork();
	if (slot->pid < 0) {
		r = -errno;
		(void)close(fds[0]);
		(void)close(fds[1]);
		slot->pid = 0;
		(void)snprintf(text, BENCH_TEXT_BYTES, "can not start process %u of %u: %s", i + 1,
			       crew->options.n_workers, strerror(-r));
		return r;
	}
	if (slot->pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		stop_ignore();
		(void)close(fds[0]);
		/* A sibling's would keep it from seeing the parent close its end. */
		for (unsigned k = 0; k < crew->options.n_workers; k++)
			if (crew->slots[k].fd >= 0)
				(void)close(crew->slots[k].fd);
		_exit(worker_run(&worker, fds[1], !crew->options.leaves_zeros));
	}
	(void)close(fds[1]);
	slot->fd = fds[0];
	slot->is_busy = true; /* it prepares, and answers */
	return 0;
}

/* Its end of the socket is closed: it is dead, or about to be.  Tells how it ended. */
static void slot_reap(struct bench_crew *crew, unsigned i, char *text)
{
	struct slot *slot = &crew->slots[i];
	int status = 0;

	while (waitpid(slot->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		(void)snprintf(text, BENCH_TEXT_BYTES, "process %u: ended by signal %d", i,
			       WTERMSIG(status));
	else
		(void)snprintf(text, BENCH_TEXT_BYTES, "process %u: ended with exit status %d", i,
			       WEXITSTATUS(status));
	(void)close(slot->fd);
	*slot = (struct slot){ .fd = -1 };
}

/* A failure lets those go that wait for it at the barrier. */
static void break_barrier(struct bench_crew *crew)
{
	atomic_store(&crew->board->is_broken, 1);
	wake_all(crew->board);
}

/* Worker i's socket is readable.  Returns 0, or -EIO (it failed): its sentence in text. */
static int slot_read(struct bench_crew *crew, unsigned i, char *text)
{
	struct slot *slot = &crew->slots[i];
	struct answer answer;

	if (recv(slot->fd, &answer, sizeof(answer), 0) != sizeof(answer)) {
		slot_reap(crew, i, text);
		break_barrier(crew);
		return -EIO;
	}
	slot->is_busy = false;
	if (answer.r == 0 || answer.r == -ECANCELED)
		return 0; /* cancelled: another one failed, and tells */
	memcpy(text, answer.text, sizeof(answer.text));
	break_barrier(crew);
	return -EIO;
}

/* Waits until nobody is busy.  Returns as bench_crew_call(). */
static int wait_for_all(struct bench_crew *crew, char *text)
{
	unsigned n = crew->options.n_workers, n_busy;
	_cleanup_(freep) struct pollfd *polls = calloc(n + 1, sizeof(*polls));
	char later[BENCH_TEXT_BYTES] = ""; /* only the first failure is told */
	int r = 0;

	if (!polls)
		return fail(text, -ENOMEM, "processes");
	for (;;) {
		int n_ready;

		n_busy = 0;
		for (unsigned i = 0; i < n; i++) {
			polls[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
			if (crew->slots[i].is_busy) {
				polls[i].fd = crew->slots[i].fd;
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
			if (polls[i].revents && slot_read(crew, i, r == 0 ? text : later) < 0)
				r = -EIO;
	}
}

int bench_crew_call(struct bench_crew *crew, bench_crew_fn *fn, const void *arg, size_t arg_bytes,
		    char *text)
{
	struct call call = { .fn = fn };
	bool is_one_new = false;
	int r;

	for (unsigned i = 0; i < crew->options.n_workers; i++) {
		if (crew->slots[i].pid)
			continue;
		is_one_new = true;
		r = slot_start(crew, i, text);
		if (r < 0)
			return r;
	}
	if (is_one_new) {
		r = wait_for_all(crew, text);
		if (r < 0)
			return r;
	}
	assert(arg_bytes <= sizeof(call.arg));
	if (arg_bytes)
		memcpy(call.arg, arg, arg_bytes);
	memset(crew->shared, 0, crew->shared_bytes);
	atomic_store(&crew->board->n_waiting, 0);
	atomic_store(&crew->board->is_broken, 0);
	for (unsigned i = 0; i < crew->options.n_workers; i++) {
		/* One that is dead, which poll(2) will tell, does not get it. */
		(void)send(crew->slots[i].fd, &call, sizeof(call), MSG_NOSIGNAL);
		crew->slots[i].is_busy = true;
	}
	return wait_for_all(crew, text);
}

static void *map_shared(size_t bytes)
{
	void *map = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return map == MAP_FAILED ? NULL : map;
}

int bench_crew_start(const struct bench_crew_options *options, struct bench_crew **ret_crew,
		     char *text)
{
	struct bench_crew *crew = calloc(1, sizeof(*crew));
	int r = 0;

	if (!crew)
		return fail(text, -ENOMEM, "processes");
	crew->options = *options;
	crew->options.shared_bytes = (options->shared_bytes + 63) & ~(size_t)63; /* alignment */
	crew->shared_bytes = crew->options.shared_bytes * options->n_workers;
	crew->slots = calloc(options->n_workers, sizeof(*crew->slots));
	crew->board = map_shared(sizeof(*crew->board));
	crew->shared = map_shared(crew->shared_bytes);
	if (!crew->slots || !crew->board || !crew->shared) {
		bench_crew_free(crew);
		return fail(text, -ENOMEM, "processes");
	}
	crew->board->n_workers = options->n_workers;
	for (unsigned i = 0; i < options->n_workers; i++)
		crew->slots[i].fd = -1;
	for (unsigned i = 0; r == 0 && i < options->n_workers; i++)
		r = slot_start(crew, i, text);
	if (r == 0)
		r = wait_for_all(crew, text);
	if (r < 0) {
		bench_crew_free(crew);
		return r;
	}
	*ret_crew = crew;
	return 0;
}

void bench_crew_free(struct bench_crew *crew)
{
	if (!crew)
		return;
	for (unsigned i = 0; crew->slots && i < crew->options.n_workers; i++) {
		struct slot *slot = &crew->slots[i];

		/* After a signal none may wait for a daemon that is stopped. */
		if (slot->pid > 0 && (slot->is_busy || stop_signal()))
			(void)kill(slot->pid, SIGKILL); /* ours, and not yet waited for */
		if (slot->fd >= 0 && slot->pid > 0)
			(void)close(slot->fd);
	}
	for (unsigned i = 0; crew->slots && i < crew->options.n_workers; i++)
		while (crew->slots[i].pid > 0 && waitpid(crew->slots[i].pid, NULL, 0) < 0 &&
		       errno == EINTR)
			;
	if (crew->shared)
		(void)munmap(crew->shared, crew->shared_bytes ? crew->shared_bytes : 1);
	if (crew->board)
		(void)munmap(crew->board, sizeof(*crew->board));
	free(crew->slots);
	free(crew);
}
