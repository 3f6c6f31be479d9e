/*
 * A client that punches its memory while ops on it run.  Whoever touches a page of the range sleeps in the
 * kernel until the punch is over, 0.3 s or more a GiB.  A lane does so a few times: then worker threads do
 * all blocks on this memory for a while.
 */
#include "tests/harness.h"
#include "tests/victim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
#define N_READS 1000u
#define TURN_USEC 500000

#define UID 60021u /* of the first client; the others have those that follow */
#define BANNED "worker threads do the blocks on this memory"

static const struct {
	const char *what;
	bool is_imported;
	size_t shift;	  /* of the ops' ranges */
	unsigned n_users; /* 0: one, the daemon's */
	bool is_alone;	  /* when the attack begins */
	bool takes_turns;
} rows[] = {
	{ .what = "imported memory", .is_imported = true },
	{ .what = "imported memory, unaligned ops", .is_imported = true, .shift = 100 },
	{ .what = "a slab" },
	{ .what = "alone when it begins", .is_imported = true, .n_users = 1, .is_alone = true },
	{ .what = "two users in turns", .n_users = 2, .takes_turns = true },
	{ .what = "subordinate uids that share it", .is_imported = true, .n_users = 15 },
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

static void *shared_new(int *ret_fd)
{
	void *memory;

	*ret_fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(*ret_fd, (off_t)BYTES));
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

/* Reads to random places of the memory, of which many are in flight. */
static void read_some(struct rig *rig, uint8_t *memory, size_t shift, uint64_t *random)
{
	struct dsaio_op *ops[N_OPS];

	for (unsigned i = 0; i < N_OPS; i++) {
		const size_t at = test_random(random) % (BYTES / OP_BYTES) * OP_BYTES;

		CHECK_CALL(dsaio_pread_async(rig->handle, rig->files[0], memory + at + shift,
					     OP_BYTES / 2, at % FILE_BYTES + shift, &ops[i]));
	}
	for (unsigned i = 0; i < N_OPS; i++) {
		int64_t result = op_wait(ops[i], -1);

		CHECK(result == OP_BYTES / 2 || result == -EFAULT);
		dsaio_op_free(ops[i]);
	}
}

/* Never returns.  fd, memory: what is shared. */
static void attack(const struct daemon *daemon, int row, unsigned user, int fd, void *memory)
{
	struct daemon theirs = *daemon;
	struct rig rig = { .daemon = &theirs };
	uint64_t random = test_seed();
	pthread_t thread;

	if (rows[row].n_users)
		child_become(UID + user);
	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	rig_open(&rig, NULL);
	(void)rig_file(&rig, "f", O_RDONLY);
	if (rows[row].is_imported)
		CHECK_CALL(fd_register(rig.client, fd, 0, BYTES, memory));
	else
		CHECK_CALL(dsaio_alloc(rig.client, BYTES, NULL, &memory));
	if (!rows[row].is_imported || !user)
		CHECK_EQ(pthread_create(&thread, NULL, punch_main, memory), 0);
	for (;;) {
		while (rows[row].takes_turns && now_usec() / TURN_USEC % 2 != user)
			(void)poll(NULL, 0, 10);
		read_some(&rig, memory, rows[row].shift, &random);
	}
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

static void make_file(const struct daemon *daemon)
{
	file_make_pattern(daemon_path(daemon, "f"), FILE_BYTES, 1);
	CHECK_SYS(chmod(daemon_path(daemon, "f"), 0644));
	daemon_open_to_all(daemon);
}

TEST_TABLE(punch, rows, "a client that punches its memory makes a lane wait a few times only")
{
	const unsigned n = rows[row].n_users ? rows[row].n_users : 1;
	struct daemon *daemon = daemon_start(NULL);
	pid_t pids[15];
	void *memory;
	int fd;

	if (rows[row].n_users)
		test_needs_root();
	make_file(daemon);
	if (!rows[row].is_alone)
		victim_start(daemon);
	needs_lanes(daemon);
	memory = shared_new(&fd);
	for (unsigned i = 0; i < n; i++) {
		pids[i] = (pid_t)CHECK_SYS(fork());
		if (!pids[i])
			attack(daemon, row, i, fd, memory);
	}
	daemon_log_wait(daemon, BANNED);
	victims_check(daemon, 2);
	for (unsigned i = 0; i < n; i++) {
		CHECK_SYS(kill(pids[i], SIGKILL));
		CHECK_SYS(waitpid(pids[i], NULL, 0));
	}
}

/* How often worker threads for blocks went to sleep, of those that have not ended. */
static int64_t worker_sleeps(const struct daemon *daemon)
{
	const char *dir = test_text("/proc/%d/task", daemon->pid);
	DIR *tasks = opendir(dir);
	const struct dirent *entry;
	int64_t sum = 0;

	CHECK(tasks);
	while ((entry = readdir(tasks))) {
		_cleanup_(fclosep)
			FILE *file = fopen(test_text("%s/%s/status", dir, entry->d_name), "re");
		bool is_worker = false;
		char line[128];
		int64_t n;

		while (file && fgets(line, sizeof(line), file)) {
			is_worker |= !strcmp(line, "Name:\tstore\n");
			if (is_worker && sscanf(line, "voluntary_ctxt_switches: %" SCNd64, &n) == 1)
				sum += n;
		}
	}
	(void)closedir(tasks);
	return sum;
}

TEST(innocent,
     "a program shared memory with one that punched it, and was banned with all of its memory")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint64_t random = test_seed();
	void *memory, *own;
	int64_t sleeps;
	pid_t pid;
	int fd;

	test_needs_root();
	rig.daemon = daemon_start(NULL);
	make_file(rig.daemon);
	victim_start(rig.daemon);
	needs_lanes(rig.daemon);
	rig_open(&rig, NULL);
	(void)rig_file(&rig, "f", O_RDONLY);
	memory = shared_new(&fd);
	CHECK_CALL(fd_register(rig.client, fd, 0, BYTES, memory));
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &own));
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		child_become(UID);
		(void)punch_main(memory);
	}
	while (!daemon_log_has(rig.daemon, BANNED)) {
		read_some(&rig, memory, 0, &random);
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], own, 4096, 0), 4096);
	}
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_SYS(waitpid(pid, NULL, 0));
	sleeps = worker_sleeps(rig.daemon);
	for (unsigned i = 0; i < N_READS; i++)
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], own, 4096, 0), 4096);
	sleeps = worker_sleeps(rig.daemon) - sleeps;
	test_note("worker threads slept %" PRId64 " times in %u reads", sleeps, N_READS);
	CHECK(sleeps < N_READS / 2);
	victims_check(rig.daemon, 1);
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
		CHECK_CALL(dsaio_alloc(rigs[i]->client, N_OPS * 4096, NULL, &memory[i]));
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
