/*
 * Ops on private memory while another thread is in dlopen(3).  glibc's loader holds a lock while the
 * constructors of a library run, and the library looks whether the program has opened libcuda.
 */
#include "tests/harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *library_path(const char *name)
{
	const char *build = getenv("BUILD");

	return test_text("%s/tests/gpu/%s", build && *build ? build : "build", name);
}

/* A thread that opens a library whose constructor runs until opening_end(). */
struct opening {
	pthread_t thread;
	char *path;
	int end;
};

static void *opening_run(void *opening)
{
	return dlopen(((struct opening *)opening)->path, RTLD_NOW | RTLD_LOCAL);
}

static void opening_begin(struct opening *opening)
{
	int began[2], end[2];
	char byte;

	CHECK_SYS(pipe(began));
	CHECK_SYS(pipe(end));
	CHECK_SYS(setenv("SLOW", test_text("%d %d", began[1], end[0]), 1));
	opening->path = library_path("libslow.so");
	opening->end = end[1];
	CHECK_EQ(pthread_create(&opening->thread, NULL, opening_run, opening), 0);
	CHECK_EQ(read(began[0], &byte, 1), 1);
}

static void opening_end(struct opening *opening)
{
	void *library;

	CHECK_EQ(write(opening->end, "", 1), 1);
	CHECK_EQ(pthread_join(opening->thread, &library), 0);
	CHECK(library);
}

static void check_ops(struct dsaio_handle *handle, struct dsaio_file *file)
{
	enum { LEN = 8192 };
	_cleanup_(freep) char *buf = calloc(1, LEN);
	struct dsaio_op *op;

	CHECK(buf);
	CHECK_CALL(dsaio_pread_async(handle, file, buf, LEN, 0, &op));
	CHECK_EQ(op_wait(op, -1), LEN);
	dsaio_op_free(op);
	pattern_check(buf, LEN, 1, 0, "an async read");
	CHECK_CALL(dsaio_pwrite_async(handle, file, buf, LEN, 0, &op));
	CHECK_EQ(op_wait(op, -1), LEN);
	dsaio_op_free(op);
	memset(buf, 0, LEN);
	CHECK_EQ(dsaio_pread(handle, file, buf, LEN, 0), LEN);
	pattern_check(buf, LEN, 1, 0, "a read");
}

static const struct {
	const char *what;
	bool has_cuda;
} programs[] = {
	{ "a program without libcuda", false },
	{ "a program that has used libcuda", true },
};

TEST_TABLE(submit, programs,
	   "ops waited for the constructors of a library that another thread opened")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	struct opening opening;

	file_make_pattern(daemon_path(rig.daemon, "f"), 8192, 1);
	file = rig_file(&rig, "f", O_RDWR);
	if (programs[row].has_cuda) {
		CHECK(dlopen(library_path("libcuda.so"), RTLD_NOW | RTLD_LOCAL));
		check_ops(rig.handle, file);
	}
	opening_begin(&opening);
	check_ops(rig.handle, file);
	opening_end(&opening);
	check_ops(rig.handle, file);
}

static void *reader_run(void *rig)
{
	char buf[4096];

	CHECK_EQ(dsaio_pread(((struct rig *)rig)->handle, ((struct rig *)rig)->files[0], buf, 4096,
			     0),
		 4096);
	return NULL;
}

TEST(child, "ops of a child hung that was forked while a thread of its parent opened a library")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct opening opening;
	const char *sanitizer = getenv("SANITIZE"); /* run.sh's */
	pthread_t reader;
	pid_t pid;

	if (sanitizer && *sanitizer)
		test_skip("a sanitizer's allocator may be locked in the child");
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 8192, 1);
	rig_file(&rig, "f", O_RDWR);
	opening_begin(&opening);
	CHECK_EQ(pthread_create(&reader, NULL, reader_run, &rig), 0);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		struct rig mine = { .daemon = rig.daemon };

		rig_open(&mine, NULL);
		check_ops(mine.handle, rig_file(&mine, "f", O_RDWR));
		rig_close(&mine);
		_exit(0);
	}
	child_wait_ok(pid);
	CHECK_EQ(pthread_join(reader, NULL), 0);
	opening_end(&opening);
}

TEST_MAIN
