/*
 * Views: one copy of a file's bytes for all processes of a host.
 */
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE (64 * MIB)

/* A file that is old enough for views. */
static char *make_file(const struct daemon *daemon, const char *name, uint64_t size, uint64_t seed)
{
	char *path = daemon_path(daemon, name);

	file_make_pattern(path, size, seed);
	CHECK_SYS(usleep(2100000));
	return path;
}

static const uint8_t *view_of(struct rig *rig, struct dsaio_file *file, uint64_t off, size_t len,
			      unsigned flags)
{
	void *memory;

	CHECK_CALL(dsaio_view(rig->client, file, off, len, flags, &memory));
	return memory;
}

static void check_view(struct rig *rig, const uint8_t *memory, uint64_t off, size_t len,
		       uint64_t seed)
{
	CHECK_CALL(dsaio_view_wait(rig->handle, memory, len));
	for (size_t at = 0; at < len; at += 3 * MIB) { /* all of it would take most of the time */
		const size_t n = len - at < 64 * KIB ? len - at : 64 * KIB;

		pattern_check(memory + at, n, seed, off + at, "view");
	}
	pattern_check(memory + len - 1, 1, seed, off + len - 1, "the view's last byte");
}

static void release(struct rig *rig, const uint8_t *memory)
{
	CHECK_CALL(dsaio_view_free(rig->client, (void *)(uintptr_t)memory));
}

/* Its numbers only. */
static Wire__Pool pool_of(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	daemon_status(daemon, &answer);
	return *answer.reply->status->pool;
}

/* How many memfds the daemon has beyond those of `before`, when it has come to rest. */
static int n_memfds(const struct daemon *daemon, const struct usage *before)
{
	return (int)daemon_usage(daemon).n_memfds - (int)before->n_memfds;
}

TEST(bytes, "a view has the file's bytes, whatever its range")
{
	static const struct {
		uint64_t off;
		size_t len;
	} ranges[] = { { 0, 1 },	 { 0, 4096 },	   { 1, 8191 },
		       { 12345, PIECE }, { PIECE - 1, 2 }, { 0, PIECE + 5 * MIB + 123 } };
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;

	(void)make_file(rig.daemon, "w", PIECE + 5 * MIB + 123, 7);
	file = rig_file(&rig, "w", O_RDONLY);
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		const uint8_t *memory = view_of(&rig, file, ranges[i].off, ranges[i].len, 0);

		check_view(&rig, memory, ranges[i].off, ranges[i].len, 7);
		release(&rig, memory);
	}
}

TEST(shared, "two clients share memory, and it is freed after both")
{
	_cleanup_(rig_close) struct rig a = rig_new(NULL);
	_cleanup_(rig_close) struct rig b = { .daemon = a.daemon };
	struct usage before;
	const uint8_t *x, *y;

	(void)make_file(a.daemon, "w", 3 * MIB, 7);
	rig_open(&b, NULL);
	(void)rig_file(&a, "w", O_RDONLY);
	(void)rig_file(&b, "w", O_RDONLY);
	x = view_of(&a, a.files[0], 0, 1, 0); /* makes channels and buffered descriptions */
	y = view_of(&b, b.files[0], 0, 1, 0);
	check_view(&a, x, 0, 1, 7);
	check_view(&b, y, 0, 1, 7);
	release(&a, x);
	release(&b, y);
	before = daemon_usage_settled(a.daemon);
	x = view_of(&a, a.files[0], 0, 3 * MIB, 0);
	check_view(&a, x, 0, 3 * MIB, 7);
	y = view_of(&b, b.files[0], 0, 3 * MIB, 0);
	check_view(&b, y, 0, 3 * MIB, 7);
	CHECK_EQ(n_memfds(a.daemon, &before) > 0, 1);
	release(&a, x);
	pattern_check(y, 3 * MIB, 7, 0, "the other's");
	release(&b, y);
	daemon_usage_back(a.daemon, &before);
	b.daemon = NULL;
}

TEST(writable, "a writable view is this process's own where it writes")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	const uint8_t *other;
	uint8_t *memory;

	(void)make_file(rig.daemon, "w", 3 * MIB, 7);
	file = rig_file(&rig, "w", O_RDONLY);
	memory = (uint8_t *)(uintptr_t)view_of(&rig, file, 0, 3 * MIB, DSAIO_VIEW_WRITABLE);
	check_view(&rig, memory, 0, 3 * MIB, 7);
	memset(memory, 0, 3 * MIB);
	other = view_of(&rig, file, 0, 3 * MIB, 0);
	check_view(&rig, other, 0, 3 * MIB, 7);
	release(&rig, memory);
	release(&rig, other);
}

TEST(no_data, "a view is not writable where the process may have no more such memory, and is later")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	_cleanup_(fclosep) FILE *statm = fopen("/proc/self/statm", "re");
	struct rlimit limit, little;
	struct dsaio_file *file;
	uint64_t data_pages;
	uint8_t *memory;

	(void)make_file(rig.daemon, "w", 8 * MIB, 7);
	file = rig_file(&rig, "w", O_RDONLY);
	memory = (uint8_t *)(uintptr_t)view_of(&rig, file, 0, 8 * MIB, DSAIO_VIEW_WRITABLE);
	CHECK(statm && fscanf(statm, "%*u %*u %*u %*u %*u %" SCNu64, &data_pages) == 1);
	CHECK_SYS(getrlimit(RLIMIT_DATA, &limit));
	little = (struct rlimit){ data_pages * 4096 + 4 * MIB, limit.rlim_max };
	CHECK_SYS(setrlimit(RLIMIT_DATA, &little));
	CHECK_EQ(dsaio_view_wait(rig.handle, memory, 8 * MIB), -ENOMEM);
	CHECK_SYS(setrlimit(RLIMIT_DATA, &limit));
	check_view(&rig, memory, 0, 8 * MIB, 7);
	memset(memory, 0, 8 * MIB);
	release(&rig, memory);
}

TEST(locked, "a writable view has the file's bytes in a process that locks all its memory")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	const uint8_t *view;

	test_needs_root();
	(void)make_file(rig.daemon, "w", 3 * MIB, 7);
	file = rig_file(&rig, "w", O_RDONLY);
	view = view_of(&rig, file, 0, 3 * MIB, DSAIO_VIEW_WRITABLE);
	CHECK_SYS(mlockall(MCL_FUTURE));
	check_view(&rig, view, 0, 3 * MIB, 7);
	((uint8_t *)(uintptr_t)view)[0] = 1;
	CHECK_SYS(munlockall());
	release(&rig, view);
}

TEST(handles, "a view goes on with another handle")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle *first = rig.handle;
	const uint8_t *view;

	(void)make_file(rig.daemon, "w", 2 * PIECE, 7);
	view = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, 2 * PIECE, 0);
	check_view(&rig, view, 0, 1, 7);
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &rig.handle));
	CHECK_CALL(dsaio_handle_close(first, -1));
	check_view(&rig, view, 0, 2 * PIECE, 7);
	release(&rig, view);
}

TEST(stale, "a file that is written to meanwhile is an error, and a new view has the new bytes")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	char *path = make_file(rig.daemon, "w", 2 * PIECE, 7);
	struct dsaio_file *file = rig_file(&rig, "w", O_RDONLY);
	const uint8_t *old = view_of(&rig, file, 0, 2 * PIECE, 0), *kept, *new;

	kept = view_of(&rig, file, 0, 4096, 0);
	check_view(&rig, kept, 0, 4096, 7);
	file_make_pattern(path, 2 * PIECE, 8); /* writes over it */
	CHECK_FAILS(dsaio_view_wait(rig.handle, old, 2 * PIECE), -ESTALE, "changed;again");
	pattern_check(kept, 4096, 7, 0, "what was there before");
	new = view_of(&rig, file, 0, 2 * PIECE, 0); /* changed a moment ago: private */
	check_view(&rig, new, 0, 2 * PIECE, 8);
	release(&rig, old);
	release(&rig, kept);
	release(&rig, new);
}

TEST(renamed, "a view goes on with the file that it was opened with, and a new name is a new view")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	char *path = make_file(rig.daemon, "w", 2 * MIB, 7);
	struct dsaio_file *file = rig_file(&rig, "w", O_RDONLY);
	const uint8_t *old = view_of(&rig, file, 0, 2 * MIB, 0), *new;

	check_view(&rig, old, 0, 2 * MIB, 7);
	(void)make_file(rig.daemon, "w2", 2 * MIB, 8);
	CHECK_SYS(rename(daemon_path(rig.daemon, "w2"), path));
	pattern_check(old, 2 * MIB, 7, 0, "the old one");
	new = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, 2 * MIB, 0);
	check_view(&rig, new, 0, 2 * MIB, 8);
	release(&rig, old);
	release(&rig, new);
}

TEST(bad, "wrong arguments")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	const uint8_t *view;
	void *memory;

	file_make_pattern(daemon_path(rig.daemon, "w"), 5000, 7);
	file = rig_file(&rig, "w", O_RDONLY);
	CHECK_FAILS(dsaio_view(rig.client, file, 0, 0, 0, &memory), -EINVAL, "at least 1");
	CHECK_FAILS(dsaio_view(rig.client, file, 1, 5000, 0, &memory), -EINVAL,
		    "end of the file;5000");
	CHECK_FAILS(dsaio_view(rig.client, file, UINT64_MAX, 5000, 0, &memory), -EINVAL, "end");
	CHECK_FAILS(dsaio_view(rig.client, file, 0, 5000, 6, &memory), -E2BIG, "view;0x6");
	CHECK_FAILS(
		dsaio_view(rig.client, rig_file(&rig, "out", O_WRONLY | O_CREAT), 0, 1, 0, &memory),
		-EBADF, "reading");
	view = view_of(&rig, file, 0, 5000, 0);
	CHECK_FAILS(dsaio_view_wait(rig.handle, view + 1, 5000), -EINVAL, "no view");
	CHECK_FAILS(dsaio_view_wait(rig.handle, &memory, 1), -EINVAL, "no view");
	CHECK_FAILS(dsaio_view_free(rig.client, (void *)(uintptr_t)(view + 1)), -EINVAL,
		    "no view begins");
	check_view(&rig, view, 0, 5000, 7); /* it is young, so private */
	release(&rig, view);
	CHECK_CALL(dsaio_view_free(rig.client, NULL));
}

static _Noreturn void load(const struct daemon *daemon, uint64_t size, uint64_t seed, bool stays)
{
	struct rig rig = { .daemon = (struct daemon *)(uintptr_t)daemon };
	const uint8_t *view;

	rig_open(&rig, NULL);
	view = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, size, 0);
	check_view(&rig, view, 0, size, seed);
	while (stays)
		(void)pause();
	_exit(0);
}

static pid_t load_start(const struct daemon *daemon, uint64_t size, uint64_t seed, bool stays)
{
	pid_t pid = (pid_t)CHECK_SYS(fork());

	if (pid == 0)
		load(daemon, size, seed, stays);
	return pid;
}

TEST(many, "clients that load at once, and are killed, leave nothing behind")
{
	struct daemon *daemon = daemon_start(NULL);
	struct usage before;
	uint64_t state = test_seed();
	pid_t pids[6];

	(void)make_file(daemon, "w", 2 * PIECE + 12345, 7);
	child_wait_ok(load_start(daemon, 4096, 7, false)); /* makes the lane */
	before = daemon_usage_settled(daemon);
	for (unsigned round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
			pids[i] = load_start(daemon, 2 * PIECE + 12345, 7, false);
		for (size_t i = 0; i < 3; i++) {
			CHECK_SYS(usleep((useconds_t)(test_random(&state) % 100000)));
			CHECK_SYS(kill(pids[i], SIGKILL));
			CHECK_SYS(waitpid(pids[i], NULL, 0));
		}
		for (size_t i = 3; i < ARRAY_SIZE(pids); i++)
			child_wait_ok(pids[i]);
	}
	daemon_usage_back(daemon, &before);
}

TEST(stopped, "a client that was asked to read and does not is not waited for")
{
	struct daemon *daemon = daemon_start(NULL);
	pid_t pids[2];

	test_time_limit(60);
	(void)make_file(daemon, "w", 2 * PIECE, 7);
	for (unsigned round = 0; round < 4; round++) {
		pids[0] = load_start(daemon, 2 * PIECE, 7, true);
		CHECK_SYS(usleep(20000 + 15000 * round));
		process_stop(pids[0]);
		pids[1] = load_start(daemon, 2 * PIECE, 7, false);
		child_wait_ok(pids[1]);
		CHECK_SYS(kill(pids[0], SIGKILL));
		CHECK_SYS(waitpid(pids[0], NULL, 0));
	}
}

TEST(child, "what children of clients map stays charged, and is bounded")
{
	_cleanup_(rig_close) struct rig rig = {
		.daemon = next_daemon("[daemon]\nlock = auto\npool_size = 128M\n")
	};
	pid_t pids[3];

	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++)
		file_make_pattern(daemon_path(rig.daemon, test_text("w%u", i)), 16 * MIB, i);
	CHECK_SYS(usleep(2100000));
	rig_open(&rig, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
		struct dsaio_file *file = rig_file(&rig, test_text("w%u", i), O_RDONLY);
		const uint8_t *view = view_of(&rig, file, 0, 16 * MIB, 0);

		check_view(&rig, view, 0, 16 * MIB, i);
		pids[i] = (pid_t)CHECK_SYS(fork());
		if (pids[i] == 0)
			for (;;)
				(void)pause();
		release(&rig, view);
		CHECK_SYS(usleep(1100000)); /* the daemon looks whether nobody maps it */
		/* A quarter is reached: the third is private. */
		CHECK_EQ(pool_of(rig.daemon).view_left_bytes, (i == 0 ? 16 : 32) * MIB);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
		CHECK_SYS(kill(pids[i], SIGKILL));
		CHECK_SYS(waitpid(pids[i], NULL, 0));
	}
	for (int64_t until = now_usec() + 10000000;
	     pool_of(rig.daemon).view_left_bytes && now_usec() < until;)
		CHECK_SYS(usleep(50000));
	CHECK_EQ(pool_of(rig.daemon).view_left_bytes, 0);
}

static _Noreturn void load_checked(const struct daemon *daemon, uint64_t size)
{
	struct rig rig = { .daemon = (struct daemon *)(uintptr_t)daemon };
	const uint8_t *view;

	rig_open(&rig, NULL);
	view = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, size, 0);
	check_view(&rig, view, 0, size, 7);
	CHECK_EQ(pool_of(daemon).views, (size + PIECE - 1) / PIECE);
	_exit(0);
}

/* The pieces of the one before, which nobody mapped any more, took the next one's views for half a second. */
TEST(successive,
     "processes that load more than a quarter of the pool, one after the other, have views")
{
	struct daemon *daemon = next_daemon("[daemon]\nlock = auto\npool_size = 512M\n");

	(void)make_file(daemon, "w", 2 * PIECE + 12345, 7);
	for (unsigned i = 0; i < 5; i++) {
		const pid_t pid = (pid_t)CHECK_SYS(fork());

		if (pid == 0)
			load_checked(daemon, 2 * PIECE + 12345);
		child_wait_ok(pid);
	}
}

/* POSIX_FADV_DONTNEED takes what is clean. */
static void forget(const char *path)
{
	int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));

	CHECK_SYS(fsync(fd));
	CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	CHECK_SYS(close(fd));
}

/* Reads that have ended on the only store. */
static int64_t n_reads(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	daemon_status(daemon, &answer);
	CHECK_EQ(answer.reply->status->n_stores, 1);
	return (int64_t)answer.reply->status->stores[0]->counters->reads;
}

TEST(cached,
     "a piece comes from the page cache where all of it is there, else from the device, by one client")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	char *path = make_file(rig.daemon, "w", 2 * MIB, 7);
	struct dsaio_file *file = rig_file(&rig, "w", O_RDONLY);

	for (unsigned i = 0; i < 2; i++) {
		const uint8_t *view;

		forget(path);
		if (i == 0)
			file_check_pattern(path, 0, 2 * MIB, 7, 0); /* reads it */
		view = view_of(&rig, file, 0, 2 * MIB, 0);
		check_view(&rig, view, 0, 2 * MIB, 7);
		CHECK_EQ(n_reads(rig.daemon), i);
		release(&rig, view);
		CHECK_SYS(usleep(1100000)); /* the daemon finds that nobody maps it */
	}
}

/* In a child, which shows how it ends. */
static int write_status(uint8_t *memory)
{
	int status;
	const pid_t pid = (pid_t)CHECK_SYS(fork());

	if (pid == 0) {
		(void)signal(SIGBUS, SIG_DFL); /* not a sanitizer's */
		(void)signal(SIGSEGV, SIG_DFL);
		memory[4096] ^= 1;
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

/* A client may have one piece, and half of another. */
static const char small_share[] = "[daemon]\nlock = auto\npool_size = 256M\nclient_pool_max = 80M\n"
				  "huge_pages = no\n";

TEST(charges, "clients are charged their shares, and where there is no room the bytes are private")
{
	_cleanup_(rig_close) struct rig a = { .daemon = next_daemon(small_share) };
	struct rig b = { .daemon = a.daemon };
	Wire__Pool pool;
	const uint8_t *x, *y;

	(void)make_file(a.daemon, "w", PIECE + 32 * MIB, 7);
	rig_open(&a, NULL);
	rig_open(&b, NULL);
	x = view_of(&a, rig_file(&a, "w", O_RDONLY), 0, PIECE + 32 * MIB, 0);
	check_view(&a, x, 0, PIECE + 32 * MIB, 7); /* the second piece is private */
	CHECK_EQ(WTERMSIG(write_status((uint8_t *)(uintptr_t)x)), SIGSEGV);
	CHECK_EQ(WTERMSIG(write_status((uint8_t *)(uintptr_t)x + PIECE)), SIGSEGV);
	y = view_of(&b, rig_file(&b, "w", O_RDONLY), 0, PIECE + 32 * MIB, 0);
	check_view(&b, y, 0, PIECE + 32 * MIB,
		   7); /* here both are shared, and the first is charged half to each */
	pool = pool_of(a.daemon);
	CHECK_EQ(pool.views, 2);
	CHECK_EQ(pool.view_uses, 3);
	CHECK_EQ(pool.view_bytes, PIECE + 32 * MIB);
	CHECK_EQ(pool.view_saved_bytes, PIECE);
	CHECK_EQ(pool.view_refusals, 1);
	CHECK_EQ(pool.used_bytes >= PIECE + 32 * MIB && pool.used_bytes < PIECE + 64 * MIB, true);
	release(&a, x);
	pattern_check(y, 4096, 7, 0, "the other's");
	CHECK_CALL(dsaio_view_free(b.client, (void *)(uintptr_t)y));
	for (unsigned i = 0; i < b.n_files; i++)
		dsaio_file_close(b.files[i]);
	CHECK_CALL(dsaio_disconnect(b.client));
}

TEST(limit, "a client that has as many pieces as it may reads further ones into memory of its own")
{
	_cleanup_(rig_close) struct rig rig = {
		.daemon = next_daemon("[daemon]\nlock = auto\nclient_handles = 1\n")
	};
	const uint8_t *views[20];

	for (unsigned i = 0; i < ARRAY_SIZE(views); i++)
		file_make_pattern(daemon_path(rig.daemon, test_text("w%u", i)), 4096, i);
	CHECK_SYS(usleep(2100000));
	rig_open(&rig, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(views); i++) {
		struct dsaio_file *file;

		CHECK_CALL(dsaio_open(rig.client, daemon_path(rig.daemon, test_text("w%u", i)),
				      O_RDONLY, NULL, &file));
		views[i] = view_of(&rig, file, 0, 4096, 0);
		check_view(&rig, views[i], 0, 4096, i);
		dsaio_file_close(file);
	}
	CHECK_EQ(pool_of(rig.daemon).view_uses, 16);
	CHECK_EQ(pool_of(rig.daemon).view_refusals, 4);
	for (unsigned i = 0; i < ARRAY_SIZE(views); i++)
		release(&rig, views[i]);
}

static void *huge_page_take(void)
{
	return mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
}

TEST(huge, "a view has its reserved huge pages, and copies take them when they are made")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *taken = MAP_FAILED, *page;
	uint8_t *view;

	huge_pages_add(6 * MIB);
	rig.daemon = next_daemon("[daemon]\nlock = auto\nhuge_pages = reserved\n");
	(void)make_file(rig.daemon, "w", 4 * MIB, 7);
	rig_open(&rig, NULL);
	view = (uint8_t *)(uintptr_t)view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, 4 * MIB,
					     DSAIO_VIEW_WRITABLE);
	check_view(&rig, view, 0, 4 * MIB, 7);
	while ((page = huge_page_take()) != MAP_FAILED)
		taken = page;
	CHECK(taken != MAP_FAILED);
	CHECK_EQ(WTERMSIG(write_status(view)), SIGBUS); /* none is free */
	CHECK_SYS(munmap(taken, 2 * MIB));
	CHECK_EQ(write_status(view), 0);
	check_view(&rig, view, 0, 4 * MIB, 7);
	release(&rig, view);
}

TEST(disconnected, "a view that was not freed stays until it is, without a daemon")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const uint8_t *view, *begun;
	struct dsaio_client *client = rig.client;

	(void)make_file(rig.daemon, "w", 2 * PIECE, 7);
	view = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, 2 * PIECE, 0);
	begun = view_of(&rig, rig.files[0], 4096, PIECE, 0);
	check_view(&rig, view, 0, 2 * PIECE, 7);
	check_view(&rig, begun, 4096, 1, 7);
	rig_close(&rig);
	rig = (struct rig)RIG_NONE;
	pattern_check(view, 4096, 7, 0, "after the disconnect");
	CHECK_CALL(dsaio_view_free(client, (void *)(uintptr_t)view));
	CHECK_CALL(dsaio_view_free(client, (void *)(uintptr_t)begun));
}

TEST(refused, "a view that the next daemon has no room for can be read until it is freed")
{
	static const char config[] = "[daemon]\nlock = auto\nclient_pool_max = 1M\n";
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint8_t *view;
	uint8_t bytes[512];

	reconnecting(&rig);
	(void)make_file(rig.daemon, "w", 3 * MIB, 7);
	view = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, 3 * MIB, 0);
	check_view(&rig, view, 0, 3 * MIB, 7);
	daemon_kill(rig.daemon);
	(void)next_daemon(config);
	check_view(&rig, view, 0, 3 * MIB, 7);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], bytes, sizeof(bytes), 0),
		 sizeof(bytes)); /* by that daemon */
	release(&rig, view);
	rig.daemon = NULL;
}

/* A mapping of huge pages cannot be replaced in part. */
TEST(huge_lost,
     "a part of a view in huge pages that the next daemon has no room for is read by the process itself")
{
	static const char config[] = "[daemon]\nlock = auto\nclient_pool_max = 1M\n";
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = PIECE + 4 * MIB + 123;
	char *path;
	const uint8_t *view;

	huge_pages_add(6 * MIB);
	rig.daemon = next_daemon("[daemon]\nlock = auto\nhuge_pages = reserved\n");
	reconnecting(&rig);
	path = make_file(rig.daemon, "w", len, 7);
	forget(path);
	view = view_of(&rig, rig_file(&rig, "w", O_RDONLY), 0, len, 0);
	check_view(&rig, view, 0, 1,
		   7); /* begins with the second piece, which is not asked for again */
	daemon_kill(rig.daemon);
	(void)next_daemon(config);
	check_view(&rig, view, 0, len, 7);
	release(&rig, view);
	rig.daemon = NULL;
}

TEST(overcharged, "a client whose share grows beyond its limit can still read into private memory")
{
	_cleanup_(rig_close) struct rig a = { .daemon = next_daemon(small_share) };
	struct rig b = { .daemon = a.daemon };
	const uint8_t *x, *y, *z;
	_cleanup_(freep) uint8_t *own = malloc(8 * MIB);

	(void)make_file(a.daemon, "w", PIECE + 32 * MIB, 7);
	rig_open(&a, NULL);
	rig_open(&b, NULL);
	x = view_of(&a, rig_file(&a, "w", O_RDONLY), 0, PIECE + 32 * MIB, 0);
	check_view(&a, x, 0, PIECE + 32 * MIB, 7); /* the second piece is private */
	y = view_of(&b, rig_file(&b, "w", O_RDONLY), 0, PIECE + 32 * MIB, 0);
	check_view(&b, y, 0, PIECE + 32 * MIB, 7);
	release(&a, x);
	while (pool_of(a.daemon).view_uses != 2)
		CHECK_SYS(usleep(10000));
	file_make_pattern(daemon_path(a.daemon, "young"), 8 * MIB, 9);
	CHECK_EQ(dsaio_pread(b.handle, b.files[0], own, 8 * MIB, 0), 8 * MIB);
	pattern_check(own, 8 * MIB, 7, 0, "own");
	z = view_of(&b, rig_file(&b, "young", O_RDONLY), 0, 8 * MIB, 0);
	check_view(&b, z, 0, 8 * MIB, 9);
	release(&b, z);
	release(&b, y);
	for (unsigned i = 0; i < b.n_files; i++)
		dsaio_file_close(b.files[i]);
	CHECK_CALL(dsaio_disconnect(b.client));
}

static const struct daemon_end ends[] = DAEMON_ENDS;

TEST_TABLE(restart, ends, "views outlive the daemon, and the next reads what was not finished")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	const uint8_t *view;

	reconnecting(&rig);
	(void)make_file(rig.daemon, "w", 2 * PIECE, 7);
	file = rig_file(&rig, "w", O_RDONLY);
	view = view_of(&rig, file, 0, 2 * PIECE, 0);
	check_view(&rig, view, 0, 4096, 7);
	daemon_end(rig.daemon, ends[row].is_kill);
	pattern_check(view, 4096, 7, 0, "without a daemon");
	daemon_again(rig.daemon, NULL);
	check_view(&rig, view, 0, 2 * PIECE, 7);
	release(&rig, view);
}

TEST_MAIN
