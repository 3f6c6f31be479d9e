/*
 * The stall of a program while the daemon is restarted: the longest time without a completion.  Beside it, the same
 * less the time that a daemon without clients takes to start.
 *
 * The program is a process that has 8 ops open all the time, of 1 MiB and of 128 KiB, reads and writes of a file.  It
 * knows each byte of the file and of its pinned memory, all of which is handed over.  No op may fail, and no byte may
 * be another one.
 *
 * A round has each kind of memory once: a daemon starts, the program begins, the daemon is stopped and followed by the
 * next one, which is killed and followed by another.  Pages are taken from a host that has given them before (fresh.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/statistics.h"

#define ROUNDS 20u /* after one that is thrown away */
#define DEPTH 8u
#define BLOCK_BYTES ((size_t)128 << 10)
#define LARGE_BLOCKS 8u
#define FILE_BLOCKS ((size_t)512)
#define BEGIN_OPS 64u	    /* before the first restart */
#define SETTLE_USEC 100000u /* after a restart: a second stall would be part of it */
#define LOOK_USEC 1000u	    /* between two looks at the program */
#define GO_ON_MSEC 60000u   /* longer than any restart; a guess */
#define BAR_MSEC 500.0	    /* of a planned restart, ... */
#define BAR_GIB_MSEC 300.0  /* ... and for each GiB that is handed over and locked */

static const struct {
	const char *name;
	size_t mib;
	uint32_t flags;
} memories[] = {
	{ "64 MiB small", 64, DSAIO_ALLOC_SMALL },
	{ "1 GiB small", 1024, DSAIO_ALLOC_SMALL },
	{ "64 MiB huge", 64, DSAIO_ALLOC_HUGE },
	{ "1 GiB huge", 1024, DSAIO_ALLOC_HUGE },
};
#define MEMORIES ARRAY_SIZE(memories)

enum { STOP, KILL, N_ENDS };
enum { STALL, BEYOND, N_VALUES };
#define N_SHARES 3u
static const char *const end_names[N_ENDS] = { "SIGTERM", "kill -9" };
static const char *const value_names[N_VALUES] = { "stall", "beyond start" };

static double stall_msec[MEMORIES][N_ENDS][ROUNDS];
static double start_msec[MEMORIES][ROUNDS]; /* without a client */
static bool is_left_out[MEMORIES];	    /* the host has no such pages */

/* Shared by the program and the bench. */
static struct board {
	_Atomic uint64_t n_done;
	_Atomic int64_t longest_nsec; /* between two completions */
	_Atomic bool must_stop, has_no_memory;
} * board;

/* ---- the program ---- */

/* Each block has a number, which is in each of its words.  0: not known. */
struct program {
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	char *memory;
	size_t n_blocks; /* of the memory */
	uint32_t *in_memory, in_file[FILE_BLOCKS], n_written;
	uint64_t seed;
};

/* Each slot has an op at a time, and a part of the file and of the memory to itself. */
struct slot {
	size_t memory_at, file_at, n; /* blocks */
	bool is_write;
};

static void block_fill(struct program *p, size_t block)
{
	uint64_t *words = (uint64_t *)(void *)(p->memory + block * BLOCK_BYTES);

	p->in_memory[block] = ++p->n_written;
	for (uint64_t i = 0; i < BLOCK_BYTES / sizeof(*words); i++)
		words[i] = (uint64_t)p->in_memory[block] << 32 | i;
}

static int blocks_check(const struct program *p, size_t block, size_t n)
{
	for (const size_t end = block + n; block < end; block++) {
		const uint64_t *words = (const uint64_t *)(const void *)(p->memory +
									 block * BLOCK_BYTES);
		uint64_t differences = 0;

		for (uint64_t i = 0; i < BLOCK_BYTES / sizeof(*words); i++)
			differences |= words[i] ^ ((uint64_t)p->in_memory[block] << 32 | i);
		if (differences) {
			fprintf(stderr, "bench: restart: block %zu has other bytes\n", block);
			return -EIO;
		}
	}
	return 0;
}

static size_t random_at(struct program *p, unsigned slot, size_t n_all, size_t n)
{
	return slot * (n_all / DEPTH) + random_next(&p->seed) % (n_all / DEPTH - n + 1);
}

static int slot_start(struct program *p, struct slot *slot, unsigned number)
{
	struct dsaio_op *op;
	struct dsaio_io io;

	slot->n = number % 2 ? 1 : LARGE_BLOCKS;
	slot->memory_at = random_at(p, number, p->n_blocks, slot->n);
	slot->file_at = random_at(p, number, FILE_BLOCKS, slot->n);
	slot->is_write = random_next(&p->seed) & 1;
	for (size_t i = 0; i < slot->n; i++)
		slot->is_write |= !p->in_file[slot->file_at + i];
	for (size_t i = 0; i < slot->n; i++) {
		uint32_t *memory = &p->in_memory[slot->memory_at + i];
		uint32_t *file = &p->in_file[slot->file_at + i];

		if (slot->is_write)
			block_fill(p, slot->memory_at + i);
		*(slot->is_write ? file : memory) = *(slot->is_write ? memory : file);
	}
	io = (struct dsaio_io){ .opcode = slot->is_write ? DSAIO_WRITE : DSAIO_READ,
				.file = p->file,
				.buf = p->memory + slot->memory_at * BLOCK_BYTES,
				.len = slot->n * BLOCK_BYTES,
				.off = slot->file_at * BLOCK_BYTES,
				.user_data = slot };
	return dsaio_submit(p->handle, &io, sizeof(io), 1, 0, &op) < 0 ? failed("submit") : 0;
}

static int slot_end(struct program *p, const struct dsaio_completion *completion)
{
	const struct slot *slot = completion->user_data;
	int r = 0;

	if (completion->result != (int64_t)(slot->n * BLOCK_BYTES)) {
		fprintf(stderr, "bench: restart: %s: %s\n", slot->is_write ? "write" : "read",
			dsaio_op_error(completion->op));
		r = -EIO;
	}
	dsaio_op_free(completion->op);
	return r == 0 ? blocks_check(p, slot->memory_at, slot->n) : r;
}

/* All of the memory, and then all of the file, read to its start. */
static int all_check(struct program *p)
{
	int r = blocks_check(p, 0, p->n_blocks);

	for (size_t i = 0; r == 0 && i < FILE_BLOCKS; i++) {
		p->in_memory[0] = p->in_file[i];
		if (!p->in_file[i])
			continue;
		if (dsaio_pread(p->handle, p->file, p->memory, BLOCK_BYTES, i * BLOCK_BYTES) !=
		    (int64_t)BLOCK_BYTES)
			return failed("read");
		r = blocks_check(p, 0, 1);
	}
	return r;
}

static int program_run(struct program *p)
{
	int64_t last_nsec = now_nsec();
	struct slot slots[DEPTH];
	unsigned n_open = DEPTH;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < DEPTH; i++)
		r = slot_start(p, &slots[i], i);
	while (r == 0 && n_open > 0) {
		struct dsaio_completion ended[DEPTH];
		const int n = dsaio_handle_reap(p->handle, ended, sizeof(ended[0]), 1, DEPTH, -1);
		const int64_t now = now_nsec();

		if (n < 0)
			return failed("reap");
		if (now - last_nsec > atomic_load(&board->longest_nsec))
			atomic_store(&board->longest_nsec, now - last_nsec);
		last_nsec = now;
		for (int i = 0; r == 0 && i < n; i++) {
			struct slot *slot = ended[i].user_data;

			r = slot_end(p, &ended[i]);
			if (atomic_load(&board->must_stop))
				n_open--;
			else if (r == 0)
				r = slot_start(p, slot, (unsigned)(slot - slots));
		}
		atomic_fetch_add(&board->n_done, (unsigned)n);
	}
	return r < 0 ? r : all_check(p);
}

_Noreturn static void program_main(const struct bench *b, unsigned memory, pid_t parent)
{
	struct dsaio_connect_options connect = DSAIO_CONNECT_OPTIONS_INIT;
	struct dsaio_alloc_options alloc = DSAIO_ALLOC_OPTIONS_INIT;
	struct program p = { .seed = random_seed(),
			     .n_blocks = (memories[memory].mib << 20) / BLOCK_BYTES };
	void *start = NULL;
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	connect.socket_path = b->daemon.socket_path;
	alloc.flags = memories[memory].flags;
	p.in_memory = calloc(p.n_blocks, sizeof(*p.in_memory));
	if (!p.in_memory || dsaio_connect(&connect, &p.client) < 0 ||
	    dsaio_open(p.client, b->path, O_RDWR, NULL, &p.file) < 0 ||
	    profile_open(p.client, NULL, &p.handle) < 0) {
		(void)failed("a program");
		_exit(1);
	}
	r = dsaio_alloc(p.client, p.n_blocks * BLOCK_BYTES, &alloc, &start);
	if (r < 0) {
		atomic_store(&board->has_no_memory, r == -ENOMEM || r == -EOPNOTSUPP);
		(void)failed(memories[memory].name);
		_exit(1);
	}
	p.memory = start;
	for (size_t i = 0; i < p.n_blocks; i++)
		block_fill(&p, i);
	r = program_run(&p);
	_exit(r < 0 || dsaio_disconnect(p.client) < 0);
}

/* Waits until that many ops have ended. */
static int program_await(pid_t pid, uint64_t n_done)
{
	const int64_t end = now_nsec() + GO_ON_MSEC * INT64_C(1000000);

	while (atomic_load(&board->n_done) < n_done) {
		siginfo_t info = { 0 };

		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid)
			return -ECHILD; /* it has said why */
		if (now_nsec() > end) {
			fprintf(stderr, "bench: restart: a program does not go on\n");
			return -ETIMEDOUT;
		}
		(void)usleep(LOOK_USEC);
	}
	return 0;
}

/* ---- restarts ---- */

static int start(struct bench *b, double *ret_msec)
{
	const int64_t began = now_nsec();
	const int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	*ret_msec = (double)(now_nsec() - began) / 1e6;
	return r;
}

static int restart(struct bench *b, pid_t program, unsigned end, double *ret_stall_msec)
{
	double again_msec;
	int r;

	atomic_store(&board->longest_nsec, 0);
	if (end == STOP)
		private_daemon_stop(&b->daemon);
	else
		private_daemon_kill(&b->daemon);
	r = start(b, &again_msec);
	/* As many, and no more, may be of the daemon before. */
	if (r == 0)
		r = program_await(program, atomic_load(&board->n_done) + DEPTH + 1);
	(void)usleep(SETTLE_USEC);
	*ret_stall_msec = (double)atomic_load(&board->longest_nsec) / 1e6;
	return r;
}

static int slice_run(struct bench *b, unsigned memory, unsigned round)
{
	const pid_t self = getpid();
	int status, r;
	pid_t pid;

	atomic_store(&board->n_done, 0);
	atomic_store(&board->must_stop, false);
	r = start(b, &start_msec[memory][round]);
	if (r < 0)
		return r;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		program_main(b, memory, self);
	r = program_await(pid, BEGIN_OPS);
	for (unsigned end = 0; r == 0 && end < N_ENDS; end++)
		r = restart(b, pid, end, &stall_msec[memory][end][round]);
	atomic_store(&board->must_stop, true);
	if (r < 0)
		(void)kill(pid, SIGKILL); /* it is ours, and not reaped */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	private_daemon_stop(&b->daemon);
	if (atomic_exchange(&board->has_no_memory, false)) {
		is_left_out[memory] = true;
		return 0;
	}
	return r == 0 && status ? -ECHILD : r;
}

/* Rows of the median, with all values, of the p95 and of the worst. */
static void fill_rows(unsigned memory, unsigned end)
{
	static char names[RESTART_ROWS][64];
	static const struct {
		const char *name;
		double q;
	} shares[] = { { "median", 0.5 }, { "p95", 0.95 }, { "worst", 1 } };
	const double gib = (double)memories[memory].mib / 1024;

	for (unsigned i = 0; i < N_VALUES * N_SHARES; i++) {
		const unsigned at = (memory * N_ENDS + end) * N_VALUES * N_SHARES + i;
		const unsigned value = i / N_SHARES, share = i % N_SHARES;
		struct row *row = &rows[ROW_RESTART + at];
		double values[ROUNDS];

		for (unsigned n = 0; n < ROUNDS; n++)
			values[n] = stall_msec[memory][end][n] -
				    (value == BEYOND ? start_msec[memory][n] : 0);
		sort_values(values, ROUNDS);
		(void)snprintf(names[at], sizeof(names[at]), "%s, %s: %s %s", end_names[end],
			       memories[memory].name, value_names[value], shares[share].name);
		*row = (struct row){ .name = names[at],
				     .unit = "ms",
				     .is_absolute = true,
				     .bar = BAR_MSEC + BAR_GIB_MSEC * gib,
				     .has_no_bar = end == KILL || value == STALL };
		for (unsigned n = 0; share == 0 && n < ROUNDS; n++)
			row_add(row, values[n], 1);
		if (share > 0)
			row_add(row, quantile(values, ROUNDS, shares[share].q), 1);
	}
}

static void fill_starts(void)
{
	struct row *row = &rows[ROW_RESTART + RESTART_ROWS - 1];

	*row = (struct row){ .name = "a daemon's start, without a client",
			     .unit = "ms",
			     .is_absolute = true,
			     .has_no_bar = true };
	for (unsigned n = 0; n < ROUNDS; n++)
		row_add(row, start_msec[0][n], 1);
}

int measure_restart(struct bench *b)
{
	const struct row row = { .name = "restart" };
	int r = 0;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED)
		return -errno;
	for (unsigned i = 0; r == 0 && i <= ROUNDS; i++) {
		r = round_begin(&row, i);
		for (unsigned n = 0; r == 0 && n < MEMORIES; n++) {
			const unsigned memory = (n + i) % MEMORIES;

			if (!is_left_out[memory])
				r = slice_run(b, memory, i ? i - 1 : 0); /* the first: again */
		}
	}
	for (unsigned i = 0; r == 0 && i < MEMORIES * N_ENDS; i++)
		if (!is_left_out[i / N_ENDS])
			fill_rows(i / N_ENDS, i % N_ENDS);
	if (r == 0)
		fill_starts();
	(void)munmap(board, sizeof(*board));
	return r;
}
