/*
 * A daemon that is killed or stopped, and a next one: programs only wait.
 *
 * Each test has a client that reconnects, kills or stops the daemon while ops
 * are open, starts another one at the same socket, and looks that each op ends
 * once, with the right bytes.
 */
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES MIB

static const struct daemon_end ends[] = DAEMON_ENDS;

static void restart(struct rig *rig, int row)
{
	daemon_end(rig->daemon, ends[row].is_kill);
	rig->daemon = daemon_start(NULL);
}

TEST_TABLE(memory, ends, "what lies in pinned memory is there with the next daemon")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_alloc_options huge = DSAIO_ALLOC_OPTIONS_INIT;
	uint8_t *memory, *in_huge = NULL;
	struct dsaio_file *file;
	bool has_huge;

	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, 3 * MIB, NULL, (void **)&memory));
	huge.flags = DSAIO_ALLOC_HUGE;
	has_huge = dsaio_alloc(rig.client, 4 * MIB, &huge, (void **)&in_huge) == 0;
	pattern_fill(memory, 3 * MIB, 1, 0);
	if (has_huge)
		pattern_fill(in_huge, 4 * MIB, 2, 0);
	restart(&rig, row);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 3 * MIB, 0), 3 * MIB);
	if (has_huge)
		CHECK_EQ(dsaio_pwrite(rig.handle, file, in_huge, 4 * MIB, 3 * MIB), 4 * MIB);
	pattern_check(memory, 3 * MIB, 1, 0, "memory");
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 3 * MIB, 1, 0);
	if (has_huge)
		file_check_pattern(daemon_path(rig.daemon, "f"), 3 * MIB, 4 * MIB, 2, 0);
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_CONNECTED);
	CHECK_CALL(dsaio_free(rig.client, memory));
}

/* Ops that are open when the daemon ends. */
TEST_TABLE(ops, ends, "ops that are open end with the next daemon")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[64] = { NULL };
	struct dsaio_file *file;
	uint8_t *memory;

	reconnecting(&rig);
	file_make_pattern(daemon_path(rig.daemon, "f"), 64 * BYTES, 3);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 64 * BYTES, NULL, (void **)&memory));
	for (unsigned i = 0; i < 64; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i * BYTES, BYTES, i * BYTES,
					     &ops[i]));
	restart(&rig, row);
	for (unsigned i = 0; i < 64; i++) {
		CHECK_EQ(op_wait(ops[i], -1), BYTES);
		dsaio_op_free(ops[i]);
	}
	pattern_check(memory, 64 * BYTES, 3, 0, "what was read");
	CHECK_EQ(handle_wait(rig.handle, -1), 64);
	if (ends[row].is_kill)
		daemon_log_wait(rig.daemon, "has gone on after a restart: handed over 1 slab of 64 "
					    "MiB, 1 file, 1 channel, ");
}

/* The same on private memory, unaligned. */
TEST_TABLE(private, ends, "ops on private memory end with the next daemon")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[8] = { NULL };
	struct dsaio_file *file;
	uint8_t *memory = malloc(8 * BYTES + 100);

	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	pattern_fill(memory, 8 * BYTES + 100, 4, 0);
	for (unsigned i = 0; i < 8; i++)
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + i * BYTES, BYTES + 33,
					      i * BYTES, &ops[i]));
	restart(&rig, row);
	for (unsigned i = 0; i < 8; i++) {
		CHECK_EQ(op_wait(ops[i], -1), BYTES + 33);
		dsaio_op_free(ops[i]);
	}
	CHECK_CALL(dsaio_fsync(rig.handle, file, 0));
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 8 * BYTES + 33, 4, 0);
	memset(memory, 0, 8 * BYTES);
	restart(&rig, row);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 8 * BYTES, 0), 8 * BYTES);
	pattern_check(memory, 8 * BYTES, 4, 0, "what was read");
	free(memory);
}

/* Calls that are under way, and objects that are made and closed, across
 * restarts. */
TEST_TABLE(objects, ends, "files, memory and handles are made and closed across restarts")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	reconnecting(&rig);
	for (unsigned i = 0; i < 6; i++) {
		struct dsaio_handle *handle;
		struct dsaio_file *file;
		uint8_t *memory;

		CHECK_CALL(profile_open(rig.client, NULL, &handle));
		CHECK_CALL(dsaio_open(rig.client, daemon_path(rig.daemon, "f"), O_RDWR | O_CREAT,
				      NULL, &file));
		CHECK_CALL(dsaio_alloc(rig.client, 64 * KIB, NULL, (void **)&memory));
		pattern_fill(memory, 64 * KIB, i, 0);
		CHECK_EQ(dsaio_pwrite(handle, file, memory, 64 * KIB, 0), 64 * KIB);
		if (i % 2)
			restart(&rig, row);
		CHECK_CALL(dsaio_free(rig.client, memory));
		dsaio_file_close(file);
		if (!(i % 2))
			restart(&rig, row);
		CHECK_CALL(dsaio_handle_close(handle, -1));
		file_check_pattern(daemon_path(rig.daemon, "f"), 0, 64 * KIB, i, 0);
	}
	(void)daemon_usage_settled(rig.daemon);
}

TEST(descriptor, "a program that polls goes on, and learns of the state")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_completion completion;
	struct dsaio_op *op;
	struct dsaio_file *file;
	int handle_fd, state_fd;
	uint8_t *memory;

	reconnecting(&rig);
	file_make_pattern(daemon_path(rig.daemon, "f"), BYTES, 5);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, BYTES, NULL, (void **)&memory));
	handle_fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle));
	state_fd = (int)CHECK_CALL(dsaio_client_fd(rig.client));
	CHECK_EQ(dsaio_handle_reap(rig.handle, &completion, sizeof(completion), 0, 1, 0), 0);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, BYTES, 0), BYTES); /* makes the channel */
	memset(memory, 0, BYTES);
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, BYTES, 0, &op));
	daemon_kill(rig.daemon);
	CHECK(wait_readable(state_fd, 10000000));
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_RECONNECTING);
	rig.daemon = daemon_start(NULL);
	while (dsaio_client_state(rig.client) != DSAIO_CONNECTED)
		CHECK(wait_readable(state_fd, 10000000));
	CHECK(!wait_readable(state_fd, 0));
	while (dsaio_handle_reap(rig.handle, &completion, sizeof(completion), 0, 1, 0) == 0)
		CHECK(wait_readable(handle_fd, 10000000));
	CHECK_EQ(completion.result, BYTES);
	dsaio_op_free(op);
	pattern_check(memory, BYTES, 5, 0, "what was read");
}

TEST(deadline, "an op's own time goes on while there is no daemon, and so does a cancel")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[3];
	struct dsaio_file *file;
	uint8_t *memory, *private = malloc(BYTES);

	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, BYTES, NULL, (void **)&memory));
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, BYTES, 0), BYTES); /* makes the channel */
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, private, BYTES, BYTES, &ops[1]));
	CHECK_EQ(op_wait(ops[1], -1), BYTES);
	dsaio_op_free(ops[1]);
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, BYTES, 0, &ops[0]));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, private, BYTES, BYTES, &ops[1]));
	(void)poll(NULL, 0, 100);
	daemon_kill(rig.daemon);
	CHECK_FAILS(dsaio_op_wait(ops[0], 50000, &(int64_t){ 0 }), -ETIMEDOUT, "");
	CHECK_CALL(dsaio_op_cancel(ops[0]));
	CHECK_EQ(op_wait(ops[0], 10000000), -ECANCELED);
	CHECK_CALL(dsaio_op_cancel(ops[1]));
	CHECK_EQ(op_wait(ops[1], 10000000), -ECANCELED);
	dsaio_op_free(ops[0]);
	dsaio_op_free(ops[1]);
	rig.daemon = daemon_start(NULL);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, BYTES, 0), BYTES);
	free(private);
}

/* A write that is in the ring of a daemon that is killed. */
static struct dsaio_op *open_at_kill(struct rig *rig, uint8_t **ret_memory)
{
	struct dsaio_file *file = rig_file(rig, "f", O_RDWR | O_CREAT);
	struct dsaio_op *op;

	CHECK_CALL(dsaio_alloc(rig->client, BYTES, NULL, (void **)ret_memory));
	CHECK_EQ(dsaio_pwrite(rig->handle, file, *ret_memory, BYTES, 0),
		 BYTES); /* makes the channel */
	process_stop(rig->daemon->pid);
	CHECK_CALL(dsaio_pwrite_async(rig->handle, file, *ret_memory, BYTES, 0, &op));
	daemon_kill(rig->daemon);
	return op;
}

TEST(cancel_waited,
     "a cancel waited for the next daemon where nobody had seen the end of the last one")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *op;
	uint8_t *memory;

	reconnecting(&rig);
	op = open_at_kill(&rig, &memory);
	CHECK_CALL(dsaio_op_cancel(op));
	CHECK_EQ(op_wait(op, 10000000), -ECANCELED);
	dsaio_op_free(op);
	rig.daemon = daemon_start(NULL);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, BYTES, 0), BYTES);
}

TEST(lost, "without a next daemon in time ops end with -ECONNRESET")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	struct dsaio_op *op;
	uint8_t *memory;

	rig.daemon = daemon_start(NULL);
	options.socket_path = rig.daemon->socket_path;
	options.reconnect_timeout_usec = 300000;
	CHECK_CALL(dsaio_connect(&options, &rig.client));
	CHECK_CALL(profile_open(rig.client, NULL, &rig.handle));
	op = open_at_kill(&rig, &memory);
	CHECK_EQ(op_wait(op, 20000000), -ECONNRESET);
	dsaio_op_free(op);
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_LOST);
	CHECK_FAILS(dsaio_pwrite(rig.handle, rig.files[0], memory, BYTES, 0), -ENOTCONN,
		    "gone away");
}

TEST_MAIN
