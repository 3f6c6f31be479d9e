/*
 * The demonstration: two processes write 400 MB of random tensors through the daemon, sync them,
 * read them back into other memory, compare every byte, and tell the speeds.
 *
 * It is also an example of the library: connect, open a handle, allocate pinned memory, start
 * all transfers, wait for all of them.
 *
 * Usage: demo DIRECTORY (on one of the daemon's stores)
 */
#include "client/lib/dsaio.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_PROCESSES 2
#define N_TENSORS 4			    /* of each process, each in a file of its own */
#define TENSOR_BYTES ((size_t)12208 * 4096) /* 50 MB in whole pages; 2 x 4 of them are 400 MB */
#define MB 1e6

/* Mapped by both processes and their parent. */
struct board {
	pthread_barrier_t barrier;
	struct result {
		double write_sec, read_sec;
		uint64_t n_compared, n_different;
		char error[1024];
	} results[N_PROCESSES];
};

struct task {
	const char *directory;
	unsigned id;
	struct board *board;
	struct result *result;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *files[N_TENSORS];
	void *tensors[N_TENSORS]; /* what is written */
	void *copies[N_TENSORS];  /* where it is read back to */
};

static double now_sec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail: the clock exists */
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Keeps the library's message for the parent to print. */
static int fail(struct task *task)
{
	(void)snprintf(task->result->error, sizeof(task->result->error), "%s", dsaio_error());
	return -1;
}

static void fill_random(void *memory, size_t len, uint64_t seed)
{
	uint8_t *byte = memory;

	for (size_t i = 0; i < len; i += sizeof(seed)) {
		seed ^= seed << 13; /* xorshift64 */
		seed ^= seed >> 7;
		seed ^= seed << 17;
		memcpy(byte + i, &seed, len - i < sizeof(seed) ? len - i : sizeof(seed));
	}
}

static int prepare(struct task *task)
{
	if (dsaio_connect(NULL, &task->client) < 0 ||
	    dsaio_handle_open(task->client, NULL, &task->handle) < 0)
		return fail(task);
	for (unsigned i = 0; i < N_TENSORS; i++) {
		char path[4096];

		(void)snprintf(path, sizeof(path), "%s/tensor.%u.%u", task->directory, task->id, i);
		if (dsaio_alloc(task->client, TENSOR_BYTES, NULL, &task->tensors[i]) < 0 ||
		    dsaio_alloc(task->client, TENSOR_BYTES, NULL, &task->copies[i]) < 0 ||
		    dsaio_open(task->client, path, O_RDWR | O_CREAT | O_TRUNC, NULL,
			       &task->files[i]) < 0)
			return fail(task);
		fill_random(task->tensors[i], TENSOR_BYTES,
			    ((uint64_t)time(NULL) * N_PROCESSES + task->id) * N_TENSORS + i + 1);
	}
	return 0;
}

/* All transfers at once, then one wait for all. */
static int write_tensors(struct task *task)
{
	int64_t n;

	for (unsigned i = 0; i < N_TENSORS; i++)
		if (dsaio_pwrite_async(task->handle, task->files[i], task->tensors[i], TENSOR_BYTES,
				       0, NULL) < 0 ||
		    dsaio_fsync_async(task->handle, task->files[i], 0, NULL) < 0)
			return fail(task);
	return dsaio_handle_wait(task->handle, -1, &n) < 0 || n < 0 ? fail(task) : 0;
}

static int read_tensors(struct task *task)
{
	struct dsaio_op *ops[N_TENSORS];

	for (unsigned i = 0; i < N_TENSORS; i++)
		if (dsaio_pread_async(task->handle, task->files[i], task->copies[i], TENSOR_BYTES,
				      0, &ops[i]) < 0)
			return fail(task);
	for (unsigned i = 0; i < N_TENSORS; i++) {
		int64_t n = 0;

		if (dsaio_op_wait(ops[i], -1, &n) < 0 || n != (int64_t)TENSOR_BYTES) {
			(void)snprintf(task->result->error, sizeof(task->result->error),
				       "read back %" PRId64 " of %zu bytes: %s", n, TENSOR_BYTES,
				       dsaio_op_error(ops[i]));
			return -1;
		}
		dsaio_op_free(ops[i]);
	}
	return 0;
}

static void compare_tensors(struct task *task)
{
	for (unsigned i = 0; i < N_TENSORS; i++) {
		const uint8_t *tensor = task->tensors[i], *copy = task->copies[i];

		for (size_t k = 0; k < TENSOR_BYTES; k++)
			task->result->n_different += tensor[k] != copy[k];
		task->result->n_compared += TENSOR_BYTES;
	}
}

/* Both processes start each step together, so that they share the device. */
static int run(struct task *task)
{
	double start;

	if (prepare(task) < 0)
		return -1;
	(void)pthread_barrier_wait(&task->board->barrier); /* its value only elects one */
	start = now_sec();
	if (write_tensors(task) < 0)
		return -1;
	task->result->write_sec = now_sec() - start;
	(void)pthread_barrier_wait(&task->board->barrier);
	start = now_sec();
	if (read_tensors(task) < 0)
		return -1;
	task->result->read_sec = now_sec() - start;
	compare_tensors(task);
	(void)dsaio_disconnect(task->client);
	return 0;
}

/* Ends the others, which may wait at the barrier, when one fails.  Returns whether all did well. */
static bool wait_for_all(const pid_t *pids)
{
	bool is_fine = true;

	for (unsigned n = 0; n < N_PROCESSES;) {
		int status;

		if (wait(&status) < 0)
			continue; /* EINTR: there are children */
		n++;
		if (status != 0 && is_fine) {
			is_fine = false;
			if (WIFSIGNALED(status))
				(void)fprintf(stderr, "demo: a process ended by signal %d\n",
					      WTERMSIG(status));
			for (unsigned i = 0; i < N_PROCESSES; i++)
				(void)kill(pids[i], SIGTERM); /* one may be gone already */
		}
	}
	return is_fine;
}

static void print_row(const char *who, double bytes, double write_sec, double read_sec)
{
	(void)printf("  %-13s %5.0f MB  %7.0f MB/s  %7.0f MB/s\n", who, bytes / MB,
		     bytes / MB / write_sec, bytes / MB / read_sec);
}

static int print_results(const struct board *board)
{
	uint64_t n_compared = 0, n_different = 0;
	double write_sec = 0, read_sec = 0;

	(void)printf("\n  %-13s %8s  %12s  %12s\n", "", "tensors", "write+fsync", "read");
	for (unsigned i = 0; i < N_PROCESSES; i++) {
		const struct result *result = &board->results[i];
		char who[32];

		(void)snprintf(who, sizeof(who), "process %u", i + 1);
		print_row(who, N_TENSORS * (double)TENSOR_BYTES, result->write_sec,
			  result->read_sec);
		n_compared += result->n_compared;
		n_different += result->n_different;
		write_sec = write_sec > result->write_sec ? write_sec : result->write_sec;
		read_sec = read_sec > result->read_sec ? read_sec : result->read_sec;
	}
	print_row("both together", N_PROCESSES * N_TENSORS * (double)TENSOR_BYTES, write_sec,
		  read_sec);
	(void)printf("\nverified: %" PRIu64 " bytes, %" PRIu64 " differences\n", n_compared,
		     n_different);
	return n_different || fflush(stdout) != 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;
	pid_t pids[N_PROCESSES];

	if (argc != 2) {
		(void)fprintf(stderr, "usage: demo DIRECTORY\n");
		return 2;
	}
	if (board == MAP_FAILED || pthread_barrierattr_init(&attr) != 0 ||
	    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) != 0 ||
	    pthread_barrier_init(&board->barrier, &attr, N_PROCESSES) != 0) {
		(void)fprintf(stderr, "demo: out of memory\n");
		return 1;
	}
	/* Forked before anything is connected: each process is a client of its own. */
	for (unsigned i = 0; i < N_PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			perror("demo: fork");
			return 1;
		}
		if (pids[i] == 0) {
			struct task task = { .directory = argv[1],
					     .id = i,
					     .board = board,
					     .result = &board->results[i] };

			if (run(&task) < 0) {
				(void)fprintf(stderr, "demo: process %u: %s\n", i + 1,
					      task.result->error);
				_exit(1);
			}
			_exit(0);
		}
	}
	return wait_for_all(pids) ? print_results(board) : 1;
}
