/*
 * The bounds of the file cache, threads that use it, and that the space of deleted files comes back.
 */
#include "tests/file_opens.h"
#include "tests/stores.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

static unsigned n_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir); /* was only read */
	return n - 3;	     /* ".", ".." and its own */
}

/* ---- bounds ---- */

static struct daemon *daemon_with_files(unsigned client_files)
{
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file);
	CHECK(fprintf(file, "[daemon]\nclient_files = %u\n", client_files) > 0);
	CHECK(fflush(file) == 0);
	return daemon_start(DAEMON_ARGS("--config", path));
}

static uint32_t files_of_client(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	uint32_t n = 0;

	daemon_status(daemon, &answer);
	for (size_t i = 0; i < answer.reply->status->n_clients; i++)
		n += answer.reply->status->clients[i]->files;
	return n;
}

/* The daemon's worker threads close files after the answer, so the count comes down later. */
static void check_files_come_to(const struct daemon *daemon, uint32_t n)
{
	int64_t start = now_usec();
	uint32_t found;

	while ((found = files_of_client(daemon)) != n && now_usec() - start < 20000000)
		(void)poll(NULL, 0, 10); /* status is a snapshot */
	CHECK_EQ(found, n);
}

static char *numbered(const struct daemon *daemon, unsigned i)
{
	return daemon_path(daemon, test_text("%u", i));
}

TEST(bound, "idle files make room, the longest idle first, and at the bound those in use remain")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const unsigned max = 64, kept = max - max / 8, n = 200;
	struct dsaio_file *used[64], *file;
	void *memory;

	count_opens();
	rig.daemon = daemon_with_files(max);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	for (unsigned i = 0; i < n; i++)
		file_make_pattern(numbered(rig.daemon, i), BLOCK, i);

	for (unsigned i = 0; i < n; i++) {
		open_check_close(&rig, numbered(rig.daemon, i), O_RDONLY, memory, i);
		open_check_close(&rig, numbered(rig.daemon, 0), O_RDONLY, memory, 0);
	}
	CHECK_EQ(n_opens(NULL), n); /* the first is never the longest idle */
	check_files_come_to(rig.daemon, kept);
	for (unsigned i = n - kept + 1; i < n; i++)
		open_check_close(&rig, numbered(rig.daemon, i), O_RDONLY, memory, i);
	CHECK_EQ(n_opens(NULL), n);

	/* In use there can be as many as the daemon grants; then it says no. */
	for (unsigned i = 0; i < max; i++)
		used[i] = open_file(&rig, numbered(rig.daemon, i), O_RDONLY);
	CHECK_FAILS(dsaio_open(rig.client, numbered(rig.daemon, max), O_RDONLY, NULL, &file),
		    -EMFILE, "");
	dsaio_file_close(used[0]);
	open_check_close(&rig, numbered(rig.daemon, max), O_RDONLY, memory, max);
	for (unsigned i = 1; i < max; i++) {
		check_file(&rig, used[i], memory, i);
		dsaio_file_close(used[i]);
	}
	check_files_come_to(rig.daemon, kept);
}

/* Writes, grows, measures and cuts it, and leaves block 0 as it was. */
static void use_file(struct rig *rig, struct dsaio_file *file, void *memory, uint64_t seed)
{
	pattern_fill(memory, BLOCK, seed, BLOCK);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, memory, BLOCK, BLOCK), BLOCK);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, (char *)memory + 50, 50, BLOCK + 50), 50);
	CHECK_EQ(dsaio_file_size(file), 2 * BLOCK);
	memset(memory, 0, BLOCK);
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, BLOCK, BLOCK), BLOCK);
	pattern_check(memory, BLOCK, seed, BLOCK, "what was written");
	CHECK_CALL(dsaio_file_truncate(file, BLOCK));
}

TEST(descriptors, "2,000 files are in use at once in a process that may have 256 descriptors")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const unsigned n = 2000, n_used = 100;
	_cleanup_(freep) struct dsaio_file **files = calloc(n, sizeof(*files));
	struct rlimit limit;
	unsigned before;
	uint8_t *memory;
	void *start;

	CHECK(files);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, n * BLOCK, NULL, &start));
	memory = start;
	for (unsigned i = 0; i < n; i++)
		file_make_pattern(numbered(rig.daemon, i), BLOCK, i);
	check_file(&rig, rig_file(&rig, "0", O_RDWR), memory, 0); /* makes the channel */
	before = n_fds();
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 256;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));

	for (unsigned i = 0; i < n; i++) {
		files[i] = open_file(&rig, numbered(rig.daemon, i), O_RDWR);
		CHECK_CALL(dsaio_pread_async(rig.handle, files[i], memory + i * BLOCK, BLOCK, 0,
					     NULL));
	}
	CHECK_EQ(handle_wait(rig.handle, -1), n);
	for (unsigned i = 0; i < n; i++)
		pattern_check(memory + i * BLOCK, BLOCK, i, 0, "read");
	test_note("%u descriptors for %u files", n_fds() - before, n);
	CHECK(n_fds() - before <= 64);
	for (unsigned i = 0; i < n; i += n / n_used)
		use_file(&rig, files[i], memory, i);
	CHECK(n_fds() - before <= 64);
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(dsaio_file_size(files[i]), BLOCK);
		dsaio_file_close(files[i]);
	}
	CHECK(n_fds() <= before);
	for (unsigned i = 0; i < n; i += n / n_used) /* again, from the cache */
		open_check_close(&rig, numbered(rig.daemon, i), O_RDWR, memory, i);
	CHECK(n_fds() <= before);
	limit.rlim_cur = limit.rlim_max;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
}

/* ---- threads ---- */

#define N_THREADS 8
#define N_ROUNDS 200
#define N_SHARED 4

struct crowd {
	struct rig *rig;
	_Atomic unsigned next;
};

/* Each file is of one seed whole, old or new; and is replaced all the time. */
static void *crowd_run(void *arg)
{
	struct crowd *crowd = arg;
	unsigned me = atomic_fetch_add(&crowd->next, 1);
	struct rig *rig = crowd->rig;
	struct dsaio_handle *handle;
	uint64_t random = me + 1;
	void *memory;

	CHECK_CALL(dsaio_handle_open(rig->client, NULL, &handle));
	CHECK_CALL(dsaio_alloc(rig->client, BLOCK, NULL, &memory));
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		unsigned which = (unsigned)(test_random(&random) % (N_SHARED + 1));
		bool is_own = which == N_SHARED;
		char *path = numbered(rig->daemon, is_own ? 100 + me : which);
		int flags = test_random(&random) % 2 ? O_RDWR : O_RDONLY;
		struct dsaio_file *file;

		CHECK_CALL(dsaio_open(rig->client, path, flags, NULL, &file));
		CHECK_EQ(dsaio_pread(handle, file, memory, BLOCK, 0), BLOCK);
		if (pattern_compare(memory, BLOCK, which, 0) >= 0)
			pattern_check(memory, BLOCK, which + 1000, 0, path);
		if (test_random(&random) % 2) /* closed with an op open */
			CHECK_CALL(dsaio_pread_async(handle, file, memory, BLOCK, 0, NULL));
		dsaio_file_close(file);
		CHECK(handle_wait(handle, -1) >= 0);
		if (test_random(&random) % 8 == 0) {
			char *fresh = test_text("%s.%u", path, me);

			file_make_pattern(fresh, BLOCK, which + (i % 2 ? 1000 : 0));
			CHECK_SYS(rename(fresh, path));
		}
	}
	(void)dsaio_handle_close(handle, -1);
	return NULL;
}

TEST(threads, "threads open, read, replace and close the same and different paths")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct crowd crowd = { .rig = &rig };
	pthread_t threads[N_THREADS];

	for (unsigned i = 0; i < N_SHARED; i++)
		file_make_pattern(numbered(rig.daemon, i), BLOCK, i);
	for (unsigned i = 0; i < N_THREADS; i++)
		file_make_pattern(numbered(rig.daemon, 100 + i), BLOCK, N_SHARED);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, crowd_run, &crowd), 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* ---- space ---- */

/* A file system of the test's own, so that nobody else moves its free space. */
static const char *own_tmpfs(void)
{
	const char *dir = test_dir_in(test_dir());

	mounts_private();
	if (mount("none", dir, "tmpfs", 0, "size=256m") < 0)
		test_skip("needs to mount a tmpfs: %s", strerror(errno));
	return dir;
}

static uint64_t free_bytes(const char *dir)
{
	struct statfs fs;

	CHECK_SYS(statfs(dir, &fs));
	return (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize;
}

/* Nobody tells of it: looks each 50 ms, without a call of the library.  Returns seconds. */
static double wait_free(const char *dir, uint64_t bytes)
{
	int64_t start = now_usec();

	while (free_bytes(dir) < bytes) {
		if (now_usec() - start > 15000000)
			test_fail("after 15 s %" PRIu64 " of %" PRIu64 " bytes are free",
				  free_bytes(dir), bytes);
		(void)poll(NULL, 0, 50);
	}
	return (double)(now_usec() - start) / 1e6;
}

TEST(space, "the space of a deleted file comes back while the program only sleeps")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t bytes = 100 * MIB;
	const char *dir = own_tmpfs(), *path, *open_path;
	struct dsaio_file *file, *open_one;
	uint64_t before;
	void *memory;

	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = dir });
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "swapped");
	open_path = daemon_path(rig.daemon, "open");
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	file_make_pattern(open_path, BLOCK, SEED);
	open_one = open_file(&rig, open_path, O_RDWR);
	CHECK_SYS(unlink(open_path)); /* as long as the program has it, it stays */
	before = free_bytes(dir);

	for (int round = 0; round < 3; round++) {
		double seconds;

		file_make_pattern(path, bytes, SEED);
		file = open_file(&rig, path, O_RDWR);
		for (size_t off = 0; off < bytes; off += MIB)
			CHECK_EQ(dsaio_pread(rig.handle, file, memory, MIB, off), MIB);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 100, 100), 100); /* unaligned */
		dsaio_file_close(file);
		CHECK(free_bytes(dir) <= before - bytes);
		CHECK_SYS(unlink(path));
		seconds = wait_free(dir, before);
		test_note("df before = after, %.1f s after the file was deleted", seconds);
	}
	check_file(&rig, open_one, memory, SEED);
	CHECK_EQ(dsaio_pwrite(rig.handle, open_one, memory, BLOCK, BLOCK), BLOCK);
	CHECK_EQ(dsaio_file_size(open_one), 2 * BLOCK);
	(void)poll(NULL, 0, 8500); /* it alone is open, and two looks later the daemon rests */
	dsaio_file_close(open_one);
	(void)wait_free(dir, before + BLOCK);
}

TEST_MAIN
