/*
 * Private memory with many ops, threads and files, and with little to copy through.
 */
#include "tests/private_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

TEST(files, "1,000 files of 64 KiB, then one wait")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	enum { N = 1000 };
	static struct dsaio_file *files[N];
	uint8_t *memory = private_new(N * 64 * KIB);

	for (size_t i = 0; i < N; i++)
		file_make_pattern(daemon_path(rig.daemon, test_text("f%zu", i)), 64 * KIB, i);
	for (unsigned round = 0; round < 3; round++) {
		memset(memory, 0, N * 64 * KIB);
		for (size_t i = 0; i < N; i++) {
			CHECK_CALL(dsaio_open(rig.client,
					      daemon_path(rig.daemon, test_text("f%zu", i)),
					      O_RDONLY, NULL, &files[i]));
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
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &all));
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
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &all)); /* and is released again */
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
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &handle));
	file_make_sparse(daemon_path(rig.daemon, "f"), MIB);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, N * 4096, NULL, &pinned));
	for (size_t i = 0; i < N; i++)
		pattern_fill((uint8_t *)pinned + i * 4096, 4096, i, 0);
	/* Only a thread that needs room in the handle's ring consumes it. */
	for (size_t i = 0; i < N; i++) {
		CHECK_CALL(dsaio_pwrite_async(handle, file, (char *)pinned + i * 4096, 4096, 8192,
					      NULL));
		CHECK_CALL(dsaio_pread_async(handle, file, memory + i * 4096, 4096, 8192, NULL));
		if (i % 16 == 0)
			CHECK_CALL(dsaio_fsync_async(handle, file, DSAIO_DATASYNC, NULL));
	}
	CHECK_EQ(handle_wait(handle, -1), 2 * N + (N + 15) / 16);
	for (size_t i = 0; i < N; i++)
		pattern_check(memory + i * 4096, 4096, i, 0, "read behind its write");
}

TEST(two_handles,
     "two handles write the same bytes, private and pinned: all end, each byte is one's")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const size_t len = 4 * MIB;
	struct dsaio_handle *other;
	uint8_t *memory = private_new(len), *got = private_new(len);
	struct dsaio_file *file;
	void *pinned;

	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &other));
	file_make_sparse(daemon_path(rig.daemon, "f"), len);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &pinned));
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
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct rlimit limit = { file_limits[row].bytes, file_limits[row].bytes };
	uint8_t *memory = private_new(8 * MIB);
	struct dsaio_file *file;

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

TEST_MAIN
