/*
 * A client that punches its memory while ops on it run.  Whoever touches a page of the range sleeps in the
 * kernel until the punch is over, 0.3 s or more a GiB.  A lane does so a few times: then worker threads do
 * all blocks of this user for a while.
 */
#include "tests/harness.h"
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (256 * MIB)
#define FILE_BYTES (4 * MIB)
#define OP_BYTES (64 * KIB)
#define N_OPS 32

static const struct {
	const char *what;
	bool is_imported;
	size_t shift; /* of the ops' ranges */
} rows[] = {
	{ "imported memory", true, 0 },
	{ "imported memory, unaligned ops", true, 100 },
	{ "a slab", false, 0 },
};

static void *punch_main(void *arg)
{
	uint8_t *memory = arg;

	for (;;) {
		for (size_t at = 0; at < BYTES; at += 4096)
			memory[at] = 1;
		CHECK_SYS(madvise(memory, BYTES, MADV_REMOVE));
	}
	return NULL;
}

static uint8_t *memory_new(struct rig *rig, bool is_imported)
{
	_cleanup_(closep) int fd = -1;
	void *memory;

	if (!is_imported) {
		CHECK_CALL(dsaio_alloc(rig->client, BYTES, &memory));
		return memory;
	}
	fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(fd, (off_t)BYTES));
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	CHECK_CALL(dsaio_import(rig->client, fd, 0, BYTES, memory));
	return memory;
}

/* Reads to random places of the memory, of which many are in flight, without end. */
static void read_into(struct rig *rig, uint8_t *memory, size_t shift)
{
	struct dsaio_file *file = rig_file(rig, "f", O_RDONLY);
	uint64_t random = test_seed();

	for (;;) {
		struct dsaio_op *ops[N_OPS];

		for (unsigned i = 0; i < N_OPS; i++) {
			const size_t at = test_random(&random) % (BYTES / OP_BYTES) * OP_BYTES;

			CHECK_CALL(dsaio_pread_async(rig->handle, file, memory + at + shift,
						     OP_BYTES / 2, at % FILE_BYTES + shift,
						     &ops[i]));
		}
		for (unsigned i = 0; i < N_OPS; i++) {
			int64_t result = op_wait(ops[i], -1);

			CHECK(result == OP_BYTES / 2 || result == -EFAULT);
			dsaio_op_free(ops[i]);
		}
	}
}

static void attack(const struct daemon *daemon, int row)
{
	struct daemon theirs = *daemon;
	struct rig rig = { .daemon = &theirs };
	pthread_t thread;
	uint8_t *memory;

	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	rig_open(&rig, NULL);
	memory = memory_new(&rig, rows[row].is_imported);
	CHECK_EQ(pthread_create(&thread, NULL, punch_main, memory), 0);
	read_into(&rig, memory, rows[row].shift);
}

/* Else worker threads do all blocks of this store, and no lane waits. */
static void needs_lanes(const struct daemon *daemon)
{
	_cleanup_(closep) int fd = open_direct(daemon_path(daemon, "f"), O_RDONLY);
	_cleanup_(freep) void *page = aligned_alloc(4096, 4096);
	const struct iovec range = { .iov_base = page, .iov_len = 4096 };
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	if (preadv2(fd, &range, 1, 0, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP)
		test_skip("the file system has no RWF_NOWAIT");
	daemon_status(daemon, &answer);
	if (answer.reply->status->stores[0]->is_blocking)
		test_skip("io_submit blocks on this file system");
}

TEST_TABLE(punch, rows, "a client that punches its memory makes a lane wait a few times only")
{
	struct daemon *daemon = daemon_start(NULL);
	pid_t pid;

	file_make_pattern(daemon_path(daemon, "f"), FILE_BYTES, 1);
	victim_start(daemon);
	needs_lanes(daemon);
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid)
		attack(daemon, row);
	daemon_log_wait(daemon, "worker threads do this user's blocks");
	victims_check(daemon, 2);
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_SYS(waitpid(pid, NULL, 0));
}

/* ---- whose call it was ---- */

/* A lane sees how long a call takes, so that it is one user's: see stall.h. */

#define CLIENT 12345 /* another user */
#define N_CALLS 1000u

/* Lines that have both texts. */
static unsigned lines_count(const char *path, const char *text, const char *other)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	char line[16384];
	unsigned n = 0;

	while (file && fgets(line, sizeof(line), file))
		n += strstr(line, text) && strstr(line, other);
	return n;
}

static pid_t strace_start(const struct daemon *daemon, const char *out)
{
	pid_t pid = (pid_t)CHECK_SYS(fork());

	if (pid)
		return pid;
	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	CHECK(freopen("/dev/null", "w", stderr));
	execlp("strace", "strace", "-f", "-y", "-e", "trace=io_submit", "-o", out, "-p",
	       test_text("%d", (int)daemon->pid), NULL);
	_exit(127);
}

TEST(one_user, "blocks of two users never go to the kernel in one call")
{
	static const char *const names[] = { "first-user", "second-user" };
	_cleanup_(rig_close) struct rig own = RIG_NONE, other = RIG_NONE;
	struct rig *rigs[] = { &own, &other };
	const char *out = test_text("%s/strace", test_dir());
	void *memory[2];
	pid_t pid;

	test_needs_root();
	other.daemon = own.daemon = daemon_start(NULL);
	file_make_pattern(daemon_path(own.daemon, "f"), FILE_BYTES, 1);
	needs_lanes(own.daemon); /* though its probe may find otherwise later */
	CHECK_SYS(chmod(own.daemon->socket_path, 0666));
	for (unsigned i = 0; i < 2; i++) {
		CHECK_SYS(seteuid(i ? CLIENT : 0)); /* as SO_PEERCRED tells it */
		rigs[i]->client = client_open(own.daemon);
		CHECK_SYS(seteuid(0));
		file_make_pattern(daemon_path(own.daemon, names[i]), FILE_BYTES, 1);
		CHECK_CALL(dsaio_handle_open(rigs[i]->client, NULL, &rigs[i]->handle));
		CHECK_CALL(dsaio_alloc(rigs[i]->client, N_OPS * 4096, &memory[i]));
		(void)rig_file(rigs[i], names[i], O_RDONLY);
	}
	pid = strace_start(own.daemon, out);
	for (unsigned round = 0; round % 16 || lines_count(out, "io_submit", names[0]) < N_CALLS ||
				 lines_count(out, "io_submit", names[1]) < N_CALLS;
	     round++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			test_skip("strace is not installed, or cannot trace here");
		if (round == N_CALLS)
			test_skip("io_submit blocks on this file system");
		for (unsigned n = 0; n < N_OPS; n++)
			for (unsigned i = 0; i < 2; i++)
				CHECK_CALL(dsaio_pread_async(rigs[i]->handle, rigs[i]->files[0],
							     (char *)memory[i] + n * 4096, 4096,
							     n * 4096, NULL));
		for (unsigned i = 0; i < 2; i++)
			CHECK_EQ(handle_wait(rigs[i]->handle, -1), N_OPS);
	}
	CHECK_SYS(kill(pid, SIGINT)); /* it detaches */
	CHECK_SYS(waitpid(pid, NULL, 0));
	CHECK_EQ(lines_count(out, names[0], names[1]), 0);
}

TEST_MAIN
