/*
 * Private memory: what it is copied through, who copies, and that order, errors, cancelling,
 * time-outs and ends are those of pinned memory.
 *
 * It is over 600 lines because its parts share the memory, the patterns and their checks.
 */
#include "tests/harness.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 9

static uint8_t *private_new(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

/* ---- who copies ---- */

/* Calls back for each thread of a process; returns their number. */
static unsigned each_thread(pid_t pid, void (*look)(const char *status))
{
	DIR *dir = opendir(test_text("/proc/%d/task", (int)pid));
	struct dirent *entry;
	unsigned n = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		_cleanup_(fclosep) FILE *file = NULL;
		char text[4096] = "";

		if (entry->d_name[0] == '.')
			continue;
		file = fopen(test_text("/proc/%d/task/%s/status", (int)pid, entry->d_name), "re");
		if (!file || !fread(text, 1, sizeof(text) - 1, file))
			continue; /* it has just ended */
		n++;
		if (look)
			look(text);
	}
	closedir(dir);
	return n;
}

static unsigned n_library_threads;

static void check_library_thread(const char *status)
{
	const char *blocked = strstr(status, "\nSigBlk:\t");

	if (!strstr(status, "Name:\tdsaio\n")) /* a sanitizer may have one, too */
		return;
	n_library_threads++;
	CHECK(blocked);
	/* All signals except SIGKILL and SIGSTOP, which cannot be blocked. */
	CHECK_EQ(strtoull(blocked + 9, NULL, 16) & 0x7fffffff, 0x7ffbfeff);
}

TEST(threads,
     "blocking ops start no thread, async ones one, with all signals blocked, till the end")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle *second;
	struct dsaio_file *file;
	uint8_t *memory = private_new(8 * MIB);
	unsigned before, n;

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 8 * MIB, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	before = each_thread(getpid(), NULL);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 8 * MIB, 0), 8 * MIB);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 4 * MIB, 13), 4 * MIB);
	CHECK_EQ(each_thread(getpid(), NULL), before);
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &second));
	for (unsigned i = 0; i < 8; i++) {
		CHECK_CALL(dsaio_pread_async(i % 2 ? rig.handle : second, file, memory + i * MIB,
					     MIB, i * MIB, NULL));
		n_library_threads = 0;
		(void)each_thread(getpid(), check_library_thread);
		CHECK_EQ(n_library_threads, 1);
	}
	CHECK_EQ(handle_wait(rig.handle, -1), 4);
	CHECK_EQ(handle_wait(second, -1), 4);
	dsaio_disconnect(rig.client);
	rig.client = NULL;
	rig.n_files = 0;
	rig.handle = NULL;
	for (n = 0; n_library_threads && n < 1000; n++) {
		n_library_threads = 0;
		(void)each_thread(getpid(), check_library_thread);
		(void)poll(NULL, 0, 1); /* joined; the kernel may list it a moment longer */
	}
	CHECK_EQ(n_library_threads, 0);
}

static void check_stopped(const char *status)
{
	if (!strstr(status, "\nState:\tT"))
		(void)poll(NULL, 0, 1);
}

static bool all_stopped;
static void note_stopped(const char *status)
{
	check_stopped(status);
	if (!strstr(status, "\nState:\tT"))
		all_stopped = false;
}

/* Nothing moves until it goes on. */
static void daemon_hold(const struct daemon *daemon)
{
	process_stop(daemon->pid);
	do {
		all_stopped = true;
		(void)each_thread(daemon->pid, note_stopped);
	} while (!all_stopped);
}

static void daemon_go_on(const struct daemon *daemon)
{
	CHECK_SYS(kill(daemon->pid, SIGCONT));
}

TEST(submit, "submitting returns at once, whatever the size: the daemon does not move meanwhile")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N_SMALL = 1000 };
	const size_t small = 64 * KIB, large = 64 * MIB;
	static struct dsaio_op *ops[N_SMALL + 3];
	struct dsaio_file *file;
	uint8_t *memory = private_new(3 * large), *many = private_new(N_SMALL * small);
	void *pinned;

	test_time_limit(120);
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 2 * large, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &pinned));
	/* Objects that need a message once: channels, the buffered description. */
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 100, 1, NULL));
	CHECK_CALL(dsaio_pread_async(rig.handle, file, pinned, 4096, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 2);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 100, 1), 100);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 100, 1), 100);
	pattern_fill(memory + large, large, SEED + 1, 13);

	daemon_hold(rig.daemon);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, large, 0, &ops[0]));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + large, large, 13, &ops[1]));
	CHECK_CALL(
		dsaio_pread_async(rig.handle, file, pinned, 4096, large, &ops[2])); /* behind it */
	for (size_t i = 0; i < N_SMALL; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, many + i * small, small, large + MIB,
					     &ops[3 + i]));
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		CHECK_EQ(dsaio_op_test(ops[i]), 0);
	CHECK_EQ(handle_wait(rig.handle, 1000), -ETIMEDOUT);
	daemon_go_on(rig.daemon);

	CHECK_EQ(handle_wait(rig.handle, -1), ARRAY_SIZE(ops));
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		dsaio_op_free(ops[i]);
	pattern_check(memory, large, SEED, 0, "read before the write");
	pattern_check(pinned, 13, SEED + 1, large, "the ring's op came behind the write");
	file_check_pattern(daemon_path(rig.daemon, "f"), 13, large, SEED + 1, 13);
	for (size_t i = 0; i < N_SMALL; i++)
		pattern_check(many + i * small, small, SEED, large + MIB, "a small one");
}

/* ---- many ---- */

TEST(files, "1,000 files of 64 KiB, then one wait")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N = 1000 };
	static struct dsaio_file *files[N];
	uint8_t *memory = private_new(N * 64 * KIB);

	test_time_limit(120);
	rig_open(&rig, NULL);
	for (size_t i = 0; i < N; i++)
		file_make_pattern(daemon_path(rig.daemon, test_text("f%zu", i)), 64 * KIB, i);
	for (unsigned round = 0; round < 3; round++) {
		memset(memory, 0, N * 64 * KIB);
		for (size_t i = 0; i < N; i++) {
			CHECK_CALL(dsaio_file_open(rig.client,
						   daemon_path(rig.daemon, test_text("f%zu", i)),
						   O_RDONLY, &files[i]));
			CHECK_CALL(dsaio_pread_async(rig.handle, files[i], memory + i * 64 * KIB,
						     64 * KIB, 0, NULL));
			dsaio_file_close(files[i]);
		}
		CHECK_EQ(handle_wait(rig.handle, -1), N);
		for (size_t i = 0; i < N; i++)
			pattern_check(memory + i * 64 * KIB, 64 * KIB, i, 0, "a file");
	}
}

/* Entries that this process has submitted and not seen completed, in all its rings. */
static unsigned count_in_rings(void)
{
	_cleanup_(fclosep) FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		const struct ring_shared *shared;
		uintptr_t start;

		if (!strstr(line, "dsaio-channel"))
			continue;
		CHECK_EQ(sscanf(line, "%" SCNxPTR, &start), 1);
		shared = (const struct ring_shared *)start;
		n += atomic_load(&shared->sq_tail) - atomic_load(&shared->cq_tail);
	}
	return n;
}

TEST(depth, "of many small ops at least the profile's queue_depth are with the daemon at a time")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	enum { N = 1000 };
	const size_t len = 64 * KIB;
	uint8_t *memory = private_new(N * len);
	struct dsaio_file *file;

	rig_open(&rig, &profile);
	file_make_pattern(daemon_path(rig.daemon, "f"), N * len, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	/* Gets what needs messages: eight pieces of 1 MiB are in flight, so there is memory for these. */
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 16 * MIB, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	memset(memory, 0, 16 * MIB);

	daemon_hold(rig.daemon);
	for (size_t i = 0; i < N; i++)
		CHECK_CALL(
			dsaio_pread_async(rig.handle, file, memory + i * len, len, i * len, NULL));
	while (count_in_rings() < profile.queue_depth)
		(void)poll(NULL, 0, 1); /* the test's time is the limit */
	daemon_go_on(rig.daemon);
	CHECK_EQ(handle_wait(rig.handle, -1), N);
	pattern_check(memory, N * len, SEED, 0, "read");
}

#define N_THREADS 40

struct thread {
	pthread_t thread;
	struct rig *rig;
	struct dsaio_file *file;
	struct dsaio_handle *handle;
	size_t number;
};

/* Writes and reads back its own part of the file, blocking and not. */
static void *thread_run(void *arg)
{
	struct thread *t = arg;
	const size_t len = 3 * MIB + 17;
	uint64_t off = t->number * 4 * MIB + t->number;
	uint8_t *memory = private_new(len + 1) + t->number % 2;

	for (unsigned round = 0; round < 6; round++) {
		struct dsaio_op *op;

		pattern_fill(memory, len, t->number * 100 + round, off);
		if (round % 3 == 0) {
			CHECK_CALL(dsaio_pwrite_async(t->handle, t->file, memory, len, off, &op));
			CHECK_EQ(op_wait(op, -1), len);
			dsaio_op_free(op);
		} else {
			CHECK_EQ(dsaio_pwrite(t->handle, t->file, memory, len, off), len);
		}
		memset(memory, 0, len);
		if (round % 3 == 1) {
			CHECK_CALL(dsaio_pread_async(t->handle, t->file, memory, len, off, &op));
			CHECK_EQ(op_wait(op, -1), len);
			dsaio_op_free(op);
		} else {
			CHECK_EQ(dsaio_pread(t->handle, t->file, memory, len, off), len);
		}
		pattern_check(memory, len, t->number * 100 + round, off, "a thread's");
	}
	return NULL;
}

static const struct {
	const char *what;
	const char *pool; /* of each client; NULL: plenty */
} pools[] = { { "plenty", NULL }, { "1 MiB to copy through", "1M" } };

static struct daemon *daemon_with_pool(const char *pool)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = NULL;

	if (!pool)
		return daemon_start(NULL);
	file = fopen(path, "we");
	CHECK(file && fprintf(file, "[daemon]\nclient_pool_max = %s\n", pool) > 0 && !fflush(file));
	return daemon_start(DAEMON_ARGS("--config", path));
}

TEST_TABLE(crowd, pools,
	   "40 threads copy at a time, blocking and not, on one handle and on several")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	static struct thread threads[N_THREADS];
	struct dsaio_handle *others[4];

	test_time_limit(180);
	rig.daemon = daemon_with_pool(pools[row].pool);
	rig_open(&rig, NULL);
	file_make_sparse(daemon_path(rig.daemon, "f"), (N_THREADS + 1) * 4 * MIB);
	rig_file(&rig, "f", O_RDWR);
	for (size_t i = 0; i < 4; i++)
		CHECK_CALL(dsaio_handle_open(rig.client, NULL, &others[i]));
	for (size_t i = 0; i < N_THREADS; i++) {
		threads[i] = (struct thread){ .rig = &rig,
					      .file = rig.files[0],
					      .handle = i % 2 ? rig.handle : others[i / 2 % 4],
					      .number = i };
		CHECK_EQ(pthread_create(&threads[i].thread, NULL, thread_run, &threads[i]), 0);
	}
	for (size_t i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_join(threads[i].thread, NULL), 0);
}

TEST(no_pool, "no memory left to copy through: -ENOMEM and why; and it works when there is some")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory = private_new(16 * MIB);
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *all;

	rig.daemon = daemon_with_pool("1M");
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 16 * MIB, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, &all));
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 16 * MIB, 0), -ENOMEM,
		    "pread;dsaio_alloc();pool");
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, 4096, 0), -ENOMEM, "pwrite;pool");
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
	CHECK_EQ(op_wait(op, -1), -ENOMEM);
	CHECK(strstr(dsaio_op_error(op), "pool"));
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig.handle, -1), -ENOMEM);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 4096, SEED, 0);
	CHECK_EQ(dsaio_pread(rig.handle, file, all, MIB, 0), MIB); /* needs no copy */
	CHECK_CALL(dsaio_free(rig.client, all));
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 16 * MIB, 0), 16 * MIB);
	pattern_check(memory, 16 * MIB, SEED, 0, "read");
	CHECK_CALL(dsaio_alloc(rig.client, MIB, &all)); /* and is given back again */
	CHECK_CALL(dsaio_free(rig.client, all));
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 16 * MIB, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
}

TEST(little_room, "a handle of 4 entries: pinned and private ops in turn, on the same bytes")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	enum { N = 200 };
	uint8_t *memory = private_new(N * 4096);
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	void *pinned;

	options.entries = 4;
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_handle_open_with(rig.client, &options, &handle));
	file_make_sparse(daemon_path(rig.daemon, "f"), MIB);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, N * 4096, &pinned));
	for (size_t i = 0; i < N; i++)
		pattern_fill((uint8_t *)pinned + i * 4096, 4096, i, 0);
	/* Only a thread that needs room in the handle's ring consumes it. */
	for (size_t i = 0; i < N; i++) {
		CHECK_CALL(dsaio_pwrite_async(handle, file, (char *)pinned + i * 4096, 4096, 8192,
					      NULL));
		CHECK_CALL(dsaio_pread_async(handle, file, memory + i * 4096, 4096, 8192, NULL));
		if (i % 16 == 0)
			CHECK_CALL(dsaio_fdatasync_async(handle, file, NULL));
	}
	CHECK_EQ(handle_wait(handle, -1), 2 * N + (N + 15) / 16);
	for (size_t i = 0; i < N; i++)
		pattern_check(memory + i * 4096, 4096, i, 0, "read behind its write");
}

TEST(two_handles,
     "two handles write the same bytes, private and pinned: all end, each byte is one's")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = 4 * MIB;
	struct dsaio_handle *other;
	uint8_t *memory = private_new(len), *got = private_new(len);
	struct dsaio_file *file;
	void *pinned;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &other));
	file_make_sparse(daemon_path(rig.daemon, "f"), len);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, len, &pinned));
	memset(memory, 1, len);
	memset(pinned, 2, len);
	for (unsigned round = 0; round < 10; round++) {
		struct dsaio_handle *first = round % 2 ? rig.handle : other;
		struct dsaio_handle *second = round % 2 ? other : rig.handle;

		CHECK_CALL(dsaio_pwrite_async(first, file, memory, len, 0, NULL));
		CHECK_CALL(dsaio_pwrite_async(second, file, pinned, len, 0, NULL));
		CHECK_CALL(dsaio_pwrite_async(first, file, pinned, len / 2, 0, NULL));
		CHECK_CALL(dsaio_pwrite_async(second, file, memory, len / 2, len / 2, NULL));
		CHECK_EQ(handle_wait(first, -1), 2);
		CHECK_EQ(handle_wait(second, -1), 2);
		CHECK_EQ(dsaio_pread(first, file, got, len, 0), len);
		for (size_t i = 0; i < len; i++)
			CHECK(got[i] == 1 || got[i] == 2);
	}
}

static const struct {
	const char *what;
	rlim_t bytes;
	bool is_late; /* set when the library has its slabs */
} file_limits[] = {
	{ "1 MiB", MIB, false },
	{ "32 KiB", 32 << 10, false },
	{ "0", 0, false },
	{ "100000 bytes, set late", 100000, true },
};

TEST_TABLE(file_limit, file_limits,
	   "RLIMIT_FSIZE of the program does not end it when private memory is copied")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct rlimit limit = { file_limits[row].bytes, file_limits[row].bytes };
	uint8_t *memory = private_new(8 * MIB);
	struct dsaio_file *file;

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 8 * MIB, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	pattern_fill(memory, 8 * MIB, SEED + 1, 0);
	if (file_limits[row].is_late)
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, MIB, 0), MIB);
	CHECK_SYS(setrlimit(RLIMIT_FSIZE, &limit));
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 100000, 0), 100000);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 4 * MIB, 0), 4 * MIB);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + 4 * MIB, 4 * MIB, 4 * MIB, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 8 * MIB, SEED + 1, 0);
	/* Nor is a wrong address a signal. */
	CHECK_SYS(munmap(memory + 4 * MIB, MIB));
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory + 4 * MIB, 100000, 0), -EFAULT, "pwrite");
}

/* ---- errors ---- */

static const struct {
	const char *what;
	bool is_async;
} modes[] = { { "blocking", false }, { "async", true } };

/* Result of an op, and how much was done. */
static int64_t run(struct rig *rig, bool is_write, bool is_async, void *memory, size_t len,
		   uint64_t off, uint64_t *ret_done)
{
	struct dsaio_op *op;
	int64_t r;

	*ret_done = 0;
	if (!is_async)
		return is_write ? dsaio_pwrite(rig->handle, rig->files[0], memory, len, off)
				: dsaio_pread(rig->handle, rig->files[0], memory, len, off);
	if (is_write)
		CHECK_CALL(dsaio_pwrite_async(rig->handle, rig->files[0], memory, len, off, &op));
	else
		CHECK_CALL(dsaio_pread_async(rig->handle, rig->files[0], memory, len, off, &op));
	r = op_wait(op, -1);
	*ret_done = dsaio_op_done(op);
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig->handle, -1), r < 0 ? r : 1);
	return r;
}

TEST_TABLE(hole, modes, "memory with a hole: -EFAULT, what is before it is done, all else goes on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = 8 * MIB, hole = 5 * MIB + 4096;
	uint8_t *memory = private_new(len);
	const char *path;
	uint64_t done, reached;

	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, len, SEED);
	rig_file(&rig, "f", O_RDWR);
	CHECK_SYS(munmap(memory + hole, 4096));
	CHECK_EQ(run(&rig, false, modes[row].is_async, memory, len, 0, &done), -EFAULT);
	CHECK(strstr(dsaio_error(), "pread"));
	pattern_check(memory, 5 * MIB, SEED, 0, "before the hole");
	if (modes[row].is_async)
		CHECK_EQ(done, hole);
	/* A write into what is there, and beyond: pieces have at most 1 MiB. */
	pattern_fill(memory, hole, SEED + 1, len - MIB);
	CHECK_EQ(run(&rig, true, modes[row].is_async, memory, len, len - MIB, &done), -EFAULT);
	CHECK(strstr(dsaio_error(), "pwrite"));
	reached = modes[row].is_async ? done : hole - MIB;
	CHECK(reached >= hole - MIB && reached <= hole);
	CHECK(file_size(path) >= len - MIB + reached);
	CHECK(file_size(path) <= 2 * len - MIB);
	file_check_pattern(path, len - MIB, reached, SEED + 1, len - MIB);
	file_check_pattern(path, 0, len - MIB, SEED, 0);
	CHECK_EQ(run(&rig, false, modes[row].is_async, memory, MIB, 0, &done), MIB);
}

#define FILE_LIMIT GIB

static void limit_file_size(void)
{
	struct rlimit limit = { .rlim_cur = FILE_LIMIT, .rlim_max = FILE_LIMIT };

	(void)setrlimit(RLIMIT_FSIZE, &limit); /* if it fails, the test says so */
}

TEST_TABLE(extending_fails, modes,
	   "a failing write that extends: the first error, the bytes before it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = 16 * MIB;
	const uint64_t off = FILE_LIMIT - 3 * MIB - 8192;
	uint8_t *memory = private_new(len);
	const char *path;
	uint64_t done, reached;

	rig.daemon = daemon_start_with(&(struct daemon_options){ .before_exec = limit_file_size });
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_sparse(path, off);
	rig_file(&rig, "f", O_RDWR);
	pattern_fill(memory, len, SEED, off);
	CHECK_EQ(run(&rig, true, modes[row].is_async, memory, len, off, &done), -EFBIG);
	reached = file_size(path);
	CHECK(reached >= FILE_LIMIT - MIB - 8192 && reached <= FILE_LIMIT);
	if (modes[row].is_async)
		CHECK_EQ(reached, off + done);
	file_check_pattern(path, off, reached - off, SEED, off);
}

/* ---- ends ---- */

#define N_OPS 48
#define OP_BYTES (3 * MIB + 512)

struct job {
	struct rig rig;
	struct dsaio_op *ops[N_OPS];
	uint8_t *memory;
};

/* Writes in private memory, mostly not started. */
static void job_start(struct job *job)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	*job = (struct job){ .rig = RIG_NONE };
	profile.queue_depth = 2;
	profile.block_size = 64u << 10;
	rig_open(&job->rig, &profile);
	file_make_sparse(daemon_path(job->rig.daemon, "f"), N_OPS * OP_BYTES);
	rig_file(&job->rig, "f", O_RDWR);
	job->memory = private_new(N_OPS * OP_BYTES);
	pattern_fill(job->memory, N_OPS * OP_BYTES, SEED, 0);
	for (size_t i = 0; i < N_OPS; i++)
		CHECK_CALL(dsaio_pwrite_async(job->rig.handle, job->rig.files[0],
					      job->memory + i * OP_BYTES, OP_BYTES, i * OP_BYTES,
					      &job->ops[i]));
}

/* Each has ended: whole and in the file, or with that errno and a sentence. */
static unsigned job_check(struct job *job, int64_t error)
{
	unsigned n_failed = 0;

	for (size_t i = 0; i < N_OPS; i++) {
		int64_t r = op_wait(job->ops[i], 20000000);

		CHECK_EQ(dsaio_op_test(job->ops[i]), 1);
		if (r == (int64_t)OP_BYTES) {
			file_check_pattern(daemon_path(job->rig.daemon, "f"), i * OP_BYTES,
					   OP_BYTES, SEED, i * OP_BYTES);
		} else {
			CHECK_EQ(r, error);
			CHECK(strlen(dsaio_op_error(job->ops[i])) > 0);
			CHECK(dsaio_op_done(job->ops[i]) < OP_BYTES);
			n_failed++;
		}
	}
	return n_failed;
}

static void job_end(struct job *job)
{
	for (size_t i = 0; i < N_OPS; i++)
		dsaio_op_free(job->ops[i]);
	rig_close(&job->rig);
}

TEST(killed, "the daemon is killed: every op ends once, whole or with -ECONNRESET")
{
	struct job job;
	uint8_t byte;

	job_start(&job);
	CHECK(op_wait(job.ops[0], -1) == (int64_t)OP_BYTES);
	daemon_kill(job.rig.daemon);
	test_note("%u of %u failed", job_check(&job, -ECONNRESET), N_OPS);
	CHECK(handle_wait(job.rig.handle, -1) != 0);
	CHECK_EQ(handle_wait(job.rig.handle, -1), -ENOTCONN);
	CHECK_FAILS(dsaio_pread(job.rig.handle, job.rig.files[0], &byte, 1, 0), -ENOTCONN,
		    "daemon");
	job_end(&job);
}

TEST(killed_blocking, "the daemon is killed: blocking ops in other threads end, too")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory = private_new(64 * MIB);
	pid_t pid;
	int64_t r;

	rig_open(&rig, NULL);
	file_make_sparse(daemon_path(rig.daemon, "f"), 64 * MIB);
	rig_file(&rig, "f", O_RDWR);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, MIB, 0), MIB);
	daemon_hold(rig.daemon);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) { /* when the parent waits, or a little before */
		(void)poll(NULL, 0, 100);
		CHECK_SYS(kill(rig.daemon->pid, SIGKILL));
		_exit(0);
	}
	r = dsaio_pread(rig.handle, rig.files[0], memory, 64 * MIB, 0);
	CHECK_EQ(r, -ECONNRESET);
	CHECK(strstr(dsaio_error(), "daemon"));
	child_wait_ok(pid);
	daemon_kill(rig.daemon);
}

TEST(closed, "a handle is closed: what has not started is cancelled, the rest is whole")
{
	struct job job;

	job_start(&job);
	dsaio_handle_close(job.rig.handle);
	job.rig.handle = NULL;
	CHECK(job_check(&job, -ECANCELED) > 0);
	for (size_t i = 0; i < N_OPS; i++)
		dsaio_op_free(job.ops[i]);
	rig_close(&job.rig);
}

TEST(disconnected, "a client disconnects with ops open")
{
	struct job job;
	struct daemon *daemon;

	job_start(&job);
	daemon = job.rig.daemon;
	dsaio_disconnect(job.rig.client);
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

static void *close_later(void *arg)
{
	struct dsaio_op **ops = arg;

	for (size_t i = N_OPS; i-- > 1;)
		CHECK_CALL(dsaio_op_cancel(ops[i]));
	return NULL;
}

TEST(cancelled, "cancelled from another thread: each ends once, -ECANCELED or whole")
{
	struct job job;
	pthread_t thread;
	unsigned n;

	job_start(&job);
	CHECK_EQ(pthread_create(&thread, NULL, close_later, job.ops), 0);
	n = job_check(&job, -ECANCELED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(n > 0);
	CHECK_EQ(dsaio_op_result(job.ops[0]), OP_BYTES);
	CHECK_EQ(handle_wait(job.rig.handle, -1), -ECANCELED);
	job_end(&job);
}

TEST(cancelled_waiting, "ops that wait for their turn are cancelled, too")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory = private_new(32 * MIB);
	struct dsaio_op *first, *second, *third;
	void *pinned;

	rig_open(&rig, NULL);
	file_make_sparse(daemon_path(rig.daemon, "f"), 32 * MIB);
	rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, &pinned));
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], pinned, MIB, 0), MIB);
	CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], memory, 32 * MIB, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1); /* what needs messages is there */
	daemon_hold(rig.daemon);
	memset(memory, 1, 32 * MIB);
	memset(pinned, 2, MIB);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, 32 * MIB, 0, &first));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], pinned, MIB, MIB, &second));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, MIB, MIB, &third));
	CHECK_CALL(dsaio_op_cancel(second));
	CHECK_CALL(dsaio_op_cancel(third));
	CHECK_EQ(op_wait(second, -1), -ECANCELED); /* although the daemon stands still */
	CHECK_EQ(op_wait(third, -1), -ECANCELED);
	daemon_go_on(rig.daemon);
	CHECK_EQ(op_wait(first, -1), 32 * MIB);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 32 * MIB, 0), 32 * MIB);
	for (size_t i = 0; i < 32 * MIB; i++)
		CHECK(memory[i] == 1);
	dsaio_op_free(first);
	dsaio_op_free(second);
	dsaio_op_free(third);
}

TEST(forked, "a fork while the library's thread works: -EPERM in the child, the parent goes on")
{
	struct job job;
	uint8_t byte;
	pid_t pid;

	job_start(&job);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_pread(job.rig.handle, job.rig.files[0], &byte, 1, 0), -EPERM,
			    "fork");
		CHECK_FAILS(dsaio_pread_async(job.rig.handle, job.rig.files[0], &byte, 1, 0, NULL),
			    -EPERM, "fork");
		CHECK_FAILS(dsaio_op_cancel(job.ops[0]), -EPERM, "fork");
		dsaio_handle_close(job.rig.handle);
		dsaio_disconnect(job.rig.client);
		CHECK_EQ(each_thread(getpid(), NULL), 1);
		_exit(0);
	}
	child_wait_ok(pid);
	CHECK_EQ(job_check(&job, 0), 0);
	job_end(&job);
}

TEST_MAIN
