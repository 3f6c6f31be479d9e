/*
 * Private memory: who copies it, when a submitting call returns, and errors.
 */
#include "tests/private_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

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
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle *second;
	struct dsaio_file *file;
	uint8_t *memory = private_new(8 * MIB);
	unsigned before, n;

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
	(void)dsaio_disconnect(rig.client);
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

TEST(submit, "submitting returns at once, whatever the size: the daemon does not move meanwhile")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	enum { N_SMALL = 1000 };
	const size_t small = 64 * KIB, large = 64 * MIB;
	static struct dsaio_op *ops[N_SMALL + 3];
	struct dsaio_file *file;
	uint8_t *memory = private_new(3 * large), *many = private_new(N_SMALL * small);
	void *pinned;

	file_make_pattern(daemon_path(rig.daemon, "f"), 2 * large, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &pinned));
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
		CHECK_EQ(op_is_done(ops[i]), 0);
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
	*ret_done = dsaio_op_bytes(op);
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig->handle, -1), r < 0 ? r : 1);
	return r;
}

TEST_TABLE(hole, modes, "memory with a hole: -EFAULT, what is before it is done, all else goes on")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const size_t len = 8 * MIB, hole = 5 * MIB + 4096;
	uint8_t *memory = private_new(len);
	const char *path;
	uint64_t done, reached;

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

TEST_MAIN
