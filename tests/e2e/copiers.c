/*
 * Large reads into private memory, whose copies several threads of the library make: who they
 * are, and that content, errors, cancelling, ends and forks are what they are with one.
 *
 * The store is on tmpfs and the memory was never touched, so that copies are slower than reads and
 * pile up.
 */
#include "tests/harness.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 11
#define LEN (40 * MIB)
#define COPIERS_MAX 3 /* as man dsaio(3) has it */

static uint8_t *fresh_new(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static void fresh_free(uint8_t *memory, size_t len)
{
	CHECK_SYS(munmap(memory, len));
}

static void daemon_on_tmpfs(struct rig *rig)
{
	rig->daemon = daemon_start_with(
		&(struct daemon_options){ .store_dir = test_dir_in("/dev/shm") });
}

/* With a file "f" of LEN bytes. */
static void open_on_tmpfs(struct rig *rig)
{
	daemon_on_tmpfs(rig);
	rig_open(rig, NULL);
	file_make_pattern(daemon_path(rig->daemon, "f"), LEN, SEED);
	rig_file(rig, "f", O_RDWR);
}

/* Threads of this process with that name; NULL: all. */
static unsigned count_threads(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned n = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		_cleanup_(fclosep) FILE *file = NULL;
		char text[64] = "";

		if (entry->d_name[0] == '.')
			continue;
		file = fopen(test_text("/proc/self/task/%s/comm", entry->d_name), "re");
		if (!file || !fgets(text, sizeof(text), file))
			continue; /* it has just ended */
		text[strcspn(text, "\n")] = '\0';
		n += !name || strcmp(text, name) == 0;
	}
	closedir(dir);
	return n;
}

static unsigned count_copiers(void)
{
	return count_threads("dsaio-copy");
}

/* As many as there should be at most. */
static unsigned copiers_wanted(void)
{
	cpu_set_t set;
	int n;

	CHECK_SYS(sched_getaffinity(0, sizeof(set), &set));
	n = CPU_COUNT(&set) - 2;
	return n < 0 ? 0 : n < COPIERS_MAX ? (unsigned)n : COPIERS_MAX;
}

static const struct mode {
	const char *what;
	bool is_async;
} modes[] = { { "blocking", false }, { "async", true } };

/* Reads; an async op is also asked how much was done. */
static int64_t read_some(struct rig *rig, bool is_async, void *memory, size_t len, uint64_t off,
			 uint64_t *ret_done)
{
	struct dsaio_op *op;
	int64_t r;

	if (!is_async)
		return dsaio_pread(rig->handle, rig->files[0], memory, len, off);
	CHECK_CALL(dsaio_pread_async(rig->handle, rig->files[0], memory, len, off, &op));
	r = op_wait(op, -1);
	*ret_done = dsaio_op_bytes(op);
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig->handle, -1), r < 0 ? r : 1);
	return r;
}

/* Reads until copiers were seen, if there may be any. */
static void read_until_copiers(struct rig *rig, bool is_async)
{
	uint64_t done;

	do {
		uint8_t *memory = fresh_new(LEN);

		CHECK_EQ(read_some(rig, is_async, memory, LEN, 0, &done), LEN);
		pattern_check(memory, LEN, SEED, 0, "what was read");
		fresh_free(memory, LEN);
		CHECK(count_copiers() <= copiers_wanted());
	} while (copiers_wanted() && !count_copiers());
}

TEST_TABLE(threads, modes, "large reads have copiers, never too many, till the client's end")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory = fresh_new(LEN);

	open_on_tmpfs(&rig);
	for (unsigned i = 0; i < 32; i++)
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory + i * MIB, MIB, i * MIB),
			 MIB);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, 32 * MIB, 0), 32 * MIB);
	CHECK_EQ(count_copiers(), 0);
	read_until_copiers(&rig, modes[row].is_async);
	(void)dsaio_disconnect(rig.client);
	rig.client = NULL;
	rig.handle = NULL;
	rig.n_files = 0;
	while (count_copiers()) /* joined; the kernel may list it a moment longer */
		(void)sched_yield();
}

TEST_TABLE(few_cpus, modes, "on two CPUs it goes without copiers")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	cpu_set_t all, few;

	CHECK_SYS(sched_getaffinity(0, sizeof(all), &all));
	CPU_ZERO(&few);
	for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&few) < 2; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &few);
	CHECK_SYS(sched_setaffinity(0, sizeof(few), &few));
	open_on_tmpfs(&rig);
	for (unsigned round = 0; round < 2; round++)
		read_until_copiers(&rig, modes[row].is_async);
	CHECK_EQ(count_copiers(), 0);
}

TEST_TABLE(no_threads, modes, "where no thread can be started it goes without")
{
	struct daemon *daemon;
	struct rig rig = RIG_NONE;
	pid_t pid;

	daemon_on_tmpfs(&rig);
	daemon = rig.daemon;
	file_make_pattern(daemon_path(daemon, "f"), LEN, SEED);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		const struct rlimit none = { 0, 0 };
		uint8_t byte;
		uint64_t done;

		rig_open(&rig, NULL);
		rig_file(&rig, "f", O_RDONLY);
		/* The thread of async ops has to be there. */
		CHECK_EQ(read_some(&rig, true, &byte, 1, 0, &done), 1);
		CHECK_SYS(setrlimit(RLIMIT_NPROC, &none));
		if (geteuid() == 0) /* root ignores the limit */
			CHECK_SYS(setresuid(65534, 65534, 65534));
		for (unsigned round = 0; round < 2; round++) {
			uint8_t *memory = fresh_new(LEN);

			CHECK_EQ(read_some(&rig, modes[row].is_async, memory, LEN, 0, &done), LEN);
			pattern_check(memory, LEN, SEED, 0, "what was read");
			fresh_free(memory, LEN);
		}
		CHECK_EQ(count_copiers(), 0);
		(void)dsaio_disconnect(rig.client);
		_exit(0);
	}
	child_wait_ok(pid);
	daemon_stop(daemon);
}

TEST_TABLE(ragged, modes, "any offset, length and address, and the end of the file: no byte more")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	static const struct {
		uint64_t off;
		size_t len, misalign;
	} ranges[] = {
		{ 0, LEN, 0 },
		{ 1, LEN - 2, 4095 },
		{ 4095, 16 * MIB, 1 },
		{ 3 * MIB + 7, LEN - 3 * MIB, 13 }, /* 7 bytes behind the end */
		{ LEN - 20 * MIB - 100, 60 * MIB, 512 },
	};
	uint64_t done;

	open_on_tmpfs(&rig);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(ranges); i++) {
		uint64_t off = ranges[i % ARRAY_SIZE(ranges)].off;
		size_t len = ranges[i % ARRAY_SIZE(ranges)].len;
		size_t there = off + len < LEN ? len : LEN - off;
		struct guarded g;

		guarded_new(&g, NULL, len, ranges[i % ARRAY_SIZE(ranges)].misalign);
		memset(g.memory, 0x5a, len);
		if (i % 2) /* slow, as memory that was never touched; from the next page on */
			CHECK_SYS(madvise(g.memory + 4096 - (uintptr_t)g.memory % 4096,
					  there / 2 & ~UINT64_C(4095), MADV_DONTNEED));
		CHECK_EQ(read_some(&rig, modes[row].is_async, g.memory, len, off, &done), there);
		pattern_check(g.memory, there, SEED, off, "what was read");
		for (size_t at = there; at < len; at++)
			CHECK(g.memory[at] == 0x5a);
		guarded_check(&g, "unaligned");
		guarded_free(&g);
	}
}

TEST_TABLE(hole, modes, "memory with a hole: -EFAULT, and what is before it is done")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	static const size_t holes[] = { 0,	  4096,	     5 * MIB + 8192, 33 * MIB - 4096,
					34 * MIB, LEN - 4096 };

	open_on_tmpfs(&rig);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(holes); i++) {
		size_t hole = holes[i % ARRAY_SIZE(holes)];
		uint8_t *memory = fresh_new(LEN);
		uint64_t done = hole;

		CHECK_SYS(mprotect(memory + hole, 4096, PROT_NONE));
		CHECK_EQ(read_some(&rig, modes[row].is_async, memory, LEN, 0, &done), -EFAULT);
		CHECK(strstr(dsaio_error(), "pread"));
		CHECK_EQ(done, hole);
		pattern_check(memory, hole, SEED, 0, "before the hole");
		fresh_free(memory, LEN);
	}
	read_until_copiers(&rig, modes[row].is_async);
}

/* ---- many at a time ---- */

#define N_THREADS 6

struct reader {
	struct rig *rig;
	struct dsaio_handle *handle; /* its own, or NULL */
	bool is_async;
	pthread_t thread;
};

static void *reader_main(void *arg)
{
	struct reader *reader = arg;
	struct rig rig = *reader->rig;
	const size_t len = 24 * MIB;

	if (reader->handle)
		rig.handle = reader->handle;
	for (unsigned round = 0; round < 2; round++) {
		uint8_t *memory = fresh_new(2 * len);
		struct dsaio_op *op;

		if (reader->is_async) {
			CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], memory, len,
						     round * MIB, &op));
			CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory + len, len, 7), len);
			CHECK_EQ(op_wait(op, -1), len);
			dsaio_op_free(op);
			pattern_check(memory + len, len, SEED, 7, "the second");
		} else {
			CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, len, round * MIB),
				 len);
		}
		pattern_check(memory, len, SEED, round * MIB, "what was read");
		fresh_free(memory, 2 * len);
	}
	return NULL;
}

static const struct {
	const char *what;
	bool is_own, is_async;
} crowds[] = {
	{ "one handle, blocking", false, false },
	{ "one handle, async ones beside", false, true },
	{ "a handle each, async ones beside", true, true },
};

TEST_TABLE(crowd, crowds, "many threads with large reads each")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct reader readers[N_THREADS];

	open_on_tmpfs(&rig);
	for (unsigned i = 0; i < N_THREADS; i++) {
		readers[i] = (struct reader){ .rig = &rig, .is_async = crowds[row].is_async };
		if (crowds[row].is_own)
			CHECK_CALL(dsaio_handle_open(rig.client, NULL, &readers[i].handle));
		CHECK_EQ(pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]), 0);
	}
	for (unsigned i = 0; i < N_THREADS; i++) {
		CHECK_EQ(pthread_join(readers[i].thread, NULL), 0);
		(void)dsaio_handle_close(readers[i].handle, -1);
	}
	CHECK(count_copiers() <= copiers_wanted());
}

/* ---- ends ---- */

#define N_OPS 3

struct ops {
	struct dsaio_op *ops[N_OPS];
	uint8_t *memory; /* LEN for each */
};

/* Reads whose copies are being made, or maybe have been, or not yet. */
static void ops_start(struct ops *ops, struct rig *rig, struct dsaio_handle *handle,
		      unsigned moment)
{
	unsigned char is_there = moment == 0;

	ops->memory = fresh_new(N_OPS * LEN);
	for (size_t i = 0; i < N_OPS; i++)
		CHECK_CALL(dsaio_pread_async(handle, rig->files[0], ops->memory + i * LEN, LEN, 0,
					     &ops->ops[i]));
	/* Some MiB of the first are there; asked so that it is no data race. */
	while (!is_there && !op_is_done(ops->ops[0])) {
		CHECK_SYS(mincore(ops->memory + moment * MIB, 4096, &is_there));
		(void)sched_yield();
	}
}

/* All have ended: whole, or with that error; and nobody writes into the memory any more. */
static unsigned ops_check(struct ops *ops, int64_t error, bool are_there)
{
	unsigned n_failed = 0;

	for (size_t i = 0; i < N_OPS && are_there; i++) {
		int64_t r = dsaio_op_result(ops->ops[i]);

		CHECK(r == (int64_t)LEN || r == error);
		CHECK(dsaio_op_bytes(ops->ops[i]) <= LEN);
		pattern_check(ops->memory + i * LEN, dsaio_op_bytes(ops->ops[i]), SEED, 0,
			      "what was done");
		n_failed += r < 0;
	}
	memset(ops->memory, 0x77, N_OPS * LEN);
	for (size_t i = 0; i < N_OPS && are_there; i++)
		dsaio_op_free(ops->ops[i]);
	for (unsigned i = 0; i < 100; i++)
		(void)sched_yield();
	for (size_t at = 0; at < N_OPS * LEN; at += 512)
		CHECK(ops->memory[at] == 0x77);
	fresh_free(ops->memory, N_OPS * LEN);
	return n_failed;
}

#define N_MOMENTS 8u

TEST(cancelled, "cancelled with copies under way: each ends once, -ECANCELED or whole")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	unsigned n_cancelled = 0;

	open_on_tmpfs(&rig);
	for (unsigned moment = 0; moment < N_MOMENTS; moment++) {
		struct ops ops;

		ops_start(&ops, &rig, rig.handle, moment);
		for (size_t i = 0; i < N_OPS; i++)
			CHECK_CALL(dsaio_op_cancel(ops.ops[i]));
		for (size_t i = 0; i < N_OPS; i++)
			(void)dsaio_op_wait(ops.ops[i], -1, NULL);
		n_cancelled += ops_check(&ops, -ECANCELED, true);
		(void)dsaio_handle_wait(rig.handle, -1, NULL);
	}
	CHECK(n_cancelled);
	read_until_copiers(&rig, true);
}

TEST(closed, "a handle is closed with copies under way")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	open_on_tmpfs(&rig);
	for (unsigned moment = 0; moment < N_MOMENTS; moment++) {
		struct dsaio_handle *handle;
		struct ops ops;

		CHECK_CALL(dsaio_handle_open(rig.client, NULL, &handle));
		ops_start(&ops, &rig, handle, moment);
		(void)dsaio_handle_close(handle, -1);
		(void)ops_check(&ops, -ECANCELED, true);
	}
	read_until_copiers(&rig, true);
}

TEST(disconnected, "a client disconnects with copies under way: no thread is left")
{
	struct rig rig = RIG_NONE;

	daemon_on_tmpfs(&rig);
	file_make_pattern(daemon_path(rig.daemon, "f"), LEN, SEED);
	for (unsigned moment = 0; moment < N_MOMENTS; moment++) {
		struct rig mine = { .daemon = rig.daemon };
		struct ops ops;

		rig_open(&mine, NULL);
		rig_file(&mine, "f", O_RDONLY);
		ops_start(&ops, &mine, mine.handle, moment);
		(void)dsaio_disconnect(mine.client);
		(void)ops_check(&ops, 0, false);
		while (count_copiers() || count_threads("dsaio"))
			(void)sched_yield();
	}
}

TEST(killed, "the daemon is killed with copies under way: each ends once, -ECONNRESET or whole")
{
	for (unsigned moment = 0; moment < N_MOMENTS; moment += 3) {
		struct rig rig = RIG_NONE;
		struct ops ops;

		open_on_tmpfs(&rig);
		ops_start(&ops, &rig, rig.handle, moment);
		daemon_kill(rig.daemon);
		for (size_t i = 0; i < N_OPS; i++)
			(void)dsaio_op_wait(ops.ops[i], -1, NULL);
		(void)ops_check(&ops, -ECONNRESET, true);
		rig_close(&rig);
	}
}

TEST(forked, "a fork with copies under way: -EPERM in the child, the parent goes on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	open_on_tmpfs(&rig);
	for (unsigned moment = 0; moment < N_MOMENTS; moment++) {
		struct ops ops;
		pid_t pid;

		ops_start(&ops, &rig, rig.handle, moment);
		pid = (pid_t)CHECK_SYS(fork());
		if (pid == 0) {
			CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], ops.memory, LEN, 0),
				    -EPERM, "fork");
			CHECK_FAILS(dsaio_op_cancel(ops.ops[0]), -EPERM, "fork");
			(void)dsaio_handle_close(rig.handle, -1);
			(void)dsaio_disconnect(rig.client);
			CHECK_EQ(count_copiers(), 0);
			_exit(0);
		}
		for (size_t i = 0; i < N_OPS; i++)
			CHECK_EQ(op_wait(ops.ops[i], -1), LEN);
		CHECK_EQ(ops_check(&ops, 0, true), 0);
		child_wait_ok(pid);
		CHECK_EQ(handle_wait(rig.handle, -1), N_OPS);
	}
}

TEST_MAIN
