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
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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
TEST_MAIN
