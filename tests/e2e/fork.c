/*
 * fork(2): a child can do nothing with its parent's connection, and harm nothing; it may have
 * one of its own.
 */
#include "tests/harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 4

/* All calls, in the child. */
static void check_child(struct rig *rig, struct dsaio_op *op, void *memory)
{
	struct dsaio_profile profile = { .size = sizeof(profile) };
	struct dsaio_handle *handle;
	struct dsaio_op *taken[1], *more;
	struct dsaio_file *file;
	uint8_t buf[512];
	void *other;

	CHECK_FAILS(dsaio_pread(rig->handle, rig->files[0], buf, 512, 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_pwrite(rig->handle, rig->files[0], buf, 512, 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_pread_async(rig->handle, rig->files[0], buf, 512, 0, &more), -EPERM,
		    "fork");
	CHECK_FAILS(dsaio_pwrite_async(rig->handle, rig->files[0], buf, 512, 0, NULL), -EPERM,
		    "fork");
	CHECK_FAILS(dsaio_fsync(rig->handle, rig->files[0], 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_fsync_async(rig->handle, rig->files[0], 0, &more), -EPERM, "fork");
	CHECK_FAILS(handle_wait(rig->handle, -1), -EPERM, "fork");
	CHECK_FAILS(ops_reap(rig->handle, taken, 0, 1, 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_handle_fd(rig->handle), -EPERM, "fork");
	CHECK_FAILS(op_wait(op, -1), -EPERM, "fork");
	CHECK_FAILS(dsaio_op_cancel(op), -EPERM, "fork");
	CHECK_FAILS(dsaio_client_fd(rig->client), -EPERM, "fork");
	CHECK_FAILS(dsaio_client_state(rig->client), -EPERM, "fork");
	CHECK_FAILS(dsaio_handle_open(rig->client, NULL, &handle), -EPERM, "fork");
	CHECK_FAILS(dsaio_alloc(rig->client, 4096, NULL, &other), -EPERM, "fork");
	CHECK_EQ(dsaio_free(rig->client, memory), 0); /* does nothing, as all that frees */
	CHECK_FAILS(dsaio_open(rig->client, "/etc/passwd", O_RDONLY, NULL, &file), -EPERM, "fork");
	CHECK_FAILS(dsaio_file_truncate(rig->files[0], 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_file_allocate(rig->files[0], 0, 1, 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_file_commit(rig->files[0], 0), -EPERM, "fork");
	CHECK_FAILS(dsaio_file_abandon(rig->files[0]), -EPERM, "fork");
	CHECK(!dsaio_op_is_unknown(op));
	dsaio_op_free(op);
	dsaio_file_close(rig->files[0]);
	(void)dsaio_handle_close(rig->handle, -1);
	(void)dsaio_disconnect(rig->client);
}

TEST(child, "in a forked child every call returns -EPERM, the parent is undisturbed")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const size_t len = 64 * MIB;
	struct dsaio_op *op;
	void *memory;
	pid_t pid;

	file_make_pattern(daemon_path(rig.daemon, "f"), len, SEED);
	rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	for (unsigned round = 0; round < 5; round++) {
		memset(memory, 0, len);
		CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], memory, len, 0, &op));
		pid = (pid_t)CHECK_SYS(fork());
		if (pid == 0) {
			check_child(&rig, op, memory);
			_exit(0);
		}
		CHECK_EQ(op_wait(op, -1), len);
		child_wait_ok(pid);
		pattern_check(memory, len, SEED, 0, "the parent's read");
		dsaio_op_free(op);
		CHECK_EQ(handle_wait(rig.handle, -1), 1);
		CHECK_EQ(file_size(daemon_path(rig.daemon, "f")), len);
	}
}

TEST(own, "a forked child connects for itself, beside its parent")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	uint8_t buf[4096];
	void *kept, *memory, *again;
	pid_t pid;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	rig_file(&rig, "f", O_RDONLY);
	for (unsigned round = 0; round < 3; round++) {
		pid = (pid_t)CHECK_SYS(fork());
		if (pid == 0) {
			struct rig mine = { .daemon = rig.daemon };

			rig_open(&mine, NULL);
			for (unsigned i = 0; i < 16; i++) {
				CHECK_EQ(dsaio_pread(mine.handle,
						     i ? mine.files[0]
						       : rig_file(&mine, "f", O_RDONLY),
						     buf, 4096, i * 4096),
					 4096);
				pattern_check(buf, 4096, SEED, i * 4096, "the child's read");
			}
			CHECK_CALL(dsaio_alloc(mine.client, 4096, NULL, &kept));
			CHECK_CALL(dsaio_alloc(mine.client, 4096, NULL, &memory));
			CHECK_EQ(dsaio_free(mine.client, memory), 0);
			CHECK_CALL(dsaio_alloc(mine.client, 4096, NULL, &again));
			CHECK(again == memory); /* it has not forked itself */
			rig_close(&mine);
			_exit(0);
		}
		for (unsigned i = 0; i < 16; i++) {
			CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, i * 4096), 4096);
			pattern_check(buf, 4096, SEED, i * 4096, "the parent's read");
		}
		child_wait_ok(pid);
	}
}

TEST(child_lives, "memory stayed charged after dsaio_disconnect() while a forked child lived")
{
	struct rig rig = RIG_NONE;
	int to_child[2], from_child[2];
	void *memory;
	pid_t pid;
	char byte;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, 16 * MIB, NULL, &memory));
	pattern_fill(memory, 16 * MIB, SEED, 0);
	CHECK_SYS(pipe(to_child));
	CHECK_SYS(pipe(from_child));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		close(to_child[1]);
		/* A loader's worker reads the tensors that its parent has read. */
		pattern_check(memory, 16 * MIB, SEED, 0, "the parent's memory");
		CHECK_EQ(write(from_child[1], "x", 1), 1);
		CHECK_EQ(read(to_child[0], &byte, 1), 0); /* until the parent lets it end */
		_exit(0);
	}
	CHECK_EQ(read(from_child[0], &byte, 1), 1);
	(void)dsaio_handle_close(rig.handle, -1);
	(void)dsaio_disconnect(rig.client);
	CHECK(daemon_wait_clients(rig.daemon, 0, 0));
	close(to_child[1]);
	child_wait_ok(pid);
	close(to_child[0]);
	close(from_child[0]);
	close(from_child[1]);
}

TEST(freed, "a forked child saw and changed the parent's new data where it had freed the old")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	int to_child[2], from_child[2];
	void *memory, *kept, *next[6];
	pid_t pid;
	char byte;

	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &kept)); /* of the same slab */
	pattern_fill(memory, MIB, SEED, 0);
	CHECK_SYS(pipe(to_child));
	CHECK_SYS(pipe(from_child));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		pattern_check(memory, MIB, SEED, 0, "memory that the parent has freed");
		memset(memory, 0xff, MIB);
		CHECK_EQ(write(from_child[1], "x", 1), 1);
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		for (size_t i = 0; i < MIB; i++)
			CHECK_EQ(((uint8_t *)memory)[i], 0);
		_exit(0);
	}
	CHECK_EQ(dsaio_free(rig.client, memory), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(next); i++) { /* more than the slab has */
		CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &next[i]));
		pattern_fill(next[i], MIB, SEED + 1 + i, 0);
	}
	CHECK_EQ(write(to_child[1], "x", 1), 1);
	CHECK_EQ(read(from_child[0], &byte, 1), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(next); i++) {
		pattern_check(next[i], MIB, SEED + 1 + i, 0, "the parent's new data");
		CHECK_EQ(dsaio_free(rig.client, next[i]), 0);
	}
	CHECK_EQ(dsaio_free(rig.client, kept), 0);
	/* Also the small slab goes back, which is kept otherwise. */
	CHECK(daemon_wait_clients(rig.daemon, 1, 0));
	CHECK_EQ(write(to_child[1], "x", 1), 1);
	child_wait_ok(pid);
	for (unsigned i = 0; i < 2; i++) {
		close(to_child[i]);
		close(from_child[i]);
	}
}

TEST(forked_often, "a parent whose pool is full gets memory again that it had at a fork")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *path = test_text("%s/dsaiod.conf", test_dir());
	FILE *file = fopen(path, "we");
	void *memory, *kept;

	CHECK(file && fputs("[daemon]\nclient_pool_max = 16M\n", file) >= 0);
	CHECK_EQ(fclose(file), 0);
	rig.daemon = daemon_start(DAEMON_ARGS("--config", path));
	rig_open(&rig, NULL);
	for (unsigned i = 0; i < 40; i++) {
		pid_t pid;

		CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
		CHECK_CALL(dsaio_alloc(rig.client, MIB / 4, NULL,
				       &kept)); /* its slab does not go back */
		pid = (pid_t)CHECK_SYS(fork());
		if (pid == 0)
			_exit(0);
		child_wait_ok(pid);
		CHECK_EQ(dsaio_free(rig.client, memory), 0);
	}
}

TEST(exec, "no descriptor of the library reaches a program that is executed")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	uint8_t buf[4096];
	pid_t pid;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), buf, 4096, 0), 4096);
	CHECK_CALL(dsaio_handle_fd(rig.handle));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		/* ls has 0, 1, 2 and the directory itself; a test runner may leave it more. */
		execlp("sh", "sh", "-c",
		       "ls -l /proc/self/fd | grep -E 'memfd|socket|eventfd|eventpoll|/store/' && "
		       "exit 1; exit 0",
		       (char *)NULL);
		_exit(127);
	}
	child_wait_ok(pid);
}

TEST_MAIN
