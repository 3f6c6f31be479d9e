/*
 * The daemon is killed again and again while programs work: every op ends once,
 * every byte is right.
 *
 * Five clients, each in a process of its own and on a file of its own: pinned
 * memory, private memory, unaligned ranges, a file that grows, with syncs
 * between; and all that in Python.  Each keeps several ops open, knows what each
 * byte of its file has to be, and reads it back.  $RESTARTS: how often (20).
 * $TEST_SEED replays the ops.
 */
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_OPS 12u
#define PIECE (96 * KIB)
#define PYTHON "/usr/bin/python3" /* the tests of the Python package use it, too */

struct load {
	const char *what;
	bool is_pinned, is_unaligned, grows, is_python;
};
static const struct load loads[] = {
	{ "pinned", true, false, false, false },
	{ "private", false, false, false, false },
	{ "unaligned", false, true, false, false },
	{ "pinned, unaligned, growing", true, true, true, false },
	{ "python", false, false, false, true },
};

/* Each load has one, shared by the processes; tests/python/restart_load.py knows it, too. */
struct board {
	_Atomic uint64_t must_stop, n_rounds, n_ops, n_repeated;
	_Atomic int64_t longest_usec;
	uint64_t unused[3];
};
static struct board *boards;
static int boards_fd;

/* Starts N_OPS ops and waits for them.  One that was in flight at two crashes
 * is repeated, as its message says. */
static void round_run(struct rig *rig, unsigned me, struct dsaio_file *file, bool is_write,
		      uint8_t *memory, uint64_t start)
{
	bool is_done[N_OPS] = { false };
	unsigned n_left = N_OPS;

	while (n_left) {
		struct dsaio_op *ops[N_OPS] = { NULL };
		const int64_t began = now_usec();

		for (unsigned i = 0; i < N_OPS; i++) {
			uint8_t *at = memory + i * PIECE;
			uint64_t off = start + i * PIECE;

			if (is_done[i])
				continue;
			if (is_write)
				CHECK_CALL(dsaio_pwrite_async(rig->handle, file, at, PIECE, off,
							      &ops[i]));
			else
				CHECK_CALL(dsaio_pread_async(rig->handle, file, at, PIECE, off,
							     &ops[i]));
		}
		for (unsigned i = 0; i < N_OPS; i++) {
			int64_t result;

			if (!ops[i])
				continue;
			result = op_wait(ops[i], -1);
			if (result == -ECONNRESET &&
			    strstr(dsaio_op_error(ops[i]), "two crashes")) {
				atomic_fetch_add(&boards[me].n_repeated, 1);
			} else {
				CHECK_MSG(result == (int64_t)PIECE, "%s: %" PRId64 ": %s",
					  loads[me].what, result,
					  result < 0 ? dsaio_op_error(ops[i]) : "");
				is_done[i] = true;
				n_left--;
			}
			dsaio_op_free(ops[i]);
			atomic_fetch_add(&boards[me].n_ops, 1);
		}
		(void)handle_wait(rig->handle, -1);
		if (now_usec() - began > atomic_load(&boards[me].longest_usec))
			atomic_store(&boards[me].longest_usec, now_usec() - began);
	}
}

static void sync_run(struct rig *rig, struct dsaio_file *file)
{
	int r;

	do
		r = (int)dsaio_fsync(rig->handle, file, 0);
	while (r == -ECONNRESET && strstr(dsaio_error(), "two crashes"));
	CHECK_CALL(r);
}

static void load_main(const struct daemon *daemon, unsigned me)
{
	const struct load *load = &loads[me];
	struct daemon theirs = *daemon;
	struct rig rig = { .daemon = &theirs };
	const uint64_t skew = load->is_unaligned ? 1234 : 0;
	uint64_t state = test_seed() + me, end = 0;
	struct dsaio_file *file;
	uint8_t *memory;

	reconnecting(&rig);
	file = rig_file(&rig, load->what, O_RDWR | O_CREAT);
	if (load->is_pinned)
		CHECK_CALL(dsaio_alloc(rig.client, N_OPS * PIECE, NULL, (void **)&memory));
	else
		memory = malloc(N_OPS * PIECE);
	for (uint64_t round = 0; !atomic_load(&boards[me].must_stop); round++) {
		uint64_t start = load->grows ? end : test_random(&state) % 64 * 65536;

		start += load->grows ? 0 : skew;
		if (load->grows)
			end = end > 64 * MIB ? 0 : start + N_OPS * PIECE + 1;
		pattern_fill(memory, N_OPS * PIECE, round, start);
		round_run(&rig, me, file, true, memory, start);
		if (round % 4 == 0)
			sync_run(&rig, file);
		memset(memory, 0, N_OPS * PIECE);
		round_run(&rig, me, file, false, memory, start);
		pattern_check(memory, N_OPS * PIECE, round, start, load->what);
		atomic_fetch_add(&boards[me].n_rounds, 1);
	}
	rig_close(&rig);
	if (!load->is_pinned)
		free(memory);
}

_Noreturn static void python_exec(const struct daemon *daemon, unsigned me)
{
	const char *build = getenv("BUILD");

	(void)setenv("PYTHONPATH", test_text("%s/python", build && *build ? build : "build"), 1);
	(void)setenv("DSAIO_SOCKET", daemon->socket_path, 1);
	(void)execl(PYTHON, PYTHON, "-B", "tests/python/restart_load.py",
		    daemon_path(daemon, loads[me].what), test_text("%u", test_seed()),
		    test_text("%d", boards_fd), test_text("%u", me), NULL);
	test_fail("%s: %s", PYTHON, strerror(errno));
}

static pid_t pids[ARRAY_SIZE(loads)];
static unsigned n_loads; /* without the last, where there is no Python for it */

static void loads_start(const struct daemon *daemon)
{
	n_loads = ARRAY_SIZE(loads);
	if (test_is_slow() || system(PYTHON " -c 'import numpy' 2>/dev/null") != 0) {
		test_note("no client in Python: it needs numpy, and a library without a sanitizer");
		n_loads--;
	}
	boards_fd = (int)CHECK_SYS(memfd_create("boards", 0));
	CHECK_SYS(ftruncate(boards_fd, 4096));
	boards = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, boards_fd, 0);
	CHECK(boards != MAP_FAILED);
	(void)fflush(NULL); /* or the children print it again */
	for (unsigned i = 0; i < n_loads; i++) {
		pids[i] = (pid_t)CHECK_SYS(fork());
		if (pids[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (loads[i].is_python)
				python_exec(daemon, i);
			load_main(daemon, i);
			_exit(0);
		}
	}
}

/* All have done some more rounds. */
static void loads_go_on(uint64_t n)
{
	for (unsigned i = 0; i < n_loads; i++) {
		const uint64_t since = atomic_load(&boards[i].n_rounds);

		while (atomic_load(&boards[i].n_rounds) < since + n) {
			CHECK_MSG(waitpid(pids[i], NULL, WNOHANG) == 0, "%s", loads[i].what);
			(void)poll(NULL, 0, 5); /* nobody reports a round */
		}
	}
}

static void loads_end(void)
{
	for (unsigned i = 0; i < n_loads; i++)
		atomic_store(&boards[i].must_stop, 1);
	for (unsigned i = 0; i < n_loads; i++)
		child_wait_ok(pids[i]);
}

static const struct daemon_end ends[] = DAEMON_ENDS;

TEST_TABLE(restarts, ends, "restarts under load lose no op and no byte")
{
	const char *wanted = getenv("RESTARTS");
	const unsigned n = wanted ? (unsigned)strtoul(wanted, NULL, 10) : test_is_slow() ? 6 : 20;
	struct daemon *daemon = daemon_start(NULL);
	uint64_t state = test_seed(), n_ops = 0, n_repeated = 0;
	int64_t longest = 0;

	test_time_limit(300 + 5 * n);
	loads_start(daemon);
	loads_go_on(1);
	for (unsigned i = 0; i < n; i++) {
		/* Else each op is in flight at two crashes, or a client that gets little of the host's time is away
		   for longer than its timeout. */
		if (test_is_slow() || i % 8 == 7)
			loads_go_on(1);
		(void)poll(NULL, 0, (int)(test_random(&state) % 200)); /* a random moment */
		daemon_end(daemon, ends[row].is_kill);
		daemon_again(daemon, NULL);
	}
	loads_go_on(2);
	loads_end();
	for (unsigned i = 0; i < n_loads; i++) {
		n_ops += atomic_load(&boards[i].n_ops);
		n_repeated += atomic_load(&boards[i].n_repeated);
		if (atomic_load(&boards[i].longest_usec) > longest)
			longest = atomic_load(&boards[i].longest_usec);
	}
	if (!ends[row].is_kill)
		CHECK_EQ(n_repeated, 0);
	test_note("%u restarts: %" PRIu64 " ops, %" PRIu64
		  " in flight at two crashes, the longest batch of %u ops took "
		  "%" PRId64 " ms",
		  n, n_ops, n_repeated, N_OPS, longest / 1000);
}

TEST_MAIN
