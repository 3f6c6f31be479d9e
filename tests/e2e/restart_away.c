/*
 * While the daemon is away: calls that return at once, forks, a user's own daemon that the library starts, and a
 * next daemon that ends or sleeps in the middle.
 */
#include "tests/crowd.h"
#include "tests/places.h"
#include "tests/restarting.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

/* ---- calls that do not wait ---- */

static void call_free(struct kit *kit)
{
	CHECK_CALL(dsaio_free(kit->rig.client, kit->memory));
	kit->memory = NULL;
}

static void call_file_close(struct kit *kit)
{
	dsaio_file_close(kit->file);
	kit->file = NULL;
	CHECK_CALL(dsaio_file_drop(kit->rig.client, NULL));
}

static void call_handle_close(struct kit *kit)
{
	CHECK_CALL(dsaio_handle_close(kit->rig.handle, -1));
	kit->rig.handle = NULL;
}

static void call_disconnect(struct kit *kit)
{
	CHECK_CALL(dsaio_disconnect(kit->rig.client));
	kit->rig.client = NULL;
}

static const struct {
	const char *what;
	void (*call)(struct kit *kit);
} calls[] = {
	{ "dsaio_free", call_free },
	{ "dsaio_file_close, dsaio_file_drop", call_file_close },
	{ "dsaio_handle_close", call_handle_close },
	{ "dsaio_disconnect", call_disconnect },
};

TEST_TABLE(at_once, calls, "a call that ends something does not wait for the next daemon")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;
	int64_t began;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	daemon_kill(daemon);
	while (dsaio_client_state(kit.rig.client) == DSAIO_CONNECTED)
		(void)poll(NULL, 0, 1);
	began = now_usec();
	calls[row].call(&kit);
	CHECK((double)(now_usec() - began) < 2000000 * test_time_factor());
	daemon = daemon_start(NULL);
	if (!kit.rig.client)
		return;
	if (!kit.memory)
		CHECK_CALL(dsaio_alloc(kit.rig.client, PIECE, NULL, (void **)&kit.memory));
	if (!kit.file)
		CHECK_CALL(dsaio_open(kit.rig.client, daemon_path(daemon, "f"), O_RDWR, NULL,
				      &kit.file));
	if (!kit.rig.handle)
		CHECK_CALL(profile_open(kit.rig.client, NULL, &kit.rig.handle));
	kit_use(&kit);
	kit_close(&kit);
}

/* ---- fork ---- */

TEST(forked, "a child of a fork while the daemon is away can do nothing, and its parent goes on")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_op *op;
	struct kit kit;
	uint8_t buf[512];
	void *memory;
	pid_t pid;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	process_stop(daemon->pid);
	memset(kit.memory, 0, PIECE);
	CHECK_CALL(dsaio_pread_async(kit.rig.handle, kit.file, kit.memory, PIECE, 0, &op));
	daemon_kill(daemon);
	while (dsaio_client_state(kit.rig.client) == DSAIO_CONNECTED)
		(void)poll(NULL, 0, 1);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_client_state(kit.rig.client), -EPERM, "fork");
		CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, buf, 512, 0), -EPERM, "fork");
		CHECK_FAILS(dsaio_alloc(kit.rig.client, 4096, NULL, &memory), -EPERM, "fork");
		CHECK_FAILS(op_wait(op, -1), -EPERM, "fork");
		CHECK_FAILS(dsaio_op_cancel(op), -EPERM, "fork");
		dsaio_op_free(op);
		dsaio_file_close(kit.file);
		(void)dsaio_free(kit.rig.client, kit.memory);
		(void)dsaio_handle_close(kit.rig.handle, -1);
		(void)dsaio_disconnect(kit.rig.client);
		_exit(0);
	}
	child_wait_ok(pid);
	daemon = daemon_start(NULL);
	CHECK_EQ(op_wait(op, 20000000), PIECE);
	dsaio_op_free(op);
	pattern_check(kit.memory, PIECE, 1, 0, "what was read");
	kit_use(&kit);
	kit_close(&kit);
}

/* ---- a user's own daemon ---- */

static void own_kill(void)
{
	const pid_t pid = places_pid();

	CHECK(pid > 0);
	CHECK_SYS(kill(pid, SIGKILL));
	places_wait_end(pid);
}

TEST(own, "a user's own daemon that was killed: 4 clients start exactly one")
{
	struct crowd crowd;

	places_newcomer(30);
	crowd_start(&crowd, 4, NULL, data_make(NULL));
	CHECK_EQ(places_log_count("ready:"), 1);
	own_kill();
	atomic_store(&crowd.board->is_killed, true);
	crowd_end(&crowd);
	CHECK_EQ(places_log_count("ready:"), 2);
	places_stop();
}

static const struct {
	const char *what;
	bool is_named, is_unset;
} not_started[] = {
	{ .what = "DSAIO_AUTOSTART=0", .is_unset = true },
	{ .what = "a socket_path", .is_named = true },
};

TEST_TABLE(own_waits, not_started,
	   "a client that may start no daemon waits for one that somebody starts")
{
	struct dsaio_client *client, *starter;
	struct kit kit;
	const char *path;

	places_newcomer(30);
	path = data_make(NULL);
	CHECK_CALL(dsaio_connect(NULL, &starter));
	(void)dsaio_disconnect(starter);
	kit_open(&kit, NULL, not_started[row].is_named ? places_own("dsaiod.sock") : NULL, path);
	if (not_started[row].is_unset)
		CHECK_SYS(setenv("DSAIO_AUTOSTART", "0", 1));
	own_kill();
	while (dsaio_client_state(kit.rig.client) == DSAIO_CONNECTED)
		(void)poll(NULL, 0, 1);
	(void)poll(NULL, 0, 300); /* time enough to start one */
	CHECK_EQ(dsaio_client_state(kit.rig.client), DSAIO_RECONNECTING);
	CHECK_EQ(places_log_count("ready:"), 1);
	if (not_started[row].is_unset) { /* another program, which may */
		pid_t pid = (pid_t)CHECK_SYS(fork());

		if (pid == 0) {
			CHECK_SYS(unsetenv("DSAIO_AUTOSTART"));
			CHECK_CALL(dsaio_connect(NULL, &client));
			(void)dsaio_disconnect(client);
			_exit(0);
		}
		child_wait_ok(pid);
	} else {
		CHECK_CALL(dsaio_connect(NULL, &client));
		(void)dsaio_disconnect(client);
	}
	kit_use(&kit);
	kit_close(&kit);
	CHECK_EQ(places_log_count("ready:"), 2);
	places_stop();
}

/* ---- the next daemon ends, or sleeps ---- */

static const struct {
	const char *what;
	int usec;
} moments[] = { { "0 ms", 0 },	    { "1 ms", 1000 },	{ "2 ms", 2000 },
		{ "4 ms", 4000 },   { "8 ms", 8000 },	{ "16 ms", 16000 },
		{ "32 ms", 32000 }, { "64 ms", 64000 }, { "128 ms", 128000 } };

/* It has much to hand over, so that this takes some milliseconds. */
enum { N_FILES = 16, N_SLABS = 24 };

static void ended_in_between(int usec, bool is_kill)
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[N_FILES];
	uint8_t *memory[N_SLABS];

	reconnecting(&rig);
	for (unsigned i = 0; i < N_SLABS; i++)
		CHECK_CALL(dsaio_alloc(rig.client, 4 * MIB, NULL, (void **)&memory[i]));
	for (unsigned i = 0; i < N_FILES; i++) {
		const char *name = test_text("f%u", i);

		file_make_pattern(daemon_path(rig.daemon, name), PIECE, i);
		(void)rig_file(&rig, name, O_RDWR);
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[i], memory[i], PIECE, 0), PIECE);
		memset(memory[i], 0, PIECE);
	}
	process_stop(rig.daemon->pid);
	for (unsigned i = 0; i < N_FILES; i++)
		CHECK_CALL(
			dsaio_pread_async(rig.handle, rig.files[i], memory[i], PIECE, 0, &ops[i]));
	daemon_kill(rig.daemon);
	rig.daemon = daemon_start(NULL);
	(void)usleep((useconds_t)usec); /* a moment that nobody reports */
	daemon_end(rig.daemon, is_kill);
	rig.daemon = daemon_start(NULL);
	for (unsigned i = 0; i < N_FILES; i++) {
		int64_t result = op_wait(ops[i], 20000000);

		if (result == -ECONNRESET && strstr(dsaio_op_error(ops[i]), "two crashes"))
			CHECK_EQ(dsaio_pread(rig.handle, rig.files[i], memory[i], PIECE, 0), PIECE);
		else
			CHECK_EQ(result, PIECE);
		dsaio_op_free(ops[i]);
		pattern_check(memory[i], PIECE, i, 0, "what was read");
	}
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_CONNECTED);
	for (unsigned i = 0; i < N_SLABS; i++)
		CHECK_CALL(dsaio_free(rig.client, memory[i]));
}

TEST_TABLE(killed_in_between, moments,
	   "the next daemon is killed while it takes over, so long after its start")
{
	ended_in_between(moments[row].usec, true);
}

TEST_TABLE(terminated_in_between, moments,
	   "the next daemon gets SIGTERM while it takes over, so long after its start")
{
	ended_in_between(moments[row].usec, false);
}

static const struct {
	const char *what;
	int usec;
} stops[] = { { "0 ms", 0 }, { "3 ms", 3000 }, { "50 ms", 50000 } };

TEST_TABLE(stopped_in_between, stops,
	   "the next daemon is stopped for a second while it takes over, so long after its start")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	daemon_kill(daemon);
	daemon = daemon_start(NULL);
	(void)usleep((useconds_t)stops[row].usec);
	process_stop(daemon->pid);
	(void)usleep(1000000);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	kit_use(&kit);
	kit_close(&kit);
}

TEST(twice, "five restarts in a row, with hardly a moment between")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	for (unsigned i = 0; i < 5; i++) {
		daemon_end(daemon, i % 2);
		daemon = daemon_start(NULL);
	}
	kit_use(&kit);
	kit_close(&kit);
}

TEST_MAIN
