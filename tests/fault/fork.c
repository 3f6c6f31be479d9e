/*
 * C21: a connection that is used in a forked child.  The library refuses; a client by hand that
 * shares its connection with a child is one client, whichever of them sends.  tests/e2e/fork.c
 * has the result of every call.
 */
#include "tests/harness.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

FAULT(c21_library, "C21 fork, then use: -EPERM in the child, the parent's ops and the rest go on")
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	enum { N = 64 };
	void *memory;
	pid_t pids[4];

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(daemon, "f"), N * MIB, 1);
	rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, N * MIB, NULL, &memory));
	for (unsigned i = 0; i < N; i++) {
		CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], (char *)memory + i * MIB,
					     MIB, i * MIB, NULL));
		if (i % 16)
			continue;
		pids[i / 16] = (pid_t)CHECK_SYS(fork());
		if (pids[i / 16] == 0) {
			uint8_t buf[512];

			CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], buf, 512, 0), -EPERM,
				    "fork;dsaio_connect");
			CHECK_FAILS(handle_wait(rig.handle, -1), -EPERM, "fork");
			(void)dsaio_handle_close(rig.handle, -1);
			(void)dsaio_disconnect(rig.client);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < 4; i++)
		child_wait_ok(pids[i]);
	CHECK_EQ(handle_wait(rig.handle, -1), N);
	pattern_check(memory, N * MIB, 1, 0, "the parent's reads");
}

FAULT(c21_threads, "C21 fork while other threads use the library: the child can still connect")
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	uint8_t buf[4096];
	pid_t pid;

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(daemon, "f"), 65536, 1);
	rig_file(&rig, "f", O_RDONLY);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
	for (unsigned i = 0; i < 20; i++) {
		pid = (pid_t)CHECK_SYS(fork());
		if (pid == 0) {
			struct rig mine = { .daemon = daemon };

			rig_close(&rig);
			rig_open(&mine, NULL);
			CHECK_EQ(dsaio_pread(mine.handle, rig_file(&mine, "f", O_RDONLY), buf, 4096,
					     0),
				 4096);
			pattern_check(buf, 4096, 1, 0, "the child's read");
			rig_close(&mine);
			_exit(0);
		}
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 4096), 4096);
		child_wait_ok(pid);
	}
	CHECK(daemon_wait_clients(daemon, 2, UINT64_MAX));
}

FAULT(c21_parent_gone, "C21 a child that goes on with the connection of a parent that is gone")
{
	int pipe_fds[2];
	pid_t pid;
	char byte;

	CHECK_SYS(pipe(pipe_fds));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		struct raw raw;

		raw_open(&raw, daemon);
		if (fork() == 0) {
			raw_wait_closed(&raw); /* the client was the parent: its death ends it */
			CHECK_EQ(write(pipe_fds[1], "x", 1), 1);
			_exit(0);
		}
		_exit(0);
	}
	child_wait_ok(pid);
	CHECK(wait_readable(pipe_fds[0], 20000000));
	CHECK_EQ(read(pipe_fds[0], &byte, 1), 1);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

TEST_MAIN
